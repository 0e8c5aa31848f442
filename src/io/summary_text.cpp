// Text of the roofline summary.
#include "io/summary_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/statistics.hpp"

namespace rooflane {
namespace {

// Four significant digits without an exponent below a million: 0.01234, 12.34, 1234.
std::string number(double value) {
  if (value >= 1000 && value < 1e6) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string number(const std::optional<double>& value) { return value ? number(*value) : ""; }

std::string share(const Row& row) {
  if (!row.roof_pct) return "";
  if (!row.roof_pct_lo || !row.roof_pct_hi) return fmt::format("{:.1f}", *row.roof_pct);
  return fmt::format("{:.1f} [{:.1f}, {:.1f}]", *row.roof_pct, *row.roof_pct_lo, *row.roof_pct_hi);
}

// Whether the model says more than the roof: somewhere exps or unfused operations take their time.
bool has_model(const SummaryGroup& group) {
  return std::any_of(group.lines.begin(), group.lines.end(), [](const SummaryLine& line) {
    const Row& row = *line.row;
    return row.model_pct && row.roof_pct && std::abs(*row.model_pct - *row.roof_pct) >= 0.1;
  });
}

// "% of model", beside the roof's column, where it differs.
void add_model(const SummaryGroup& group, TextTable& table) {
  constexpr std::ptrdiff_t place = 7;  // after "% of roof"
  table.columns.insert(table.columns.begin() + place, {"% of model", true});
  for (std::size_t i = 0; i < group.lines.size(); ++i) {
    const std::optional<double>& share = group.lines[i].row->model_pct;
    std::vector<std::string>& cells = table.rows[i];
    cells.insert(cells.begin() + place, share ? fmt::format("{:.1f}", *share) : "");
  }
}

std::string times(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{:.2f}x", *ratio) : "";
}

// What the row ran with: library, device or ISA target.
std::string with(const Row& row) {
  if (!row.library.empty()) return row.library;
  if (!row.device.empty()) return row.device;
  return row.isa;
}

// A row without a PASSED keeps its status; the reason says why.
std::string verdict(const SummaryLine& line) {
  if (line.verdict == SummaryLine::Verdict::winner) return "WINNER";
  if (line.verdict == SummaryLine::Verdict::tie) return "TIE";
  if (line.row->status == "PASSED") return "";
  return line.row->reason.empty() ? line.row->status : line.row->status + ": " + line.row->reason;
}

const SummaryLine* first_winner(const SummaryGroup& group) {
  for (const SummaryLine& line : group.lines) {
    if (line.verdict != SummaryLine::Verdict::none) return &line;
  }
  return nullptr;
}

std::string plural(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// What the medians over a variant's wins say: ", at 81 % of the roof, 12.3x scalar".
std::string medians_text(const std::vector<const SummaryLine*>& wins) {
  std::vector<double> shares, scalars, peers;
  std::size_t memory_bound = 0;
  for (const SummaryLine* line : wins) {
    if (line->row->roof_pct) shares.push_back(*line->row->roof_pct);
    if (line->over_scalar) scalars.push_back(*line->over_scalar);
    if (line->over_peer && line->row->library.empty()) peers.push_back(*line->over_peer);
    if (line->row->bound == "memory") ++memory_bound;
  }
  std::string text;
  if (!shares.empty()) {
    text += fmt::format(", at {:.0f} % of the roof", median(shares));
    if (memory_bound == 0) text += " (compute-bound)";
    if (memory_bound == wins.size()) text += " (memory-bound)";
  }
  if (!scalars.empty()) text += fmt::format(", {:.1f} times as fast as scalar", median(scalars));
  if (!peers.empty()) text += fmt::format(", {:.2f} times as fast as the best peer", median(peers));
  return text;
}

std::string sentence(const std::string& kernel, std::span<const SummaryGroup> groups) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const SummaryLine*>> wins;
  std::size_t problems = 0, ties = 0, undecided = 0;
  for (const SummaryGroup& group : groups) {
    if (group.kernel != kernel) continue;
    ++problems;
    const SummaryLine* best = first_winner(group);
    if (!best) {
      ++undecided;
    } else if (best->verdict == SummaryLine::Verdict::tie) {
      ++ties;
    } else {
      if (wins[best->row->variant].empty()) order.push_back(best->row->variant);
      wins[best->row->variant].push_back(best);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](const std::string& x, const std::string& y) {
    return wins[x].size() > wins[y].size();
  });
  std::vector<std::string> parts;
  for (const std::string& variant : order) {
    parts.push_back(fmt::format("{} wins {} of {}{}", variant, wins[variant].size(),
                                plural(problems, "case"), medians_text(wins[variant])));
  }
  if (ties > 0) parts.push_back(plural(ties, "tie"));
  if (undecided > 0) parts.push_back(fmt::format("{} without a PASSED row", undecided));
  return fmt::format("{}: {}", kernel, fmt::join(parts, "; "));
}

}  // namespace

std::string time_text(const std::optional<double>& ns) {
  if (!ns) return "";
  if (*ns < 1e3) return number(*ns) + " ns";
  if (*ns < 1e6) return number(*ns / 1e3) + " us";
  if (*ns < 1e9) return number(*ns / 1e6) + " ms";
  return number(*ns / 1e9) + " s";
}

std::string summary_title(const SummaryGroup& group) {
  std::string title = group.kernel + ":" + group.shape;
  if (group.threads) title += "  " + plural(static_cast<std::size_t>(*group.threads), "thread");
  title += "  " + group.cache;
  if (!group.math.empty()) title += "  " + group.math;
  return title;
}

TextTable summary_table(const SummaryGroup& group) {
  TextTable table{{{"variant", false},
                   {"time", true},
                   {"GFLOP/s", true},
                   {"GB/s", true},
                   {"FLOP/byte", true},
                   {"roof GFLOP/s", true},
                   {"% of roof [95 %]", true},
                   {"bound", false},
                   {"vs scalar", true},
                   {"vs best peer", true},
                   {"verdict", false},
                   {"with", false}},
                  {}};
  for (const SummaryLine& line : group.lines) {
    const Row& row = *line.row;
    table.rows.push_back({row.variant, time_text(row.p50_ns), number(row.gflops), number(row.gb_s),
                          number(row.ai), number(row.roof_gflops), share(row),
                          is_launch_bound(row) ? "launch" : row.bound, times(line.over_scalar),
                          times(line.over_peer), verdict(line), with(row)});
  }
  if (has_model(group)) add_model(group, table);
  return table;
}

std::vector<std::string> summary_sentences(std::span<const SummaryGroup> groups) {
  std::vector<std::string> kernels, sentences;
  for (const SummaryGroup& group : groups) {
    if (std::find(kernels.begin(), kernels.end(), group.kernel) == kernels.end()) {
      kernels.push_back(group.kernel);
      sentences.push_back(sentence(group.kernel, groups));
    }
  }
  return sentences;
}

// Explains `launch` where a table shows it.
std::string launch_note(const SummaryGroup& group) {
  for (const SummaryLine& line : group.lines) {
    const Row& row = *line.row;
    if (!is_launch_bound(row)) continue;
    return fmt::format(
        "launch: within three times an empty kernel's {} on {}; no kernel comes near the roof\n",
        time_text(row.empty_kernel_ns), row.device);
  }
  return "";
}

std::string terminal_summary(std::span<const SummaryGroup> groups) {
  std::string text;
  std::string cpu;
  for (const SummaryGroup& group : groups) {
    if (group.cpu != cpu) text += (cpu.empty() ? "" : "\n") + group.cpu + "\n";
    cpu = group.cpu;
    text += "\n" + summary_title(group) + "\n" + terminal_table(summary_table(group)) +
            launch_note(group);
  }
  text += "\n";
  for (const std::string& line : summary_sentences(groups)) text += line + "\n";
  return text;
}

std::string markdown_summary(std::span<const SummaryGroup> groups) {
  std::string text;
  std::string cpu;
  for (const SummaryGroup& group : groups) {
    if (group.cpu != cpu) text += (cpu.empty() ? "" : "\n") + group.cpu + "\n";
    cpu = group.cpu;
    text += "\n**" + summary_title(group) + "**\n\n" + markdown_table(summary_table(group));
    const std::string note = launch_note(group);
    if (!note.empty()) text += "\n" + note;
  }
  text += "\n";
  for (const std::string& line : summary_sentences(groups)) text += "- " + line + "\n";
  return text;
}

}  // namespace rooflane
