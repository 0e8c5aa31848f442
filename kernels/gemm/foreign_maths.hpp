// Maths that only third-party libraries use for quantised operands. Their results are judged by
// them. A peer names its math (measure/worker.hpp); no user requests one.
#pragma once

#include "core/math.hpp"

namespace rooflane::gemm {

// llama.cpp's: int8-dynamic with blocks, but for steps that are float16 numbers.
inline constexpr Math math_int8_block = {
    .name = "int8-block",
    .meaning =
        "float operands as 8-bit integers with a float16 scale per 32 of a row, found in "
        "the run; exact sums of 32",
    .operands = &int8,
    .operand_roundoff = 0,
    .sums = &float32};
// That of ONNX's DynamicQuantizeLinear and PyTorch's dynamically quantised layers.
inline constexpr Math math_int8_tensor = {
    .name = "int8-tensor",
    .meaning =
        "float operands as unsigned 8-bit integers with one scale and zero point, found in "
        "the run; exact sums",
    .operands = &uint8,
    .operand_roundoff = 0,
    .sums = &float32};

}  // namespace rooflane::gemm
