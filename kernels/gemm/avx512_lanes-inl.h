// 16 rows of b that lie along k, transposed in registers as they are read, so that a lane of a
// vector is a column of c. Include it once, inside the attributes of the instructions and an
// anonymous namespace.

// Masks that keep everything: GCC 12 warns of an undefined vector in intrinsics without a mask.
constexpr __mmask16 all = 0xFFFF;
constexpr __mmask8 all_of_8 = 0xFF;
constexpr int group_columns = 16;

// 16 bytes of each of four rows, `stride` apart. Masked broadcasts are loads that every pipe
// merges; insertions would take those that shuffle.
__attribute__((always_inline)) inline __m512i FourRows(const std::uint8_t* from,
                                                       std::int64_t stride) {
  const auto row = [=](int i) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * stride));
  };
  __m512i four = _mm512_zextsi128_si512(row(0));
  four = _mm512_mask_broadcast_i32x4(four, 0x00F0, row(1));
  four = _mm512_mask_broadcast_i32x4(four, 0x0F00, row(2));
  return _mm512_mask_broadcast_i32x4(four, 0xF000, row(3));
}

// 16 rows of 4 lanes become 4 vectors of 16.
__attribute__((always_inline)) inline void FourLanes(const std::uint8_t* from, std::int64_t stride,
                                                     __m512i* to) {
  // Row i of each: rows i, i + 4, i + 8, i + 12.
  const __m512i r0 = FourRows(from, 4 * stride), r1 = FourRows(from + stride, 4 * stride),
                r2 = FourRows(from + 2 * stride, 4 * stride),
                r3 = FourRows(from + 3 * stride, 4 * stride);
  const __m512i low01 = _mm512_maskz_unpacklo_epi32(all, r0, r1),
                high01 = _mm512_maskz_unpackhi_epi32(all, r0, r1),
                low23 = _mm512_maskz_unpacklo_epi32(all, r2, r3),
                high23 = _mm512_maskz_unpackhi_epi32(all, r2, r3);
  to[0] = _mm512_maskz_unpacklo_epi64(all_of_8, low01, low23);
  to[1] = _mm512_maskz_unpackhi_epi64(all_of_8, low01, low23);
  to[2] = _mm512_maskz_unpacklo_epi64(all_of_8, high01, high23);
  to[3] = _mm512_maskz_unpackhi_epi64(all_of_8, high01, high23);
}

__attribute__((always_inline)) inline __m512i Broadcast(const std::uint32_t* from) {
  return _mm512_set1_epi32(static_cast<int>(*from));
}
// Lines that the next 16 rows of b will be read from, some with each step: they are prefetched in
// the order of memory, though steps of 16 rows are read beside one another.
struct Prefetches {
  const std::uint8_t* at;
  const std::uint8_t* end;
  std::int64_t of_step;  // bytes
  __attribute__((always_inline)) void Next() {
    const std::uint8_t* const until = std::min(at + of_step, end);
    for (; at < until; at += 64) _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
  }
};
