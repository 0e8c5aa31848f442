// Rows for programs that track them over time: their names, and the Bencher Metric Format.
// io/asv.hpp has the files of airspeed velocity.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "io/measured_rows.hpp"

namespace rooflane {

// What identifies a row but the machine, as one name that is the same in every run:
// gemm/hwy/m=8,n=8,k=8/threads:2/warm/isa:AVX3.
std::string benchmark_name(const Row& row);

struct TrackedRow {
  std::string name;  // no two are alike
  const MeasuredRow* measured = nullptr;
};

struct TrackedRows {
  std::vector<TrackedRow> rows;
  std::vector<std::string> left_out;  // what is missing and why, a line each
};

// The rows that passed, of several with one name the one with the median time. `builds` false: rows
// of other builds (V@NAME) are left out too, since they belong to another commit.
TrackedRows tracked_rows(std::span<const MeasuredRow> rows, bool builds);

// The 95 % interval of the median time in ns; nothing where the row has none.
std::optional<Interval> median_interval_ns(const Row& row);

// {name: {measure: {value, lower_value, upper_value}}} (https://bencher.dev/bmf.json): latency in
// ns, throughput in FLOP/s and bandwidth in B/s from the median time, roof-share in per cent. The
// ends are those of 95 % intervals.
nlohmann::ordered_json bmf_json(const TrackedRows& tracked);

}  // namespace rooflane
