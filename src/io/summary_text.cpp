// Text of the roofline summary.
#include "io/summary_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace rooflane {
namespace {

using Verdict = SummaryLine::Verdict;

// Rows that take longer than this many times the fastest's time decide nothing.
constexpr double folded_from = 3;

// Four significant digits without an exponent below a million: 0.01234, 12.34, 1234.
std::string number(double value) {
  if (value >= 1000 && value < 1e6) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string number(const std::optional<double>& value) { return value ? number(*value) : ""; }

// Two or three digits: intervals are wider than what more would say.
std::string per_cent(double value) {
  return value < 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

// Three digits of a ratio: 0.95, 1.06, 22.6, 109.
std::string times(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string share(const Row& row) {
  if (!row.roof_pct) return "";
  if (!row.roof_pct_lo || !row.roof_pct_hi) return per_cent(*row.roof_pct);
  return fmt::format("{} [{}, {}]", per_cent(*row.roof_pct), per_cent(*row.roof_pct_lo),
                     per_cent(*row.roof_pct_hi));
}

// What the row ran with: library, device or ISA target, and a placement that was asked for.
std::string with(const Row& row) {
  std::string text = !row.library.empty()  ? row.library
                     : !row.device.empty() ? row.device
                                           : row.isa;
  if (const std::string placement = chosen_placement(row); !placement.empty()) {
    text += " on " + placement;
  }
  return text;
}

// The variant, with its ISA target, library or device where it has several rows in the group, and
// whether it is the tuned one of two.
std::string label(const SummaryGroup& group, const Row& row) {
  const auto holds = [&](bool tuned) {
    return std::count_if(group.lines.begin(), group.lines.end(), [&](const SummaryLine& line) {
      return line.row->variant == row.variant && is_tuned(*line.row) == tuned;
    });
  };
  std::string text = row.variant;
  if (holds(is_tuned(row)) > 1) text += " " + with(row);
  if (is_tuned(row) && holds(false) > 0) text += " tuned";
  return text;
}

std::string verdict(const SummaryLine& line) {
  std::string text = line.verdict == Verdict::winner      ? "WINNER"
                     : line.verdict == Verdict::tie       ? "TIE"
                     : line.verdict == Verdict::undecided ? "UNDECIDED"
                     : line.row->status == "PASSED"       ? ""
                                                          : line.row->status;
  if (line.cliff) text += text.empty() ? "CLIFF" : " CLIFF";
  return text;
}

// Whether the table shows a line; all others are told below it.
bool is_shown(const SummaryGroup& group, const SummaryLine& line, Shown shown) {
  const Row& row = *line.row;
  if (!has_time(row)) return false;
  if (shown == Shown::all || !group.fastest || !may_win(row)) return true;
  const bool best_peer = !group.peers.empty() && group.peers.front().row == line.row;
  return best_peer || line.verdict != Verdict::none ||
         *row.p50_ns <= folded_from * *group.lines[*group.fastest].row->p50_ns;
}

std::vector<const SummaryLine*> shown_lines(const SummaryGroup& group, Shown shown) {
  std::vector<const SummaryLine*> lines;
  for (const SummaryLine& line : group.lines) {
    if (is_shown(group, line, shown)) lines.push_back(&line);
  }
  return lines;
}

// Whether the model says more than the roof: somewhere exps or unfused operations take their time.
bool has_model(const std::vector<const SummaryLine*>& lines) {
  return std::any_of(lines.begin(), lines.end(), [](const SummaryLine* line) {
    const Row& row = *line->row;
    return row.model_pct && row.roof_pct && std::abs(*row.model_pct - *row.roof_pct) >= 1;
  });
}

// "% of model", beside the roof's column, where it differs.
void add_model(const std::vector<const SummaryLine*>& lines, TextTable& table) {
  constexpr std::ptrdiff_t place = 5;  // after "% of roof"
  table.columns.insert(table.columns.begin() + place, {"% of model", true});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::optional<double>& share = lines[i]->row->model_pct;
    std::vector<std::string>& cells = table.rows[i];
    cells.insert(cells.begin() + place, share ? per_cent(*share) : "");
  }
}

// Which rows are folded away, by how much they lose.
std::string folded_note(const SummaryGroup& group, Shown shown) {
  std::vector<std::string> folded;
  for (const SummaryLine& line : group.lines) {
    if (!has_time(*line.row) || is_shown(group, line, shown)) continue;
    folded.push_back(
        fmt::format("{} {}x", label(group, *line.row),
                    times(*line.row->p50_ns / *group.lines[*group.fastest].row->p50_ns)));
  }
  if (folded.empty()) return "";
  return fmt::format("slower than the fastest, folded (--all): {}", fmt::join(folded, ", "));
}

// Intensity, and the roof of the row on top.
std::string roof_note(const SummaryGroup& group) {
  const auto top = std::find_if(group.lines.begin(), group.lines.end(), [](const auto& line) {
    return has_time(*line.row) && line.row->ai && line.row->roof_gflops;
  });
  if (top == group.lines.end()) return "";
  return fmt::format("{} FLOP/byte; the roof is {} GFLOP/s", number(*top->row->ai),
                     number(*top->row->roof_gflops));
}

// What the peer that ratios are to loses where it is INACCURATE.
std::string peer_note(const SummaryGroup& group) {
  if (group.peers.empty() || may_win(*group.peers.front().row)) return "";
  const Row& row = *group.peers.front().row;
  return fmt::format("best peer: {}, with an error of {} bounds", label(group, row),
                     number(row.err_value));
}

// What an undecided group lacks.
std::string undecided_note(const SummaryGroup& group) {
  constexpr double most_seconds = 600;
  if (!group.is_undecided()) return "";
  const std::optional<double> longer = longer_max_time(group);
  const std::string how = !longer ? "more repetitions would decide it"
                          : *longer <= most_seconds
                              ? fmt::format("--max-time {:g} would decide it", *longer)
                              : "deciding it would take more than ten minutes";
  return fmt::format("undecided: {} is {} as fast as {}; {}",
                     label(group, *group.lines[*group.fastest].row), ratio_text(group.over_next),
                     label(group, *group.lines[*group.next].row), how);
}

// The gain of tuned schedules over the choices of their variants.
void add_tuned_notes(const SummaryGroup& group, std::vector<std::string>& notes) {
  for (const SummaryLine& line : group.lines) {
    if (!line.over_model) continue;
    notes.push_back(fmt::format("{}: {} as fast as the variant's own choice",
                                label(group, *line.row), ratio_text(line.over_model)));
  }
}

// Explains `launch` where a table shows it.
std::string launch_note(const std::vector<const SummaryLine*>& lines) {
  for (const SummaryLine* line : lines) {
    const Row& row = *line->row;
    if (!is_launch_bound(row)) continue;
    return fmt::format(
        "launch: less than three times the {} of an empty kernel on {}; no kernel can come near "
        "the roof",
        time_text(row.empty_kernel_ns), row.device);
  }
  return "";
}

// The lines below a table: intensity and roof, folded rows, then statuses with their reasons,
// those of one reason together.
std::vector<std::string> notes_of(const SummaryGroup& group, Shown shown) {
  std::vector<std::string> notes;
  const auto add = [&](std::string note) {
    if (!note.empty()) notes.push_back(std::move(note));
  };
  add(roof_note(group));
  add(undecided_note(group));
  add(peer_note(group));
  add_tuned_notes(group, notes);
  add(folded_note(group, shown));
  add(launch_note(shown_lines(group, shown)));
  std::vector<std::pair<std::string, std::string>> statuses;  // what, variants
  for (const SummaryLine& line : group.lines) {
    const Row& row = *line.row;
    if (row.status == "PASSED") continue;
    const std::string what = row.reason.empty() ? row.status : row.status + ": " + row.reason;
    const auto known = std::find_if(statuses.begin(), statuses.end(),
                                    [&](const auto& status) { return status.first == what; });
    if (known == statuses.end()) {
      statuses.emplace_back(what, label(group, row));
    } else {
      known->second += ", " + label(group, row);
    }
  }
  for (const auto& [what, variants] : statuses) add(fmt::format("{} {}", variants, what));
  return notes;
}

// What each variant ran with over all groups: "hwy AVX3; onednn oneDNN 2.6.3".
std::string with_line(std::span<const SummaryGroup> groups) {
  std::vector<std::string> words;
  for (const SummaryGroup& group : groups) {
    for (const SummaryLine& line : group.lines) {
      const std::string what = with(*line.row);
      const std::string word = line.row->variant + ": " + what;
      if (!what.empty() && std::find(words.begin(), words.end(), word) == words.end()) {
        words.push_back(word);
      }
    }
  }
  return words.empty() ? "" : fmt::format("with {}", fmt::join(words, "; "));
}

// Calls `show` for the groups of each CPU, with its name.
template <class Show>
void for_each_cpu(std::span<const SummaryGroup> groups, Show&& show) {
  for (std::size_t first = 0; first < groups.size();) {
    std::size_t end = first;
    while (end < groups.size() && groups[end].cpu == groups[first].cpu) ++end;
    show(groups[first].cpu, groups.subspan(first, end - first));
    first = end;
  }
}

}  // namespace

std::string time_text(const std::optional<double>& ns) {
  if (!ns) return "";
  if (*ns < 1e3) return number(*ns) + " ns";
  if (*ns < 1e6) return number(*ns / 1e3) + " us";
  if (*ns < 1e9) return number(*ns / 1e6) + " ms";
  return number(*ns / 1e9) + " s";
}

std::string ratio_text(const std::optional<Ratio>& ratio) {
  if (!ratio) return "";
  const std::optional<Interval> interval = ratio->interval();
  return times(ratio->value()) + "x" +
         (interval ? fmt::format(" [{}, {}]", times(interval->low), times(interval->high)) : "");
}

std::string summary_title(const SummaryGroup& group) {
  std::string title = group.kernel + ":" + group.shape;
  if (group.threads) {
    title += fmt::format("  {} thread{}", *group.threads, *group.threads == 1 ? "" : "s");
  }
  for (const std::string& word : {group.cache, group.math, group.size}) {
    if (!word.empty()) title += "  " + word;
  }
  if (!group.distribution.empty()) title += "  " + group.distribution + " inputs";
  return title;
}

TextTable summary_table(const SummaryGroup& group, Shown shown) {
  TextTable table{{{"variant", false},
                   {"time", true},
                   {"GFLOP/s", true},
                   {"GB/s", true},
                   {"% of roof [95 %]", true},
                   {"bound", false},
                   {"x scalar", true},
                   {"x best peer [95 %]", true},
                   {"verdict", false}},
                  {}};
  const std::vector<const SummaryLine*> lines = shown_lines(group, shown);
  for (const SummaryLine* line : lines) {
    const Row& row = *line->row;
    table.rows.push_back({label(group, row), time_text(row.p50_ns), number(row.gflops),
                          number(row.gb_s), share(row), is_launch_bound(row) ? "launch" : row.bound,
                          line->over_scalar ? times(line->over_scalar->value()) + "x" : "",
                          ratio_text(line->over_peer), verdict(*line)});
  }
  if (has_model(lines)) add_model(lines, table);
  return table;
}

std::string terminal_summary(std::span<const SummaryGroup> groups, Shown shown) {
  std::string text;
  for_each_cpu(groups, [&](const std::string& cpu, std::span<const SummaryGroup> those) {
    text += (text.empty() ? "" : "\n") + cpu + "\n";
    for (const SummaryGroup& group : those) {
      text += "\n" + wrapped(summary_title(group));
      const TextTable table = summary_table(group, shown);
      if (!table.rows.empty()) text += terminal_table(table);
      for (const std::string& note : notes_of(group, shown)) text += wrapped(note);
    }
    const std::string with = with_line(those);
    if (!with.empty()) text += "\n" + wrapped(with);
  });
  return text;
}

std::string markdown_summary(std::span<const SummaryGroup> groups, Shown shown) {
  std::string text;
  for_each_cpu(groups, [&](const std::string& cpu, std::span<const SummaryGroup> those) {
    text += (text.empty() ? "" : "\n") + markdown_text(cpu) + "\n";
    for (const SummaryGroup& group : those) {
      text += "\n**" + markdown_text(summary_title(group)) + "**\n\n" +
              markdown_table(summary_table(group, shown));
      for (const std::string& note : notes_of(group, shown)) {
        text += "\n- " + markdown_text(note) + "\n";
      }
    }
    const std::string with = with_line(those);
    if (!with.empty()) text += "\n" + markdown_text(with) + "\n";
  });
  return text;
}

}  // namespace rooflane
