// Which schedule a problem gets: the legal ones, and the time that each is predicted to take.
#pragma once

#include <vector>

#include "core/traits.hpp"
#include "core/variant.hpp"
#include "kernels/gemm/hwy_schedule.hpp"

namespace rooflane::gemm {

// A single column of c, if it lies side by side, is a row, along which vectors run: cᵀ = op(b)ᵀ ·
// op(a)ᵀ. Not with a b packed beforehand, as columns.
inline bool is_column(const Gemm& g) { return g.n == 1 && g.m > 1 && !g.prepack; }
inline Gemm as_row(const Gemm& g) { return is_column(g) ? transpose_of(g) : g; }

// Rows of an operand contiguous along k that are shorter than a page. Neighbours that are read at
// once share pages then, and each ends before the hardware, which prefetches page by page, has
// caught up: a Zen 4 reads 12 side by side at 0.67 of memory's speed, 4 at 0.53, the same rows far
// enough apart at all of it.
inline bool shorter_than_page(const Gemm& g) { return float_bytes * g.k < page_bytes; }

// Seconds that a legal schedule takes, of operands that lie side by side.
double predict(const Schedule& schedule, const Gemm& g, const MicroTile& tile,
               const Traits& traits);

// What a schedule takes at least, whatever its blocks and shares: seconds before tasks begin, and
// what one thread takes for all tasks.
struct Floor {
  double before, tasks;
};
Floor predict_floor(const Schedule& schedule, const Gemm& g, const MicroTile& tile,
                    const Traits& traits);

// The legal schedules worth trying, the one with the least predicted time first.
std::vector<Schedule> candidates(const Gemm& g, const MicroTile& tile, const Environment& env);

// The first of the candidates that agree with what a tuning names, as far as any do.
Schedule best_schedule(const Gemm& g, const MicroTile& tile, const Environment& env,
                       const Tuning& tuning);

}  // namespace rooflane::gemm
