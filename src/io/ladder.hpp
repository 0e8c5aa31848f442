// The ladder in a table: per problem every rung of a variant and the variant itself, with the gain
// of each over the one before. Knows rows and samples only; the caller passes the names of the
// rungs. The summary (io/summary.hpp) leaves rungs out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/summary.hpp"

namespace rooflane {

struct LadderLine {
  const Row* row = nullptr;
  std::optional<std::int64_t> step;  // nothing: the variant itself
  // Time of the rung before, of the plainest rung / time of this row, by rounds where shared. The
  // rung before: at the same number of threads, or where it has none of that number, at the largest
  // below.
  std::optional<Ratio> over_before;
  std::optional<Ratio> over_first;
};

// One variant on one problem, ISA target, math and cache mode; rungs from the plainest on, then the
// variant itself, each by threads.
struct Ladder {
  std::string kernel, shape, math, cache, cpu, variant, isa;
  std::string device;  // empty on a CPU without OpenCL, or where no row was opened
  std::vector<LadderLine> lines;
};

// From all rows that are rungs, with their variants' own rows; empty when no row is a rung. Among
// several rows with one identity the one with the median time is used. Lines point into `rows`.
std::vector<Ladder> ladders_of(std::span<const MeasuredRow> rows);

struct RungText {
  std::string name;
  std::string idea;
};
// The name and idea of a rung of a kernel's variant; both empty where it is not known.
using RungTexts = std::function<RungText(const std::string& kernel, const std::string& variant,
                                         std::int64_t step)>;

std::string terminal_ladders(std::span<const Ladder> ladders, const RungTexts& texts);
std::string markdown_ladders(std::span<const Ladder> ladders, const RungTexts& texts);

}  // namespace rooflane
