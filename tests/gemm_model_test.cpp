// Which path and blocks the hwy GEMM takes, for machines made up for the purpose: nothing is run.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/catalogue.hpp"
#include "core/problem.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_block_sizes.hpp"
#include "kernels/gemm/hwy_model.hpp"

using namespace rooflane;
using namespace rooflane::gemm;
using namespace std::string_literals;

namespace {

constexpr Caches near_l3 = {48 << 10, 1 << 20, 32 << 20, false};
constexpr Caches far_l3 = {48 << 10, 2 << 20, 100 << 20, true};
constexpr Caches near_small_l1 = {32 << 10, 1 << 20, 32 << 20, false};
constexpr Caches far_small_l1 = {32 << 10, 1 << 20, 100 << 20, true};
constexpr TileShape wide = {16, 8, 3, 8};   // AVX-512's: 32 registers of 16 floats
constexpr TileShape narrow = {8, 6, 2, 6};  // AVX2's: 16 of 8

Gemm gemm_of(const std::string& shape) {
  return Gemm(parse_problem("gemm:" + shape, Catalogue::built_in().kernels()));
}

// The path, and whether a and b change places in it.
std::tuple<Path, bool> way(const char* shape, const Caches& cache, int threads = 1,
                           const TileShape& tile = wide) {
  const Gemm g = gemm_of(shape);
  const Path path = choose(g, tile, cache, threads);
  return {path, flipped(path, g, cache, threads)};
}

Path path_of(const char* shape, const Caches& cache, int threads = 1) {
  return std::get<0>(way(shape, cache, threads));
}

Blocks blocks(const char* shape, const Caches& cache, int threads = 1) {
  const Gemm g = gemm_of(shape);
  return block_sizes(choose(g, wide, cache, threads), g, wide, cache, threads);
}

}  // namespace

TEST_CASE("the chosen path can serve the problem, and its blocks hold something") {
  int problems = 0;
  const auto check = [&](const Gemm& g, const Caches& cache, const TileShape& tile, int threads) {
    const Path path = choose(g, tile, cache, threads);
    const Blocks b = block_sizes(path, g, tile, cache, threads);
    if (!allowed(path, g) || b.mc < 1 || b.kc < 1 || b.nc < 1) {
      FAIL_CHECK(g.m, " ", g.n, " ", g.k, " ", g.trans_a, " ", g.trans_b, " ", g.prepack, " ",
                 g.batch, " ", threads);
    }
    ++problems;
  };
  const auto on_every_machine = [&](const Gemm& g) {
    for (const int threads : {1, 2, 16}) {
      for (const TileShape& tile : {wide, narrow}) {
        for (const Caches& cache : {near_l3, far_l3, near_small_l1, far_small_l1}) {
          check(g, cache, tile, threads);
        }
      }
    }
  };
  Gemm g = gemm_of("m=1,n=1,k=1");
  for (const int64_t m : {1, 2, 5, 9, 12, 16, 24, 33, 48, 64, 130, 400, 600, 2000}) {
    for (const int64_t n : {1, 3, 8, 17, 64, 100, 256, 700, 4096}) {
      for (const int64_t k : {1, 4, 16, 70, 256, 513, 4096, 20000}) {
        for (int flags = 0; flags < 16; ++flags) {
          g.m = m, g.n = n, g.k = k;
          g.trans_a = (flags & 1) != 0, g.trans_b = (flags & 2) != 0;
          g.prepack = (flags & 4) != 0, g.batch = (flags & 8) != 0 ? 3 : 1;
          on_every_machine(g);
        }
      }
    }
  }
  CHECK(problems == 14 * 9 * 8 * 16 * 2 * 4 * 3);
}

TEST_CASE("a b along k that stays in L2 is not turned for few rows") {
  for (const Caches& cache : {near_l3, far_l3}) {
    CHECK(way("m=12,n=128,k=512,trans_b=1", cache) == std::tuple(Path::dot, false));
    CHECK(way("m=24,n=128,k=512,trans_b=1", cache) == std::tuple(Path::dot, false));
    CHECK(way("m=32,n=256,k=256,trans_b=1", cache) == std::tuple(Path::packed, true));
    CHECK(way("m=48,n=256,k=256,trans_b=1", cache) == std::tuple(Path::packed, true));
    // The lanes that 40 rows waste, and many rows, cost more.
    CHECK(way("m=40,n=256,k=256,trans_b=1", cache) == std::tuple(Path::direct, false));
    CHECK(way("m=128,n=256,k=256,trans_b=1", cache) == std::tuple(Path::direct, false));
    // Several threads, batches and tiles of 16 registers were not faster so.
    CHECK(way("m=32,n=256,k=256,trans_b=1", cache, 2) == std::tuple(Path::direct, false));
    CHECK(way("m=12,n=128,k=512,trans_b=1,batch=9", cache) == std::tuple(Path::direct, false));
    CHECK(way("m=16,n=128,k=512,trans_b=1", cache, 1, narrow) == std::tuple(Path::direct, false));
  }
}

TEST_CASE(
    "a long b along k is read in place by up to 512 rows, 384 where few threads have it far") {
  CHECK(way("m=384,n=3072,k=768,trans_b=1", near_l3) == std::tuple(Path::packed, true));
  CHECK(way("m=385,n=3072,k=768,trans_b=1", near_l3) == std::tuple(Path::packed, true));
  CHECK(way("m=513,n=3072,k=768,trans_b=1", near_l3) == std::tuple(Path::packed, false));
  CHECK(way("m=384,n=3072,k=768,trans_b=1", far_l3) == std::tuple(Path::packed, true));
  CHECK(way("m=385,n=3072,k=768,trans_b=1", far_l3) == std::tuple(Path::packed, false));
  CHECK(way("m=385,n=3072,k=768,trans_b=1", far_l3, 16) == std::tuple(Path::packed, true));
}

TEST_CASE("where L3 is far, inner products of long vectors read a once") {
  CHECK(blocks("m=64,n=64,k=65536", far_l3).sweep);
  CHECK(blocks("m=128,n=128,k=16384,trans_b=1", far_l3).sweep);
  CHECK(!blocks("m=64,n=64,k=65536", near_l3).sweep);
  CHECK(!blocks("m=17,n=501,k=9000", far_l3).sweep);
  CHECK(!blocks("m=64,n=64,k=65536,trans_a=1", far_l3).sweep);
}

TEST_CASE("where L3 is far, short rows that are read at once are not neighbours") {
  CHECK(blocks("m=1,n=50257,k=768,trans_b=1", far_l3).sweep);
  CHECK(blocks("m=50257,n=8,k=256", far_l3).sweep);
  CHECK(!blocks("m=1,n=50257,k=768,trans_b=1", near_l3).sweep);
  CHECK(!blocks("m=1,n=50257,k=1024,trans_b=1", far_l3).sweep);
  CHECK(!blocks("m=1,n=500,k=768,trans_b=1", far_l3).sweep);
  CHECK(blocks("m=8,n=50257,k=1000,trans_b=1", far_l3).sweep);
  CHECK(!blocks("m=8,n=50257,k=1023,trans_b=1", Caches{32 << 10, 2 << 20, 100 << 20, true})
             .sweep);  // in chunks of k
}

TEST_CASE("where L3 is far, up to 16 rows are dot products, from four threads on up to 12") {
  CHECK(path_of("m=16,n=4096,k=4096,trans_b=1", far_l3) == Path::dot);
  CHECK(path_of("m=17,n=4096,k=4096,trans_b=1", far_l3) == Path::packed);
  CHECK(path_of("m=12,n=4096,k=4096,trans_b=1", far_l3, 4) == Path::dot);
  CHECK(path_of("m=13,n=4096,k=4096,trans_b=1", far_l3, 4) == Path::packed);
}

TEST_CASE("where L3 is far, threads share k rather than short rows of b") {
  CHECK(path_of("m=8,n=256,k=65536", far_l3, 2) == Path::direct);
  CHECK(path_of("m=8,n=256,k=65536", far_l3) == Path::stream);
  CHECK(path_of("m=8,n=256,k=65536", near_l3, 2) == Path::stream);
  CHECK(path_of("m=8,n=400,k=65536", far_l3, 2) == Path::stream);
  CHECK(path_of("m=8,n=256,k=8192,batch=64", far_l3, 2) == Path::stream);
}

TEST_CASE("where L3 is far, the strips of b that few rows read stay in half of L1") {
  struct Case {
    const char* shape;
    int threads;
  };
  for (const Case& c :
       {Case{"m=320,n=320,k=320", 1}, Case{"m=512,n=512,k=512", 2},
        Case{"m=512,n=512,k=512,trans_b=1", 2}, Case{"m=200,n=300,k=400,trans_a=1", 2}}) {
    CAPTURE(c.shape);
    CAPTURE(c.threads);
    const Blocks b = blocks(c.shape, far_l3, c.threads);
    CHECK(b.kc * wide.nr() * float_bytes <= far_l3.l1 / 2);
    CHECK(!b.sweep);
    CHECK(path_of(c.shape, far_l3, c.threads) == Path::direct);
    CHECK(blocks(c.shape, near_l3, c.threads).kc > b.kc);
    CHECK(blocks(c.shape, far_l3, 4).kc > b.kc);
  }
  CHECK(blocks("m=321,n=320,k=320", far_l3).kc == 320);              // many rows
  CHECK(blocks("m=320,n=96,k=320", far_l3).kc == 320);               // two strips
  CHECK(blocks("m=320,n=320,k=192", far_l3).kc == 192);              // as good as one block
  CHECK(blocks("m=600,n=320,k=320,batch=64", far_l3, 2).kc == 320);  // a product is one thread's
  CHECK(blocks("m=200,n=1024,k=256", far_l3).kc == 256);             // rows collide in L1
  CHECK(path_of("m=200,n=1000,k=512,trans_b=1", far_l3, 2) == Path::packed);
  CHECK(path_of("m=512,n=528,k=512", far_l3, 2) == Path::packed);  // more than half of L2
}

TEST_CASE("many threads turn a b along k for themselves, while it is short and read often") {
  CHECK(path_of("m=640,n=640,k=640,trans_b=1", far_l3, 16) == Path::direct);
  CHECK(path_of("m=640,n=640,k=640,trans_b=1", far_l3, 4) == Path::packed);
  CHECK(path_of("m=100,n=640,k=640,trans_b=1", far_l3, 16) == Path::packed);
  CHECK(path_of("m=2000,n=700,k=300,trans_b=1", far_l3, 16) == Path::packed);
  CHECK(path_of("m=1000,n=1000,k=1000,trans_b=1", far_l3, 16) == Path::direct);
  CHECK(path_of("m=1000,n=1000,k=1000,trans_b=1", far_l3, 8) == Path::packed);
  CHECK(path_of("m=1100,n=1100,k=1100,trans_b=1", far_l3, 16) == Path::packed);
  CHECK(path_of("m=640,n=640,k=640,trans_b=1,prepack=1", far_l3, 16) == Path::packed);
}

TEST_CASE("where L3 is far, few threads read a b in place that stays in L2") {
  CHECK(path_of("m=432,n=432,k=432", far_l3) == Path::direct);
  CHECK(path_of("m=512,n=512,k=512", far_l3) == Path::packed);
  CHECK(path_of("m=512,n=512,k=512", far_l3, 16) == Path::direct);
  CHECK(path_of("m=512,n=512,k=512", near_l3) == Path::direct);
}

TEST_CASE("where L3 is far, tiles of few rows read a b that the threads' L2 hold") {
  CHECK(path_of("m=4,n=1000,k=300", far_l3) == Path::direct);
  CHECK(path_of("m=3,n=1000,k=300", far_l3) == Path::stream);
  CHECK(path_of("m=4,n=1000,k=300", near_l3) == Path::stream);
  CHECK(path_of("m=4,n=1000,k=500", far_l3) == Path::stream);
  CHECK(path_of("m=4,n=1000,k=500", far_l3, 2) == Path::direct);
  CHECK(path_of("m=4,n=1024,k=500", far_l3, 2) == Path::stream);  // rows collide
  CHECK(path_of("m=1,n=2000,k=2000", far_l3, 16) == Path::direct);
  CHECK(path_of("m=1,n=2000,k=2000", far_l3, 4) == Path::stream);
}

TEST_CASE("where L3 is far, a strip of b in place is read once for all rows near by") {
  CHECK(!blocks("m=64,n=1000,k=100", far_l3).sweep);
  CHECK(blocks("m=64,n=1000,k=100", near_l3).sweep);
  CHECK(blocks("m=33,n=2000,k=24", far_l3).sweep);  // c is the work
  CHECK(blocks("m=8,n=1000,k=100", far_l3).sweep);  // for one tile
  CHECK(blocks("m=64,n=96,k=96", far_l3).sweep);    // all of b in L1
  CHECK(blocks("m=2000,n=96,k=200", far_l3).sweep);
  CHECK(!blocks("m=2000,n=96,k=200", far_l3, 2).sweep);
  CHECK(blocks("m=2000,n=96,k=200", far_l3, 8).sweep);
}

TEST_CASE(
    "where L3 is far, the columns of a transposed a from there are read along rows of tiles") {
  CHECK(blocks("m=3000,n=160,k=400,trans_a=1", far_l3, 2).sweep);
  CHECK_FALSE(blocks("m=3000,n=160,k=400", far_l3, 2).sweep);
  CHECK_FALSE(blocks("m=600,n=160,k=400,trans_a=1", far_l3, 2).sweep);  // a stays in L2
}

TEST_CASE("many threads copy strips of b whose lines collide") {
  const char* colliding = "m=1024,n=1024,k=1024";
  CHECK(path_of(colliding, far_l3, 16) == Path::direct);
  CHECK(blocks(colliding, far_l3, 16).pack_b);
  CHECK(blocks("m=1024,n=1024,k=64", far_l3, 16).pack_b);
  CHECK_FALSE(blocks("m=1024,n=1040,k=1024", far_l3, 16).pack_b);
  CHECK_FALSE(blocks("m=250,n=1024,k=200", far_l3, 16).pack_b);  // too few rows read them
  CHECK_FALSE(blocks("m=2000,n=1024,k=4", far_l3, 16).pack_b);   // L1 holds them all
  CHECK(path_of(colliding, far_l3, 2) == Path::packed);
}

TEST_CASE("columns are dot products from the depth on that pays for so many sums across lanes") {
  // The depth from which on n columns are dot products: of 300 rows, none of them from afar.
  const auto depth = [](int n, const Caches& cache, const TileShape& tile) {
    int k = 1;
    const auto shape = [&] { return "m=300,n=" + std::to_string(n) + ",k=" + std::to_string(k); };
    while (k < 300 && std::get<0>(way(shape().c_str(), cache, 1, tile)) != Path::dot) ++k;
    return k;
  };
  const auto depths = [&](const Caches& cache, const TileShape& tile) {
    std::vector<int> all;
    for (const int n : {2, 3, 4, 5, 8, 9, 12, 13}) all.push_back(depth(n, cache, tile));
    return all;
  };
  CHECK(depths(far_l3, wide) == std::vector{12, 20, 28, 40, 64, 108, 144, 300});
  CHECK(depths(near_small_l1, wide) == std::vector{12, 20, 28, 60, 96, 108, 144, 300});
  CHECK(depths(near_l3, narrow) == std::vector{12, 20, 28, 80, 128, 300, 300, 300});
}

TEST_CASE("where L1 is small, six to eight rows that it does not hold read memory as half tiles") {
  CHECK(path_of("m=15000,n=8,k=682", near_small_l1) == Path::dot);
  CHECK(path_of("m=15000,n=8,k=683", near_small_l1) == Path::direct);
  CHECK(path_of("m=15000,n=5,k=2000", near_small_l1) == Path::dot);
  CHECK(path_of("m=4000,n=8,k=1000", near_small_l1) == Path::dot);  // from L3
  CHECK(path_of("m=400,n=8,k=1000,batch=20", near_small_l1) == Path::direct);
  CHECK(path_of("m=15000,n=8,k=1000", near_l3) == Path::dot);
  CHECK(path_of("m=8,n=15000,k=1000,trans_b=1", near_small_l1) == Path::packed);
  CHECK(path_of("m=8,n=15000,k=600,trans_b=1", near_small_l1) == Path::dot);
}

TEST_CASE(
    "where L1 is small and holds the few, dot products read rows from afar in one chunk of k") {
  CHECK(blocks("m=15000,n=8,k=682", near_small_l1).kc == 688);
  CHECK(blocks("m=15000,n=4,k=1365", near_small_l1).kc == 1376);
  CHECK(blocks("m=15000,n=8,k=682", near_l3).kc == 352);
}

TEST_CASE("with fewer parts of c than threads k has a block for each") {
  CHECK(blocks("m=84,n=18,k=2520,trans_b=1", far_l3).kc == 2520);
  CHECK(blocks("m=84,n=18,k=2520,trans_b=1", far_l3, 2).kc == 420);
  CHECK(blocks("m=84,n=18,k=2520,trans_b=1", far_l3, 16).kc == 158);
  CHECK(blocks("m=4,n=177,k=1847", far_l3, 16).kc == 231);
  CHECK(blocks("m=400,n=48,k=2048,trans_b=1", far_l3, 2).kc == 2048);  // rows suffice
  CHECK(blocks("m=8,n=288,k=1024", far_l3, 16).kc == 512);  // 6 parts, of two blocks each
}

TEST_CASE("many threads turn their share of b where tiles of c's transpose would be half empty") {
  CHECK(way("m=18,n=496,k=1686,trans_b=1", far_l3) == std::tuple(Path::packed, true));
  CHECK(path_of("m=18,n=496,k=1686,trans_b=1", far_l3, 4) == Path::direct);
  CHECK(path_of("m=32,n=1024,k=1000,trans_b=1", far_l3, 4) == Path::packed);
  CHECK(path_of("m=18,n=4960,k=1686,trans_b=1", far_l3, 4) == Path::packed);  // beyond L2
}

TEST_CASE("c is near in a quarter of an L3 that is not far") {
  CHECK(c_is_near(gemm_of("m=1024,n=2048,k=1"), near_l3));
  CHECK(!c_is_near(gemm_of("m=1024,n=2049,k=1"), near_l3));
  CHECK(!c_is_near(gemm_of("m=64,n=64,k=64"), far_l3));
}

TEST_CASE("as many threads as flops and elements are worth") {
  const auto threads = [](const char* shape, const Caches& cache = near_l3) {
    Environment env;
    env.threads = 16;
    return threads_for(gemm_of(shape), env, cache);
  };
  CHECK(threads("m=56,n=56,k=56") == 1);
  CHECK(threads("m=56,n=56,k=56", near_small_l1) == 2);
  CHECK(threads("m=1,n=1,k=1") == 1);
  CHECK(threads("m=64,n=64,k=64") == 1);
  CHECK(threads("m=80,n=80,k=80") == 3);
  CHECK(threads("m=629,n=318,k=3") == 8);
  CHECK(threads("m=512,n=512,k=512") == 16);
}

TEST_CASE("a few columns of c are formed as rows, and turned at the end") {
  CHECK(way("m=300,n=10,k=40,trans_a=1", near_l3) == std::tuple(Path::stream, true));
  CHECK(path_of("m=300,n=10,k=39,trans_a=1", near_l3) == Path::direct);
  CHECK(path_of("m=9,n=10,k=40,trans_a=1", near_l3) == Path::direct);
  CHECK(path_of("m=15,n=2,k=8,trans_a=1", near_l3) == Path::stream);
  CHECK(path_of("m=15,n=2,k=7,trans_a=1", near_l3) == Path::direct);
}

TEST_CASE("of a transposed a, few columns are vectors down them") {
  // All columns: of any depth near by, from afar as many rows of a as the hardware follows.
  for (const char* shape : {"m=16,n=1,k=1", "m=300,n=2,k=20", "m=300,n=4,k=400", "m=64,n=3,k=2000",
                            "m=300,n=5,k=4", "m=9000,n=3,k=200", "m=400000,n=2,k=16"}) {
    CHECK(path_of((shape + ",trans_a=1"s).c_str(), near_small_l1) == Path::direct);
  }
  CHECK(path_of("m=400000,n=2,k=17,trans_a=1", near_small_l1) == Path::stream);
  CHECK(path_of("m=400000,n=2,k=32,trans_a=1", far_l3) == Path::direct);
  CHECK(path_of("m=400000,n=2,k=33,trans_a=1", far_l3) == Path::stream);
  const auto tail = [](const std::string& shape, const Caches& cache,
                       const TileShape& tile = wide) {
    return tail_columns(gemm_of(shape + ",trans_a=1"), tile, cache);
  };
  // Not those that half a vector serves as fast, nor the last ones of so small a k, or of so few
  // rows where vectors are whole.
  CHECK(tail("m=300,n=8,k=60", near_small_l1) == 0);
  CHECK(tail("m=300,n=8,k=60", far_l3) == 8);
  CHECK(tail("m=300,n=9,k=60", far_l3) == 0);
  CHECK(tail("m=300,n=17,k=4", near_small_l1) == 1);
  CHECK(tail("m=300,n=17,k=3", near_small_l1) == 0);
  CHECK(tail("m=16,n=17,k=4", far_l3) == 0);
  CHECK(tail("m=64,n=17,k=4", far_l3) == 1);
  CHECK(tail("m=300,n=21,k=20", near_small_l1) == 5);
  CHECK(tail("m=300,n=21,k=17", far_l3) == 0);
  CHECK(tail("m=300,n=21,k=18", far_l3) == 5);
  CHECK(tail("m=300,n=257,k=60", near_small_l1) == 0);
  CHECK(tail("m=300,n=9,k=3", near_small_l1, narrow) == 1);
  CHECK(tail("m=300,n=15,k=300", near_small_l1, narrow) == 0);
  // Left to be shared among threads.
  CHECK(tail("m=300,n=17,k=512", near_small_l1) == 0);
  CHECK(tail("m=600,n=17,k=512", near_small_l1) == 1);
}

TEST_CASE(
    "dot products are for a k that is long for the number of rows that share it, or from afar") {
  CHECK(path_of("m=1,n=400,k=12,trans_b=1", near_l3) == Path::dot);
  CHECK(path_of("m=1,n=400,k=11,trans_b=1", near_l3) == Path::direct);
  CHECK(path_of("m=8,n=400,k=96,trans_b=1", near_l3) == Path::dot);
  CHECK(path_of("m=8,n=400,k=95,trans_b=1", near_l3) == Path::direct);
  CHECK(path_of("m=8,n=9000,k=64,trans_b=1", near_l3) == Path::dot);
  CHECK(path_of("m=400,n=8,k=64", near_l3) == Path::dot);
}

TEST_CASE("a b along k in L2 is turned rather than c where it is short, or rows are few or more") {
  CHECK(path_of("m=32,n=3000,k=48,trans_b=1", far_l3) == Path::direct);
  CHECK(path_of("m=32,n=3000,k=100,trans_b=1", far_l3) == Path::packed);
  CHECK(path_of("m=105,n=1200,k=300,trans_b=1", far_l3) == Path::direct);
  CHECK(path_of("m=105,n=1200,k=400,trans_b=1", far_l3) == Path::packed);
  CHECK(path_of("m=105,n=2400,k=300,trans_b=1", far_l3) == Path::packed);  // beyond L2
  CHECK(path_of("m=105,n=1200,k=300,trans_b=1", far_l3, 16) == Path::packed);
  CHECK(path_of("m=1,n=300000,k=11,trans_b=1", far_l3) == Path::direct);
  CHECK(path_of("m=3,n=300000,k=23,trans_b=1", far_l3) == Path::packed);
}

TEST_CASE("a single column is a row of the transpose, whose operands lie as they did") {
  const Gemm row = column_as_row(gemm_of("m=7,n=1,k=5,trans_a=1,batch=2,alpha=3"));
  CHECK(std::tuple(row.m, row.n, row.k, row.batch, row.alpha) == std::tuple(1, 7, 5, 2, 3.0f));
  CHECK((row.trans_a && !row.trans_b));
  CHECK(column_as_row(gemm_of("m=7,n=1,k=5")).trans_b);
  CHECK(!column_as_row(gemm_of("m=7,n=1,k=5,trans_b=1")).trans_a);
  for (const char* other : {"m=7,n=2,k=5", "m=1,n=7,k=5", "m=7,n=1,k=5,prepack=1"}) {
    const Gemm g = gemm_of(other);
    CHECK(column_as_row(g).m == g.m);
  }
}

TEST_CASE("rows that do not fill a tile have wider strips, nearly as wide as each other") {
  const auto vectors = [&](const char* shape, Path path = Path::direct) {
    return tile_of(path, gemm_of(shape), wide, far_l3).nv;
  };
  CHECK(vectors("m=1,n=1000,k=20") == 8);
  CHECK(vectors("m=1,n=300,k=20") == 7);  // 19 in three
  CHECK(vectors("m=4,n=1000,k=20") == 6);
  CHECK(vectors("m=4,n=200,k=20") == 5);  // 13 in three
  CHECK(vectors("m=6,n=1000,k=20") == 4);
  CHECK(vectors("m=7,n=1000,k=20") == 3);
  CHECK(vectors("m=1,n=30,k=20") == 3);
  CHECK(vectors("m=1,n=1000,k=20", Path::packed) == 3);
}

TEST_CASE("columns that fill little of a vector are turned for many rows only") {
  CHECK(tail_columns(gemm_of("m=8,n=97,k=97"), wide, near_l3) == 1);
  CHECK(tail_columns(gemm_of("m=7,n=97,k=200"), wide, near_l3) == 0);
  CHECK(tail_columns(gemm_of("m=16,n=52,k=40"), wide, near_l3) == 0);
  CHECK(tail_columns(gemm_of("m=24,n=52,k=40"), wide, near_l3) == 4);
  CHECK(tail_columns(gemm_of("m=24,n=53,k=40"), wide, near_l3) == 0);
}

TEST_CASE("strips cover n without gaps, never wider than their tile, and never end in one vector") {
  const TileShape tiles[] = {{16, 8, 3, 8}, {16, 8, 4, 8}, {16, 8, 5, 8},
                             {16, 8, 7, 8}, {16, 8, 8, 8}, {8, 6, 2, 6},
                             {8, 6, 6, 6},  {4, 4, 2, 4},  {1, 4, 2, 4}};
  for (const TileShape& tile : tiles) {
    for (int64_t n = 0; n < 400; ++n) {
      for (const bool wide : {false, true}) {
        const Strips strips(n, tile, wide);
        int64_t covered = 0;
        bool right = true;
        for (int64_t s = 0; s < strips.count(); ++s) {
          const int64_t most = tile.nr() + (s >= strips.first_wide() ? tile.lanes : 0);
          right =
              right && strips.begin(s) == covered && strips.width(s) > 0 && strips.width(s) <= most;
          covered += strips.width(s);
        }
        right = right && covered == n && (wide || strips.first_wide() == strips.count());
        if (tile.nv >= 3 && strips.count() > 1) {
          right = right && strips.width(strips.count() - 1) > tile.lanes;
        }
        CHECK_MESSAGE(right, "n=", n, " lanes=", tile.lanes, " wide=", wide);
      }
    }
  }
}
