// Text of a comparison.
#include "io/compare_text.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "core/text.hpp"
#include "io/summary_text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

// A change of time in per cent, with its sign; -0.0 is 0.0.
std::string per_cent(double ratio) {
  const double change = 100 * (ratio - 1);
  return fmt::format("{:+.1f}", change > -0.05 && change < 0 ? 0.0 : change);
}

std::string change_text(const ComparedRow& row) {
  if (!row.ratio) return "";
  return fmt::format("{} [{}, {}]", per_cent(*row.ratio), per_cent(*row.low), per_cent(*row.high));
}

// The variant, and whether it ran with a tuned schedule.
std::string label(const Row& row) { return row.variant + (is_tuned(row) ? " tuned" : ""); }

// Reasons of failures may be sentences; these are printed below the table.
bool is_long(const ComparedRow& row) {
  constexpr std::size_t longest = 60;  // what is said of intervals is shorter
  return row.reason.size() > longest;
}

std::vector<std::string> reasons_below(std::span<const ComparedRow> rows) {
  std::vector<std::string> lines;
  for (const ComparedRow& compared : rows) {
    if (!is_long(compared)) continue;
    const Row& row = compared.after != nullptr ? *compared.after : *compared.before;
    lines.push_back(fmt::format("{} {}:{} {}: {}", change_name(compared.change), row.kernel,
                                row.shape, label(row), compared.reason));
  }
  return lines;
}

std::string bullets(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n- " + markdown_text(line) + "\n";
  return text;
}

TextTable table_of(std::span<const ComparedRow> rows) {
  TextTable table{{{"verdict", false},
                   {"problem", false},
                   {"variant", false},
                   {"threads", true},
                   {"old", true},
                   {"new", true},
                   {"change % [95 %]", true},
                   {"why", false}},
                  {}};
  for (const ComparedRow& compared : rows) {
    const Row& row = compared.after != nullptr ? *compared.after : *compared.before;
    const auto time = [](const Row* side) {
      return side == nullptr ? std::string() : time_text(side->p50_ns);
    };
    std::string problem = row.kernel + ":" + row.shape;
    if (row.cache != "warm" && !row.cache.empty()) problem += "  " + row.cache;
    if (row.math != "fp32" && !row.math.empty()) problem += "  " + row.math;
    if (!row.distribution.empty()) problem += "  " + row.distribution + " inputs";
    table.rows.push_back({change_name(compared.change), problem, label(row),
                          row.threads ? fmt::format("{}", *row.threads) : "", time(compared.before),
                          time(compared.after), change_text(compared),
                          is_long(compared) ? "below" : compared.reason});
  }
  return table;
}

bool is_news(const ComparedRow& row) {
  return row.change == Change::failing || row.change == Change::slower ||
         row.change == Change::faster || row.change == Change::only_old ||
         row.change == Change::only_new;
}

}  // namespace

std::string run_line(const std::string& name, std::span<const MeasuredRow> rows) {
  std::set<std::string> commits, compilers, times;
  for (const MeasuredRow& measured : rows) {
    const Row& row = measured.row;
    const bool dirty = row.git_dirty == "1" || row.git_dirty == "true";
    if (!row.build_commit.empty()) commits.insert(row.build_commit + (dirty ? " (dirty)" : ""));
    if (!row.compiler.empty()) compilers.insert(row.compiler);
    if (!row.test_time.empty()) times.insert(row.test_time);
  }
  std::string line = name;
  if (!commits.empty()) line += "  commit " + join({commits.begin(), commits.end()}, ", ");
  if (!compilers.empty()) line += "  " + join({compilers.begin(), compilers.end()}, ", ");
  if (!times.empty()) line += "  " + *times.begin();
  return line;
}

std::string counts_line(const Comparison& comparison) {
  std::vector<std::string> parts;
  for (const Change change : {Change::failing, Change::slower, Change::faster, Change::unsure,
                              Change::only_old, Change::only_new, Change::same}) {
    const std::size_t count = comparison.count(change);
    if (count > 0) parts.push_back(fmt::format("{} {}", count, change_name(change)));
  }
  const std::size_t rows = comparison.rows.size();
  return fmt::format("{} row{}{}{}", rows, rows == 1 ? "" : "s", parts.empty() ? "" : ": ",
                     join(parts, ", "));
}

std::string terminal_comparison(const Comparison& comparison, std::span<const std::string> header) {
  std::string text;
  for (const std::string& line : header) text += wrapped(line);
  if (!header.empty()) text += "\n";
  if (!comparison.rows.empty()) {
    text += terminal_table(table_of(comparison.rows));
    for (const std::string& line : reasons_below(comparison.rows)) text += wrapped(line);
    text += "\n";
  }
  return text + counts_line(comparison) + "\n";
}

std::string markdown_comparison(const Comparison& comparison, std::span<const std::string> header) {
  std::string text = "**" + counts_line(comparison) + "**\n\n";
  for (const std::string& line : header) text += "- " + markdown_text(line) + "\n";
  std::vector<ComparedRow> news, rest;
  for (const ComparedRow& row : comparison.rows) (is_news(row) ? news : rest).push_back(row);
  if (!news.empty()) text += "\n" + markdown_table(table_of(news));
  text += bullets(reasons_below(news));
  if (!rest.empty()) {
    text += fmt::format("\n<details><summary>{} without a detectable change</summary>\n\n{}",
                        rest.size(), markdown_table(table_of(rest)));
    text += bullets(reasons_below(rest)) + "\n</details>\n";
  }
  return text;
}

}  // namespace rooflane
