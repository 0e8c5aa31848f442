// Where a row's lost share of the roof went, from its recorded phases. Arithmetic only;
// io/explain_text.hpp prints it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/phase_recorder.hpp"
#include "io/row.hpp"

namespace rooflane {

// A part of the loss, in points: per cent of the roof.
struct LostPart {
  const char* name;   // a table's column: "packing"
  const char* words;  // in a sentence: "packing operands"
  double points = 0;
};

// While a thread packs, reduces, waits or is absent, it does no work that the roof counts: a phase
// that takes p per cent of all threads' time loses p points. Computing loses the rest: its time
// less the share of the roof that was reached in it. Below 0: other phases did part of the work
// that the roof counts; packing, for one, brings operands into the caches.
struct RoofLoss {
  double reached = 0;           // per cent of the roof, the row's
  std::vector<LostPart> parts;  // every part there can be, in one order; the sum is 100 - reached
  double computing_pct = 0;     // per cent of the roof that is reached while threads compute
  double tail_pct = 0;          // per cent of all threads' time that goes into partly filled tiles
  double recorder_pct = 0;      // by how much the recorder slowed the run down
  const LostPart& largest() const;
};

// Nothing for a row without roof or threads, or a profile without phases.
std::optional<RoofLoss> roof_loss(const Row& row, const PhaseProfile& profile);

}  // namespace rooflane
