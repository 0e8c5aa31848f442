// See sha256.hpp; the names are those of the standard.
#include "judge/sha256.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace rooflane::judge {

namespace {

using Word = std::uint32_t;

// The first 32 bits behind the point of a root of a prime.
template <std::size_t N>
std::array<Word, N> fractions_of_roots(double power) {
  std::array<Word, N> fractions{};
  std::size_t found = 0;
  for (int n = 2; found < N; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    // The root's whole part, at most 6, takes three of a long double's 64 bits.
    const long double root = power == 2 ? std::sqrt(static_cast<long double>(n))
                                        : std::cbrt(static_cast<long double>(n));
    fractions[found++] = static_cast<Word>((root - std::floor(root)) * 4294967296.0L);
  }
  return fractions;
}

void compress(std::array<Word, 8>& hash, const unsigned char* block) {
  static const std::array<Word, 64> k = fractions_of_roots<64>(3);
  std::array<Word, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = Word{block[4 * i]} << 24 | Word{block[4 * i + 1]} << 16 | Word{block[4 * i + 2]} << 8 |
           block[4 * i + 3];
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const Word s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const Word s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (std::size_t i = 0; i < 64; ++i) {
    const Word t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                    ((e & f) ^ (~e & g)) + k[i] + w[i];
    const Word t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<Word, 8> sums = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) hash[i] += sums[i];
}

}  // namespace

std::string sha256(std::string_view text) {
  std::array<Word, 8> hash = fractions_of_roots<8>(2);
  std::string padded(text);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  const std::uint64_t bits = std::uint64_t{text.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift & 0xff);
  for (std::size_t at = 0; at < padded.size(); at += 64) {
    compress(hash, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  }
  std::string hex;
  for (const Word word : hash) hex += fmt::format("{:08x}", word);
  return hex;
}

}  // namespace rooflane::judge
