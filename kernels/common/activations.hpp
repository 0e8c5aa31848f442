// Activation functions for whoever computes them an element at a time: in double precision with
// bounds for references, and as the C library has them for `scalar`. Vectors:
// kernels/common/activation-inl.h. Maths and bounds: kernels/activation/activation.hpp.
#pragma once

#include <algorithm>
#include <cmath>

namespace rooflane::common {

enum class Activation { relu, gelu, gelu_tanh, silu, tanh };

// √(2/π) and the factor of x³ in the argument of gelu_tanh's tanh.
inline constexpr double gelu_scale = 0.79788456080286535588;
inline constexpr double gelu_cubic = 0.044715;
// What lies below the normal float32 numbers may be flushed to 0.
inline constexpr double smallest_normal = 0x1p-126;

// A value, what it may err, and what a plain formula may.
struct Expected {
  double value;
  double bound;
  double plain_bound;
};

// f(x) and the roundings of computing it, of relative size u.
inline Expected activated(Activation kind, double x, double u) {
  const auto within = [&](double value, double bound) { return Expected{value, bound, 2 * bound}; };
  switch (kind) {
    case Activation::relu: {
      const double y = x < 0 ? 0 : x;
      return within(y, 8 * u * y);
    }
    case Activation::gelu: {
      const double below = 0.5 * std::erfc(-x / std::sqrt(2.0));
      return within(x * below, 8 * u * std::abs(x) * std::max(below, 1 - below));
    }
    case Activation::gelu_tanh: {
      const double t = gelu_scale * x * (1 + gelu_cubic * x * x);
      const double below = 0.5 * (1 + std::tanh(t));
      const double argument = 8 * u * std::abs(x) * below * (1 - below) * std::abs(t);
      const double sum = 8 * u * std::abs(x) * std::max(below, 1 - below);
      // Where t is infinite, tanh's slope is 0.
      return within(x * below, sum + (std::isnan(argument) ? 0 : argument));
    }
    case Activation::silu: {
      const double y = x / (1 + std::exp(-x));
      return within(y, 8 * u * std::abs(y) + std::abs(x) * smallest_normal);
    }
    case Activation::tanh:
      break;
  }
  const double y = std::tanh(x);
  return within(y, 8 * u * std::abs(y));
}

// What f makes of a difference of its arguments at most: its steepest slope, of gelu at √2 (of both
// kinds below 1.13), of silu at 2.4.
inline double steepest(Activation kind) {
  switch (kind) {
    case Activation::gelu:
    case Activation::gelu_tanh:
      return 1.13;
    case Activation::silu:
      return 1.1;
    case Activation::relu:
    case Activation::tanh:
      break;
  }
  return 1;
}

// The same by the C library in float32.
inline float activated_plainly(Activation kind, float x) {
  switch (kind) {
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5f * x * (1 + std::erf(x * 0.707106781f));
    case Activation::gelu_tanh: {
      const auto scale = static_cast<float>(gelu_scale), cubic = static_cast<float>(gelu_cubic);
      return 0.5f * x * (1 + std::tanh(scale * x * (1 + cubic * x * x)));
    }
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::tanh:
      break;
  }
  return std::tanh(x);
}

}  // namespace rooflane::common
