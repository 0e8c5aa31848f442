// The roofline summary as JSON: what `roofline --json` prints, so that no script computes a ratio,
// an interval or a winner again. Rows are named by their position in "rows".
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "io/summary.hpp"

namespace rooflane {

struct ReadFile {
  std::string path;
  std::size_t rows = 0;
};

nlohmann::ordered_json summary_json(std::span<const MeasuredRow> rows,
                                    std::span<const ReadFile> files);

// {"value","low","high"}: the ends are null where the interval is not known; null for nothing.
nlohmann::ordered_json ratio_json(const std::optional<Ratio>& ratio);

}  // namespace rooflane
