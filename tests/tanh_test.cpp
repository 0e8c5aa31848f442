// Accuracy of the vector tanh on every ISA target of this CPU: the greatest error over a dense
// sample of all floats is printed and asserted. The reference is the C library's tanh in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/tanh_test.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/common/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {

// y = tanh(x) for any n; the last, partial vector through LoadRow and StoreRow.
void ApplyTanh(const float* x, float* y, std::size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  namespace hc = common::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hc::Tanh(d, hn::LoadU(d, x + i)), d, y + i);
  if (i < n) {
    const hc::Part part{n - i};
    hc::StoreRow(hc::Tanh(d, hc::LoadRow(d, x + i, part)), d, y + i, part);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

#include "backends/highway.hpp"

namespace rooflane {
HWY_EXPORT(ApplyTanh);
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> tanh_of(const std::string& isa, const std::vector<float>& x) {
  std::vector<float> y(x.size(), -2.0f);
  ROOFLANE_HWY_FUNCTION(ApplyTanh, resolve_isa(isa))(x.data(), y.data(), x.size());
  return y;
}

// |got - expected| in units of the last place of expected as float32; NaN is as far off as can be.
double ulp_error(float got, double expected) {
  if (std::isnan(got)) return infinity;
  const int exponent = expected == 0 ? -126 : std::max(std::ilogb(expected), -126);
  return std::ldexp(std::abs(static_cast<double>(got) - expected), 23 - exponent);
}

// Every float with bits that are a multiple of 2003; from 2^-13 to 9.5, where tanh is neither x nor
// 1, a multiple of 61 (both primes); and all near the places where the method changes.
std::vector<float> dense_floats() {
  std::vector<float> values;
  const auto add = [&](std::uint64_t first, std::uint64_t last, std::uint64_t step) {
    for (std::uint64_t bits = first; bits < last; bits += step) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (std::isnan(x)) continue;
      values.push_back(x);
      values.push_back(-x);
    }
  };
  const auto bits_of = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  add(0, bits_of(infinity) + 1, 2003);
  add(bits_of(0x1p-13f), bits_of(9.5f), 61);
  for (const float near : {0x1p-126f, 0x1p-13f, 9.0109f, 9.4f}) {
    add(bits_of(near) - 3000, bits_of(near) + 3000, 1);
  }
  return values;
}

// Over all floats from 2^-13 to 9.5 the greatest errors are 5.26 ULP with FMA, 6.02 without.
TEST_CASE("tanh stays within 6.1 ULP and 1 over all floats on every ISA target, odd to the bit") {
  const std::vector<float> x = dense_floats();
  std::vector<double> expected;
  for (const float value : x) expected.push_back(std::tanh(static_cast<double>(value)));
  for (const std::string& isa : isa_targets()) {
    const std::vector<float> y = tanh_of(isa, x);
    double worst = 0;
    float where = 0, largest = 0;
    int even = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double error = ulp_error(y[i], expected[i]);
      if (error > worst) where = x[i];
      worst = std::max(worst, error);
      largest = std::max(largest, std::abs(y[i]));
      even += y[i] != -y[i ^ 1];
    }
    MESSAGE("tanh, " << isa << ": greatest error " << worst << " ULP, at x = " << where);
    CHECK(worst <= 6.1);
    CHECK(worst >= 0.5);  // it looked at something
    CHECK(largest == 1);
    CHECK(even == 0);
  }
}

TEST_CASE("tanh of small numbers is themselves, of large ones 1, of any NaN NaN, in every lane") {
  struct Special {
    float x, tanh;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Special specials[] = {{0.0f, 0.0f},
                              {-0.0f, -0.0f},
                              {0x1p-149f, 0x1p-149f},
                              {-0x1p-126f, -0x1p-126f},
                              {0x1.234567p-14f, 0x1.234567p-14f},
                              {9.4f, 1},
                              {-20.0f, -1},
                              {std::numeric_limits<float>::max(), 1},
                              {infinity, 1},
                              {-infinity, -1},
                              {nan, nan},
                              {std::bit_cast<float>(0xffc12345u), nan}};
  std::vector<float> x, expected;
  for (int i = 0; i < 5; ++i) {
    for (const Special& special : specials) {
      x.push_back(special.x);
      expected.push_back(special.tanh);
    }
  }
  for (const std::string& isa : isa_targets()) {
    for (std::size_t n = 0; n <= x.size(); ++n) {
      const std::vector<float> y = tanh_of(isa, {x.begin(), x.begin() + n});
      for (std::size_t i = 0; i < n; ++i) {
        CAPTURE(isa);
        CAPTURE(x[i]);
        if (std::isnan(expected[i])) {
          REQUIRE(std::isnan(y[i]));
        } else {
          REQUIRE(y[i] == expected[i]);
          REQUIRE(std::signbit(y[i]) == std::signbit(expected[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rooflane
#endif  // HWY_ONCE
