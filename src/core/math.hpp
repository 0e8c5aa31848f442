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
  double flushed = 0;       // operands, products and sums below it may count as zero
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

// The instructions for it (vdpbf16ps, AMX's tile products) take subnormal numbers for zeros.
inline constexpr Math math_bf16 = {.name = "bf16",
                                   .meaning = "products of bfloat16 numbers, sums in float32",
                                   .operands = &bfloat16,
                                   .operand_roundoff = 0x1p-8,
                                   .sums = &float32,
                                   .flushed = 0x1p-126};
inline constexpr Math math_f16 = {.name = "f16",
                                  .meaning = "products of float16 numbers, sums in float32",
                                  .operands = &float16,
                                  .operand_roundoff = 0x1p-11,
                                  .sums = &float32};
inline constexpr Math math_int8 = {.name = "int8",
                                   .meaning = "products and sums of integers, exact",
                                   .operands = &int8,
                                   .operand_roundoff = 0,
                                   .sums = &int32};
// How large an error a row's quantisation makes depends on its largest element: see the kernel.
inline constexpr Math math_int8_dynamic = {
    .name = "int8-dynamic",
    .meaning =
        "float operands as 8-bit integers with a scale per row, found in the run; exact sums",
    .operands = &int8,
    .operand_roundoff = 0,
    .sums = &float32};

inline constexpr const Math* only_fp32[] = {&fp32};
inline constexpr const Math* fp32_and_3xtf32[] = {&fp32, &math_3xtf32};

}  // namespace rooflane
