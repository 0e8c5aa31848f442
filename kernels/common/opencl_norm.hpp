// The opencl variants of layernorm and rmsnorm, which differ in the mean and in beta only. The
// kernels are in norm_once.cl, where a row is read once into registers, and norm.cl, where its
// length does not matter; how items are laid over rows: opencl_rows.hpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/common/opencl_rows.hpp"

namespace rooflane::common {

std::optional<std::string> norm_unsupported(const Problem& problem, const Environment& env);
// Of a complete tuning.
std::unique_ptr<Plan> norm_plan(const Problem& problem, const Tuning& tuning,
                                const Environment& env);

// The record of the variant `self` of a kernel.
template <const Variant& self>
constexpr Variant norm_variant(const Kernel& kernel, std::span<const Rung> ladder = {}) {
  return {.name = "opencl",
          .kernel = &kernel,
          .backend = &opencl::backend,
          .threads = Threads::device,
          .tunables = opencl_row_tunables,
          .unsupported = norm_unsupported,
          .tunings = opencl_row_tunings,
          .plan =
              [](const Problem& problem, const Tuning& tuning, const Environment& env,
                 const Operands&) {
                require_tuning(self, problem, env, tuning);
                return norm_plan(problem, complete_tuning(self, problem, env, tuning), env);
              },
          .tuning_defect = opencl_row_defect,
          .ladder = ladder,
          .dtypes = float_types};
}

}  // namespace rooflane::common
