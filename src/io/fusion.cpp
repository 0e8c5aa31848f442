// Pairs of rows and their table. See fusion.hpp.
#include "io/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/text.hpp"
#include "io/summary_text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

// The ISA target aside, which a row that was refused does not know.
auto identity(const Row& row) {
  return std::tie(row.kernel, row.shape, row.dtype, row.math, row.cache, row.variant, row.library,
                  row.threads, row.device);
}
bool is_pair(const Row& fused, const Row& separate) {
  const bool same_target = fused.isa == separate.isa || fused.isa.empty() || separate.isa.empty();
  return !step_of(fused) && same_target && identity(fused) == identity(separate);
}

// Nanoseconds at the row's ceilings: a GFLOP/s is a flop in a nanosecond, a GB/s a byte.
std::optional<double> roof_gain(const Row& row, const FusionBytes& bytes) {
  if (!row.flops || !row.peak_gflops || !row.peak_gb_s) return std::nullopt;
  const double compute = *row.flops / *row.peak_gflops;
  const auto moving = [&](double moved) { return moved / *row.peak_gb_s; };
  const double separate =
      std::max(compute, moving(bytes.product)) + moving(bytes.separate - bytes.product);
  return separate / std::max(compute, moving(bytes.fused));
}

std::string gain_text(const FusionLine& line) {
  if (!line.gain) return "";
  std::string text = fmt::format("{:.3f}x", line.gain->value());
  if (const auto interval = line.gain->interval()) {
    text += fmt::format(" [{:.3f}, {:.3f}]", interval->low, interval->high);
    if (interval->contains(1)) text += " TIE";
  }
  return text;
}

std::string bytes_text(double bytes) { return print_bytes(static_cast<std::size_t>(bytes)); }

std::string status_text(const Row& row) {
  return row.status == "PASSED" ? time_text(row.p50_ns) : row.status;
}

}  // namespace

std::vector<FusionLine> fusions_of(std::span<const MeasuredRow> rows, const BytesOfFusion& bytes) {
  std::vector<FusionLine> lines;
  for (const MeasuredRow& separate : rows) {
    if (!step_of(separate.row)) continue;
    const auto fused = std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow& other) {
      return is_pair(other.row, separate.row);
    });
    if (fused == rows.end()) continue;
    FusionLine line{&fused->row, &separate.row, {}, bytes(fused->row), {}};
    if (has_time(fused->row) && has_time(separate.row)) {
      line.gain = time_ratio({&separate}, {&*fused});
    }
    if (line.bytes) line.roof_gain = roof_gain(fused->row, *line.bytes);
    lines.push_back(line);
  }
  return lines;
}

std::string terminal_fusions(std::span<const FusionLine> lines) {
  TextTable table{{{"problem"},
                   {"variant"},
                   {"threads", true},
                   {"fused", true},
                   {"separate", true},
                   {"gain [95 %]", true},
                   {"bytes fused", true},
                   {"separate", true},
                   {"roof's gain", true}},
                  {}};
  std::string notes;
  for (const FusionLine& line : lines) {
    const Row& row = *line.fused;
    table.rows.push_back({row.kernel + ":" + row.shape, row.variant,
                          row.threads ? fmt::format("{}", *row.threads) : "", status_text(row),
                          status_text(*line.separate), gain_text(line),
                          line.bytes ? bytes_text(line.bytes->fused) : "",
                          line.bytes ? bytes_text(line.bytes->separate) : "",
                          line.roof_gain ? fmt::format("{:.3f}x", *line.roof_gain) : ""});
    for (const Row* failed : {line.fused, line.separate}) {
      if (failed->status == "PASSED" || failed->reason.empty()) continue;
      notes += wrapped(fmt::format("{} {}: {}", failed->variant, failed->status, failed->reason));
    }
  }
  return "\n" + terminal_table(table) + notes;
}

}  // namespace rooflane
