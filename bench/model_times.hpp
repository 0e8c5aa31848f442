// Times of a problem's candidate schedules, what a cost model's choice loses among them, and the
// file that keeps them. Used by model-regret and by `calibrate --learn` (learn.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "core/traits.hpp"
#include "core/variant.hpp"
#include "io/csv.hpp"

namespace rooflane {

struct Candidate {
  Tuning tuning;
  double ns = 0;
};

struct ProblemTimes {
  const Variant* variant = nullptr;
  Problem problem;
  Environment env;
  std::vector<Candidate> candidates;

  double best_ns() const;
};

// Times all of them in the same rounds, in one process, until the budget is used up, but at least
// five times each. Those that are clearly slower than the fastest drop out after a few rounds; the
// first `kept` of them, which a comparison needs, stay.
ProblemTimes time_candidates(const Variant& variant, const Problem& problem, const Environment& env,
                             const std::vector<Tuning>& tunings, std::size_t kept, double budget_s);

// By today's traits, in nanoseconds, one for each candidate.
std::vector<double> predictions_of(const ProblemTimes& times);

// The candidate that is predicted to be the fastest; how many times as long as the fastest it took.
struct Choice {
  std::size_t index = 0;
  double ratio = 1;
};
Choice choice_of(const ProblemTimes& times);

// ---- the file: the machine's traits as comments, then CSV with a line for each candidate.

class TimesFile {
 public:
  TimesFile() = default;  // keeps nothing
  // Throws Error(argument) when the file cannot be written.
  TimesFile(const std::string& path, const std::optional<MeasuredTraits>& traits);
  void append(const ProblemTimes& times);

 private:
  std::optional<LineFile> file_;
};

struct RecordedTimes {
  std::optional<MeasuredTraits> traits;  // of the machine of the times
  std::vector<ProblemTimes> problems;
};
// Throws Error(argument) naming file and line. Half a line at the end, as a killed run leaves it,
// is left out.
RecordedTimes read_times(const std::string& path, const Catalogue& catalogue);

}  // namespace rooflane
