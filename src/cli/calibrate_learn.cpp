// See calibrate_learn.hpp.
#include "cli/calibrate_learn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "bench/random_problems.hpp"
#include "core/stopwatch.hpp"
#include "core/text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

// The share of the time for problems that the fit sees; the others get the rest.
constexpr double seen_share = 0.6;
// A problem's candidates get a second, or less where that would leave fewer problems than this.
constexpr double longest_problem_s = 1, least_problems = 300;
// Rounds that candidates are timed at least, and the runs of a round, roughly.
constexpr double least_runs = 14;
constexpr int drawn_of_a_kind = 2000;  // more than any time allows

// A problem with what it is to be run with.
struct Drawn {
  const Variant* variant;
  Problem problem;
  Environment env;
};

// Problems of float32 and of other formats alternate, the latter through each math; each problem is
// computed by one thread and by all.
class Draws {
 public:
  Draws(const Catalogue& catalogue, const LearnRequest& request) : threads_(request.threads) {
    for (const Kernel* const kernel : catalogue.kernels()) {
      if (model_of(*kernel).empty()) continue;
      const Variant& variant = *catalogue.variant(*kernel, "hwy").variant;
      add(variant, fp32.name, random_problems(*kernel, {drawn_of_a_kind, request.seed}));
      const std::size_t plain = kinds_.size() - 1;
      const std::vector<Problem> formats = random_problems(
          *kernel, {.count = drawn_of_a_kind, .seed = request.seed, .formats = true});
      order_.push_back(plain);
      for (const Math* const math : variant.maths) {
        if (!add(variant, math->name, formats)) continue;
        order_.push_back(plain);
        order_.push_back(kinds_.size() - 1);
      }
    }
  }

  // The next one of those that a fit sees, or does not see. Nothing: all are drawn.
  std::optional<Drawn> next(bool unseen) {
    if (const auto again = std::exchange(by_all_threads_, std::nullopt);
        again && is_unseen(again->problem) == unseen) {
      return again;
    }
    for (std::size_t tries = 0; tries < order_.size(); ++tries) {
      Kind& kind = kinds_[order_[next_kind_++ % order_.size()]];
      std::vector<Problem>& problems = unseen ? kind.unseen : kind.seen;
      if (problems.empty()) continue;
      Drawn drawn{kind.variant, problems.back(), kind.env};
      problems.pop_back();
      if (threads_ > 1) {
        by_all_threads_ = drawn;
        by_all_threads_->env.threads = threads_;
      }
      return drawn;
    }
    return std::nullopt;
  }

 private:
  struct Kind {
    const Variant* variant;
    Environment env;
    std::vector<Problem> seen, unseen;
  };
  // Adds the problems that the variant can compute with this math. Returns whether there are any.
  bool add(const Variant& variant, std::string_view math, const std::vector<Problem>& problems) {
    Kind kind{&variant, {}, {}, {}};
    kind.env.math = math;
    for (const Problem& problem : problems) {
      if (refusal(variant, problem, kind.env)) continue;
      (is_unseen(problem) ? kind.unseen : kind.seen).push_back(problem);
    }
    if (kind.seen.empty() || kind.unseen.empty()) return false;
    kinds_.push_back(std::move(kind));
    return true;
  }

  int threads_;
  std::vector<Kind> kinds_;
  std::vector<std::size_t> order_;  // of kinds_
  std::size_t next_kind_ = 0;
  std::optional<Drawn> by_all_threads_;  // the problem that one thread had
};

class Session {
 public:
  Session(const Catalogue& catalogue, const MeasuredTraits& traits, const LearnRequest& request,
          TimesFile& file, ProgressLine& progress)
      : draws_(catalogue, request),
        seconds_(request.seconds),
        of_problem_(std::min(longest_problem_s, request.seconds / least_problems)),
        file_(file),
        progress_(progress) {
    times_.traits = traits;
  }

  MachineTimes all() {
    const ModelConstants before = times_.traits.at_isa.constants;
    measure(false, seen_share * seconds_, {before});
    const Learned learned = learn_from({times_}, progress_);
    measure(true, seconds_, {before, learned.after});
    use_traits(std::nullopt);
    return std::move(times_);
  }

 private:
  // The candidates by each of these constants, their choices first.
  std::vector<Tuning> candidates(const Drawn& drawn, const std::vector<ModelConstants>& models) {
    std::vector<std::vector<Tuning>> lists;
    for (const ModelConstants& constants : models) {
      MeasuredTraits traits = times_.traits;
      traits.at_isa.constants = constants;
      use_traits(std::move(traits));
      lists.push_back(drawn.variant->tunings(drawn.problem, drawn.env));
    }
    std::vector<Tuning> all;
    const auto add = [&](const Tuning& tuning) {
      if (std::find(all.begin(), all.end(), tuning) == all.end()) all.push_back(tuning);
    };
    for (const std::vector<Tuning>& list : lists) add(list.front());
    for (const std::vector<Tuning>& list : lists) std::for_each(list.begin(), list.end(), add);
    return all;
  }

  void measure(bool unseen, double until_s, const std::vector<ModelConstants>& models) {
    while (watch_.seconds() < until_s) {
      const std::optional<Drawn> drawn = draws_.next(unseen);
      if (!drawn) return;
      const std::vector<Tuning> tunings = candidates(*drawn, models);
      const double run_s =
          drawn->variant->predicted_seconds(drawn->problem, tunings.front(), drawn->env);
      // Nothing to choose, or too long.
      if (tunings.size() < 2 || least_runs * run_s * std::ssize(tunings) > 2 * of_problem_)
        continue;
      times_.problems.push_back(time_candidates(*drawn->variant, drawn->problem, drawn->env,
                                                tunings, models.size(), of_problem_));
      file_.append(times_.problems.back());
      progress_.show(fmt::format("[{:3.0f} %] {}", 100 * std::min(1.0, watch_.seconds() / seconds_),
                                 drawn->problem.text()));
    }
  }

  const Stopwatch watch_;
  Draws draws_;
  double seconds_, of_problem_;
  TimesFile& file_;
  ProgressLine& progress_;
  MachineTimes times_;
};

std::string percent(double value) { return fmt::format("{:.1f} %", value); }

std::string changes_text(const Learned& learned, const std::string& model) {
  ModelConstants before = learned.before, after = learned.after;
  const std::vector<NamedConstant> from = named_constants(before, model);
  const std::vector<NamedConstant> to = named_constants(after, model);
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (*from[i].value == *to[i].value) continue;
    changes.push_back(fmt::format("{} {:.3g} -> {:.3g}", to[i].name, *from[i].value, *to[i].value));
  }
  return changes.empty() ? "no constant changed" : join(changes, ", ");
}

std::string gain_text(const Gain& gain) {
  std::string text = fmt::format("mean regret of {} unseen problems: {} before, {} after",
                                 gain.unseen, percent(gain.mean_before), percent(gain.mean_after));
  if (gain.changed == 0) return text + "; the choice is the same for all of them";
  text += fmt::format("; for {} of them the choice changes", gain.changed);
  if (gain.changed == 1) return text;
  const Interval interval = gain.log_ratio.interval(winner_level);
  return text + fmt::format(", and takes {:.3f} [{:.3f}, {:.3f}] of the time",
                            std::exp(gain.log_ratio.value), std::exp(interval.low),
                            std::exp(interval.high));
}

}  // namespace

Learned learn_from(const std::vector<MachineTimes>& machines, ProgressLine& progress) {
  Learned learned;
  if (machines.size() == 1) learned.before = machines.front().traits.at_isa.constants;
  learned.after = learned.kept = learned.before;
  for (const std::string& model : learned_models()) {
    learned.after = fitted(model, machines, learned.after, [&](double done) {
      progress.show(fmt::format("[{:3.0f} %] fitting {}", 100 * done, model));
    });
    learned.gains.push_back(gain_of(model, machines, learned.before, learned.after));
    if (!learned.gains.back().is_certain()) continue;
    const std::vector<NamedConstant> from = named_constants(learned.after, model);
    const std::vector<NamedConstant> to = named_constants(learned.kept, model);
    for (std::size_t i = 0; i < to.size(); ++i) *to[i].value = *from[i].value;
  }
  progress.wipe();
  return learned;
}

MachineTimes measure_times(const Catalogue& catalogue, const MeasuredTraits& traits,
                           const LearnRequest& request, TimesFile& file, ProgressLine& progress) {
  return Session(catalogue, traits, request, file, progress).all();
}

std::string learned_text(const Learned& learned) {
  TextTable table{{{"regret on unseen problems"},
                   {"problems", true},
                   {"median before", true},
                   {"after", true},
                   {"95th percentile before", true},
                   {"after", true},
                   {"error of ratios before", true},
                   {"after", true}},
                  {}};
  std::string text;
  for (const Gain& gain : learned.gains) {
    for (const ClassRegret& of : gain.classes) {
      table.rows.push_back({of.name, std::to_string(of.problems), percent(of.median_before),
                            percent(of.median_after), percent(of.p95_before), percent(of.p95_after),
                            percent(100 * of.error_before), percent(100 * of.error_after)});
    }
    text += wrapped(fmt::format("{}: fitted to {} problems; {}", gain.model, gain.seen,
                                gain_text(gain))) +
            wrapped(fmt::format("{}: {}", gain.model, changes_text(learned, gain.model))) +
            wrapped(fmt::format("{}: {}", gain.model,
                                gain.is_certain() ? "less regret beyond doubt"
                                                  : "no gain beyond doubt; constants stay"));
  }
  return terminal_table(table) + "\n" + text;
}

}  // namespace rooflane
