// Packing and sums of columns for the units of AVX-512 and AMX. A lane is 32 bits: 2 bfloat16 or 4
// 8-bit integers that follow one another along k. Include it once, inside the attributes of the
// instructions and an anonymous namespace.

#include "kernels/gemm/avx512_lanes-inl.h"

// The `count` elements, fewer than a group, that k leaves over.
template <class E>
std::uint32_t PartialLane(const E* from, std::int64_t inner, std::int64_t count) {
  std::uint32_t lane = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    lane |= std::uint32_t{from[t * inner]} << (8 * sizeof(E) * static_cast<std::size_t>(t));
  }
  return lane;
}

// Place of a lane in a micro-panel that keeps `run` lanes of a vector side by side.
template <int run>
std::int64_t PlaceOf(const PackCall& c, std::int64_t lane, std::int64_t vector) {
  return (lane / run * c.width + vector) * run + lane % run;
}

// So many lanes of a vector as 16, the others zero.
inline __mmask16 First(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, 16)) - 1);
}

// Lanes [g,g+16), or the first `lanes` of them, of up to 16 vectors from v0 on become rows of the
// micro-panel.
template <class E>
__attribute__((always_inline)) inline void PackTransposed(const PackCall& c, std::int64_t v0,
                                                          std::int64_t g, std::int64_t lanes) {
  constexpr std::int64_t side = 16, vector = 64;
  const std::int64_t outer = c.outer * static_cast<std::int64_t>(sizeof(E));
  const auto* from = reinterpret_cast<const std::uint8_t*>(c.from) + v0 * outer + g * word_bytes;
  std::int64_t stride = outer;
  std::uint8_t copied[side * vector];
  if (lanes < side || c.count - v0 < side) {
    for (std::int64_t v = 0; v < side; ++v) {
      const __mmask16 there = v0 + v < c.count ? First(lanes) : 0;
      _mm512_storeu_si512(copied + v * vector, _mm512_maskz_loadu_epi32(there, from + v * outer));
    }
    from = copied, stride = vector;
  }
  const __m512i xor_mask = _mm512_set1_epi32(static_cast<int>(c.xor_mask));
  const __mmask16 kept = First(c.width - v0);
  __m512i rows[side];
#pragma GCC unroll 4
  for (int four = 0; four < side; four += 4) FourLanes(from + 4 * four, stride, rows + four);
#pragma GCC unroll 16
  for (int lane = 0; lane < side; ++lane) {
    if (lane >= lanes) break;
    _mm512_mask_storeu_epi32(c.to + (g + lane) * c.width + v0, kept,
                             _mm512_xor_si512(rows[lane], xor_mask));
  }
}

// Vectors along memory. Lanes side by side are copied, others transposed.
template <class E, int run>
void PackAlong(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), side = 16;
  if constexpr (run == side) {
    const __m512i xor_mask = _mm512_set1_epi32(static_cast<int>(c.xor_mask));
    for (std::int64_t g = 0; g < whole; g += side) {
      const __mmask16 there = First(whole - g);
      for (std::int64_t v = 0; v < c.count; ++v) {
        const E* const vector = reinterpret_cast<const E*>(c.from) + v * c.outer + g * group;
        const __m512i lanes = _mm512_maskz_loadu_epi32(there, vector);
        _mm512_storeu_si512(c.to + PlaceOf<run>(c, g, v),
                            _mm512_maskz_xor_epi32(there, lanes, xor_mask));
      }
    }
    return;
  }
  for (std::int64_t v0 = 0; v0 < c.width; v0 += side) {
    for (std::int64_t g = 0; g < whole; g += side) {
      PackTransposed<E>(c, v0, g, std::min(side, whole - g));
    }
  }
}

// Vectors across memory: rows of it are interleaved, 16 columns at a time.
template <class E, int run>
void PackAcross(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), side = 16;
  const __m512i xor_mask = _mm512_set1_epi32(static_cast<int>(c.xor_mask));
  const E* const from = reinterpret_cast<const E*>(c.from);
  for (std::int64_t g = 0; g < whole; ++g) {
    for (std::int64_t v = 0; v < c.count; v += side) {
      const E* const row = from + g * group * c.inner + v;
      const __mmask16 there = First(c.count - v);
      const auto part = [&](std::int64_t p) __attribute__((always_inline)) {
        if constexpr (sizeof(E) == 2) {
          return _mm512_maskz_cvtepu16_epi32(there,
                                             _mm256_maskz_loadu_epi16(there, row + p * c.inner));
        } else {
          return _mm512_maskz_cvtepu8_epi32(there, _mm_maskz_loadu_epi8(there, row + p * c.inner));
        }
      };
      using Lanes = std::uint32_t __attribute__((vector_size(64)));
      Lanes parts = (Lanes)part(0);
#pragma GCC unroll 4
      for (int p = 1; p < group; ++p) parts |= (Lanes)part(p) << (8 * sizeof(E) * p);
      const __m512i lane = _mm512_xor_si512((__m512i)parts, xor_mask);
      std::uint32_t* const to = c.to + PlaceOf<run>(c, g, v);
      if constexpr (run == 1) {
        _mm512_mask_storeu_epi32(to, there, lane);
      } else {
        std::uint32_t lanes[side];
        _mm512_storeu_si512(lanes, lane);
        for (std::int64_t t = 0; t < std::min(side, c.count - v); ++t) to[t * run] = lanes[t];
      }
    }
  }
}

// The micro-panel's piece has `lanes` lanes; those beyond k are zeros.
template <class E, int run>
void PackLanes(const PackCall& c, std::int64_t lanes) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E);
  const std::int64_t whole = c.k / group;
  if (c.inner == 1) {
    PackAlong<E, run>(c, whole);
  } else {
    PackAcross<E, run>(c, whole);
  }
  const E* const rest = reinterpret_cast<const E*>(c.from) + whole * group * c.inner;
  for (std::int64_t g = whole; g < lanes; ++g) {
    const std::int64_t left = g == whole ? c.k % group : 0;
    for (std::int64_t v = 0; v < c.count; ++v) {
      const std::uint32_t lane = PartialLane(rest + v * c.outer, c.inner, left);
      c.to[PlaceOf<run>(c, g, v)] = left > 0 ? lane ^ c.xor_mask : 0;
    }
  }
  if (c.count == c.width) return;
  for (std::int64_t g = 0; g < lanes; ++g) {
    for (std::int64_t v = c.count; v < c.width; ++v) c.to[PlaceOf<run>(c, g, v)] = 0;
  }
}

template <int nr>
void SumColumns(const std::uint32_t* panel, std::int64_t lanes, std::int32_t* to) {
  constexpr int side = 16;
  const __m512i ones = _mm512_set1_epi8(1);
  for (int j = 0; j < nr; j += side) {
    __m512i sums = _mm512_setzero_si512();
    for (std::int64_t g = 0; g < lanes; ++g) {
      sums = _mm512_dpbusd_epi32(sums, ones, _mm512_loadu_si512(panel + g * nr + j));
    }
    _mm512_storeu_si512(to + j, sums);
  }
}
