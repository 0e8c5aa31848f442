// The hwy GEMM's model: which path a problem takes, and how many threads. No vector code, no memory
// of its own. Block sizes: hwy_block_sizes.hpp; what a path does: hwy_*-inl.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/machine.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_job.hpp"

namespace rooflane::gemm {

using std::int64_t;

inline constexpr int64_t float_bytes = sizeof(float);
inline constexpr int64_t workspace_limit = int64_t{64} << 20;

// Up to so many rows or columns the other operand is read once and memory is the limit: dot
// products, which need no operand turned, or row updates. Beyond, tiles with whole vectors win
// (Zen 5, 4096 × 4096 with 8 columns: 99 against 101 GF/s, with 16: 123 against 211).
inline constexpr int64_t stream_limit = 16;

// Up to so deep, what surrounds the products counts as much as they do: reading or turning b, and
// c, which is most of the traffic (64 products an element are 32 to 64 cycles a line of c).
inline constexpr int64_t short_k = 64;

struct Caches {
  int64_t l1, l2, l3;
  bool far_l3;
};

inline bool small_l1(const Caches& cache) { return cache.l1 < (48 << 10); }

// A thread must have this many flops to be worth waking: 1.3 µs of work at 270 GF/s, about as long
// as a parallel region takes whose threads spin (Zen 5, 80³ on 2 threads: 358 GF/s, 267 on one).
// Half of that where L1 has 32 KiB, as in cores of half as many flops a cycle (Zen 4, µs on one and
// two threads: 56³ 3.9 and 3.3, 128 × 128 × 8 3.3 and 2.7, 323 × 5 × 85 8.3 and 6.2).
inline double flops_per_thread(const Caches& cache) { return small_l1(cache) ? 1.75e5 : 3.5e5; }

// Sizes that the machine does not report are taken as the smallest of the last ten years.
inline Caches caches() {
  const Machine& host = machine();
  const auto or_else = [](std::size_t bytes, int64_t otherwise) {
    return bytes > 0 ? static_cast<int64_t>(bytes) : otherwise;
  };
  return {or_else(host.l1d_bytes, 32 << 10), or_else(host.l2_bytes, 256 << 10),
          or_else(host.l3_bytes, 4 << 20), l3_is_far(host)};
}

// Packing together means waiting for each other: from so many threads on it must save more.
inline constexpr int many_threads = 4;

// Where L3 is far, dot products pay for more rows than a group of them holds, in two groups
// (Sapphire Rapids, 4096² along k, GF/s, b turned and packed against dot products: one thread, 12
// rows 45 and 61, 16 rows 47 and 55, 24 rows 60 and 61; two threads, 16 rows 87 and 106; 16
// threads, 16 rows 1120 and 830).
inline int64_t far_limit(int threads) { return threads < many_threads ? 16 : 12; }

// What is read over and over in place: a quarter of L3, of which a virtual machine may report more
// than it gets.
inline int64_t near_bytes(const Caches& cache, int threads) {
  return std::min<int64_t>(cache.l3 / 4, threads < many_threads ? 8 << 20 : 12 << 20);
}

inline int64_t div_up(int64_t x, int64_t y) { return (x + y - 1) / y; }
inline int64_t round_up(int64_t x, int64_t y) { return div_up(x, y) * y; }

// A few inner products of long vectors: k is what is shared, and what every block of it reads comes
// from memory.
inline bool deep(const Gemm& g) {
  const int64_t longer = std::max(g.m, g.n);
  return longer <= 512 && g.k >= 16 * longer;
}

// Where L3 is far: all threads' L2 hold b, not quite full.
inline bool fits_far_l2(const Gemm& g, const Caches& cache, int threads) {
  return cache.far_l3 && g.k * g.n * float_bytes <= threads * cache.l2 * 4 / 5;
}

// So many rows that turning b for them alone takes a tenth of the time.
constexpr int64_t rows_worth_turning = 128;

// The largest divisor of `threads` that is at most `most`, or 1: in so many parts all threads have
// equal shares.
inline int64_t divisor_up_to(int64_t threads, int64_t most) {
  int64_t parts = std::clamp<int64_t>(most, 1, threads);
  while (threads % parts != 0) --parts;
  return parts;
}

// Which paths can serve a problem at all, by how its operands lie.
inline bool dot_from_a(const Gemm& g) { return !g.trans_a; }
inline bool dot_from_b(const Gemm& g) { return g.trans_b && !g.prepack; }
inline bool stream_from_a(const Gemm& g) { return g.trans_a; }
inline bool stream_from_b(const Gemm& g) { return !g.trans_b && !g.prepack; }

inline bool allowed(Path path, const Gemm& g) {
  const bool product = g.reads_ab() && !g.empty();
  switch (path) {
    case Path::scale:
      return !product;
    case Path::dot:
      return product && (dot_from_a(g) || dot_from_b(g));
    case Path::stream:
      return product && (stream_from_a(g) || stream_from_b(g));
    case Path::direct:
      return product && !g.prepack;
    case Path::packed:
      return product;
  }
  return false;
}

// Rows so many floats apart share the few sets of L1 that 4096 / 64 lines make: a strip of b read
// in place evicts itself (Sapphire Rapids, 1024³: 113 GF/s in place, 156 packed; 512³: 166 and
// 154).
inline bool conflicts(int64_t ld) { return ld % 1024 == 0; }

// How many rows of b, ld floats apart, lie in half of L2's 16 ways: rows a power of two apart meet
// in few of its sets (32 × 4096 × 4096 in blocks of k of 64 107 GF/s, of 96 89, of 512 37).
inline int64_t rows_in_l2(int64_t ld, const Caches& cache) {
  const int64_t way = cache.l2 / 16;
  return way / std::gcd(way, ld * float_bytes) * 8;
}

// Where L3 is far: b, which comes from there or beyond and lies in rows, is multiplied in place, in
// so few rows at a time that a strip of them stays in L2, and the next strip is fetched row by row
// meanwhile. Up to 128 rows of a, which read b so seldom that packing it costs more, and up to 256
// where its rows do not collide. (Sapphire Rapids, one thread, against packing, 4096² of k·n:
// 16 rows 82 and 38 GF/s, 32 100 and 57, 64 110 and 75, 128 101 and 99, 150 84 and 98; 128 × 3072 ×
// 768 124 and 98; 200 × 3000 × 3000 114 and 107. Against strips of `stream`: 16 rows 82 and 62, 12
// 67 and by whole rows 75.)
constexpr int64_t fewest_rows_together = 48;
inline bool row_by_row(const Gemm& g, const Caches& cache, int threads) {
  if (g.trans_b || g.prepack || !cache.far_l3 || deep(g) || g.n < g.m) return false;
  return g.k * g.n * float_bytes > cache.l2 * std::max(3, threads) / 4 && g.m > most_updated &&
         g.m <= (conflicts(g.n) ? 128 : 256) &&
         rows_in_l2(g.n, cache) * 3 / 2 >= fewest_rows_together;
}

// direct: where L3 is far and a thread has few rows, strips of b so short that they take about half
// of L1, and more passes over c. (Sapphire Rapids, GF/s with all of k and with blocks of about 128:
// one thread 200 × 208 × 200 95 and 106, 256³ 97 and 102, 320³ 92 and 96, but 384³ 94 and 93, 400 ×
// 256 × 512 92 and 89; two threads 240³ 170 and 207, 320³ 167 and 205, 200 × 500 × 500 168 and 199,
// along k 384³ 154 and 177, and against packing it 512³ 156 and 170; 16 threads 512³ 1370 and
// 1140.)
inline int64_t short_strip(const TileShape& tile, const Caches& cache) {
  return cache.l1 / 2 / (float_bytes * tile.nr());
}
inline bool short_strips(const Gemm& g, const TileShape& tile, const Caches& cache, int threads) {
  const int64_t rows = g.batch < threads ? g.m / threads : g.m;  // of a thread
  return cache.far_l3 && threads < many_threads && !g.prepack && !deep(g) && rows > tile.mr &&
         rows <= 320 && g.n > 2 * tile.nr() && 2 * g.k > 3 * short_strip(tile, cache) &&
         (g.trans_b || !conflicts(g.n)) && g.k * g.n * float_bytes <= cache.l2 / 2;
}

// FarDot: the few side stays in L1 as a whole, beside rows of the long side that pass through.
inline bool few_in_l1(int64_t few, int64_t k, const Caches& cache) {
  return few * k * float_bytes <= cache.l1 * 2 / 3;
}

// dot: the long side comes from afar, and FarDot reads it faster: from five rows on at any distance
// beyond L2 (Zen 5, 4096 × 4096 with 8 columns: 1.3 to 1.6 times as fast, 1500 × 1500 1.25), with
// two to four from memory where a row is so short that the hardware hardly gets to fetch ahead (2
// columns, k = 300: 1.4; but k = 4096 0.9 to 1, and from L3 0.85; where L1 is small, while it holds
// them: Zen 4, 4 columns, k = 1000 1.4). 16 registers hold too few sums.
inline bool far(const Gemm& g, bool flip, const TileShape& tile, const Caches& cache, int threads) {
  const int64_t few = flip ? g.n : g.m, many = flip ? g.m : g.n;
  const int64_t bytes = g.batch * many * g.k * float_bytes;
  const bool short_rows = few >= 2 && (small_l1(cache) ? few_in_l1(few, g.k, cache)
                                                       : few * g.k * float_bytes <= cache.l1 / 4);
  const bool pays = few >= 5 ? bytes > cache.l2 : short_rows && bytes > cache.l3 / 2;
  const bool laid_out = g.batch * few * (g.k + tile.lanes) * float_bytes <= workspace_limit / 4;
  return tile.mr * tile.nv >= 24 && few <= far_limit(threads) && pays && laid_out;
}

// dot: a single row from memory, where L3 is near: no more streams than the hardware follows well
// (Zen 5, 4096 × 4096: four rows as fast as a loop that only reads, eight 4 to 16 % slower, and any
// prefetch instruction costs a tenth or more; but from L3 eight were 9 % faster, and where that is
// far 6 to 12 % from memory too). A Zen 4 follows eight (one thread, k = 4096 1.1, 1500 and 300 1.2
// to 1.3 times as fast as four; two threads 1.0 and 1.2; twelve 1.0 to 1.4 and 0.9 to 1.1).
inline int64_t streams_from_memory(const Caches& cache) { return small_l1(cache) ? 8 : 4; }

// A b along k that stays in L2, and few rows that read it: what turning it costs is worth avoiding.
// (Measured with AVX-512 and one thread. In 200 batches of 32 × 256 × 256 turning is 10 % faster.)
inline bool turned_seldom(const Gemm& g, const TileShape& tile, const Caches& cache) {
  return g.trans_b && !g.prepack && g.batch == 1 && 2 * g.m <= g.n &&
         g.k * g.n * float_bytes <= cache.l2 / 4 && tile.mr * tile.nv >= 24;
}
// By dot products (Sapphire Rapids, GF/s, b turned and not: n = 256, k = 512: 9 rows 35 and 62, 16
// 51 and 69, 24 62 and 69, 32 67 and 70; k = 256: 12 rows 44 and 55, 16 51 and 56, 20 57 and 55).
inline bool dot_near(const Gemm& g, const TileShape& tile, const Caches& cache) {
  return turned_seldom(g, tile, cache) && g.m <= 24 && 20 * g.m <= g.k;
}
// By rows of c's transpose, which is turned instead: an element of either costs as much as 12
// products, and the tiles waste the lanes that m lacks, and a tenth; those of a single vector, with
// a load for each product, half. (n = k = 256: 16 rows 51 and 59, 24 60 and 59, 32 66
// and 77, 40 70 and 71, 48 74 and 85, 64 78 and 77.)
inline bool turn_c(const Gemm& g, const TileShape& tile, const Caches& cache) {
  const auto m = static_cast<double>(g.m), n = static_cast<double>(g.n);
  const auto k = static_cast<double>(g.k);
  const double vectors = static_cast<double>(div_up(g.m, tile.lanes));
  const double products = (vectors > 1 ? 1.1 : 1.5) * vectors * static_cast<double>(tile.lanes);
  return turned_seldom(g, tile, cache) && products * n * k + 12 * m * (n + k) < (m + 12) * n * k;
}

// dot, stream: where both sides would do, the shorter one is the few. packed: a long b that lies
// along k is read in place, a row of c's transpose for each of its rows, and a is packed instead;
// packing a b from beyond L2 would cost as much as 32 of a's rows, turning c as much as 32 of k.
// Rows that a thread or two read from an L3 that is far outweigh that earlier (Sapphire Rapids, n =
// 3072, k = 768: 320 rows 112 and packed 103 GF/s, 384 107 and 108, 448 101 and 111; but 512 on 16
// threads 1260 and 1020).
inline bool flipped(Path path, const Gemm& g, const Caches& cache, int threads) {
  if (path == Path::packed) {
    const int64_t most = cache.far_l3 && threads < many_threads ? 384 : 512;
    return g.trans_b && !g.prepack && g.m <= most && 2 * g.m <= g.n;
  }
  if (path == Path::dot) return dot_from_a(g) && (g.n <= g.m || !dot_from_b(g));
  if (path == Path::stream) return stream_from_a(g) && (g.n <= g.m || !stream_from_b(g));
  return false;
}

// A single column of c, if it lies side by side, is a row, along which vectors run: cᵀ = op(b)ᵀ ·
// op(a)ᵀ. Not with a b packed beforehand, as columns.
inline bool is_column(const Gemm& g) { return g.n == 1 && g.m > 1 && !g.prepack; }
inline Gemm column_as_row(Gemm g) {
  if (!is_column(g)) return g;
  std::swap(g.m, g.n);
  std::swap(g.trans_a, g.trans_b);
  g.trans_a = !g.trans_a;
  g.trans_b = !g.trans_b;
  return g;
}

// Most rows or columns of c that dot products serve from any cache, and how deep k must be for so
// many columns, whose dot products end in sums across lanes. (Times by dot products over those of
// tiles, 300 rows. Sapphire Rapids: 2 columns, k = 20 0.40, 3 0.65, 4 0.93, 5, k = 32 0.88, 6, k =
// 48 0.88, 8 0.69, 10, k = 96 0.95, 128 0.70, 12 0.97 and 0.71. Zen 4, where tiles of half a vector
// are twice as fast: 2, k = 20 0.71, 3, k = 24 0.95, 4, k = 32 0.77, 5, k = 48 0.85, 6, k = 64
// 0.98, 8, k = 96 1.01, 10 0.82, 12 0.91. AVX2 there: 2, k = 20 0.83, 4, k = 28 1.01, 5, k = 80
// 1.18, 8, k = 96 0.98.) Of so many rows, whose b along k tiles turn first, 12 times as deep on
// both (4, k = 48 0.84 and 0.86, 8, k = 96 0.88 and 0.94, 12, k = 128 0.93 and 0.91). In batches
// more rows than dot_limit are left to tiles (1000 of 12 × 64 × 256: 1.23 on Zen 4, on one thread
// of a Sapphire Rapids 1.4).
inline int64_t most_dots(const TileShape& tile) { return tile.mr * tile.nv >= 24 ? 12 : dot_limit; }
inline int64_t dot_depth_of_columns(int64_t n, const TileShape& tile, const Caches& cache) {
  if (n <= 4) return std::max(8 * n - 4, tile.lanes * 3 / 4);
  if (tile.mr * tile.nv < 24) return 16 * n;
  return (n <= 8 && !small_l1(cache) ? 8 : 12) * n;
}

// Where L1 is small and L3 near, dot products whose few side L1 does not hold read rows from memory
// in chunks, which a Zen 4 does badly; tiles of half a vector read them from end to end (times by
// dot products over those of tiles, one and two threads: 8 × 15000 × 1000 1.7 and 1.4, 6 × 15000 ×
// 1000 1.4 and 1.3, 5 × 7500 × 2000 1.2 and 0.9; from L3 8 × 2000 × 1000 1.02 and 1.08, 6 0.77).
inline bool half_tiles_pay(const Gemm& g, bool flip, const TileShape& tile, const Caches& cache) {
  const int64_t few = flip ? g.n : g.m, many = flip ? g.m : g.n;
  return small_l1(cache) && !cache.far_l3 && few >= 6 && 2 * few <= tile.lanes &&
         !few_in_l1(few, g.k, cache) && g.batch * many * g.k * float_bytes > cache.l3 / 2;
}

// All columns as vectors down them take of every k a line of each of a's rows: those have to be
// near, or so few that the hardware follows them all. (Times of `stream` over theirs, 1 and 2
// threads. Zen 4, from L3: 20000 × 2 × 64 1.44 and 1.57, 3000 × 4 × 300 1.08 and 1.12, 3000 × 2 ×
// 500 0.97 and 1.00, × 3 × 1000 0.89 and 0.93; from memory 1000000 × 3 × 16 1.55 and 1.42, 400000 ×
// 2 × 20 0.93 and 1.03, 400000 × 4 × 24 0.61 and 0.56. Sapphire Rapids, 1 and 4 threads: 400000 × 2
// × 20 1.6 and 2.0, × 32 1.9 and 1.7, 65536 × 3 × 60 0.94 and 1.1.)
inline int64_t deepest_down(const Gemm& g, const Caches& cache) {
  if (g.m * g.k * float_bytes <= cache.l2 / 2) return 4096;
  if (cache.far_l3) return 32;
  return g.batch * g.m * g.k * float_bytes <= cache.l3 * 3 / 8 ? 512 : 16;
}

// The last columns, or all, as vectors down them, where a lies across k: few enough, and rows
// enough to fill a vector. Down them a vector of rows costs an FMA for each
// column and k, in tiles as many as there are lanes, half of them where half vectors take half the
// time; but the sums are turned, and stored in up to three pieces a row. (Times of tiles over those
// down the columns, m × n × k. Zen 4: 1000 × 2 × 4 4.5, 300 × 4 × 4 2.1, 1000 × 5 × 4 1.13, 300 × 6
// × 6 1.01, 200 × 7 × 7 0.83, × 50 1.15, 300 × 17 × 3 1.13, × 18 × 8 1.11, × 19 × 4 0.91, × 21 × 10
// 0.99, × 22 × 30 1.10, × 24 × 30 1.00. Sapphire Rapids: 1000 × 2 × 4 6.4, 400 × 8 × 8 1.36, × 30
// 1.75, 300 × 17 × 3 0.98, × 18 × 8 1.10, × 19 × 4 0.76, × 21 × 10 0.91, × 22 × 30 1.08, 500 × 23 ×
// 16 0.71, × 24 × 60 1.21 and, two threads, 0.94. AVX2 on the Zen 4: 1000 × 5 × 4 1.74, 300 × 9 × 3
// 1.22, × 19 × 4 1.00, × 22 × 4 1.01.)
inline bool goes_down(const Gemm& g, const TileShape& tile, const Caches& cache) {
  const int64_t tail = g.n % tile.lanes;
  if (!g.trans_a || g.prepack || tail == 0 || tail > most_down) return false;
  if (g.n >= 16 * tile.lanes) return false;
  const bool all = g.n == tail, halved = small_l1(cache);
  const bool worthwhile = g.m >= (all || halved ? 1 : 4) * tile.lanes;
  // Of few rows and a deep k, threads share k, which they cannot where there is a tail.
  const bool shallow = all ? g.k <= deepest_down(g, cache) : g.k < 512 || g.m >= 512;
  if (!worthwhile || !shallow) return false;
  if (tile.mr * tile.nv < 24) return tail < tile.lanes - 1;
  const int64_t saved = ((halved ? tile.lanes / 2 : tile.lanes) - tail) * g.k;
  const int64_t stores = tail / 4 + (tail % 4 + 1) / 2;  // of 1, 2 or 4 floats, for each row
  if (all) return tail <= 4 || saved >= (halved ? 16 * stores - 20 : 0);
  return tail <= 6 && saved >= (halved ? 16 * stores + 8 : 48 * stores * stores);
}

// Columns of b that would fill only a little of a last vector, in products narrow enough to notice:
// dot products along k instead (Zen 5: 97³ 217 → 250 GF/s). Not so wide that sums across lanes cost
// more than the lanes saved, k no longer than turned columns stay in L1, and rows enough to pay for
// the turning (Sapphire Rapids, without and with: 4 × 51 × 380 45 and 39 GF/s, 8 × 97 × 97 95 and
// 108, 16 × 52 × 40 90 and 85).
inline int64_t tail_columns(const Gemm& g, const TileShape& tile, const Caches& cache) {
  const int64_t tail = g.n % tile.lanes;
  if (g.trans_a) return goes_down(g, tile, cache) ? tail : 0;
  const bool narrow = g.n > tile.lanes && g.n < 16 * tile.lanes;
  const bool pays = tail <= 4 && g.k >= 2 * tile.lanes && g.k <= 1024;
  const bool turned_for_many = g.m >= 8 && g.m * g.k >= 768;
  return narrow && pays && turned_for_many && !g.trans_b ? tail : 0;
}

// THE table of paths, first match wins.
inline Path choose(const Gemm& g, const TileShape& tile, const Caches& cache, int threads) {
  const int64_t b_bytes = g.k * g.n * float_bytes;
  const int64_t a_bytes = g.m * g.k * float_bytes;
  const bool a_from_memory = cache.far_l3 && a_bytes > 8 * cache.l2;
  const bool b_from_memory = cache.far_l3 && b_bytes > 8 * cache.l2;
  const bool few_n =
      g.n <= most_dots(tile) || (a_from_memory && far(g, true, tile, cache, threads));
  const bool few_m = g.m <= (g.batch == 1 ? most_dots(tile) : dot_limit) ||
                     (b_from_memory && far(g, false, tile, cache, threads)) ||
                     (threads == 1 && dot_near(g, tile, cache));
  // Tiles of four rows and more read a b in place sooner than `stream` passes over it, while all
  // threads' L2 hold it, not quite full, and its rows do not collide (Sapphire Rapids, GF/s of
  // stream and tiles, one thread: 4 × 4608 × 62 57 and 62, 16 × 1100 × 400 66 and 71, but 12 × 800
  // × 800 69 and 54, 8 × 1024 × 512 72 and 43; two threads: 8 × 500 × 1200 82 and 113, 8 × 1000 ×
  // 800 68 and 106, 12 × 800 × 800 104 and 169, but 2 × 700 × 500 44 and 29; 16 threads: 1 × 2000
  // × 2000 88 and 352, 2 × 4000 × 400 220 and 375).
  const bool b_in_l2 =
      b_bytes <= cache.l2 / 2 ||
      ((g.m >= 4 || threads >= many_threads) && !conflicts(g.n) && fits_far_l2(g, cache, threads));
  const bool a_in_l2 = a_bytes <= cache.l2 / 2;
  // Packing b pays when it is read often, and from afar: in place the strip that comes next is
  // fetched ahead (Zen 5: 512³ 99 % of the FMA peak in place, 95 % packed; 2000³ the other way).
  // Where L3 is far, colliding lines make even a few reads of them slow, if not read row by row (32
  // × 16384 × 2048: 24 GF/s in place, 50 packed).
  const bool far_collision = cache.far_l3 && conflicts(g.n) && b_bytes > cache.l2;
  const bool seldom = (g.m <= 256 && !far_collision) || g.k <= short_k;
  // Many threads copy strips whose lines collide for themselves, from 256 rows on (`copied` in
  // block_sizes), sooner than they wait for each other's.
  const bool collides = conflicts(g.n) && (threads < many_threads || b_bytes > 4 << 20);
  // Vectors that cross lines are loaded twice (Sapphire Rapids, 613×587×641: 139 GF/s in place, 158
  // packed). Where L3 is near that costs little while b stays in L2 (Zen 4, times in place over
  // packed, on 1 and 2 threads: 1000×97×97 0.89 and 0.87, 257³ 0.98 and 0.88, 500×503×500 1.00 and
  // 0.98, 900×777×300 1.06 and 1.00).
  const bool rows_cross_lines =
      g.n % 16 != 0 && threads < many_threads && b_bytes > (cache.far_l3 ? cache.l1 : cache.l2 / 2);
  // An L3 that is far keeps few threads waiting for what L2 does not hold beside the rest, the more
  // so the busier its other users are (Sapphire Rapids, GF/s in place and packed, beside busy ones:
  // 1 thread 448³ 89 and 86, 640³ 67 and 73, 768³ 65 and 77; 2 threads 448³ 156 and 165, 512³ 75
  // and 165, 2000 × 480 × 480 72 and 148; beside idle ones packing costs 0 to 2 %, on 2 threads 1
  // to 10). In short strips two threads have what they need.
  const bool shared_strips = threads > 1 && short_strips(g, tile, cache, threads);
  const bool b_waits =
      cache.far_l3 && threads < many_threads && b_bytes > cache.l2 * 3 / 8 && !shared_strips;
  const bool b_near =
      !collides && !rows_cross_lines && !b_waits && b_bytes <= near_bytes(cache, threads);
  const bool streams_b = g.m <= stream_limit && stream_from_b(g) && !b_in_l2;
  // A few columns of c are formed as rows and turned at the end: tiles would leave lanes empty,
  // half of them or more from k = 4 n on, fewer only where the products outweigh the turning
  // (Sapphire Rapids, 300 rows, GF/s of tiles and so: 2 columns, k = 20 6 and 15; 8, k = 300 52 and
  // 103; 10, k = 20 33 and 30, 80 67 and 77; 15, k = 80 99 and 79, 300 85 and 95).
  const bool columns_as_rows = g.k >= std::max<int64_t>(4 * g.n, 20 * (g.n - tile.lanes / 2));
  // A b along k from L2 that each thread turns for itself: where it is so short, or rows are so
  // few, that reading it is the work; and where the other way is to turn c for up to four threads
  // (flipped), which costs as 32 of k do, and more rows share the turning of b. (Sapphire Rapids,
  // GF/s packed and turned by each: 3000 columns, k = 48, 4 rows 18 and 32, 32 62 and 74, 128 64
  // and 93; 8 rows, k = 100 27 and 35; 105 × 1200 × 166 95 and 113, 105 × 600 × 300 70 and 78, 200
  // × 2400 × 100 73 and 92, but 105 × 700 × 700 68 and 62, 48 × 1200 × 166 118 and 107; from memory
  // a single row, k = 20 3.3 and 3.5, 8 2.1 and 3.9.)
  const bool rather_than_c = flipped(Path::packed, g, cache, threads) && threads < many_threads &&
                             g.m > 64 && g.k <= 2 * g.m + 100;
  const bool turned_by_each =
      g.trans_b &&
      (b_bytes <= cache.l2 ? g.k <= short_k || g.m <= dot_limit || rather_than_c : g.m <= 2);
  // Many threads each turn their share of b, which stays in their L2, sooner than they pack a
  // together and turn c, unless its columns nearly fill vectors (Sapphire Rapids, 18 × 496 × 1686,
  // 4 threads 186 and 267 GF/s, 16 threads 410 and 529, but 32 × 1024 × 1000 389 and 390, 742 and
  // 715).
  const bool turned_by_many = g.trans_b && g.batch == 1 && threads >= many_threads && g.m <= 128 &&
                              2 * g.m <= g.n && 5 * round_up(g.m, tile.lanes) >= 6 * g.m &&
                              fits_far_l2(g, cache, threads);
  struct Rule {
    bool applies;
    Path path;
  };
  const Rule rules[] = {
      {!g.reads_ab() || g.empty(), Path::scale},
      {few_n && g.n <= g.m && dot_from_a(g) && !half_tiles_pay(g, true, tile, cache) &&
           g.k >= dot_depth_of_columns(g.n, tile, cache),
       Path::dot},
      {few_m && dot_from_b(g) && !half_tiles_pay(g, false, tile, cache) &&
           (g.k >= 12 * g.m || (g.m <= dot_limit && g.k >= 4 * tile.lanes && b_bytes > cache.l2)),
       Path::dot},
      {row_by_row(g, cache, threads), Path::direct},
      {g.n < tile.lanes && goes_down(g, tile, cache), Path::direct},
      // Threads share k: pieces of rows so short are not read faster by two than by one (Sapphire
      // Rapids, 2 threads, GF/s, sharing rows and k: 1 × 256 × 65536 4.1 and 8.4, 12 × 200 × 20000
      // 54 and 107, 8 × 384 × 20000 49 and 53, 2 × 512 × 32768 12.7 and 12.3).
      {streams_b && cache.far_l3 && threads > 1 && g.batch == 1 && deep(g) && g.n <= 384,
       Path::direct},
      {streams_b, Path::stream},
      {g.n <= stream_limit && g.n <= g.m && stream_from_a(g) && (!a_in_l2 || columns_as_rows),
       Path::stream},
      {!g.trans_b && !g.prepack && (seldom || b_near), Path::direct},
      {threads == 1 && turn_c(g, tile, cache), Path::packed},
      // Small enough for every thread to turn the strips of b that it uses.
      {!g.prepack &&
           (deep(g) || (b_bytes <= cache.l2 / 4 && (g.trans_b || !rows_cross_lines)) ||
            (g.trans_b && shared_strips && 2 * g.m > g.n) || turned_by_each || turned_by_many),
       Path::direct},
      // Many threads turn the strips they use sooner than they wait for each other's (Sapphire
      // Rapids, µs packed and turned by each: 16 threads, 384³ 202 and 111, 640³ 503 and 423, 1000³
      // 1631 and 1496, 128 × 2048 × 512 275 and 229, but 2000 × 700 × 300 655 and 720; 8 threads,
      // 640³ 817 and 778, 1000³ 2551 and 2743; 4 threads, 640³ 1364 and 1435).
      {g.trans_b && !g.prepack && g.batch == 1 && threads >= 2 * many_threads && g.m >= 128 &&
           g.m <= 2 * g.n && b_bytes <= threads * (int64_t{256} << 10),
       Path::direct},
      {true, Path::packed},
  };
  return std::find_if(std::begin(rules), std::end(rules), [](const Rule& r) { return r.applies; })
      ->path;
}

// stream by whole rows: what a thread needs of scratch, its sums shifted by up to a page, and
// whether so many rows can be served.
inline int64_t update_floats(int64_t few) { return few * update_ld + page_floats + update_lead; }
inline bool can_update(int64_t few, int threads) {
  return few <= most_updated && threads * update_floats(few) * float_bytes <= workspace_limit;
}

inline double flops_of(const Gemm& g) { return 2.0 * g.batch * g.m * g.n * g.k; }

// An element of a, b or c that is read or written counts as 8 flops, which is 135 GB/s by the same
// measure: of short sums they are most of the work.
inline int threads_for(const Gemm& g, const Environment& env, const Caches& cache) {
  const double elements = static_cast<double>(g.m) * g.n + static_cast<double>(g.k) * (g.m + g.n);
  const double work = flops_of(g) + 8 * static_cast<double>(g.batch) * elements;
  return static_cast<int>(std::clamp(work / flops_per_thread(cache), 1.0,
                                     static_cast<double>(std::max(1, env.threads))));
}

}  // namespace rooflane::gemm
