// Block sizes of the hwy GEMM's paths, which follow from the caches. The choice of path is
// hwy_model.hpp; what a path does with its blocks stands in hwy_*-inl.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/hwy_model.hpp"

namespace rooflane::gemm {

// The tile of a path's strips. direct: where c is most of the traffic and comes from beyond L2, one
// that writes it in long runs; for rows that do not fill a tile, as many more vectors as there are
// registers, in strips nearly as wide as each other (Sapphire Rapids, b of 360 KB in L2, in % of
// MKL: 1 row 64 → 92, 2 70 → 107, 3 79 → 113).
inline TileShape tile_of(Path path, const Gemm& g, TileShape shape, const Caches& cache) {
  if (path != Path::direct) return shape;
  if (g.k <= 4 && g.batch * g.m * g.n * float_bytes > cache.l2) {
    shape.nv = shape.run_nv;
  } else if (g.m > 0 && g.m < shape.mr) {
    const int64_t most = std::min(shape.run_nv, shape.mr * shape.nv / g.m);
    const int64_t vectors = div_up(g.n, shape.lanes);
    shape.nv = std::max(shape.nv, div_up(vectors, div_up(vectors, most)));
  }
  return shape;
}

struct Blocks {
  int64_t mc = 1, kc = 1, nc = 1;
  bool pack_a = false, pack_b = false, sweep = false, fetch = false;
};

// True where all of c stays in an L3 that is near.
inline bool c_is_near(const Gemm& g, const Caches& cache) {
  return !cache.far_l3 && g.batch * g.m * g.n * float_bytes <= cache.l3 / 4;
}

// Bytes of b packed at a time: half of L3 leaves room for c and the streams, and what the limit on
// workspace leaves beside the threads' blocks of a caps it on machines that report a huge L3.
inline int64_t packed_b_limit(const Caches& cache) {
  return std::clamp<int64_t>(cache.l3 / 2, 2 << 20, 24 << 20);
}

// The block sizes of a path.
inline Blocks block_sizes(Path path, const Gemm& g, const TileShape& shape, const Caches& cache,
                          int threads) {
  const TileShape tile = tile_of(path, g, shape, cache);
  Blocks blocks;
  const bool flip = flipped(path, g, cache, threads);
  switch (path) {
    case Path::scale:
      break;
    case Path::dot: {
      // The few side's block takes a quarter of L2; beyond 4096 floats longer runs buy nothing.
      const int64_t few = flip ? g.n : g.m, many = flip ? g.m : g.n;
      blocks.kc = std::clamp<int64_t>(cache.l2 / 4 / (float_bytes * few), 256, 4096);
      // From memory: a chunk of a group of the few takes a third of L1. Equal ones.
      const bool afar = far(g, flip, tile, cache, threads);
      if (afar) {
        const int64_t group = Shares(few, pieces(few, dot_limit)).size(0);
        int64_t chunk = std::max<int64_t>(cache.l1 / 3 / (float_bytes * group), 64);
        // Rows shorter than a page whole, in up to two thirds: so they are read apart (Sapphire
        // Rapids, 8 × 50257 × 768: 33.5 → 45.8 GF/s).
        const bool within_pages = cache.far_l3 && g.k < page_floats;
        if ((within_pages || small_l1(cache)) && few_in_l1(group, g.k, cache)) chunk = g.k;
        blocks.kc = round_up(div_up(g.k, div_up(g.k, chunk)), 16);
      }
      // At least 32 rows a task, so that packing the few side stays cheap.
      blocks.nc = threads == 1 ? many : std::max<int64_t>(32, div_up(many, int64_t{8} * threads));
      // Rows shorter than a page, from an L3 that is far, or beyond, in one chunk of k.
      blocks.sweep = cache.far_l3 && (few == 1 || afar) && g.k <= blocks.kc && g.k < page_floats &&
                     g.batch * many * g.k * float_bytes > cache.l2;
      if (blocks.sweep) {
        const int64_t block = few == 1 ? near_block : far_block;
        if (2 * blocks.nc >= block) blocks.nc = round_up(blocks.nc, block);
      }
      break;
    }
    case Path::stream: {
      const int64_t few = flip ? g.n : g.m, many = flip ? g.m : g.n;
      // Whole rows from memory, and for very few rows of sums always; strips else, which need fewer
      // loads for a product (Zen 5, k × n = 4096² from memory: 2 rows 24 GF/s in strips, 34 by
      // rows, 4 41 and 59, 8 94 and 125, 12 94 and 115, 16 136 and 140; 1024² from L3: 2 65 and 72,
      // 4 121 and 110, 8 189 and 139; Sapphire Rapids, whose L3 is far: 4096², 8 rows 60 and 70, on
      // 16 threads 563 and 785; 2048² as fast either way).
      const int64_t bytes = g.batch * many * g.k * float_bytes;
      const int64_t afar = cache.far_l3 ? 8 * cache.l2 : cache.l3 / 2;
      blocks.sweep = can_update(few, threads) && (few <= 3 || bytes > afar);
      // Strips: as fast 64 deep as 32 to 128, 16 deep a quarter slower for passing over the sums
      // more often; few × nc sums are as large as L1. Whole rows: a quarter of L2, as long ones are
      // read faster.
      blocks.kc = 64;
      const int64_t sums = blocks.sweep ? cache.l2 / 4 : cache.l1;
      blocks.nc = std::max(sums / (float_bytes * few), tile.nr());
      const int64_t tasks = blocks.sweep ? 2 : 4;  // per thread: two are longer rows than four
      if (threads > 1) blocks.nc = std::min(blocks.nc, div_up(many, tasks * threads));
      blocks.nc = round_up(blocks.nc, blocks.sweep ? int64_t{16} : tile.nr());
      if (blocks.sweep) blocks.nc = std::min(blocks.nc, most_update_columns);
      break;
    }
    case Path::direct:
    case Path::packed: {
      const int64_t rows = flip ? g.n : g.m, cols = flip ? g.m : g.n;
      // Tiles read a as fast where it lies, while its blocks stay in L2 and all of it in L3:
      // beyond, rows a power of two apart would evict each other (Zen 5: 512³ 4 % faster in place,
      // 2048³ 10 % slower).
      const bool along_k = flip ? g.trans_b : !g.trans_a;
      // Over many strips packing costs nothing (1000×3000×700: Sapphire Rapids 152 → 163 GF/s, Zen
      // 5 217 → 223).
      const bool few_strips = cols <= 32 * tile.nr();
      const bool a_near = rows * g.k * float_bytes <= near_bytes(cache, threads);
      const bool in_place =
          path == Path::direct || flip || (along_k && !conflicts(g.k) && a_near && few_strips);
      // Strips of b, kc × nr, come from L2 with every tile: at 16 bytes a cycle that is free, and a
      // longer kc means fewer passes over c. Equal blocks of k.
      // Packed beforehand nothing but c is read anew, while a panel of a, mr × kc, stays in L1.
      const int64_t most = in_place ? 512 : g.prepack && g.m <= 256 ? 1024 : 384;
      // Fewer parts of c than threads: they share k, which needs blocks for all (Sapphire Rapids,
      // 84 × 18 × 2520 along k: 8 threads 50 GF/s in one block, 200; 2 threads 40, 67).
      const int64_t row_parts =
          g.trans_b ? divisor_up_to(threads, rows / rows_worth_turning) : div_up(rows, tile.mr);
      const int64_t parts = g.batch * row_parts * div_up(cols, tile.nr());
      const bool shares_k =
          path == Path::direct && g.batch < threads && parts < threads && g.k >= 512;
      int64_t count = div_up(g.k, most);
      if (shares_k) {
        const int64_t wanted =
            round_up(count, deep(g) ? threads : std::max<int64_t>(threads / parts, 1));
        count = std::min(wanted, std::max<int64_t>(g.k / 128, count));
      }
      blocks.kc = div_up(g.k, count);
      // Beyond what is one block anyway: short blocks, so that the rows of a strip and of the next
      // one stay in L2, where those of a virtual machine may lie in a page each; deeper ones for
      // more rows, whose sums cost more (16 rows of 4000: 85 GF/s 48 deep, 40 64 deep; 100 × 1000 ×
      // 1000 116 and, 96 deep, 124).
      if (path == Path::direct && row_by_row(g, cache, threads) &&
          g.k > std::min<int64_t>(128, rows_in_l2(g.n, cache))) {
        const int64_t most_rows = std::max(fewest_rows_together, rows_in_l2(g.n, cache));
        const int64_t wanted = std::clamp<int64_t>(2 * g.m, fewest_rows_together, 96);
        blocks.kc = round_up(div_up(g.k, div_up(g.k, std::min(wanted, most_rows))), 8);
      }
      // Few columns: all of k while their strips take no more than half of L2. Then a, which is
      // most of the traffic, is read in place from end to end and fetched ahead (Zen 5,
      // 4096×32×4096: 94 % of the FMA peak, 71 % in blocks of 512).
      const bool in_l1 = path == Path::direct && short_strips(g, tile, cache, threads);
      const bool one_tile = path == Path::direct && rows <= tile.mr;
      const bool few = !in_l1 && !shares_k && (along_k || one_tile) &&
                       cols * g.k * float_bytes <= cache.l2 / 2 &&
                       tile.nr() * g.k * float_bytes <= workspace_limit / 2 / threads;
      if (in_l1) blocks.kc = div_up(g.k, div_up(g.k, short_strip(tile, cache)));
      if (few) {
        blocks.kc = std::max<int64_t>(g.k, 1);
        blocks.sweep = true;
      }
      // A block of a, mc × kc, takes a third of L2, less where very many threads share the limit,
      // and no more than it needs for strips of b to be read seldom (Sapphire Rapids, 1024³: 160
      // GF/s with 350 KB, 153 with 1 MB; Zen 5: as fast with 260 to 510 KB); a quarter where it is
      // read in place.
      const int64_t most_bytes =
          in_place ? cache.l2 / 4 : std::min(cache.l2 / 3, int64_t{384} << 10);
      const int64_t a_bytes = std::min(most_bytes, workspace_limit / 2 / threads);
      blocks.mc = std::max(a_bytes / (float_bytes * blocks.kc) / tile.mr, int64_t{1}) * tile.mr;
      blocks.mc = std::min(blocks.mc, round_up(rows, tile.mr));
      // Sums of c's transpose stay in a quarter of L2 until they are turned.
      if (flip)
        blocks.mc = std::min(blocks.mc, round_up(cache.l2 / 4 / float_bytes / cols, tile.mr));
      blocks.nc = round_up(cols, tile.nr());
      if (path == Path::direct) {
        // Strips that many rows read are copied, so that theirs do not evict each other from L1
        // (Zen 5, 2048² of k = 64: 255 against 203 GF/s, of k = 16: 200 and 170), and those whose
        // lines collide (Sapphire Rapids, 1024³ on 4, 8, 16 threads: in place 317, 472, 892 GF/s,
        // copied 481, 825, 1117, packed together 457, 788, 1108).
        const bool colliding = cache.far_l3 && conflicts(g.n) && threads >= many_threads;
        const bool copied =
            rows >= 256 && cols * g.k * float_bytes > cache.l1 && (g.k <= short_k || colliding);
        blocks.pack_b = g.trans_b || copied;
        // Along the rows of tiles: where c is most of the traffic, which likes long runs, and where
        // all strips' share of a block stays in L2, so that tiles of a, read from afar, are used up
        // at once. Several blocks of k: only where each is read often enough to be there. A c that
        // comes and goes between L2 and most of L3 is fetched ahead better down the columns (Zen 5,
        // 2048² on 2 threads: k = 16 294 against 250 GF/s, k = 24 365 and 287; 4 MB of c 323 and
        // 360), but not where L3 is far (Sapphire Rapids, 4096²: k = 16 28 and 65, k = 64 69 and
        // 119).
        const int64_t c_bytes = g.batch * g.m * g.n * float_bytes;
        const bool c_in_l3 = g.k > 8 && c_bytes > cache.l3 / 4 && c_bytes <= cache.l3;
        const bool down = c_in_l3 && !cache.far_l3;
        const bool b_stays = blocks.kc * cols * float_bytes <= cache.l2 / 4 &&
                             (blocks.kc >= g.k || rows > 32 * tile.mr);
        // Inner products, where L3 is far: a's rows, from memory, are so used up at once. (Sapphire
        // Rapids, 64 × 64 × 65536 53 → 56 GF/s, 128 × 128 × 16384 75 → 80, turned 78 → 93, but 17 ×
        // 501 × 9000 46 → 40. Fetching the beginnings of the next tile's rows gained nothing.)
        const bool a_once =
            cache.far_l3 && deep(g) && along_k && cols > tile.nr() && 2 * rows >= cols;
        // Rows of b in place, where L3 is far: down the columns a strip is read from L2 once for
        // all rows, along the rows once for each tile's (Sapphire Rapids, GF/s along and down, 1
        // thread: 33 × 2000 × 100 77 and 85, 64 × 1000 × 100 83 and 90, 150 × 500 × 300 84 and 92,
        // but 33 × 2000 × 24 76 and 75, 150 × 4000 × 55 81 and 76, 1000 × 200 × 200 78 and 76; 2
        // threads: 16 × 2000 × 100 111 and 138, 150 × 1000 × 100 90 and 133, 2000 × 300 × 300 94
        // and 119).
        const bool all_near =
            rows * blocks.kc * float_bytes <= cache.l2 / 4 && c_bytes <= cache.l2 / 2;
        // Only along rows of tiles are the columns of a transposed a fetched a tile ahead.
        const bool far_columns = g.trans_a && g.m * g.k * float_bytes > cache.l2 / 2;
        const bool strip_once = cache.far_l3 && !blocks.pack_b && !a_once && !far_columns &&
                                rows > tile.mr && blocks.kc > 40 &&
                                blocks.kc * cols * float_bytes > cache.l1 &&
                                (threads == 1 ? all_near : threads < 2 * many_threads);
        blocks.sweep = g.k <= short_k && rows >= 256
                           ? !down
                           : !strip_once && (blocks.sweep || (b_stays && !in_l1) || a_once);
        // What a thread packs of b at a time takes half of L2, or its share of the limit.
        const int64_t b_bytes = std::min(cache.l2 / 2, workspace_limit / 2 / threads);
        blocks.nc = std::min(blocks.nc, round_up(b_bytes / float_bytes / blocks.kc, tile.nr()));
        blocks.fetch = !blocks.pack_b && row_by_row(g, cache, threads);
        break;
      }
      // All of k of nc columns where that leaves 2048 of them; a is packed n / nc times.
      blocks.nc = std::min(
          blocks.nc,
          round_up(std::max<int64_t>(2048, packed_b_limit(cache) / float_bytes / g.k), tile.nr()));
      blocks.pack_a = !in_place && !few;
      blocks.sweep |= flip;
      break;
    }
  }
  return blocks;
}

}  // namespace rooflane::gemm
