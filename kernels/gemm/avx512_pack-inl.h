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

// Where a lane of a vector lies in a micro-panel that is `width` vectors wide. If `neighbours` is
// 1, the same lane of 16 vectors is side by side, and the next of 16 lanes is lane_step() on.

// `run` lanes of a vector are neighbours, then come those of the next vector.
template <int run>
struct Runs {
  static constexpr int neighbours = run;
  static std::int64_t place(std::int64_t width, std::int64_t lane, std::int64_t vector) {
    return (lane / run * width + vector) * run + lane % run;
  }
  static std::int64_t lane_step(std::int64_t width) { return width; }
};
// Blocks of 16 lanes (rows) by 16 vectors (columns), one after another.
struct Blocks {
  static constexpr int neighbours = 1;
  static std::int64_t place(std::int64_t width, std::int64_t lane, std::int64_t vector) {
    constexpr std::int64_t side = 16;
    return ((lane / side * (width / side) + vector / side) * side + lane % side) * side +
           vector % side;
  }
  static std::int64_t lane_step(std::int64_t /*width*/) { return 16; }
};

// 16 rows of 16 lanes become columns: pairs, fours, then quarters of vectors change places.
__attribute__((always_inline)) inline void Transpose(__m512i (&rows)[16]) {
  __m512i pairs[16], fours[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_maskz_unpacklo_epi32(all, rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_maskz_unpackhi_epi32(all, rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_maskz_unpacklo_epi64(all_of_8, pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_maskz_unpackhi_epi64(all_of_8, pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_maskz_unpacklo_epi64(all_of_8, pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_maskz_unpackhi_epi64(all_of_8, pairs[i + 1], pairs[i + 3]);
  }
  constexpr int even = 0x88, odd = 0xDD;  // quarters 0 and 2, 1 and 3 of both
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_maskz_shuffle_i32x4(all, fours[i], fours[i + 4], even);
    const __m512i b = _mm512_maskz_shuffle_i32x4(all, fours[i + 8], fours[i + 12], even);
    const __m512i c = _mm512_maskz_shuffle_i32x4(all, fours[i], fours[i + 4], odd);
    const __m512i d = _mm512_maskz_shuffle_i32x4(all, fours[i + 8], fours[i + 12], odd);
    rows[i] = _mm512_maskz_shuffle_i32x4(all, a, b, even);
    rows[i + 4] = _mm512_maskz_shuffle_i32x4(all, c, d, even);
    rows[i + 8] = _mm512_maskz_shuffle_i32x4(all, a, b, odd);
    rows[i + 12] = _mm512_maskz_shuffle_i32x4(all, c, d, odd);
  }
}

// So many lanes of a vector as 16, the others zero.
inline __mmask16 First(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, 16)) - 1);
}

// Lanes [g,g+16), or the first `lanes` of them, of up to 16 vectors from v0 on become rows of the
// micro-panel.
template <class E, class Layout, bool whole>
__attribute__((always_inline)) inline void PackTransposed(const PackCall& c, std::int64_t v0,
                                                          std::int64_t g, std::int64_t lanes) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), side = 16;
  const __m512i xor_mask = _mm512_set1_epi32(static_cast<int>(c.xor_mask));
  const E* const from = reinterpret_cast<const E*>(c.from) + g * group;
  const __mmask16 there = First(lanes), kept = First(c.width - v0);
  __m512i rows[side];
#pragma GCC unroll 16
  for (int v = 0; v < side; ++v) {
    rows[v] = _mm512_setzero_si512();
    if (v0 + v >= c.count) continue;
    const E* const vector = from + (v0 + v) * c.outer;
    rows[v] = _mm512_xor_si512(
        whole ? _mm512_loadu_si512(vector) : _mm512_maskz_loadu_epi32(there, vector), xor_mask);
  }
  Transpose(rows);
  std::uint32_t* const to = c.to + Layout::place(c.width, g, v0);
  const std::int64_t step = Layout::lane_step(c.width);
#pragma GCC unroll 16
  for (int lane = 0; lane < side; ++lane) {
    if (!whole && lane >= lanes) break;
    _mm512_mask_storeu_epi32(to + lane * step, kept, rows[lane]);
  }
}

// Vectors along memory. Lanes side by side are copied, others transposed.
template <class E, class Layout>
void PackAlong(const PackCall& c, std::int64_t whole) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E), side = 16;
  if constexpr (Layout::neighbours == side) {
    const __m512i xor_mask = _mm512_set1_epi32(static_cast<int>(c.xor_mask));
    for (std::int64_t g = 0; g < whole; g += side) {
      const __mmask16 there = First(whole - g);
      for (std::int64_t v = 0; v < c.count; ++v) {
        const E* const vector = reinterpret_cast<const E*>(c.from) + v * c.outer + g * group;
        const __m512i lanes = _mm512_maskz_loadu_epi32(there, vector);
        _mm512_storeu_si512(c.to + Layout::place(c.width, g, v),
                            _mm512_maskz_xor_epi32(there, lanes, xor_mask));
      }
    }
    return;
  }
  for (std::int64_t v0 = 0; v0 < c.width; v0 += side) {
    std::int64_t g = 0;
    for (; g + side <= whole; g += side) PackTransposed<E, Layout, true>(c, v0, g, side);
    if (g < whole) PackTransposed<E, Layout, false>(c, v0, g, whole - g);
  }
}

// Vectors across memory: rows of it are interleaved, 16 columns at a time.
template <class E, class Layout>
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
      __m512i lane = part(0);
      if constexpr (sizeof(E) == 2) {
        lane = _mm512_or_si512(lane, _mm512_maskz_slli_epi32(all, part(1), 16));
      } else {
        lane = _mm512_or_si512(lane, _mm512_maskz_slli_epi32(all, part(1), 8));
        lane = _mm512_or_si512(lane, _mm512_maskz_slli_epi32(all, part(2), 16));
        lane = _mm512_or_si512(lane, _mm512_maskz_slli_epi32(all, part(3), 24));
      }
      lane = _mm512_xor_si512(lane, xor_mask);
      std::uint32_t* const to = c.to + Layout::place(c.width, g, v);
      if constexpr (Layout::neighbours == 1) {
        _mm512_mask_storeu_epi32(to, there, lane);
      } else {
        std::uint32_t lanes[side];
        _mm512_storeu_si512(lanes, lane);
        for (std::int64_t t = 0; t < std::min(side, c.count - v); ++t)
          to[t * Layout::neighbours] = lanes[t];
      }
    }
  }
}

// Zeros in lanes [g0,g1) of vectors [v0,v1).
template <class Layout>
void Clear(const PackCall& c, std::int64_t g0, std::int64_t g1, std::int64_t v0, std::int64_t v1) {
  constexpr std::int64_t side = 16;
  const auto within = [](std::int64_t at, std::int64_t first, std::int64_t last) {
    return static_cast<__mmask16>(First(last - at) & ~First(first - at));
  };
  const __m512i zeros = _mm512_setzero_si512();
  if constexpr (Layout::neighbours == 1) {
    for (std::int64_t g = g0; g < g1; ++g) {
      for (std::int64_t v = v0 / side * side; v < v1; v += side) {
        _mm512_mask_storeu_epi32(c.to + Layout::place(c.width, g, v), within(v, v0, v1), zeros);
      }
    }
  } else {
    static_assert(Layout::neighbours == side);
    for (std::int64_t v = v0; v < v1; ++v) {
      for (std::int64_t g = g0 / side * side; g < g1; g += side) {
        _mm512_mask_storeu_epi32(c.to + Layout::place(c.width, g, v), within(g, g0, g1), zeros);
      }
    }
  }
}

// The micro-panel's piece has `lanes` lanes; those beyond k are zeros.
template <class E, class Layout>
void PackLanes(const PackCall& c, std::int64_t lanes) {
  constexpr std::int64_t group = sizeof(std::uint32_t) / sizeof(E);
  const std::int64_t whole = c.k / group;
  if (c.inner == 1) {
    PackAlong<E, Layout>(c, whole);
  } else {
    PackAcross<E, Layout>(c, whole);
  }
  const E* const rest = reinterpret_cast<const E*>(c.from) + whole * group * c.inner;
  const std::int64_t left = c.k % group;
  for (std::int64_t v = 0; left > 0 && v < c.count; ++v) {
    const std::uint32_t lane = PartialLane(rest + v * c.outer, c.inner, left);
    c.to[Layout::place(c.width, whole, v)] = lane ^ c.xor_mask;
  }
  Clear<Layout>(c, whole + (left > 0), lanes, 0, c.count);
  if (c.count < c.width) Clear<Layout>(c, 0, lanes, c.count, c.width);
}

template <class Layout, int nr>
void SumColumns(const std::uint32_t* panel, std::int64_t lanes, std::int32_t* to) {
  constexpr int side = 16;
  const __m512i ones = _mm512_set1_epi8(1);
  for (int j = 0; j < nr; j += side) {
    __m512i sums = _mm512_setzero_si512();
    for (std::int64_t g = 0; g < lanes; ++g) {
      sums = _mm512_dpbusd_epi32(sums, ones, _mm512_loadu_si512(panel + Layout::place(nr, g, j)));
    }
    _mm512_storeu_si512(to + j, sums);
  }
}
