// How the rooms' checks of a whole output keep their worst error.
#pragma once

#include <cmath>
#include <limits>

#include "core/kernel.hpp"

namespace rooflane::common {

// Keeps the larger of `worst` and error / bound. No error is right whatever the bound; against a
// bound of zero, or NaN, it is infinite.
inline void note_ratio(double error, double bound, double& worst) {
  const double ratio = error == 0 ? 0 : error / bound;
  if (ratio <= worst) return;
  worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

inline void note_error(double error, double bound, double plain_bound, WholeError& worst) {
  note_ratio(error, bound, worst.over_bound);
  note_ratio(error, plain_bound, worst.over_plain_bound);
}

}  // namespace rooflane::common
