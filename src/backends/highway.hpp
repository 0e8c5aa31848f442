// ISA targets of this build and CPU, and the choice of a function for one of them. The choice is
// made per plan from a local table index: Highway's process-wide switches would race between plans.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.hpp"

namespace rooflane {

namespace highway {
extern const Backend backend;
}

// Names of the Highway targets that this build generated and this CPU runs, best first.
std::vector<std::string> isa_targets();
// Every target this build generated, best first, whether or not this CPU runs it.
std::vector<std::string> generated_isa_targets();
// Why a target of this build is not this CPU's, for `doctor`.
std::string absence_of_isa(std::string_view name);
// What a build for one machine's own target lacks (-Disa-targets=native); empty for one that has
// all.
std::string absent_isa_targets();
// This CPU's best target where such a build, made on another machine, lacks it; empty elsewhere.
std::string best_isa_left_out();
// The target bit for a name; empty: the best. Throws Error: unknown name (argument, nearest name),
// a target that the CPU lacks (unavailable).
std::int64_t resolve_isa(std::string_view name);
std::string isa_name(std::int64_t target);

}  // namespace rooflane

// The function of a HWY_EXPORTed table for a target bit from resolve_isa. Use in the HWY_ONCE part
// of the file that exports it, which includes hwy/highway.h; constant time, no global state. A
// build with a single target has a table of one entry.
#define ROOFLANE_HWY_FUNCTION(FUNCTION, target)                                            \
  ([](std::int64_t rooflane_target) {                                                      \
    hwy::ChosenTarget rooflane_chosen;                                                     \
    rooflane_chosen.Update(rooflane_target);                                               \
    constexpr bool rooflane_single = std::size(HWY_DISPATCH_TABLE(FUNCTION)) == 1;         \
    return HWY_DISPATCH_TABLE(FUNCTION)[rooflane_single ? 0 : rooflane_chosen.GetIndex()]; \
  }(target))
