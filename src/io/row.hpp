// A row: one line of the CSV (docs/reference.md). The table of columns is the only place that
// knows names, order and types; header, writer, reader and JSON come from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rooflane {

// Empty string or nullopt: an empty cell, not applicable.
struct Row {
  std::int64_t schema_version = 1;
  std::string run_id, test_time, build_commit, git_dirty, compiler, host, cpu, isa;
  std::optional<std::int64_t> threads;
  std::string affinity, backend, library, device, driver, kernel, variant, tuning, math, dtype,
      shape, preset;
  std::optional<std::int64_t> seed;
  std::string cache, timer;
  std::optional<std::int64_t> launch;
  std::string status, reason, err_metric;
  std::optional<double> err_value, err_threshold, max_abs_err;
  std::optional<std::int64_t> n_samples, runs_per_sample;
  std::optional<double> min_ns, p20_ns, p50_ns, p80_ns, p99_ns, mean_ns, stdev_ns, noise_pct;
  std::optional<double> flops, exps, bytes, gflops, gb_s, ai, peak_gflops, peak_gb_s, roof_gflops,
      roof_pct, roof_pct_lo, roof_pct_hi;
  std::string roof_level, bound;
  std::optional<double> plan_ns, h2d_ns, kernel_ns, d2h_ns, e2e_ns;
  std::optional<std::int64_t> workspace_bytes, packed_bytes, peak_rss_bytes;
  std::optional<double> model_ns, model_pct, interval_pct;
  std::string stop;
  std::optional<std::int64_t> n_disturbed;
  std::string disturbance;
  std::optional<double> empty_kernel_ns;
  std::string tuning_source;
  std::string step;
  std::optional<std::int64_t> calls;
  std::optional<double> share_pct;
  std::string path;
  std::optional<double> group_s;
  std::string placement;
  std::string distribution;
};

// Whether launching takes a good part of the row's time: it lies within three times that of an
// empty kernel, and its roof says little.
bool is_launch_bound(const Row& row);

// The rung of a ladder that the row measured: I of its tuning `step=I`. Nothing: the variant
// itself.
std::optional<std::int64_t> step_of(const Row& row);

// Its placement unless that is the default, which rows of older files do not name.
std::string chosen_placement(const Row& row);

// Whether its tuning is an entry of tuned schedules.
bool is_tuned(const Row& row);

struct Column {
  const char* name;
  const char* meaning;  // with unit
  std::variant<std::string Row::*, std::int64_t Row::*, std::optional<std::int64_t> Row::*,
               std::optional<double> Row::*>
      member;
  bool nullable = true;          // false: never empty
  const char* values = nullptr;  // the texts allowed, separated by '|'; null: any
};
std::span<const Column> columns();

// One cell as text, unquoted; numbers in shortest round-trip form; empty when not applicable.
std::string cell_text(const Row& row, const Column& column);
// The inverse. Throws Error naming the column if the text is not such a number.
void set_cell(Row& row, const Column& column, std::string_view text);

}  // namespace rooflane
