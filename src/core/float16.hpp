// float16 and bfloat16 as C++ types: storage only, which converts to float exactly and from it by
// rounding to nearest, ties to even.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "dtype.hpp"

namespace rooflane {

// A float of 16 bits with so many bits of exponent, subnormals, infinities and NaN as IEEE 754 has
// them. float16: 5, bfloat16: 8.
template <int exponent_bits>
struct Float16Bits {
  static constexpr int fraction_bits = 15 - exponent_bits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr int all_ones = (1 << exponent_bits) - 1;

  static constexpr std::uint16_t infinite = all_ones << fraction_bits;

  static double value(std::uint16_t bits) {
    const std::uint64_t sign = static_cast<std::uint64_t>(bits >> 15) << 63;
    const std::uint64_t exponent = bits >> fraction_bits & all_ones;
    const std::uint64_t fraction = bits & ((1u << fraction_bits) - 1);
    if (exponent == 0) {
      constexpr double unit = smallest();
      return std::bit_cast<double>(sign | std::bit_cast<std::uint64_t>(unit * fraction));
    }
    const std::uint64_t wide = exponent == all_ones ? 2047 : exponent - bias + 1023;
    return std::bit_cast<double>(sign | wide << 52 | fraction << (52 - fraction_bits));
  }

  static std::uint16_t bits_of(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 63 << 15);
    const double magnitude = std::fabs(value);
    if (std::isnan(value)) return sign | infinite | 1 << (fraction_bits - 1);
    if (magnitude < least_normal()) {
      return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude / smallest()));
    }
    // Half a unit less one, and one more where the last bit kept is odd. What carries goes into the
    // exponent, from the largest value on to infinity.
    constexpr int shift = 52 - fraction_bits;
    const std::uint64_t kept = bits << 1 >> 1;
    const std::uint64_t rounded =
        (kept + ((std::uint64_t{1} << (shift - 1)) - 1) + (kept >> shift & 1)) >> shift;
    const std::uint64_t rebiased = rounded - (std::uint64_t{1023 - bias} << fraction_bits);
    return sign | static_cast<std::uint16_t>(std::min<std::uint64_t>(rebiased, infinite));
  }

  // A power of two as a double.
  static constexpr double power(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  }
  static constexpr double smallest() { return power(1 - bias - fraction_bits); }
  static constexpr double least_normal() { return power(1 - bias); }
};

// A stored number; arithmetic takes place in float.
template <int exponent_bits>
struct ShortFloat {
  using Format = Float16Bits<exponent_bits>;
  std::uint16_t bits = 0;

  ShortFloat() = default;
  explicit ShortFloat(float value) : bits(Format::bits_of(value)) {}
  operator float() const { return static_cast<float>(Format::value(bits)); }
};
using Float16 = ShortFloat<5>;
using BFloat16 = ShortFloat<8>;

// body(T{}) for the C++ type of a float format: float, Float16 or BFloat16.
template <class Body>
auto with_float_type(DType dtype, Body&& body) {
  if (dtype == &float16) return std::forward<Body>(body)(Float16{});
  if (dtype == &bfloat16) return std::forward<Body>(body)(BFloat16{});
  return std::forward<Body>(body)(float{});
}

}  // namespace rooflane
