// An epilogue in double precision, with bounds that grow through the chain: what an element may err
// before a function, times how steep the function can be, and the function's own roundings. A
// residual and a bias are exact. Infinite and NaN values have no error. See epilogue.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/common/activations.hpp"
#include "kernels/gemm/epilogue.hpp"

namespace rooflane::gemm {

// What a function of slope at most `steepest`, which rounds by f.bound, makes of x's errors; f is
// the function at x's value. Computed at another place its own roundings differ by 8u a unit.
inline common::Expected carried(const common::Expected& x, double steepest,
                                const common::Expected& f, double u) {
  if (!std::isfinite(x.value)) return {f.value, f.bound, f.plain_bound};
  const double factor = steepest * (1 + 8 * u);
  return {f.value, factor * x.bound + f.bound + common::smallest_normal,
          factor * x.plain_bound + f.plain_bound + common::smallest_normal};
}

inline common::Expected activated_from(common::Activation kind, const common::Expected& x,
                                       double u) {
  return carried(x, common::steepest(kind), common::activated(kind, x.value, u), u);
}

// v + further, rounded once.
inline common::Expected sum_from(const common::Expected& v, double further, double u) {
  const double value = v.value + further, rounding = u * std::abs(value);
  return carried(v, 1, {value, rounding, rounding}, u);
}

struct EpilogueOperands {
  double bias = 0, residual = 0;  // of the element
};

inline common::Expected with_epilogue(const Epilogue& epilogue, const EpilogueOperands& operands,
                                      common::Expected v, double u) {
  using Op = Epilogue::Op;
  for (const Op op : epilogue.ops()) {
    if (op == Op::relu) {
      v = carried(v, 1, {v.value < 0 ? 0 : v.value, 0, 0}, u);
    } else if (const auto activation = activation_of(op)) {
      v = activated_from(*activation, v, u);
    } else if (op == Op::bias || op == Op::add) {
      v = sum_from(v, op == Op::bias ? operands.bias : operands.residual, u);
    } else if (op == Op::leaky_relu) {
      const double slope = epilogue.slope, value = v.value < 0 ? slope * v.value : v.value;
      const double rounding = v.value < 0 ? u * std::abs(value) : 0;
      v = carried(v, std::max(1.0, std::abs(slope)), {value, rounding, rounding}, u);
    } else {
      const double low = epilogue.low, high = epilogue.high;
      // A NaN stays.
      const double value = v.value < low ? low : v.value > high ? high : v.value;
      v = carried(v, 1, {value, 0, 0}, u);
    }
  }
  return v;
}

// silu(gate)·up.
inline common::Expected gated(const common::Expected& gate, const common::Expected& up, double u) {
  const common::Expected s = activated_from(common::Activation::silu, gate, u);
  const double value = s.value * up.value, rounding = u * std::abs(value);
  const auto of_product = [&](double of_s, double of_up) {
    return std::abs(s.value) * of_up + (std::abs(up.value) + of_up) * of_s + rounding +
           common::smallest_normal;
  };
  return {value, of_product(s.bound, up.bound), of_product(s.plain_bound, up.plain_bound)};
}

}  // namespace rooflane::gemm
