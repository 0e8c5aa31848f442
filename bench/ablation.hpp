// Schedules with one decision changed, all others as chosen by the variant: their gain is compared
// with that of fusing (`bench --fusion`).
#pragma once

#include <vector>

#include "core/variant.hpp"

namespace rooflane {

// Complete tunings that differ from the variant's own choice in the loop order alone and in the
// micro-tile alone; none of a variant without these tunables, or where nothing else is legal.
std::vector<Tuning> one_factor_tunings(const Variant& variant, const Problem& problem,
                                       const Environment& env);

}  // namespace rooflane
