// Fused against separate, in a table: a variant's rows beside those of its rung `separate`, which
// does apart what the variant fuses, from the same rounds. Knows rows and samples only; which rung
// that is and how many bytes either moves is told by the caller.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/measured_rows.hpp"

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
  const Row* separate = nullptr;
  std::optional<Ratio> gain;  // time of separate / time of fused
  std::optional<FusionBytes> bytes;
  // The same ratio of the least times that the ceilings allow: of fused the greater one of its
  // flops at the peak and its bytes at the bandwidth, of separate that of the product and the
  // passes' bytes behind it. What the caches keep between passes makes less of it.
  std::optional<double> roof_gain;
};

// Of all pairs of rows of a variant and of a rung of it, by problem, ISA target, threads and cache.
std::vector<FusionLine> fusions_of(std::span<const MeasuredRow> rows, const BytesOfFusion& bytes);

std::string terminal_fusions(std::span<const FusionLine> lines);

}  // namespace rooflane
