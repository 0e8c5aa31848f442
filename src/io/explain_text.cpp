// Tables and sentences of lost shares. See explain_text.hpp.
#include "io/explain_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "io/explain.hpp"
#include "io/measured_rows.hpp"
#include "io/summary_text.hpp"
#include "io/table.hpp"

namespace rooflane {

namespace {

struct LossLine {
  std::string label;
  const ExplainedRow* of;
  RoofLoss loss;
};

auto key_of(const Row& row) {
  return std::tie(row.kernel, row.shape, row.dtype, row.math, row.cache, row.threads);
}

// The variant, with its rung, tuning and target where another row has the same name.
std::string label_of(const Row& row, std::span<const ExplainedRow> group) {
  const auto rows = std::count_if(group.begin(), group.end(), [&](const ExplainedRow& other) {
    return other.row->variant == row.variant;
  });
  std::string label = row.variant;
  if (const auto step = step_of(row)) return fmt::format("{} step {}", label, *step);
  if (rows > 1 && !row.isa.empty()) label += " " + row.isa;
  if (rows > 1 && is_tuned(row)) label += " tuned";
  return label;
}

std::string points(double value) {
  const std::string text = fmt::format("{:.1f}", value);
  return text == "-0.0" ? "0.0" : text;
}

// What rounds to 0.0 in every line says nothing.
bool is_shown(const std::vector<LossLine>& lines, std::size_t part) {
  return std::any_of(lines.begin(), lines.end(), [&](const LossLine& line) {
    return std::abs(line.loss.parts[part].points) >= 0.05;
  });
}

TextTable table_of(const std::vector<LossLine>& lines) {
  TextTable table{{{"variant", false}, {"time", true}, {"% of roof", true}, {"lost", true}}, {}};
  for (const LossLine& line : lines) {
    table.rows.push_back({line.label, time_text(line.of->row->p50_ns), points(line.loss.reached),
                          points(100 - line.loss.reached)});
  }
  for (std::size_t part = 0; part < lines.front().loss.parts.size(); ++part) {
    if (!is_shown(lines, part)) continue;
    table.columns.push_back({lines.front().loss.parts[part].name, true});
    for (std::size_t i = 0; i < lines.size(); ++i) {
      table.rows[i].push_back(points(lines[i].loss.parts[part].points));
    }
  }
  return table;
}

// "hwy: most in waiting for threads; while computing 94 % of the roof; …".
std::string sentence(const LossLine& line) {
  const RoofLoss& loss = line.loss;
  std::string text = line.label + ":";
  if (loss.largest().points >= 0.05) text += fmt::format(" most in {};", loss.largest().words);
  text += fmt::format(" {:.0f} % of the roof while computing", loss.computing_pct);
  if (loss.tail_pct >= 0.05) {
    text += fmt::format("; {:.1f} % of the time on partly filled tiles", loss.tail_pct);
  }
  text += fmt::format("; recording took {:+.1f} %", loss.recorder_pct);
  if (loss.parts.back().points <= -0.05) {
    text += "; computing below 0: other phases did some of the work that the roof counts";
  }
  return text;
}

// "hwy: 2.71 instructions a cycle, 1.2e+06 cache misses a run"; empty without counters.
std::string counters_of(const LossLine& line) {
  double cycles = 0, instructions = 0;
  std::vector<std::string> words;
  for (const auto& [name, count] : line.of->profile->counters) {
    if (name == "cycles") cycles = count;
    if (name == "instructions") instructions = count;
    words.push_back(fmt::format("{:.4g} {} a run", count, name));
  }
  if (words.empty()) return "";
  if (cycles > 0 && instructions > 0) {
    words.push_back(fmt::format("{:.2f} instructions a cycle", instructions / cycles));
  }
  return fmt::format("{}: {}", line.label, fmt::join(words, ", "));
}

std::string title_of(const Row& row) {
  SummaryGroup group;
  group.kernel = row.kernel;
  group.shape = row.shape;
  group.math = row.math;
  group.cache = row.cache;
  group.threads = row.threads;
  group.size = row.roof_level;
  return summary_title(group);
}

std::string group_text(std::span<const ExplainedRow> group, bool markdown) {
  std::vector<LossLine> lines;
  for (const ExplainedRow& one : group) {
    if (one.profile == nullptr) continue;
    if (auto loss = roof_loss(*one.row, *one.profile)) {
      lines.push_back({label_of(*one.row, group), &one, *std::move(loss)});
    }
  }
  if (lines.empty()) return "";
  std::vector<std::string> notes;
  for (const LossLine& line : lines) {
    notes.push_back(sentence(line));
    if (auto counters = counters_of(line); !counters.empty()) notes.push_back(std::move(counters));
  }
  const std::string title = title_of(*group.front().row);
  const TextTable table = table_of(lines);
  std::string text = markdown
                         ? "**" + markdown_text(title) + "**\n\n" + markdown_table(table) + "\n"
                         : wrapped(title) + terminal_table(table);
  for (const std::string& note : notes) {
    text += markdown ? "- " + markdown_text(note) + "\n" : wrapped(note);
  }
  return text;
}

}  // namespace

std::string explain_text(std::span<const ExplainedRow> rows, bool markdown) {
  std::string text;
  std::set<std::string> silent;
  for (std::size_t first = 0; first < rows.size();) {
    std::vector<ExplainedRow> group;
    std::size_t end = first;
    for (; end < rows.size() && key_of(*rows[end].row) == key_of(*rows[first].row); ++end) {
      group.push_back(rows[end]);
      if (rows[end].profile == nullptr && has_time(*rows[end].row)) {
        silent.insert(rows[end].row->variant);
      }
    }
    const std::string here = group_text(group, markdown);
    if (!here.empty()) text += (text.empty() ? "" : "\n") + here;
    first = end;
  }
  if (!text.empty() && !silent.empty()) {
    const std::string note = fmt::format("no phases of: {}", fmt::join(silent, ", "));
    text += "\n" + (markdown ? markdown_text(note) + "\n" : wrapped(note));
  }
  return text;
}

}  // namespace rooflane
