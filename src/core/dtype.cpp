// The table of number formats and their conversions. See dtype.hpp.
#include "dtype.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "file_formats.hpp"
#include "float16.hpp"

namespace rooflane {

namespace {

template <class T>
T load(const void* from, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
void store(void* to, std::int64_t i, T value) {
  std::memcpy(static_cast<char*>(to) + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <class T>
void decode_native(const void* from, double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(load<T>(from, i));
}

// The processor rounds to nearest even.
template <class T>
void encode_native(const double* from, void* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(to, i, static_cast<T>(from[i]));
}

template <class T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  // The largest int64 rounds up as a double, and that double does not fit into int64.
  constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  if (value <= static_cast<double>(least)) return least;
  if (value >= static_cast<double>(most)) return most;
  return static_cast<T>(std::nearbyint(value));
}

template <class T>
void encode_integers(const double* from, void* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(to, i, to_integer<T>(from[i]));
}

template <class Bits>
void decode_short(const void* from, double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Bits::value(load<std::uint16_t>(from, i));
}
template <class Bits>
void encode_short(const double* from, void* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(to, i, Bits::bits_of(from[i]));
}

using Half = Float16::Format;
using BFloat = BFloat16::Format;

constexpr double half_max = 65504;
constexpr std::int64_t block_length = 32;

// A block's integers are relative to its scale as float16 holds it, not as it was computed.
double half_scale(double scale, void* to) {
  const std::uint16_t bits = Half::bits_of(scale);
  store(to, 0, bits);
  return Half::value(bits);
}

double quotient(double value, double scale) { return scale == 0 ? 0 : value / scale; }

double largest_magnitude(const double* values) {
  double largest = 0;
  for (std::int64_t i = 0; i < block_length; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
  }
  return largest;
}

// One function for each of `count / 32` blocks.
template <std::size_t bytes, void (*one_block)(const char*, double*)>
void decode_blocks(const void* from, double* to, std::int64_t count) {
  const auto* at = static_cast<const char*>(from);
  for (std::int64_t i = 0; i < count; i += block_length, at += bytes) one_block(at, to + i);
}
template <std::size_t bytes, void (*one_block)(const double*, char*)>
void encode_blocks(const double* from, void* to, std::int64_t count) {
  auto* at = static_cast<char*>(to);
  for (std::int64_t i = 0; i < count; i += block_length, at += bytes) one_block(from + i, at);
}

void decode_q8_0(const char* from, double* to) {
  const double scale = Half::value(load<std::uint16_t>(from, 0));
  for (std::int64_t i = 0; i < block_length; ++i) to[i] = scale * load<std::int8_t>(from + 2, i);
}
void encode_q8_0(const double* from, char* to) {
  const double scale = half_scale(largest_magnitude(from) / 127, to);
  for (std::int64_t i = 0; i < block_length; ++i) {
    const double unit = std::clamp(quotient(from[i], scale), -127.0, 127.0);
    store(to + 2, i, to_integer<std::int8_t>(unit));
  }
}

// Byte i holds element i in its low half and element i + 16 in its high one.
std::uint8_t nibble(const char* bytes, std::int64_t i) {
  const auto both = load<std::uint8_t>(bytes, i % 16);
  return i < 16 ? both & 15 : both >> 4;
}
void store_nibbles(char* bytes, const std::array<std::uint8_t, block_length>& values) {
  for (std::size_t i = 0; i < 16; ++i) {
    store(bytes, static_cast<std::int64_t>(i),
          static_cast<std::uint8_t>(values[i] | values[i + 16] << 4));
  }
}
std::uint8_t to_nibble(double value) {
  return to_integer<std::uint8_t>(std::clamp(value, 0.0, 15.0));
}

void decode_q4_0(const char* from, double* to) {
  const double scale = Half::value(load<std::uint16_t>(from, 0));
  for (std::int64_t i = 0; i < block_length; ++i) to[i] = scale * (nibble(from + 2, i) - 8);
}
double element_of_largest_magnitude(const double* values) {
  return *std::max_element(values, values + block_length,
                           [](double x, double y) { return std::fabs(x) < std::fabs(y); });
}
// The element of largest magnitude becomes -8, the one end of the range that has no counterpart.
void encode_q4_0(const double* from, char* to) {
  const double scale = half_scale(element_of_largest_magnitude(from) / -8, to);
  std::array<std::uint8_t, block_length> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = to_nibble(quotient(from[i], scale) + 8);
  }
  store_nibbles(to + 2, values);
}

void decode_q4_1(const char* from, double* to) {
  const double scale = Half::value(load<std::uint16_t>(from, 0));
  const double low = Half::value(load<std::uint16_t>(from, 1));
  for (std::int64_t i = 0; i < block_length; ++i) to[i] = scale * nibble(from + 4, i) + low;
}
void encode_q4_1(const double* from, char* to) {
  const auto [least, most] = std::minmax_element(from, from + block_length);
  const double scale = half_scale((*most - *least) / 15, to);
  const double low = half_scale(*least, to + 2);
  std::array<std::uint8_t, block_length> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = to_nibble(quotient(from[i] - low, scale));
  }
  store_nibbles(to + 4, values);
}

// The fifth bit of element i is bit i of a word before the nibbles.
std::uint8_t five_bits(const char* word, std::int64_t i) {
  const std::uint32_t high = load<std::uint32_t>(word, 0) >> i & 1;
  return static_cast<std::uint8_t>(high << 4 | nibble(word + sizeof high, i));
}
void store_five_bits(char* word, const std::array<double, block_length>& units) {
  std::uint32_t high = 0;
  std::array<std::uint8_t, block_length> low{};
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto value = to_integer<std::uint8_t>(std::clamp(units[i], 0.0, 31.0));
    high |= static_cast<std::uint32_t>(value >> 4) << i;
    low[i] = value & 15;
  }
  store(word, 0, high);
  store_nibbles(word + sizeof high, low);
}

void decode_q5_0(const char* from, double* to) {
  const double scale = Half::value(load<std::uint16_t>(from, 0));
  for (std::int64_t i = 0; i < block_length; ++i) to[i] = scale * (five_bits(from + 2, i) - 16);
}
void encode_q5_0(const double* from, char* to) {
  const double scale = half_scale(element_of_largest_magnitude(from) / -16, to);
  std::array<double, block_length> units{};
  for (std::size_t i = 0; i < units.size(); ++i) units[i] = quotient(from[i], scale) + 16;
  store_five_bits(to + 2, units);
}

void decode_q5_1(const char* from, double* to) {
  const double scale = Half::value(load<std::uint16_t>(from, 0));
  const double low = Half::value(load<std::uint16_t>(from, 1));
  for (std::int64_t i = 0; i < block_length; ++i) to[i] = scale * five_bits(from + 4, i) + low;
}
void encode_q5_1(const double* from, char* to) {
  const auto [least, most] = std::minmax_element(from, from + block_length);
  const double scale = half_scale((*most - *least) / 31, to);
  const double low = half_scale(*least, to + 2);
  std::array<double, block_length> units{};
  for (std::size_t i = 0; i < units.size(); ++i) units[i] = quotient(from[i] - low, scale);
  store_five_bits(to + 4, units);
}

template <class T>
constexpr NumberFormat native_format(std::string_view name, std::string_view short_name,
                                     std::string_view npy) {
  using Limits = std::numeric_limits<T>;
  return {.name = name,
          .short_name = short_name,
          .npy = npy,
          .block = 1,
          .block_bytes = sizeof(T),
          .unit_roundoff = Limits::epsilon() / 2.0,
          .smallest = Limits::denorm_min(),
          .largest = Limits::max(),
          .least = Limits::lowest(),
          .decode = decode_native<T>,
          .encode = encode_native<T>};
}

template <class Bits>
constexpr NumberFormat short_format(std::string_view name, std::string_view short_name,
                                    std::string_view npy, double largest) {
  return {.name = name,
          .short_name = short_name,
          .npy = npy,
          .block = 1,
          .block_bytes = sizeof(std::uint16_t),
          .unit_roundoff = Bits::power(-Bits::fraction_bits - 1),
          .smallest = Bits::smallest(),
          .largest = largest,
          .least = -largest,
          .decode = decode_short<Bits>,
          .encode = encode_short<Bits>};
}

template <class T>
constexpr NumberFormat integer_format(std::string_view name, std::string_view short_name,
                                      std::string_view npy, Quantisation quantisation = {}) {
  return {.name = name,
          .short_name = short_name,
          .npy = npy,
          .block = 1,
          .block_bytes = sizeof(T),
          .unit_roundoff = 0,
          .smallest = 1,
          .largest = static_cast<double>(std::numeric_limits<T>::max()),
          .least = static_cast<double>(std::numeric_limits<T>::min()),
          .decode = decode_native<T>,
          .encode = encode_integers<T>,
          .quantisation = quantisation};
}

// A block's largest element lies `steps` steps from zero; others err by half a step of it.
template <std::size_t bytes, void (*decode)(const char*, double*),
          void (*encode)(const double*, char*)>
constexpr NumberFormat block_format(std::string_view name, double steps,
                                    Quantisation quantisation) {
  return {.name = name,
          .short_name = name,
          .npy = "|u1",
          .block = block_length,
          .block_bytes = bytes,
          .unit_roundoff = 0.5 / steps,
          .smallest = Half::smallest(),
          .largest = half_max * steps,
          .least = -half_max * steps,
          .decode = decode_blocks<bytes, decode>,
          .encode = encode_blocks<bytes, encode>,
          .quantisation = quantisation};
}

}  // namespace

constinit const NumberFormat float64 = native_format<double>("float64", "f64", "<f8");
constinit const NumberFormat float32 = native_format<float>("float32", "f32", "<f4");
constinit const NumberFormat float16 = short_format<Half>("float16", "f16", "<f2", half_max);
// NumPy has no bfloat16 of its own; ml_dtypes writes raw records of two bytes.
constinit const NumberFormat bfloat16 = short_format<BFloat>("bfloat16", "bf16", "<V2", 0x1.FEp127);
constinit const NumberFormat int8 = integer_format<std::int8_t>("int8", "s8", "|i1");
constinit const NumberFormat uint8 = integer_format<std::uint8_t>("uint8", "u8", "|u1");
constinit const NumberFormat int32 = integer_format<std::int32_t>("int32", "s32", "<i4");
// In files only, like float64: a double cannot hold all of its values.
constinit const NumberFormat int64 = integer_format<std::int64_t>("int64", "s64", "<i8");
constinit const NumberFormat int8_per_channel =
    integer_format<std::int8_t>("int8_per_channel", "s8c", "|i1",
                                {.bits = 8, .scale = &float32, .per = Quantisation::Per::channel});
constinit const NumberFormat q8_0 =
    block_format<34, decode_q8_0, encode_q8_0>("q8_0", 127, {.bits = 8, .scale = &float16});
constinit const NumberFormat q4_0 =
    block_format<18, decode_q4_0, encode_q4_0>("q4_0", 8, {.bits = 4, .scale = &float16});
constinit const NumberFormat q4_1 = block_format<20, decode_q4_1, encode_q4_1>(
    "q4_1", 15, {.bits = 4, .scale = &float16, .zero = &float16});
constinit const NumberFormat q5_0 =
    block_format<22, decode_q5_0, encode_q5_0>("q5_0", 16, {.bits = 5, .scale = &float16});
constinit const NumberFormat q5_1 = block_format<24, decode_q5_1, encode_q5_1>(
    "q5_1", 31, {.bits = 5, .scale = &float16, .zero = &float16});

std::span<const DType> all_dtypes() {
  static constexpr DType table[] = {&float32, &float16,          &bfloat16, &int8, &uint8, &int32,
                                    &int64,   &int8_per_channel, &q8_0,     &q4_0, &q4_1,  &q5_0,
                                    &q5_1,    &float64};
  return table;
}

DType find_dtype(std::string_view name) {
  for (const DType dtype : all_dtypes()) {
    if (dtype->name == name || dtype->short_name == name) return dtype;
  }
  return nullptr;
}

std::size_t size_of(DType dtype) { return dtype->block_bytes; }
std::string_view name_of(DType dtype) { return dtype->name; }

}  // namespace rooflane
