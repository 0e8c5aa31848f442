// Pairs of rows and their table. See fusion.hpp.
#include "io/fusion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/text.hpp"
#include "core/tuned.hpp"
#include "io/summary_json.hpp"
#include "io/summary_text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

// The ISA target aside, which a row that was refused does not know.
auto identity(const Row& row) {
  return std::tie(row.kernel, row.shape, row.dtype, row.math, row.cache, row.variant, row.library,
                  row.threads, row.device);
}
bool is_changed(const Row& row) { return step_of(row) || row.tuning_source == from_user; }
bool is_pair(const Row& fused, const Row& other) {
  const bool same_target = fused.isa == other.isa || fused.isa.empty() || other.isa.empty();
  return !is_changed(fused) && same_target && identity(fused) == identity(other);
}

// What the other does differently, in the words of tunings.
std::string change(const Row& fused, const Row& other) {
  if (step_of(other)) return "separate";
  const std::vector<std::string_view> own = split(fused.tuning, ',');
  std::vector<std::string> differing;
  for (const std::string_view value : split(other.tuning, ',')) {
    if (std::find(own.begin(), own.end(), value) == own.end()) differing.emplace_back(value);
  }
  return join(differing, " ");
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
  for (const MeasuredRow& other : rows) {
    if (!is_changed(other.row)) continue;
    const auto fused = std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow& row) {
      return is_pair(row.row, other.row);
    });
    if (fused == rows.end()) continue;
    FusionLine line{.fused = &fused->row,
                    .other = &other.row,
                    .changed = change(fused->row, other.row),
                    .gain = {},
                    .bytes = {},
                    .roof_gain = {}};
    if (step_of(other.row)) line.bytes = bytes(fused->row);
    if (has_time(fused->row) && has_time(other.row)) {
      line.gain = time_ratio({&other}, {&*fused});
    }
    if (line.bytes) line.roof_gain = roof_gain(fused->row, *line.bytes);
    lines.push_back(line);
  }
  return lines;
}

nlohmann::ordered_json fusions_json(std::span<const FusionLine> lines,
                                    std::span<const MeasuredRow> rows) {
  using nlohmann::ordered_json;
  const auto position_of = [&](const Row* row) {
    return std::find_if(rows.begin(), rows.end(),
                        [&](const MeasuredRow& known) { return &known.row == row; }) -
           rows.begin();
  };
  const auto or_null = [](const auto& value, auto part) {
    return value ? ordered_json(part(*value)) : ordered_json();
  };
  ordered_json list = ordered_json::array();
  for (const FusionLine& line : lines) {
    list.push_back(
        {{"fused", position_of(line.fused)},
         {"other", position_of(line.other)},
         {"changed", line.changed},
         {"gain", ratio_json(line.gain)},
         {"bytes_fused", or_null(line.bytes, [](const FusionBytes& b) { return b.fused; })},
         {"bytes_other", or_null(line.bytes, [](const FusionBytes& b) { return b.separate; })},
         {"roof_gain", or_null(line.roof_gain, [](double gain) { return gain; })}});
  }
  return list;
}

std::string terminal_fusions(std::span<const FusionLine> lines) {
  TextTable table{{{"problem"},
                   {"variant"},
                   {"threads", true},
                   {"fused", true},
                   {"changed"},
                   {"time", true},
                   {"gain [95 %]", true},
                   {"bytes fused", true},
                   {"separate", true},
                   {"roof's gain", true}},
                  {}};
  std::string notes;
  const Row* shown = nullptr;
  for (const FusionLine& line : lines) {
    const Row& row = *line.fused;
    const bool again = line.fused == shown;
    shown = line.fused;
    const std::string threads = row.threads ? fmt::format("{}", *row.threads) : "";
    table.rows.push_back({again ? "" : row.kernel + ":" + row.shape, again ? "" : row.variant,
                          again ? "" : threads, again ? "" : status_text(row), line.changed,
                          status_text(*line.other), gain_text(line),
                          line.bytes ? bytes_text(line.bytes->fused) : "",
                          line.bytes ? bytes_text(line.bytes->separate) : "",
                          line.roof_gain ? fmt::format("{:.3f}x", *line.roof_gain) : ""});
    for (const Row* failed : {line.fused, line.other}) {
      if (failed->status == "PASSED" || failed->reason.empty()) continue;
      notes += wrapped(fmt::format("{} {}: {}", failed->variant, failed->status, failed->reason));
    }
  }
  return "\n" + terminal_table(table) + notes;
}

}  // namespace rooflane
