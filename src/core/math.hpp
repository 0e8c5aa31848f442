// Arithmetics that a user may ask for, by name (`--math`). A kernel lists those it knows, a variant
// those it computes; rows of different maths are never compared.
#pragma once

#include <span>
#include <string_view>

#include "dtype.hpp"

namespace rooflane {

struct Math {
  std::string_view name;
  std::string_view meaning;
  DType operands;           // products take numbers of this format…
  double operand_roundoff;  // …to which operands are rounded with so large a relative error
  DType sums;               // products and what else is computed, in this format or a wider one
};

// Operands are taken as they are: every float16 or bfloat16 number is a float32 number too.
inline constexpr Math fp32 = {.name = "fp32",
                              .meaning = "every product and sum in float32 or better",
                              .operands = &float32,
                              .operand_roundoff = 0,
                              .sums = &float32};
// tf32 is float32 with 11 bits of significand, which only registers of matrix units hold.
inline constexpr Math math_3xtf32 = {
    .name = "3xtf32",
    .meaning =
        "float32 operands as two tf32 numbers each, three products, sums in float32: the "
        "error of fp32, the speed of matrix units",
    .operands = &float32,
    .operand_roundoff = 0,
    .sums = &float32};

inline constexpr const Math* only_fp32[] = {&fp32};
inline constexpr const Math* fp32_and_3xtf32[] = {&fp32, &math_3xtf32};

}  // namespace rooflane
