// The roofline summary: per problem the variants with speed, distance to the roof, speed-ups and
// the winner. Knows rows and samples only, nothing of how they were measured; how it looks stands
// in io/summary_text.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/csv.hpp"
#include "io/row.hpp"

namespace rooflane {

// A row with its own samples (none: the row's percentiles and intervals are used).
struct MeasuredRow {
  Row row;
  std::vector<Sample> samples;
};

// Rows of all files, in order, with the samples of `FILE.samples.csv` where it exists.
std::vector<MeasuredRow> read_measured_rows(const std::vector<std::string>& csv_paths);

// Time of x / time of y: the median over the rounds that they share, else that of their medians.
// Both must have a time.
double time_ratio(const MeasuredRow& x, const MeasuredRow& y);
// One of several rows with one identity: the one with the median time, or the first without any.
const MeasuredRow* representative(std::vector<const MeasuredRow*> rows);

struct SummaryLine {
  const Row* row = nullptr;
  // Time of scalar, of the best peer / time of this row: the median of per-round ratios where both
  // were measured in the same rounds, else the ratio of the medians.
  std::optional<double> over_scalar;
  std::optional<double> over_peer;
  enum class Verdict { none, winner, tie } verdict = Verdict::none;
};

// One problem at one thread count, math and cache mode. Lines with a time first, fastest on top.
struct SummaryGroup {
  std::string kernel, shape, dtype, math, cache, cpu;
  std::optional<std::int64_t> threads;  // empty: devices without threads only
  std::vector<SummaryLine> lines;
};

// Variants with one thread (they have no row with more threads) and rows without threads (GPUs)
// appear in the group of every thread count. A peer is a row with a `library`. The winner is the
// fastest PASSED row; it and every PASSED row whose ratio to it has a 95 % interval that holds 1
// (or that lies on the other side of it) are a TIE. Of several rows with one identity (launches,
// repeated files) the one with the median time stands for all. Rungs of a ladder (io/ladder.hpp)
// take no part. Lines point into `rows`.
std::vector<SummaryGroup> summarise_rows(std::span<const MeasuredRow> rows);

}  // namespace rooflane
