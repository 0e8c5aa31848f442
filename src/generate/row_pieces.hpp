// A phase of several tokens with, bit for bit, the results of as many passes of one token: calls
// that would add in another order are split into calls of fewer rows.
#pragma once

#include <cstdint>

#include "core/catalogue.hpp"
#include "generate/phase_runner.hpp"
#include "generate/stored_cache.hpp"
#include "model/memory.hpp"

namespace rooflane::generate {

// Parts the calls of one phase in both instances, which are the same model where one token more is
// past. Attention always becomes a call for each query, which sees the keys up to its own: how keys
// are shared among threads, and with it the order of sums, depends on their number. A product stays
// whole where it is seen to compute each row as it does alone; else it becomes products of 4, 3, 2
// or 1 rows. That is tried with the plans of PhaseRunner on numbers from a seed: the order of sums
// does not depend on them. `packed` has packed the weights. `memory` is that of `first`: its inputs
// and buffers are overwritten.
void part_rows(StoredCaches& first, StoredCaches& next, std::size_t phase,
               const model::Memory& memory, const Catalogue& catalogue,
               const RunnerSettings& settings, const PhaseRunner& packed);

}  // namespace rooflane::generate
