// Number formats: every 16-bit float through both conversions, ties and specials, integers, block
// formats against their definition, and the vector conversions of every ISA target.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/dtype_test.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {

namespace hc = common::HWY_NAMESPACE;

void WidenHalf(const Float16* from, float* to, std::size_t n) { hc::Widen(from, to, n); }
void WidenBFloat(const BFloat16* from, float* to, std::size_t n) { hc::Widen(from, to, n); }
void NarrowHalf(const float* from, Float16* to, std::size_t n) { hc::Narrow(from, to, n); }
void NarrowBFloat(const float* from, BFloat16* to, std::size_t n) { hc::Narrow(from, to, n); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

#include "backends/highway.hpp"
#include "core/file_formats.hpp"
#include "core/seeds.hpp"

using namespace rooflane;

namespace rooflane {
HWY_EXPORT(WidenHalf);
HWY_EXPORT(WidenBFloat);
HWY_EXPORT(NarrowHalf);
HWY_EXPORT(NarrowBFloat);

namespace {

constexpr int all_patterns = 1 << 16;

double decoded(const NumberFormat& format, std::uint16_t bits) {
  double value = 0;
  format.decode(&bits, &value, 1);
  return value;
}
std::uint16_t encoded(const NumberFormat& format, double value) {
  std::uint16_t bits = 0;
  format.encode(&value, &bits, 1);
  return bits;
}

bool same(double x, double y) {
  return std::isnan(x) ? std::isnan(y)
                       : std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
}

// What IEEE 754 says a 16-bit pattern with so many bits of exponent is.
double by_definition(std::uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const double unit = std::ldexp(1.0, std::max(exponent, 1) - bias - fraction_bits);
  return sign * unit * (fraction + (exponent > 0 ? 1 << fraction_bits : 0));
}

struct Short {
  const NumberFormat& format;
  int exponent_bits;
};
const Short shorts[] = {{float16, 5}, {bfloat16, 8}};

}  // namespace

TEST_CASE("every 16-bit float is what IEEE 754 says, and comes back as the same bits") {
  for (const Short& each : shorts) {
    INFO(std::string(each.format.name));
    int wrong = 0;
    for (int i = 0; i < all_patterns; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const double value = decoded(each.format, bits);
      wrong += !same(value, by_definition(bits, each.exponent_bits));
      wrong += std::isnan(value) ? !std::isnan(decoded(each.format, encoded(each.format, value)))
                                 : encoded(each.format, value) != bits;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("between two neighbours the nearer is taken, in the middle the even one") {
  for (const Short& each : shorts) {
    INFO(std::string(each.format.name));
    int wrong = 0;
    // All finite positive patterns; the last one's upper neighbour would be infinity.
    const std::uint16_t last = encoded(each.format, each.format.largest);
    for (std::uint16_t bits = 0; bits < last; ++bits) {
      const double low = decoded(each.format, bits);
      const double high = decoded(each.format, static_cast<std::uint16_t>(bits + 1));
      const double middle = low + (high - low) / 2;
      for (const double sign : {1.0, -1.0}) {
        const auto code = [&](double value) { return encoded(each.format, sign * value) & 0x7FFF; };
        wrong += code(middle) != bits + (bits & 1);
        wrong += code(std::nextafter(middle, 0)) != bits;
        wrong += code(std::nextafter(middle, high)) != bits + 1;
      }
    }
    CHECK(wrong == 0);
    // Half a unit beyond the largest number infinity begins.
    const double largest = each.format.largest;
    const double unit = largest - decoded(each.format, static_cast<std::uint16_t>(last - 1));
    CHECK(encoded(each.format, std::nextafter(largest + unit / 2, 0)) == last);
    CHECK(encoded(each.format, largest + unit / 2) == last + 1);
    CHECK(std::isinf(decoded(each.format, encoded(each.format, 1e300))));
    CHECK(std::signbit(decoded(each.format, encoded(each.format, -0.0))));
  }
}

TEST_CASE("unit roundoff, smallest and largest describe each float format") {
  for (const DType dtype : {&float64, &float32, &float16, &bfloat16}) {
    INFO(std::string(dtype->name));
    const auto round_trip = [&](double value) {
      char bytes[8] = {};
      dtype->encode(&value, bytes, 1);
      dtype->decode(bytes, &value, 1);
      return value;
    };
    CHECK(round_trip(1 + dtype->unit_roundoff) == 1);
    CHECK(round_trip(1 + 3 * dtype->unit_roundoff) == 1 + 4 * dtype->unit_roundoff);
    CHECK(round_trip(dtype->smallest) == dtype->smallest);
    CHECK(round_trip(dtype->largest) == dtype->largest);
    CHECK(round_trip(dtype->least) == -dtype->largest);
    if (dtype != &float64) CHECK(round_trip(dtype->smallest / 2) == 0);
  }
}

TEST_CASE("integers round to even, stop at their ends, and make 0 of NaN") {
  for (const DType dtype : {&int8, &uint8, &int32}) {
    INFO(std::string(dtype->name));
    const auto round_trip = [&](double value) {
      char bytes[4] = {};
      dtype->encode(&value, bytes, 1);
      dtype->decode(bytes, &value, 1);
      return value;
    };
    CHECK(round_trip(2.5) == 2);
    CHECK(round_trip(3.5) == 4);
    CHECK(round_trip(1e300) == dtype->largest);
    CHECK(round_trip(-1e300) == dtype->least);
    CHECK(round_trip(std::numeric_limits<double>::quiet_NaN()) == 0);
    CHECK(dtype->is_integer());
  }
  CHECK(int32.largest == 2147483647);
  CHECK(uint8.least == 0);
}

TEST_CASE("blocks hold what GGUF's definitions say") {
  // float16 1.0 is 0x3C00. q8_0: scale, 32 signed bytes.
  std::uint8_t q8[34] = {0x00, 0x3C, 3, 0xFF};
  double values[32];
  q8_0.decode(q8, values, 32);
  CHECK(values[0] == 3);
  CHECK(values[1] == -1);
  // q4_0: scale, then byte i holds elements i (low half) and i + 16, each less 8.
  std::uint8_t q4[18] = {0x00, 0x3C, 0x9F};
  q4_0.decode(q4, values, 32);
  CHECK(values[0] == 7);
  CHECK(values[16] == 1);
  CHECK(values[1] == -8);
  // q4_1: scale, minimum (0xBC00 is -1), the same halves above the minimum.
  std::uint8_t q41[20] = {0x00, 0x3C, 0x00, 0xBC, 0x2F};
  q4_1.decode(q41, values, 32);
  CHECK(values[0] == 14);
  CHECK(values[16] == 1);
  CHECK(values[1] == -1);
  // q5_0: scale, the fifth bits (of elements 0 and 17 here), the halves, each less 16.
  std::uint8_t q5[22] = {0x00, 0x3C, 0x01, 0x00, 0x02, 0x00, 0x9F, 0x30};
  q5_0.decode(q5, values, 32);
  CHECK(values[0] == 15);
  CHECK(values[16] == -7);
  CHECK(values[17] == 3);
  CHECK(values[1] == -16);
  // q5_1: scale, minimum, the fifth bits, the halves above the minimum.
  std::uint8_t q51[24] = {0x00, 0x3C, 0x00, 0xBC, 0x01, 0x00, 0x00, 0x80, 0x9F};
  q5_1.decode(q51, values, 32);
  CHECK(values[0] == 30);
  CHECK(values[16] == 8);
  CHECK(values[31] == 15);
  CHECK(values[1] == -1);
}

TEST_CASE("quantising a block errs by half a step of its largest element, and zeros stay zero") {
  for (const DType dtype : {&q8_0, &q4_0, &q4_1, &q5_0, &q5_1}) {
    INFO(std::string(dtype->name));
    std::vector<double> values(64), back(64);
    for (std::size_t i = 0; i < 32; ++i) values[i] = seeded_value(3, "dtype", "block", i);
    std::vector<char> bytes(dtype->bytes(64));
    dtype->encode(values.data(), bytes.data(), 64);
    dtype->decode(bytes.data(), back.data(), 64);
    double largest = 0, worst = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      largest = std::max(largest, std::fabs(values[i]));
      worst = std::max(worst, std::fabs(back[i] - values[i]));
    }
    // q4_1's and q5_1's steps span from the least to the greatest element; scales err by a float16
    // rounding.
    const double step = dtype->quantisation.zero ? 2 * largest : largest;
    CHECK(worst <= (dtype->unit_roundoff * step + float16.unit_roundoff * largest * 2) *
                       (dtype == &q4_0 || dtype == &q5_0 ? 2 : 1));
    CHECK(worst > 0);
    CHECK(std::all_of(back.begin() + 32, back.end(), [](double value) { return value == 0; }));
  }
}

TEST_CASE("formats are found by either name, and all differ") {
  for (const DType dtype : all_dtypes()) {
    CHECK(find_dtype(dtype->name) == dtype);
    CHECK(find_dtype(dtype->short_name) == dtype);
  }
  CHECK(find_dtype("float8") == nullptr);
}

TEST_CASE("vectors widen every 16-bit float and narrow as the formats do, on every ISA target") {
  std::vector<Float16> halves(all_patterns), half_results(all_patterns);
  std::vector<BFloat16> bfloats(all_patterns), bfloat_results(all_patterns);
  for (int i = 0; i < all_patterns; ++i) {
    halves[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(i);
    bfloats[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(i);
  }
  // Floats of every exponent: seeded bits, and the neighbours of every 16-bit float's midpoints.
  std::vector<float> floats(all_patterns), wide(all_patterns);
  for (const std::string& name : isa_targets()) {
    INFO(name);
    const std::int64_t target = resolve_isa(name);
    int wrong = 0;
    ROOFLANE_HWY_FUNCTION(WidenHalf, target)(halves.data(), wide.data(), wide.size() - 3);
    for (std::size_t i = 0; i < wide.size() - 3; ++i) {
      wrong += !same(wide[i], decoded(float16, halves[i].bits));
    }
    ROOFLANE_HWY_FUNCTION(WidenBFloat, target)(bfloats.data(), wide.data(), wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      wrong += !same(wide[i], decoded(bfloat16, bfloats[i].bits));
    }
    CHECK(wrong == 0);
    for (const int round : {0, 1, 2, 3}) {
      for (std::size_t i = 0; i < floats.size(); ++i) {
        const auto seeded = static_cast<std::uint32_t>(splitmix64(i + (std::size_t{1} << 20)));
        const auto upper = static_cast<std::uint32_t>(i) << 16;
        // The middle between two bfloat16, and between two float16, one bit below and above.
        const std::uint32_t half =
            std::bit_cast<std::uint32_t>(static_cast<float>(decoded(float16, halves[i].bits)));
        const std::uint32_t bits[] = {seeded, upper | 0x8000, upper | 0x8001, half + 0x1000};
        floats[i] = std::bit_cast<float>(bits[round]);
      }
      ROOFLANE_HWY_FUNCTION(NarrowHalf, target)
      (floats.data(), half_results.data() + 1, floats.size() - 1);
      ROOFLANE_HWY_FUNCTION(NarrowBFloat, target)
      (floats.data(), bfloat_results.data() + 1, floats.size() - 1);
      for (std::size_t i = 0; i + 1 < floats.size(); ++i) {
        const double expected_half = decoded(float16, encoded(float16, floats[i]));
        const double expected_bfloat = decoded(bfloat16, encoded(bfloat16, floats[i]));
        wrong += !same(decoded(float16, half_results[i + 1].bits), expected_half);
        wrong += !same(decoded(bfloat16, bfloat_results[i + 1].bits), expected_bfloat);
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace rooflane
#endif  // HWY_ONCE
