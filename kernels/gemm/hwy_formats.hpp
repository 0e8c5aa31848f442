// Number formats that are decoded to float32: what float32's unit calls for each, at an ISA target.
// The formats: hwy_formats-inl.h; the list: hwy_formats.cpp.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// Rows of a that a visit of b serves, and those that several visits do.
inline constexpr std::int64_t most_decoded_rows = 8, most_few_rows = 4 * most_decoded_rows;
// How far apart rows of a as float32 are.
inline std::int64_t decoded_row(std::int64_t k) { return (k + 31) / 32 * 32; }

struct FormatFunctions {
  void (*pack)(const PackCall&);             // vectors along k: a micro-panel
  void (*rows)(const PackCall&);             // few rows of a, decoded_row() apart
  void (*multiply_few)(const FewRowsCall&);  // few rows of a and rows of b as they are stored
};
using FormatAtTarget = FormatFunctions (*)(std::int64_t target);

FormatFunctions format_functions(DType type, std::int64_t target);
// A format beside those of the list. Before any plan of it, not while others are made.
void add_format(DType type, FormatAtTarget functions);

}  // namespace rooflane::gemm
