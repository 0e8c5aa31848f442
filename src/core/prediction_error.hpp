// How far the cost models' predictions are from measured times, by class. `tune` spends its
// evaluations where they may be wrong.
#pragma once

#include <optional>
#include <string_view>

namespace rooflane {

// The standard error of the logarithm of a predicted ratio of two schedules of a problem, on
// problems that the fit of the model did not see. Nothing: no such model was fitted.
std::optional<double> prediction_error(std::string_view kernel, std::string_view math, int threads);

}  // namespace rooflane
