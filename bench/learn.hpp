// Fits the constants of the cost models (core/model_constants.hpp) to recorded times of candidate
// schedules (model_times.hpp), by least regret: the time of the model's choice over the fastest. A
// prior holds a constant that nothing was learned of at what is shipped. Problems that the fit does
// not see show whether it helps.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/model_times.hpp"
#include "core/model_constants.hpp"
#include "core/statistics.hpp"
#include "core/traits.hpp"

namespace rooflane {

// The times of one machine; its traits are known.
struct MachineTimes {
  MeasuredTraits traits;
  std::vector<ProblemTimes> problems;
};

// The cost models that have constants: "gemm", "attention".
std::vector<std::string> learned_models();
// Which of them predicts a kernel; empty: none.
std::string model_of(const Kernel& kernel);

// About a third of all problems, always the same, that a fit does not see.
bool is_unseen(const Problem& problem);

// The constants of one model with the least regret over the problems that the fit may see.
// `constants` has those of the other models. Changes traits() while it works; afterwards they are
// as in the file.
ModelConstants fitted(std::string_view model, std::span<const MachineTimes> machines,
                      ModelConstants constants,
                      const std::function<void(double done)>& progress = {});

// How far the predicted ratios of a problem's candidates to the choice are from the recorded ones:
// the differences of their logarithms, of at most a factor of two. By today's traits.
std::vector<double> ratio_errors(const ProblemTimes& times);

struct ClassRegret {
  std::string name;  // "gemm bf16, 16 threads"
  int problems = 0;
  double median_before = 0, p95_before = 0, median_after = 0, p95_after = 0;  // per cent
  double error_before = 0, error_after = 0;  // root mean square of ratio_errors()
};

// What other constants of a model change, on the problems that the fit did not see.
struct Gain {
  std::string model;
  int seen = 0, unseen = 0;
  int changed = 0;     // unseen problems for which another schedule is chosen
  Estimate log_ratio;  // of these: the logarithm of the time after over that before
  // Regret of unseen problems, per cent; of one problem at most 100.
  double mean_before = 0, mean_after = 0;
  std::vector<ClassRegret> classes;
  // Beyond doubt: the choices that changed are faster at winner_level, and the mean regret is less.
  bool is_certain() const;
};
// As fitted(), changes traits() meanwhile.
Gain gain_of(std::string_view model, std::span<const MachineTimes> machines,
             const ModelConstants& before, const ModelConstants& after);

}  // namespace rooflane
