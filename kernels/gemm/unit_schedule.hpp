// Schedules of products on a unit (unit_product.hpp): which are legal, the predicted time of each,
// and the choice of one. The fields are those of hwy_schedule.hpp, and these are read:
//   both      threads; transposed: a and b below have changed places
//   few_rows  nc: rows of b a task
//   packed, unpacked
//             m_parts, n_parts, static; mc, nc, kc: a block of c and of k
//             packed: all shares use what any of them packs of b; unpacked: each packs the columns
//             that it uses into its own L2 (pack_b=1), or reads b in place (pack_b=0)
//             pack_a, share_a: packed for all, or by each share (share_a=0), or a is read in place
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/traits.hpp"
#include "core/variant.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_schedule.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// What a schedule depends on.
struct UnitProblem {
  UnitProblem(const Problem& problem, const Environment& env, const Unit& unit);
  Gemm g;
  DType a, b;
  bool converts;  // op(a) is rounded or quantised before it is packed
  int threads;    // most
  const Unit& unit;

  // The one that forms c's transpose, by unit.swapped.
  UnitProblem transpose() const;

 private:
  UnitProblem(const Gemm& gemm, DType of_a, DType of_b, int most, const Unit& chosen)
      : g(gemm), a(of_a), b(of_b), converts(false), threads(most), unit(chosen) {}
};

// The product that a schedule forms. In c's transpose, and with path=3, a b of prepack=1 is kept as
// it is stored, and packed in each run like others.
Gemm formed_by_unit(const Schedule& schedule, const Gemm& g);

// With block sizes raised to whole micro-tiles and steps of k, and fields that its path does not
// read at their default.
Schedule rounded(const Schedule& schedule, const UnitProblem& of);
// Why a rounded schedule cannot serve, or nothing.
std::optional<std::string> defect_of(const Schedule& schedule, const UnitProblem& of);
// This machine's, at the unit's ISA target, or the best where a unit has one of its own.
const Traits& traits_for(const Unit& unit, int threads);
// Seconds.
double predict(const Schedule& schedule, const UnitProblem& of, const Traits& traits);
// Legal schedules, least predicted time first.
std::vector<Schedule> unit_candidates(const UnitProblem& of);
// The best of the candidates that agree with what a tuning names, with what it names. Where it
// names nothing and none takes less than `below` seconds, none.
std::optional<Schedule> unit_schedule(const UnitProblem& of, const Tuning& tuning,
                                      double below = std::numeric_limits<double>::infinity());

}  // namespace rooflane::gemm
