// A table of fused and separate runs: a variant's rows, those of its rung `separate` (the same
// functions in separate passes), and those of the variant with one other decision changed, all from
// the same rounds. Knows rows and samples only; the caller passes the bytes that fusing saves.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/measured_rows.hpp"
#include "nlohmann/json.hpp"

namespace rooflane {

// Bytes that cross the memory: of the fused problem, of the product alone, and of the product and
// everything behind it one after the other. A pass reads and writes the output.
struct FusionBytes {
  double fused = 0, product = 0, separate = 0;
};
// Nothing where it is not known.
using BytesOfFusion = std::function<std::optional<FusionBytes>(const Row& fused)>;

struct FusionLine {
  const Row* fused = nullptr;
  const Row* other = nullptr;
  std::string changed;        // difference of the other: "separate", "order=0"
  std::optional<Ratio> gain;  // time of the other / time of fused
  // For `separate` alone, like the fields below.
  std::optional<FusionBytes> bytes;
  // The same ratio of the least times that the ceilings allow: of fused the greater one of its
  // flops at the peak and its bytes at the bandwidth, of separate that of the product and the
  // passes' bytes behind it. What the caches keep between passes makes less of it.
  std::optional<double> roof_gain;
};

// All pairs of a variant's row at its own schedule and one of its rungs or given tunings, by
// problem, ISA target, threads and cache.
std::vector<FusionLine> fusions_of(std::span<const MeasuredRow> rows, const BytesOfFusion& bytes);

// [{fused, other: positions of rows, changed, gain, bytes_fused, bytes_other, roof_gain}…]; what is
// not known is null.
nlohmann::ordered_json fusions_json(std::span<const FusionLine> lines,
                                    std::span<const MeasuredRow> rows);
std::string terminal_fusions(std::span<const FusionLine> lines);

}  // namespace rooflane
