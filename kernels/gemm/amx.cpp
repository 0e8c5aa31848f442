// GEMM, variant `amx`: bfloat16 and 8-bit integers by the tile products of Sapphire Rapids and
// later. Micro-tile 32×32: two tiles of a times two of b, four of sums, so that each tile loaded
// serves two products (a product takes 16 cycles, a load of a tile from L1 8). Everything but the
// micro-kernel: unit_product.hpp, avx512_pack-inl.h. Few rows of a against b as it lies are for
// vectors (avx512_units.hpp): they read b once, while tiles need it packed, which is read, written
// and read again; of a packed b (prepack=1) tiles compute faster than it is read.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "backends/amx.hpp"
#include "generated_catalogue.hpp"
#include "hwy/base.h"
#include "kernels/gemm/avx512_units.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/units.hpp"

HWY_PUSH_ATTRIBUTES(
    "amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")
namespace rooflane::gemm {
namespace {

#include "kernels/gemm/avx512_pack-inl.h"

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
  static void Multiply46() { _tile_dpbf16ps(0, 4, 6); }
  static void Multiply47() { _tile_dpbf16ps(1, 4, 7); }
  static void Multiply56() { _tile_dpbf16ps(2, 5, 6); }
  static void Multiply57() { _tile_dpbf16ps(3, 5, 7); }
};
struct SignedTiles {
  static void Multiply46() { _tile_dpbssd(0, 4, 6); }
  static void Multiply47() { _tile_dpbssd(1, 4, 7); }
  static void Multiply56() { _tile_dpbssd(2, 5, 6); }
  static void Multiply57() { _tile_dpbssd(3, 5, 7); }
};
struct UnsignedTiles {  // a is u8
  static void Multiply46() { _tile_dpbusd(0, 4, 6); }
  static void Multiply47() { _tile_dpbusd(1, 4, 7); }
  static void Multiply56() { _tile_dpbusd(2, 5, 6); }
  static void Multiply57() { _tile_dpbusd(3, 5, 7); }
};

// Lines that later calls read or write, fetched a few a step while tiles multiply.
template <bool writes>
class Ahead {
 public:
  Ahead(const std::uint32_t* from, std::int64_t lines) : from_(from), left_(lines) {}
  void fetch() {
    if (left_ <= 0) return;
#pragma GCC unroll 4
    for (std::int64_t line = 0; line < lines_of_step; ++line) {
      __builtin_prefetch(from_ + line * tile_lanes, writes, writes ? 3 : 2);
    }
    from_ += lines_of_step * tile_lanes;
    left_ -= lines_of_step;
  }

 private:
  static constexpr std::int64_t lines_of_step = 4;
  const std::uint32_t* from_;
  std::int64_t left_;
};

// The A micro-panel stays in L1; b's, which streams from L2, is loaded past it, as it would evict
// a's. Each load comes right before the products that need it.
template <class Tiles>
void Steps(const MicroCall& call) {
  constexpr std::int64_t tile = tile_rows * tile_lanes;
  const std::uint32_t* a = call.a;
  const std::uint32_t* b = call.b;
  Ahead<true> sums(call.next_sums, call.next_sums != nullptr ? mr * nr / tile_lanes : 0);
  Ahead<false> later(call.later, call.later_lines);
  for (std::int64_t left = call.steps; left > 0; --left) {
    _tile_stream_loadd(6, b, tile_bytes);
    _tile_loadd(4, a, tile_bytes);
    Tiles::Multiply46();
    _tile_stream_loadd(7, b + tile, tile_bytes);
    Tiles::Multiply47();
    _tile_loadd(5, a + tile, tile_bytes);
    Tiles::Multiply56();
    Tiles::Multiply57();
    sums.fetch();
    later.fetch();
    a += 2 * tile;
    b += 2 * tile;
  }
}

template <class Tiles>
void Micro(const MicroCall& call) {
  constexpr auto word = static_cast<std::int64_t>(sizeof *call.sums);
  if (call.add) {
    const std::uint32_t* const lower = call.sums + tile_rows * call.ld;
    _tile_loadd(0, call.sums, call.ld * word);
    _tile_loadd(1, call.sums + tile_lanes, call.ld * word);
    _tile_loadd(2, lower, call.ld * word);
    _tile_loadd(3, lower + tile_lanes, call.ld * word);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  Steps<Tiles>(call);
  std::uint32_t* const lower = call.to + tile_rows * call.to_ld;
  _tile_stored(0, call.to, call.to_ld * word);
  _tile_stored(1, call.to + tile_lanes, call.to_ld * word);
  _tile_stored(2, lower, call.to_ld * word);
  _tile_stored(3, lower + tile_lanes, call.to_ld * word);
}

// A step is a tile's lanes: of a 16 of each row side by side, of b a tile for each 16 columns.
template <class E>
void PackA(const PackCall& c) {
  PackLanes<E, Runs<tile_lanes>>(c, c.steps * tile_lanes);
}
template <class E>
void PackB(const PackCall& c) {
  PackLanes<E, Blocks>(c, c.steps * tile_lanes);
}
void SumColumnsOfTiles(const std::uint32_t* panel, std::int64_t steps, std::int32_t* to) {
  SumColumns<Blocks, nr>(panel, steps * tile_lanes, to);
}

}  // namespace
}  // namespace rooflane::gemm
HWY_POP_ATTRIBUTES

namespace rooflane::gemm {
namespace {

template <class E>
Unit tile_unit(const char* path) {
  Unit unit{};
  unit.kind = UnitKind::amx;
  unit.path = path;
  unit.mr = mr, unit.nr = nr;
  unit.depth = tile_lanes * lane_elements<E>, unit.words = tile_lanes;
  unit.k_together = unit.depth;
  unit.whole_panels = true;
  unit.into_c = IntoC::whole;
  unit.loads_first = true;
  unit.pack_a = PackA<E>;
  unit.pack_b = PackB<E>;
  unit.begin = BeginTiles;
  unit.end = EndTiles;
  return unit;
}

constexpr const Math* maths[] = {&math_bf16, &math_int8, &math_int8_dynamic};
constexpr DType types[] = {&float32, &bfloat16, &int8, &uint8, &int32, &int8_per_channel};

}  // namespace

// int8-dynamic quantises a to u8.
Unit amx_unit(const Problem& problem, const Environment& env) {
  if (env.math == math_bf16.name) {
    Unit unit = tile_unit<std::uint16_t>("amx-bf16");
    unit.a_converted = &bfloat16;
    unit.micro = Micro<BFloat16Tiles>;
    unit.few = avx512_few_bfloat16();
    return unit;
  }
  Unit unit = tile_unit<std::uint8_t>("amx-int8");
  unit.integers = true;
  unit.a_quantised = &uint8;
  unit.micro = problem.dtype("a_type") == &int8 ? Micro<SignedTiles> : Micro<UnsignedTiles>;
  unit.column_sums = SumColumnsOfTiles;
  unit.few = avx512_few_integers();
  return unit;
}

const Variant amx = unit_variant<units_of_amx>("amx", &amx::backend, maths, types);

}  // namespace rooflane::gemm
