// GEMM, variant `amx`: bfloat16 and 8-bit integers by the tile products of Sapphire Rapids and
// later. Micro-tile 32×32: two tiles of a times two of b, four of sums, so that each tile loaded
// serves two products (a product takes 16 cycles, a load of a tile from L1 8). Everything but the
// micro-kernel: dot_plan.hpp, dot_common-inl.h. Few rows of a against b as it lies are for vectors
// (avx512_skinny.hpp): they read b once, while tiles need it packed, which is read, written and
// read again; of a packed b (prepack=1) tiles compute faster than it is read.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "backends/amx.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_skinny.hpp"
#include "kernels/gemm/dot_plan.hpp"
#include "kernels/gemm/quantised_rows.hpp"

HWY_PUSH_ATTRIBUTES("amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
namespace rooflane::gemm {
namespace {

#include "kernels/gemm/dot_common-inl.h"

constexpr int tile_rows = 16, tile_bytes = 64, tile_lanes = 16;
constexpr int mr = 2 * tile_rows, nr = 2 * tile_lanes;

// Palette 1: eight tiles, here of 16 rows of 64 bytes all. Intel's manual, "Tile configuration".
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

void BeginTiles() {
  TileConfiguration configuration;
  for (int tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = tile_bytes;
    configuration.rows[tile] = tile_rows;
  }
  // Not by _tile_loadconfig: GCC 12's reads 8 bytes as far as the compiler knows, which then leaves
  // the stores to the others out.
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}
void EndTiles() { _tile_release(); }

// Numbers of tiles must be constants of the source: 0 to 3 are sums, 4 and 5 of a, 6 and 7 of b.
struct BFloat16Tiles {
  static void Multiply() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};
struct SignedTiles {
  static void Multiply() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};
struct UnsignedTiles {  // a is u8
  static void Multiply() {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
};

template <class Tiles>
void Micro(const MicroCall& call) {
  const std::int64_t ld = call.ld * static_cast<std::int64_t>(sizeof *call.sums);
  std::uint32_t* const lower = call.sums + tile_rows * call.ld;
  if (call.add) {
    _tile_loadd(0, call.sums, ld);
    _tile_loadd(1, call.sums + tile_lanes, ld);
    _tile_loadd(2, lower, ld);
    _tile_loadd(3, lower + tile_lanes, ld);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  constexpr std::int64_t b_row = nr * sizeof(std::uint32_t);
  const std::uint32_t* a = call.a;
  const std::uint32_t* b = call.b;
  for (std::int64_t left = call.lanes; left > 0; left -= tile_lanes) {
    _tile_loadd(4, a, tile_bytes);
    _tile_loadd(6, b, b_row);
    _tile_loadd(7, b + tile_lanes, b_row);
    _tile_loadd(5, a + tile_rows * tile_lanes, tile_bytes);
    Tiles::Multiply();
    a += mr * tile_lanes;
    b += tile_lanes * nr;
  }
  _tile_stored(0, call.sums, ld);
  _tile_stored(1, call.sums + tile_lanes, ld);
  _tile_stored(2, lower, ld);
  _tile_stored(3, lower + tile_lanes, ld);
}

}  // namespace
}  // namespace rooflane::gemm
HWY_POP_ATTRIBUTES

namespace rooflane::gemm {
namespace {

constexpr DotUnit bfloat16_unit = {.path = "amx-bf16",
                                   .group = 2,
                                   .mr = mr,
                                   .nr = nr,
                                   .run = tile_lanes,
                                   .whole_panels = true,
                                   .shifts_a = false,
                                   .micro = Micro<BFloat16Tiles>,
                                   .skinny = avx512_skinny_bfloat16,
                                   .pack = PackLanes<std::uint16_t>,
                                   .column_sums = nullptr,
                                   .finish = FinishTile,
                                   .convert = RoundRow,
                                   .begin = BeginTiles,
                                   .end = EndTiles};

constexpr DotUnit integer_unit(void (*micro)(const MicroCall&)) {
  return {.path = "amx-int8",
          .group = 4,
          .mr = mr,
          .nr = nr,
          .run = tile_lanes,
          .whole_panels = true,
          .shifts_a = false,
          .micro = micro,
          .skinny = avx512_skinny_integers,
          .pack = PackLanes<std::uint8_t>,
          .column_sums = SumColumns<nr>,
          .finish = FinishTile,
          .convert = QuantiseRow,
          .begin = BeginTiles,
          .end = EndTiles};
}
constexpr DotUnit signed_unit = integer_unit(Micro<SignedTiles>);
constexpr DotUnit unsigned_unit = integer_unit(Micro<UnsignedTiles>);

// int8-dynamic quantises a to u8.
const DotUnit& unit_of(const Problem& problem, const Environment& env) {
  if (env.math == math_bf16.name) return bfloat16_unit;
  return problem.dtype("a_type") == &int8 ? signed_unit : unsigned_unit;
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  return dot_tunings(problem, env, unit_of(problem, env));
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands& constants) {
  // Asks Linux for the tiles, which each process has to: without it their first use is a SIGILL.
  if (const auto reason = amx::backend.absent_reason(env.library)) throw unavailable_error(*reason);
  return dot_plan(problem, tuning, env, constants, unit_of(problem, env));
}

}  // namespace

const Variant amx = {.name = "amx",
                     .kernel = &kernel,
                     .backend = &amx::backend,
                     .threads = Threads::many,
                     .tunables = dot_tunables,
                     .unsupported = dot_unsupported,
                     .tunings = tunings,
                     .plan = plan,
                     .maths = dot_maths,
                     .dtypes = dot_types};

}  // namespace rooflane::gemm
