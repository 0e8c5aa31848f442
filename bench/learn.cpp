// See learn.hpp.
#include "bench/learn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/seeds.hpp"

namespace rooflane {
namespace {

// A choice among predictions that hardly differ is luck, and would make the regret jump: each
// candidate counts with the probability to be chosen if predictions were off by about so much.
constexpr double blur = 0.02;
// A constant that is doubled or halved must save so much of the mean regret.
constexpr double prior = 0.001;
// More is a disturbance, or is as bad as can be: one problem must not outweigh all others.
constexpr double most_regret = 1;
// Factors that are tried on a constant one after the other, until none helps.
constexpr double steps[] = {2, 1.4, 1.15};
constexpr int most_passes = 6;
// So few changed choices prove nothing.
constexpr int least_changed = 5;

class TraitsGuard {
 public:
  TraitsGuard() = default;
  ~TraitsGuard() { use_traits(std::nullopt); }
  TraitsGuard(const TraitsGuard&) = delete;
  TraitsGuard& operator=(const TraitsGuard&) = delete;
};

void use(const MachineTimes& machine, const ModelConstants& constants) {
  MeasuredTraits traits = machine.traits;
  traits.at_isa.constants = constants;
  use_traits(std::move(traits));
}

// Expected logarithm of the choice's time over the fastest.
double blurred_regret(const ProblemTimes& times) {
  const std::vector<double> predicted = predictions_of(times);
  const double least = *std::min_element(predicted.begin(), predicted.end());
  const double best = times.best_ns();
  double weights = 0, sum = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const double weight = std::exp(-std::log(predicted[i] / least) / blur);
    weights += weight;
    sum += weight * std::log(std::min(times.candidates[i].ns / best, 1 + most_regret));
  }
  return sum / weights;
}

bool is_of(std::string_view model, const ProblemTimes& times) {
  return model_of(times.problem.kernel()) == model;
}

double mean_regret(std::string_view model, std::span<const MachineTimes> machines,
                   const ModelConstants& constants) {
  double sum = 0;
  int count = 0;
  for (const MachineTimes& machine : machines) {
    use(machine, constants);
    for (const ProblemTimes& times : machine.problems) {
      if (!is_of(model, times) || is_unseen(times.problem)) continue;
      sum += blurred_regret(times);
      ++count;
    }
  }
  return count > 0 ? sum / count : 0;
}

// How far constants are from the shipped ones.
double distance(ModelConstants& constants, std::string_view model) {
  ModelConstants shipped;
  const std::vector<NamedConstant> ours = named_constants(constants, model);
  const std::vector<NamedConstant> theirs = named_constants(shipped, model);
  double sum = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double doublings = std::log2(*ours[i].value / *theirs[i].value);
    sum += doublings * doublings;
  }
  return sum;
}

// Changes one constant after the other by each step, either way, and keeps what helps.
class Descent {
 public:
  Descent(std::string_view model, std::span<const MachineTimes> machines, ModelConstants constants)
      : model_(model), machines_(machines), best_(constants), least_(cost(constants)) {}

  // Whether anything helped.
  bool pass(double step) {
    bool helped = false;
    const std::size_t count = named_constants(best_, model_).size();
    for (std::size_t i = 0; i < count; ++i) {
      helped = try_factor(i, step) || try_factor(i, 1 / step) || helped;
    }
    return helped;
  }
  const ModelConstants& best() const { return best_; }

 private:
  double cost(ModelConstants constants) const {
    return mean_regret(model_, machines_, constants) + prior * distance(constants, model_);
  }
  bool try_factor(std::size_t i, double factor) {
    ModelConstants tried = best_;
    const NamedConstant constant = named_constants(tried, model_)[i];
    const double value = std::clamp(*constant.value * factor, constant.least, constant.most);
    if (value == *constant.value) return false;
    *constant.value = value;
    const double found = cost(tried);
    if (found >= least_) return false;
    best_ = tried, least_ = found;
    return true;
  }

  std::string_view model_;
  std::span<const MachineTimes> machines_;
  ModelConstants best_;
  double least_;
};

// The choice for a problem by some constants: its time over the fastest, and ratio_errors().
struct Chosen {
  Choice choice;
  std::vector<double> errors;
};
struct Pair {
  Chosen before, after;
};

double root_mean_square(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(values.size(), 1)));
}

ClassRegret class_regret(const std::string& name, const std::vector<Pair>& pairs) {
  std::vector<double> before, after, errors_before, errors_after;
  for (const Pair& pair : pairs) {
    before.push_back(100 * (pair.before.choice.ratio - 1));
    after.push_back(100 * (pair.after.choice.ratio - 1));
    const auto add = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    add(errors_before, pair.before.errors);
    add(errors_after, pair.after.errors);
  }
  return {name,
          static_cast<int>(pairs.size()),
          median(before),
          quantile(before, 0.95),
          median(after),
          quantile(after, 0.95),
          root_mean_square(errors_before),
          root_mean_square(errors_after)};
}

std::string class_name(const ProblemTimes& times) {
  return fmt::format("{} {}, {} thread{}", times.problem.kernel().name, times.env.math,
                     times.env.threads, times.env.threads > 1 ? "s" : "");
}

}  // namespace

std::vector<std::string> learned_models() {
  std::vector<std::string> models;
  ModelConstants constants;
  for (const NamedConstant& constant : named_constants(constants)) {
    const std::string model = constant.name.substr(0, constant.name.find('.'));
    if (std::find(models.begin(), models.end(), model) == models.end()) models.push_back(model);
  }
  return models;
}

std::string model_of(const Kernel& kernel) {
  const std::vector<std::string> models = learned_models();
  const auto found = std::find(models.begin(), models.end(), kernel.name);
  return found == models.end() ? "" : *found;
}

bool is_unseen(const Problem& problem) { return splitmix64(fnv1a64(problem.text())) % 3 == 0; }

ModelConstants fitted(std::string_view model, std::span<const MachineTimes> machines,
                      ModelConstants constants, const std::function<void(double done)>& progress) {
  const TraitsGuard guard;
  // From what is shipped: what a fit of other times left would pull it away from the prior.
  ModelConstants shipped;
  const std::vector<NamedConstant> from = named_constants(shipped, model);
  const std::vector<NamedConstant> to = named_constants(constants, model);
  for (std::size_t i = 0; i < to.size(); ++i) *to[i].value = *from[i].value;
  Descent descent(model, machines, constants);
  for (std::size_t i = 0; i < std::size(steps); ++i) {
    for (int pass = 0; pass < most_passes && descent.pass(steps[i]); ++pass) {
    }
    if (progress) progress(static_cast<double>(i + 1) / std::size(steps));
  }
  return descent.best();
}

std::vector<double> ratio_errors(const ProblemTimes& times) {
  const std::vector<double> predicted = predictions_of(times);
  const std::size_t choice = choice_of(times).index;
  const double most = std::log(1 + most_regret);
  std::vector<double> errors;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (i == choice) continue;
    const double measured = times.candidates[i].ns / times.candidates[choice].ns;
    const double error = std::log(measured / (predicted[i] / predicted[choice]));
    errors.push_back(std::clamp(error, -most, most));
  }
  return errors;
}

bool Gain::is_certain() const {
  return changed >= least_changed && log_ratio.interval(winner_level).high < 0 &&
         mean_after < mean_before;
}

Gain gain_of(std::string_view model, std::span<const MachineTimes> machines,
             const ModelConstants& before, const ModelConstants& after) {
  const TraitsGuard guard;
  Gain gain;
  gain.model = model;
  std::map<std::string, std::vector<Pair>> classes;
  std::vector<std::vector<double>> log_ratios;
  for (const MachineTimes& machine : machines) {
    const auto choices = [&](const ModelConstants& constants) {
      use(machine, constants);
      std::vector<Chosen> all;
      for (const ProblemTimes& times : machine.problems) {
        if (is_of(model, times)) all.push_back({choice_of(times), ratio_errors(times)});
      }
      return all;
    };
    const std::vector<Chosen> then = choices(before), now = choices(after);
    std::size_t i = 0;
    for (const ProblemTimes& times : machine.problems) {
      if (!is_of(model, times)) continue;
      const Choice x = then[i].choice, y = now[i].choice;
      const Pair pair{then[i], now[i]};
      ++i;
      if (!is_unseen(times.problem)) {
        ++gain.seen;
        continue;
      }
      ++gain.unseen;
      const bool changed = x.index != y.index;
      classes[class_name(times)].push_back(pair);
      gain.mean_before += 100 * std::min(x.ratio - 1, most_regret);
      gain.mean_after += 100 * std::min(y.ratio - 1, most_regret);
      if (changed) log_ratios.push_back({std::log(y.ratio / x.ratio)});
    }
  }
  gain.changed = static_cast<int>(log_ratios.size());
  if (gain.changed > 0) gain.log_ratio = estimate_over_repetitions(log_ratios);
  gain.mean_before /= std::max(gain.unseen, 1);
  gain.mean_after /= std::max(gain.unseen, 1);
  for (const auto& [name, pairs] : classes) gain.classes.push_back(class_regret(name, pairs));
  return gain;
}

}  // namespace rooflane
