// The record of a variant `scalar`: plain loops on one thread.
#pragma once

#include <span>

#include "backends/scalar.hpp"
#include "core/variant.hpp"

namespace rooflane::common {

constexpr Variant scalar_variant(const Kernel& kernel, decltype(Variant::plan) plan,
                                 std::span<const DType> dtypes) {
  return {.name = "scalar",
          .kernel = &kernel,
          .backend = &scalar::backend,
          .threads = Threads::one,
          .tunables = {},
          .unsupported = nullptr,
          .tunings = no_tunings,
          .plan = plan,
          .dtypes = dtypes};
}

}  // namespace rooflane::common
