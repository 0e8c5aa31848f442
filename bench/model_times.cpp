// See model_times.hpp.
#include "bench/model_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <tuple>

#include "bench/timed_plans.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

constexpr std::string_view header = "variant,math,isa,threads,problem,ns,tuning";
constexpr std::size_t columns = 7;
constexpr std::string_view comment = "# ";

// The fields of a line; problem and tuning are quoted.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.is_open() || in.bad()) throw argument_error(path + ": cannot be read");
  return text;
}

// Lines become problems in the order in which they first appear.
class TimesReader {
 public:
  TimesReader(const Catalogue& catalogue, RecordedTimes& out) : catalogue_(catalogue), out_(out) {}

  void read(std::string_view line) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != columns) {
      throw argument_error(fmt::format("{} fields, not {}", fields.size(), columns));
    }
    const std::optional<std::int64_t> threads = parse_integer(fields[3]);
    const std::optional<double> ns = parse_real(fields[5]);
    if (!threads || *threads < 1) throw argument_error("threads '" + fields[3] + "'");
    if (!ns || *ns <= 0) throw argument_error("ns '" + fields[5] + "'");
    const auto [at, is_new] =
        places_.try_emplace(std::make_tuple(fields[0], fields[1], fields[2], *threads, fields[4]),
                            out_.problems.size());
    if (is_new) out_.problems.push_back(problem_of(fields, static_cast<int>(*threads)));
    ProblemTimes& times = out_.problems[at->second];
    times.candidates.push_back({parse_tuning(*times.variant, fields[6]), *ns});
  }

 private:
  ProblemTimes problem_of(const std::vector<std::string>& fields, int threads) const {
    ProblemTimes times;
    times.problem = parse_problem(fields[4], catalogue_.kernels());
    times.variant = catalogue_.variant(times.problem.kernel(), fields[0]).variant;
    if (times.variant->predicted_seconds == nullptr) {
      throw argument_error(fmt::format("variant '{}' has no cost model", fields[0]));
    }
    times.env.threads = threads;
    times.env.math = catalogue_.math(fields[1]);
    times.env.isa = fields[2];
    return times;
  }

  const Catalogue& catalogue_;
  RecordedTimes& out_;
  std::map<std::tuple<std::string, std::string, std::string, std::int64_t, std::string>,
           std::size_t>
      places_;
};

}  // namespace

double ProblemTimes::best_ns() const {
  return std::min_element(candidates.begin(), candidates.end(),
                          [](const auto& x, const auto& y) { return x.ns < y.ns; })
      ->ns;
}

ProblemTimes time_candidates(const Variant& variant, const Problem& problem, const Environment& env,
                             const std::vector<Tuning>& tunings, std::size_t kept,
                             double budget_s) {
  const OwnedOperands operands(problem, 1, machine().physical_cores);
  std::vector<Timed> all;
  for (const Tuning& tuning : tunings) {
    all.push_back({variant.plan(problem, tuning, env, operands.all()), 1, {}});
    all.back().plan->bind(operands.all());
  }
  std::vector<Timed*> together;
  for (Timed& timed : all) together.push_back(&timed);
  const Timed* const first_of_rest = all.data() + std::min(kept, all.size());
  time_in_rounds(together, 31, budget_s, [&](const Timed& timed, double best_ns) {
    constexpr double clearly = 1.15;  // more than rounds of one process differ
    return &timed >= first_of_rest && timed.median_ns() > clearly * best_ns;
  });
  ProblemTimes times{&variant, problem, env, {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    times.candidates.push_back({tunings[i], all[i].median_ns()});
  }
  return times;
}

std::vector<double> predictions_of(const ProblemTimes& times) {
  std::vector<double> ns;
  for (const Candidate& candidate : times.candidates) {
    ns.push_back(1e9 *
                 times.variant->predicted_seconds(times.problem, candidate.tuning, times.env));
  }
  return ns;
}

Choice choice_of(const ProblemTimes& times) {
  const std::vector<double> predicted = predictions_of(times);
  const auto least = std::min_element(predicted.begin(), predicted.end());
  const auto index = static_cast<std::size_t>(least - predicted.begin());
  return {index, times.candidates[index].ns / times.best_ns()};
}

TimesFile::TimesFile(const std::string& path, const std::optional<MeasuredTraits>& traits) {
  std::string head;
  if (traits) {
    std::istringstream lines(print_traits(*traits));
    for (std::string line; std::getline(lines, line);) head += std::string(comment) + line + "\n";
  }
  file_.emplace(path, Open::anew);
  file_->append(head + std::string(header) + "\n");
}

void TimesFile::append(const ProblemTimes& times) {
  if (!file_) return;
  std::string lines;
  for (const Candidate& candidate : times.candidates) {
    lines += fmt::format("{},{},{},{},\"{}\",{:.0f},\"{}\"\n", times.variant->name, times.env.math,
                         times.env.isa, times.env.threads, times.problem.text(), candidate.ns,
                         candidate.tuning.text());
  }
  file_->append(lines);
}

RecordedTimes read_times(const std::string& path, const Catalogue& catalogue) {
  const std::string text = text_of(path);
  RecordedTimes recorded;
  TimesReader reader(catalogue, recorded);
  std::string traits;
  bool in_table = false;
  int number = 0;
  std::istringstream lines(std::string(whole_records(text)));
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      if (!in_table && std::string_view(line).starts_with(comment)) {
        traits += line.substr(comment.size()) + "\n";
      } else if (!in_table) {
        if (line != header) throw argument_error(fmt::format("'{}' expected", header));
        in_table = true;
      } else {
        reader.read(line);
      }
    } catch (const Error& error) {
      throw argument_error(fmt::format("{}: line {}: {}", path, number, error.what()));
    }
  }
  if (!in_table) throw argument_error(path + ": no recorded times");
  if (!traits.empty()) {
    try {
      recorded.traits = parse_traits(traits);
    } catch (const Error& error) {
      throw argument_error(fmt::format("{}: its traits: {}", path, error.what()));
    }
  }
  return recorded;
}

}  // namespace rooflane
