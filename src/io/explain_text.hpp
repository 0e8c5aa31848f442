// Prints where the lost share of the roof went: `roofline --explain`.
#pragma once

#include <span>
#include <string>

#include "core/phase_recorder.hpp"
#include "io/row.hpp"

namespace rooflane {

struct ExplainedRow {
  const Row* row;
  const PhaseProfile* profile;  // null: none was recorded
};

// A table for each problem, thread count, math and cache mode, in the order of the rows, with a
// sentence for each row of it; then who reports no phases. Columns that are 0 for all rows of a
// table are left out. Empty where no row can be explained.
std::string explain_text(std::span<const ExplainedRow> rows, bool markdown);

}  // namespace rooflane
