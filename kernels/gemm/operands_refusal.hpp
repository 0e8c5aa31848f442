// What variants refuse that round no operands to what math bf16 or f16 multiplies.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/math.hpp"
#include "core/variant.hpp"

namespace rooflane::gemm {

// Nothing where both operands have the math's own format.
inline std::optional<std::string> unrounded_operands(const Problem& problem,
                                                     const Environment& env) {
  for (const Math* const math : {&math_bf16, &math_f16}) {
    if (env.math != math->name) continue;
    for (const char* const type : {"a_type", "b_type"}) {
      if (problem.dtype(type) == math->operands) continue;
      return fmt::format("math {}: {}={}, computed is {}", math->name, type,
                         problem.dtype(type)->short_name, math->operands->short_name);
    }
  }
  return std::nullopt;
}

}  // namespace rooflane::gemm
