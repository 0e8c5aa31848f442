// The opencl variants of layernorm and rmsnorm, which differ in the mean and in beta only. The
// kernels are in norm_once.cl, where a row is read once into registers, and norm.cl, where its
// length does not matter; how items are laid over rows: opencl_rows.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/common/opencl_rows.hpp"

namespace rooflane::common {

std::optional<std::string> norm_unsupported(const Problem& problem, const Environment& env);
// `tuning` must be complete.
std::unique_ptr<Plan> norm_plan(const Problem& problem, const Tuning& tuning,
                                const Environment& env);

}  // namespace rooflane::common
