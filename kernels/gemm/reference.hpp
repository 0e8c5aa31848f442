// What the double-precision reference and the check of a whole output share: operands as doubles,
// and what their bounds are made of.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/kernel.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

// What the element's error bound holds of the sum of magnitudes: rounding of operands to what the
// math multiplies, and of the sum.
double bound_factor(const Problem& problem, const Math& math);

// Magnitudes of a row of op(a), or of a column of op(b).
struct Extent {
  double sum = 0, largest = 0;
  void note(double value) {
    const double magnitude = std::fabs(value);
    sum += magnitude;
    if (!(magnitude <= largest)) largest = magnitude;  // NaN stays
  }
};

// Errors that are not relative to products: what counts as zero, and steps of quantised rows.
struct AbsoluteErrors {
  explicit AbsoluteErrors(const Math& math)
      : flushed(math.flushed), step(&math == &math_int8_dynamic ? half_a_step : 0) {}
  bool any() const { return flushed > 0 || step > 0; }
  double of(double k, const Extent& row, const Extent& column) const {
    const double small = flushed > 0 ? flushed * (2 * k + row.sum + column.sum) : 0;
    return small + (step > 0 ? (step * row.largest + smallest_row) * column.sum : 0);
  }
  // Of the row's largest element; quotients may fall on the other side of a tie.
  static constexpr double half_a_step = (0.5 + 0x1p-10) / 127;
  // Rows below may be taken for zeros: the inverse of their step is beyond float32.
  static constexpr double smallest_row = 0x1p-119;
  double flushed, step;
};

// The operands of a reference, as float32 but for scales.
struct Factors {
  // `of_b`: b, or the half of it that gate=1 multiplies with.
  Factors(const Gemm& gemm, const Math& with, const Operands& inputs, const Side& of_b)
      : g(gemm), errors(with), a(side_a(gemm, inputs.at("a"))), b(of_b) {
    if (inputs.has("b_scale")) scale = inputs.at("b_scale").f32();
  }
  double b_at(const float* from, std::int64_t p, std::int64_t j) const {
    const double value = from[p * b.inner + j * b.outer];
    return scale != nullptr ? value * scale[j] : value;
  }
  const Gemm& g;
  AbsoluteErrors errors;
  Side a, b;
  const float* scale = nullptr;
};

// Freivalds' product over all of c; only where no function of an element stands between.
bool whole_check_applies(const Problem& problem);
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed);

}  // namespace rooflane::gemm
