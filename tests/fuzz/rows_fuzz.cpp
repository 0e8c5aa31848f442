// A CSV and, behind a NUL, its samples: every verb that starts from rows must print something about
// accepted input, in text and in JSON.
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/temporary_folder.hpp"
#include "io/compare_json.hpp"
#include "io/compare_text.hpp"
#include "io/crossover.hpp"
#include "io/fusion.hpp"
#include "io/json.hpp"
#include "io/ladder.hpp"
#include "io/size_classes.hpp"
#include "io/summary_json.hpp"
#include "io/summary_text.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

std::vector<MeasuredRow> read(std::string_view input) {
  static const TemporaryFolder folder;
  const std::string path = folder / "rows.csv";
  const std::size_t end = std::min(input.find('\0'), input.size());
  std::ofstream(path, std::ios::binary) << input.substr(0, end);
  std::ofstream samples(samples_path(path), std::ios::binary);
  if (end < input.size()) samples << input.substr(end + 1);
  samples.close();
  return read_measured_rows({path}, end < input.size());
}

void require_json(const nlohmann::ordered_json& document) {
  require(nlohmann::json::accept(json_text(document)));
}

void summarise(std::span<const MeasuredRow> rows) {
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  terminal_summary(groups, Shown::all);
  markdown_summary(groups);
  const std::vector<SizeClass> classes = size_classes(groups);
  terminal_classes(classes);
  markdown_classes(classes);
  preset_figures(groups);
  const ReadFile files[] = {{"rows.csv", rows.size()}};
  require_json(summary_json(rows, files));
  crossover_text(rows, true);
  const std::vector<Ladder> ladders = ladders_of(rows);
  terminal_ladders(ladders, [](const auto&, const auto&, auto) { return RungText{}; });
  const auto fusions = fusions_of(rows, [](const Row&) { return FusionBytes{1, 2, 3}; });
  terminal_fusions(fusions);
  require_json(fusions_json(fusions, rows));
}

void compare(const Comparison& comparison) {
  terminal_comparison(comparison, {});
  markdown_comparison(comparison, {});
  require_json(comparison_json(comparison, "old", "new"));
}

}  // namespace

void rows_target(std::string_view input) {
  const std::vector<MeasuredRow> all = read(input);
  summarise(all);
  const std::span<const MeasuredRow> rows(all);
  const auto before = rows.first(rows.size() / 2), after = rows.subspan(rows.size() / 2);
  compare(compare_rows(before, after));
  machine_difference(before, after);
  run_line("old.csv", rows);
  for (const std::string& build : other_builds(rows)) compare(compare_against(rows, build));
}

}  // namespace rooflane::fuzz
