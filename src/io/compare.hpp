// Whether rows became faster or slower: from two files, or from one in which another build ran in
// the same rounds. Knows rows and samples only; io/compare_text.hpp has the text,
// core/statistics.hpp the statistics.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/summary.hpp"

namespace rooflane {

// Changes of time up to this share do not count: code placement alone makes as much.
constexpr double compare_margin = tie_margin;
// At most this share of the rows called FASTER or SLOWER may be so by chance.
constexpr double compare_false_discoveries = 0.05;
// Fewer fresh processes on a side say nothing about how much the next one would differ.
constexpr std::size_t compare_least_repetitions = 3;

// In the order in which they are shown.
enum class Change { failing, slower, faster, unsure, only_old, only_new, same };
const char* change_name(Change change);

struct ComparedRow {
  Change change = Change::unsure;
  const Row* before = nullptr;  // null: only in NEW
  const Row* after = nullptr;   // null: only in OLD
  // New time / old time and its 95 % interval, of probe-normalised samples.
  std::optional<double> ratio, low, high;
  std::string reason;  // why it is UNSURE or failing
};

struct Comparison {
  std::vector<ComparedRow> rows;  // sorted by change, then as in NEW
  std::size_t count(Change change) const;
  bool regressed() const { return count(Change::slower) + count(Change::failing) > 0; }
};

// Rows are matched by identity (docs/reference.md). Several rows of one identity are its
// repetitions. Rows that neither side measured (SKIPPED or UNSUPPORTED on both) are left out.
//
// Times are compared as logarithms of sample / probe of its round. FASTER and SLOWER need the 95 %
// interval of the ratio wholly beyond ±margin, a p-value of "within ±margin" that passes the
// correction for false discoveries over all rows, and the same from the samples without the probe:
// no probe follows every disturbance. SAME: the interval lies wholly within ±margin. Else UNSURE.
// Rows of third-party libraries with the same version on both sides cannot have changed. If they
// still differ, this is the drift of the machine between the runs, and it widens every interval.
Comparison compare_rows(std::span<const MeasuredRow> before, std::span<const MeasuredRow> after);

// Rows of V@NAME (before) with V (after) in one file: per-round ratios, so that what disturbs a
// round disturbs both. The same verdicts, without probe and drift.
Comparison compare_against(std::span<const MeasuredRow> rows, const std::string& name);
// Names of other builds in the rows: NAME of every variant V@NAME, in order of appearance.
std::vector<std::string> other_builds(std::span<const MeasuredRow> rows);

// The differences of two machines, in words: CPU model, thread counts, device or driver. Empty:
// they are one.
std::string machine_difference(std::span<const MeasuredRow> before,
                               std::span<const MeasuredRow> after);

}  // namespace rooflane
