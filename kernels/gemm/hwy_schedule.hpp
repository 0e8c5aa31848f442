// The schedule of the hwy GEMM: every decision about an execution (path, micro-tile, blocks,
// packing, loop order, sharing). Its text is the row's tuning, and rebuilds it. Which schedule a
// problem gets: hwy_cost.hpp. Which file acts on which field: hwy_floats.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/variant.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// How a product is formed.
enum class Path : std::int64_t {
  scale = 0,     // no product: c = beta·c0
  dot = 1,       // a skinny dimension, the other operand contiguous along k: dot products
  outer = 2,     // a skinny dimension, the other operand contiguous across k: outer products
  unpacked = 3,  // micro-kernels over b in place, or packed by the thread that uses it
  packed = 4,    // Goto: micro-kernels over a b that is packed once for all threads
  few_rows = 5,  // units: few rows of a, rows of b as they are stored (unit_product.hpp)
};

// What registers of an ISA target hold.
struct MicroTile {
  std::int64_t lanes;    // floats in a vector
  std::int64_t mr;       // rows of a micro-tile of nv vectors
  std::int64_t nv;       // vectors of a micro-tile along n
  std::int64_t most_nv;  // the most of a micro-tile of fewer rows
  std::int64_t nr() const { return lanes * nv; }
  // Rows of a micro-tile of so many vectors: as many accumulators, and at most 16.
  std::int64_t tall(std::int64_t vectors) const { return std::min(mr * nv / vectors, 2 * mr); }
};

struct Schedule {
  Path path = Path::scale;
  UnitKind unit = UnitKind::fma;  // what multiplies
  // The product formed is c's transpose: rows below are c's columns. dot, outer: b
  // is the operand with the skinny dimension.
  bool transposed = false;
  int threads = 1;
  std::int64_t mr = 1, nr = 1;  // micro-tile. dot: mr rows of the long operand are read at once
  // unpacked, packed: a block of a is mc × kc. packed: b is packed kb × nc at a time. unpacked: b's
  // micro-panels are packed nc columns at a time. outer: nc columns of the long operand a task, kc
  // deep. dot: kc deep, nc rows of the long operand a task.
  std::int64_t mc = 1, kc = 1, nc = 1, kb = 1;
  // packed: a is packed too, once for all threads, like b; m is innermost then (a B micro-panel
  // stays in L1), else n (an A micro-panel does). dot: the skinny operand is packed.
  bool pack_a = false;
  bool share_a = false;  // units: a is packed once for all threads, else each task packs its own
  bool pack_b = false;   // unpacked: each part copies the micro-panels of b that it uses
  // Loop order. outer: 1 whole rows of c, 0 micro-tiles. dot: 1 rows that are read at once lie
  // pages apart, 0 they are neighbours.
  bool order = false;
  bool fixed = false;  // static scheduling: a thread has the same tasks in every run
  std::int64_t m_parts = 1, n_parts = 1, k_parts = 1;  // tasks: shares of m, n and k
  std::int64_t batch_parts = 1;  // unpacked: tasks' shares of the batches; packed: phases'

  // What a share does with b, and units with a.
  bool own_a() const { return pack_a && !share_a; }
  bool own_b() const { return path == Path::unpacked && pack_b; }
  bool b_in_place() const { return path == Path::unpacked && !pack_b; }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// cᵀ = op(b)ᵀ · op(a)ᵀ.
inline Gemm transpose_of(Gemm g) {
  std::swap(g.m, g.n);
  std::swap(g.trans_a, g.trans_b);
  g.trans_a = !g.trans_a;
  g.trans_b = !g.trans_b;
  return g;
}
// The product that a schedule forms.
inline Gemm formed(const Schedule& s, const Gemm& g) { return s.transposed ? transpose_of(g) : g; }

inline constexpr std::int64_t float_bytes = sizeof(float);
inline constexpr std::int64_t page_bytes = 4096;
inline constexpr std::int64_t workspace_limit = std::int64_t{64} << 20;

extern const std::span<const Tunable> schedule_tunables;

// The schedule as a row's tuning, and a schedule with the values that a tuning names.
Tuning tuning_of(const Schedule& schedule);
Schedule with(Schedule schedule, const Tuning& tuning);

// The first of schedules, of which the best come first, that agrees most with what a tuning names.
const Schedule& best_agreeing(std::span<const Schedule> schedules, const Tuning& tuning);

// As the loops take it: block sizes raised to whole micro-tiles, vectors and blocks of k, fields
// that its path does not read at their default. Schedules that execute alike are equal.
Schedule rounded(Schedule schedule, const Gemm& g, const MicroTile& tile);

// Why a schedule, rounded, cannot serve the problem, or nothing. `g` as as_row() leaves it.
std::optional<std::string> defect_of(const Schedule& schedule, const Gemm& g,
                                     const MicroTile& tile);

// Floats of workspace: of all threads together and of each.
struct Workspace {
  std::int64_t shared = 0, of_thread = 0;
  std::int64_t shared_a = 0;  // of `shared`, at its end
  std::int64_t pieces = 0;  // that threads pack for each other: each has a state beside the floats
  double floats(int threads) const {
    return static_cast<double>(shared) +
           static_cast<double>(threads) * static_cast<double>(of_thread);
  }
  double bytes(int threads) const;
};
Workspace workspace_of(const Schedule& schedule, const Gemm& g, const MicroTile& tile);

}  // namespace rooflane::gemm
