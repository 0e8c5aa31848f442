// What the double-precision reference and the check of a whole output share: operands as doubles,
// and what their bounds are made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/kernel.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/quantised_rows.hpp"

namespace rooflane::gemm {

// What the element's error bound holds of magnitudes.
struct BoundFactors {
  BoundFactors(const Problem& problem, const Math& math);
  double products;  // operands are rounded to what the math multiplies, and sums
  double start;     // of beta · c0 and of what an epilogue adds: sums alone are
  double plain;     // how much farther plain sums in the math's format may err
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
      : flushed(math.flushed), dynamic(&math == &math_int8_dynamic) {}
  bool any() const { return flushed > 0 || dynamic; }
  double of(double k, const Extent& row, const Extent& column) const {
    const double small = flushed > 0 ? flushed * (2 * k + row.sum + column.sum) : 0;
    return small + (dynamic ? smallest_row * column.sum : 0);
  }
  // Rows below may be taken for zeros: the inverse of their step is beyond float32.
  static constexpr double smallest_row = 0x1p-119;
  double flushed;
  bool dynamic;  // rows of op(a) are quantised
};

// The operands of a reference, as float32 but for scales.
struct Factors {
  // `of_b`: b, or the half of it that gate=1 multiplies with.
  Factors(const Problem& problem, const Gemm& gemm, const Math& with, const Operands& inputs,
          const Side& of_b)
      : g(gemm),
        errors(with),
        a(side_a(gemm, inputs.at("a"))),
        b(of_b),
        together(quantised_together(problem)) {
    if (inputs.has("b_scale")) scale = inputs.at("b_scale").f32();
  }
  double b_at(const float* from, std::int64_t p, std::int64_t j) const {
    const double value = from[p * b.inner + j * b.outer];
    return scale != nullptr ? value * scale[j] : value;
  }
  const Gemm& g;
  AbsoluteErrors errors;
  Side a, b;
  std::int64_t together;
  const float* scale = nullptr;
};

// A row of op(a) as the math multiplies it. int8-dynamic: step · q_p with step = max|a| / 127 of
// the elements quantised together and q_p = a_p / step rounded to nearest, ties to even; NaN where
// these are not finite.
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
    for (std::int64_t p = 0; p < k; p += factors.together) {
      quantise(p, std::min(k, p + factors.together));
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

  void quantise(std::int64_t first, std::int64_t last) {
    Extent part;
    for (std::int64_t p = first; p < last; ++p) part.note(values[p]);
    const double step = part.largest / 127;
    if (step == 0) return;
    for (std::int64_t p = first; p < last; ++p) {
      const double quotient =
          std::isfinite(step) ? values[p] / step : std::numeric_limits<double>::quiet_NaN();
      const double rounded = std::nearbyint(quotient);
      if (std::fabs(quotient - rounded) > 0.5 - near_tie) doubtful.push_back({p, step});
      values[p] = step * rounded;
    }
  }
};

// Freivalds' product over all of c; only where no function of an element stands between.
bool whole_check_applies(const Problem& problem);
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed);

}  // namespace rooflane::gemm
