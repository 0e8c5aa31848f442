// Grouping rows into ladders, and ladders as text. See ladder.hpp.
#include "io/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "io/summary_text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

using Members = std::vector<const MeasuredRow*>;

// The ISA target aside: a rung that was skipped need not know its own.
using Key = std::tuple<std::string, std::string, std::string, std::string, std::string, std::string,
                       std::string>;
Key key_of(const Row& row) {
  return {row.kernel, row.shape, row.dtype, row.math, row.cache, row.cpu, row.variant};
}

// By step, the variant itself last, then by threads.
using Place = std::tuple<bool, std::int64_t, std::int64_t>;
Place place_of(const Row& row) {
  const auto step = step_of(row);
  return {!step, step.value_or(0), row.threads.value_or(0)};
}

// The one of `candidates` (all of one step, by threads) to compare a row of `threads` with.
const MeasuredRow* at_threads(const Members& candidates, std::int64_t threads) {
  const MeasuredRow* found = candidates.empty() ? nullptr : candidates.front();
  for (const MeasuredRow* candidate : candidates) {
    if (candidate->row.threads.value_or(0) <= threads) found = candidate;
  }
  return found;
}

Ladder ladder_of(const Members& members, const std::string& isa) {
  std::map<Place, Members> same;
  for (const MeasuredRow* member : members) same[place_of(member->row)].push_back(member);
  Members rows;
  for (auto& [place, those] : same) rows.push_back(representative(std::move(those)));

  const Row& any = rows.front()->row;
  Ladder ladder{any.kernel, any.shape, any.math, any.cache, any.cpu, any.variant, isa, {}, {}};
  for (const MeasuredRow* measured : rows) {
    if (ladder.device.empty()) ladder.device = measured->row.device;
  }
  Members first, before, current;  // the rows of one step each
  for (const MeasuredRow* measured : rows) {
    const auto step = step_of(measured->row);
    if (!current.empty() && step_of(current.front()->row) != step) {
      before = std::exchange(current, {});
    }
    current.push_back(measured);
    if (step == 0) first.push_back(measured);
    LadderLine line{&measured->row, step, {}, {}};
    const auto ratio = [&](const Members& others) -> std::optional<Ratio> {
      const MeasuredRow* other = at_threads(others, measured->row.threads.value_or(0));
      if (other == nullptr || !has_time(other->row) || !has_time(measured->row))
        return std::nullopt;
      return time_ratio({other}, {measured});
    };
    line.over_before = ratio(before);
    line.over_first = ratio(first);
    ladder.lines.push_back(line);
  }
  return ladder;
}

std::string times(const std::optional<Ratio>& ratio) {
  return ratio ? fmt::format("{:.2f}x", ratio->value()) : "";
}

std::string title_of(const Ladder& ladder) {
  std::string title =
      fmt::format("{}:{}  ladder of {}", ladder.kernel, ladder.shape, ladder.variant);
  for (const std::string& part : {ladder.device, ladder.isa, ladder.cache, ladder.math}) {
    if (!part.empty()) title += "  " + part;
  }
  return title;
}

TextTable table_of(const Ladder& ladder, const RungTexts& texts) {
  // Speed in the unit of the problem's limit at the top rung.
  const auto bounded =
      std::find_if(ladder.lines.rbegin(), ladder.lines.rend(),
                   [](const LadderLine& line) { return !line.row->bound.empty(); });
  const bool compute = bounded == ladder.lines.rend() || bounded->row->bound == "compute";
  TextTable table{{{"step", false},
                   {"name", false},
                   {"threads", true},
                   {"time", true},
                   {compute ? "GFLOP/s" : "GB/s", true},
                   {"% of roof", true},
                   {"x before [95 %]", true},
                   {"x step 0", true},
                   {"idea", false}},
                  {}};
  for (const LadderLine& line : ladder.lines) {
    const Row& row = *line.row;
    const std::optional<double>& speed = compute ? row.gflops : row.gb_s;
    RungText text{ladder.variant, "the variant itself"};
    if (line.step) text = texts(ladder.kernel, ladder.variant, *line.step);
    if (row.status != "PASSED") text.idea += (text.idea.empty() ? "[" : " [") + row.status + "]";
    table.rows.push_back({line.step ? fmt::format("{}", *line.step) : "-", text.name,
                          row.threads ? fmt::format("{}", *row.threads) : "", time_text(row.p50_ns),
                          speed ? fmt::format("{:.4g}", *speed) : "",
                          row.roof_pct ? fmt::format("{:.1f}", *row.roof_pct) : "",
                          ratio_text(line.over_before), times(line.over_first), text.idea});
  }
  return table;
}

// Reasons are sentences, so they are printed below the table.
std::vector<std::string> notes_of(const Ladder& ladder) {
  std::vector<std::string> notes;
  for (const LadderLine& line : ladder.lines) {
    if (line.row->status == "PASSED" || line.row->reason.empty()) continue;
    notes.push_back(fmt::format("{} {}: {}",
                                line.step ? fmt::format("step {}", *line.step) : ladder.variant,
                                line.row->status, line.row->reason));
  }
  return notes;
}

}  // namespace

std::vector<Ladder> ladders_of(std::span<const MeasuredRow> rows) {
  std::vector<Key> order;
  std::map<Key, Members> problems;
  for (const MeasuredRow& measured : rows) {
    if (!step_of(measured.row)) continue;
    if (problems[key_of(measured.row)].empty()) order.push_back(key_of(measured.row));
    problems[key_of(measured.row)].push_back(&measured);
  }
  for (const MeasuredRow& measured : rows) {
    const auto found = problems.find(key_of(measured.row));
    if (!step_of(measured.row) && found != problems.end()) found->second.push_back(&measured);
  }
  std::vector<Ladder> ladders;
  for (const Key& key : order) {
    const Members& members = problems[key];
    std::vector<std::string> isas;
    for (const MeasuredRow* member : members) {
      const std::string& isa = member->row.isa;
      if (!isa.empty() && std::find(isas.begin(), isas.end(), isa) == isas.end()) {
        isas.push_back(isa);
      }
    }
    if (isas.empty()) isas.emplace_back();
    for (const std::string& isa : isas) {
      Members of_isa;
      for (const MeasuredRow* member : members) {
        const std::string& own = member->row.isa;
        if (own == isa || (own.empty() && isa == isas.front())) of_isa.push_back(member);
      }
      ladders.push_back(ladder_of(of_isa, isa));
    }
  }
  return ladders;
}

std::string terminal_ladders(std::span<const Ladder> ladders, const RungTexts& texts) {
  std::string text;
  for (const Ladder& ladder : ladders) {
    text += "\n" + wrapped(title_of(ladder)) + terminal_table(table_of(ladder, texts));
    for (const std::string& note : notes_of(ladder)) text += wrapped(note);
  }
  return text;
}

std::string markdown_ladders(std::span<const Ladder> ladders, const RungTexts& texts) {
  std::string text;
  for (const Ladder& ladder : ladders) {
    text += "\n**" + markdown_text(title_of(ladder)) + "**\n\n" +
            markdown_table(table_of(ladder, texts));
    for (const std::string& note : notes_of(ladder)) text += "\n- " + markdown_text(note) + "\n";
  }
  return text;
}

}  // namespace rooflane
