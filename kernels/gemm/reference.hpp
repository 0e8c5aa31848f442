// What the double-precision reference and the check of a whole output share: operands as doubles,
// and what their bounds are made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/float16.hpp"
#include "core/kernel.hpp"
#include "kernels/gemm/foreign_maths.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/quantised_rows.hpp"

namespace rooflane::gemm {

// What the element's error bound holds of magnitudes.
struct BoundFactors {
  BoundFactors(const Problem& problem, const Math& math);
  double products;  // operands are rounded to what the math multiplies, and sums
  double start;     // of beta · c0 and of the epilogue's additions: sums alone are
  double plain;     // how much farther plain sums in the math's format may err
  double below;     // of roundings below float32's normal numbers, whatever the magnitudes
};

// Magnitudes of a row of op(a), or of a column of op(b).
struct Extent {
  double sum = 0, largest = 0;
  void note(double value) {
    const double magnitude = std::fabs(value);
    sum += magnitude;
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;  // NaN stays
  }
};

// Errors that are not relative to products: what counts as zero.
struct AbsoluteErrors {
  explicit AbsoluteErrors(const Math& math)
      : flushed(math.flushed),
        half_steps(&math == &math_int8_block),
        of_tensor(&math == &math_int8_tensor),
        dynamic(&math == &math_int8_dynamic || half_steps || of_tensor) {}
  bool any() const { return flushed > 0 || dynamic; }
  double of(double k, const Extent& row, const Extent& column) const {
    const double small = flushed > 0 ? flushed * (2 * k + row.sum + column.sum) : 0;
    if (!dynamic) return small;
    return small + (half_steps ? smallest_of_halves : smallest_row) * column.sum;
  }
  // Rows below may be taken for zeros: the inverse of their step is beyond float32.
  static constexpr double smallest_row = 0x1p-119;
  // The same of steps that are float16 numbers.
  static constexpr double smallest_of_halves = 127 * 0x1p-24;
  double flushed;
  bool half_steps, of_tensor;
  bool dynamic;  // rows of op(a) are quantised
};

// The operands of a reference, as float32 but for scales.
struct Factors {
  // `of_b`: b, or the half of it that gate=1 multiplies with.
  Factors(const Problem& problem, const Gemm& gemm, const Math& with, const Operands& inputs,
          const MatrixView& of_b)
      : g(gemm),
        errors(with),
        a(view_of_a(gemm, inputs.at("a"))),
        b(of_b),
        together(quantised_together(problem)) {
    if (inputs.has("b_scale")) scale = inputs.at("b_scale").f32();
    if (errors.of_tensor) note_range();
  }
  double b_at(const float* from, std::int64_t p, std::int64_t j) const {
    const double value = from[p * b.inner + j * b.outer];
    return scale != nullptr ? value * scale[j] : value;
  }
  const Gemm& g;
  AbsoluteErrors errors;
  MatrixView a, b;
  std::int64_t together;
  const float* scale = nullptr;
  double least_of_a = 0, most_of_a = 0;  // of the whole tensor, with zero in between

 private:
  void note_range() {
    for (std::int64_t batch = 0; batch < g.batch; ++batch)
      for (std::int64_t i = 0; i < g.m; ++i)
        for (std::int64_t p = 0; p < g.k; ++p) {
          const double value = a.f32()[batch * a.batch_stride + i * a.outer + p * a.inner];
          least_of_a = std::fmin(least_of_a, value);
          most_of_a = std::fmax(most_of_a, value);
        }
  }
};

// A row of op(a) as the math multiplies it. int8-dynamic: step · q_p with step = max|a| / 127 of
// the elements quantised together and q_p = a_p / step rounded to nearest, ties to even; NaN where
// these are not finite. int8-block: multiplied with is the step's float16 number. int8-tensor: step
// = (max - min) / 255 of all of a and zero, and q_p one of 256 from round(min / step) on.
struct RowOfA {
  // `from`: the row's first element, the others `inner` apart.
  void read(const Factors& factors, const float* from) {
    const std::int64_t k = factors.g.k;
    extent = {};
    values.resize(static_cast<std::size_t>(k));
    doubtful.clear();
    for (std::int64_t p = 0; p < k; ++p) {
      values[p] = from[p * factors.a.inner];
      extent.note(values[p]);
    }
    if (!factors.errors.dynamic) return;
    if (factors.errors.of_tensor) {
      quantise_with(0, k, (factors.most_of_a - factors.least_of_a) / 255, false);
      keep_to_bytes(factors.least_of_a, factors.most_of_a);
      return;
    }
    for (std::int64_t p = 0; p < k; p += factors.together) {
      const std::int64_t end = std::min(k, p + factors.together);
      Extent part;
      for (std::int64_t at = p; at < end; ++at) part.note(values[at]);
      quantise_with(p, end, part.largest / 127, factors.errors.half_steps);
    }
  }

  // The sum of magnitude(p) over what may be rounded to either side, each a step apart.
  template <class Magnitude>
  double doubt(const Magnitude& magnitude) const {
    double sum = 0;
    for (const Doubtful& each : doubtful) sum += each.step * magnitude(each.p);
    return sum;
  }

  struct Doubtful {
    std::int64_t p;  // place in k
    double step;
  };
  std::vector<double> values;
  std::vector<Doubtful> doubtful;
  Extent extent;  // of the row as given

 private:
  // Quotients of at most 127 that err by a few roundings of 2^-24, below 2^-14 together, may fall
  // on the other side of a tie.
  static constexpr double near_tie = 0x1p-14;

  void quantise_with(std::int64_t first, std::int64_t last, double step, bool half_step) {
    if (step == 0) return;
    const double multiplied =
        half_step ? Float16::Format::value(Float16::Format::bits_of(static_cast<float>(step)))
                  : step;
    for (std::int64_t p = first; p < last; ++p) {
      const double quotient =
          std::isfinite(step) ? values[p] / step : std::numeric_limits<double>::quiet_NaN();
      const double rounded = std::nearbyint(quotient);
      if (std::fabs(quotient - rounded) > 0.5 - near_tie) doubtful.push_back({p, step});
      values[p] = multiplied * rounded;
    }
  }

  // If the zero point is near a tie, an element at either end may be a step off too.
  void keep_to_bytes(double least, double most) {
    const double step = (most - least) / 255;
    if (step == 0) return;
    const double first = std::nearbyint(least / step), last = first + 255;
    for (std::size_t p = 0; p < values.size(); ++p) {
      const double q = std::nearbyint(values[p] / step);
      if (std::isnan(q) || (q > first && q < last)) continue;
      values[p] = step * std::clamp(q, first, last);
      doubtful.push_back({static_cast<std::int64_t>(p), step});
    }
  }
};

// Freivalds' product over all of c; only if no function of single elements is in between.
bool whole_check_applies(const Problem& problem);
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed);

}  // namespace rooflane::gemm
