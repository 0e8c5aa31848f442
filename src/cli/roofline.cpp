// `rooflane roofline`: the summary of rows that `bench` wrote. Knows rows only.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "cli/json_output.hpp"
#include "cli/ladder.hpp"
#include "cli/row_format.hpp"
#include "cli/verbs.hpp"
#include "core/status.hpp"
#include "core/text.hpp"
#include "io/crossover.hpp"
#include "io/explain_text.hpp"
#include "io/phases_file.hpp"
#include "io/size_classes.hpp"
#include "io/summary_json.hpp"
#include "io/summary_text.hpp"

namespace rooflane {
namespace {

constexpr const char* bench_example =
    "rooflane bench --shape softmax:rows=64,cols=512 --threads 1 --ceilings-time 1 --csv "
    "softmax.csv > summary.txt";
constexpr const char* phases_example =
    "rooflane bench -v hwy --shape gemm:m=n=k=128 --launches 1 --ceilings-time 1 --phases --csv "
    "gemm.csv > summary.txt";

void declare_roofline(Arguments& arguments) {
  arguments.positionals("FILE", "CSV files of `rooflane bench --csv`");
  arguments.flag("--markdown", "print Markdown tables for a README");
  arguments.flag("--all", "also show rows that are far slower");
  arguments.flag("--without-samples", "use only the rows, without the samples file");
  arguments.flag("--explain",
                 "instead of the summary, show where the lost share of the roof went, from the "
                 "phases of `bench --phases`");
  RowFormat::declare(arguments, "text");
  arguments.json_output("print groups, ratios, winners, classes and rows as JSON");
  arguments.examples({bench_example, "rooflane roofline softmax.csv",
                      "rooflane roofline --markdown --all softmax.csv",
                      "rooflane roofline --json softmax.csv",
                      "rooflane roofline --format bmf softmax.csv", phases_example,
                      "rooflane roofline --explain gemm.csv"});
}

// A pattern such as results/*/*.csv also names files of samples and of phases; each is read beside
// its rows.
std::vector<std::string> files_of(const Arguments& arguments) {
  std::vector<std::string> files = arguments.values("FILE");
  if (files.size() > 1) {
    std::erase_if(files, [](const std::string& file) {
      return file.ends_with(samples_path("")) || file.ends_with(phases_path(""));
    });
  }
  if (files.empty()) {
    throw argument_error("FILE is missing: a CSV written by `rooflane bench --csv FILE`");
  }
  return files;
}

std::string text_of(const std::vector<MeasuredRow>& rows, bool markdown, Shown shown,
                    const RungTexts& texts) {
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  const std::vector<SizeClass> classes = size_classes(groups);
  const std::vector<Ladder> ladders = ladders_of(rows);
  const std::string between = classes.empty() ? "" : "\n";
  if (markdown) {
    return markdown_classes(classes) + between + markdown_summary(groups, shown) +
           crossover_text(rows, true) + markdown_ladders(ladders, texts);
  }
  return terminal_classes(classes) + between + terminal_summary(groups, shown) +
         crossover_text(rows, false) + terminal_ladders(ladders, texts);
}

// The phases beside the files, by position in `rows`; `counts` has the number of rows of each file.
std::map<std::size_t, PhaseProfile> phases_of(const std::vector<std::string>& files,
                                              const std::vector<std::size_t>& counts) {
  std::map<std::size_t, PhaseProfile> profiles;
  std::size_t first = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string path = phases_path(files[i]);
    if (std::filesystem::exists(path)) {
      for (auto& [row, profile] : read_phases(path)) {
        const auto position = static_cast<std::size_t>(row);
        if (position < counts[i]) profiles.emplace(first + position, std::move(profile));
      }
    }
    first += counts[i];
  }
  return profiles;
}

std::string explanation_of(const std::vector<MeasuredRow>& rows,
                           const std::vector<std::string>& files,
                           const std::vector<std::size_t>& counts, bool markdown) {
  const std::map<std::size_t, PhaseProfile> profiles = phases_of(files, counts);
  std::vector<ExplainedRow> explained;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto profile = profiles.find(i);
    explained.push_back({&rows[i].row, profile == profiles.end() ? nullptr : &profile->second});
  }
  std::string text = explain_text(explained, markdown);
  if (!text.empty()) return text;
  throw argument_error(fmt::format(
      "--explain: no row of '{}' has phases and a roof; `rooflane bench --phases --csv "
      "FILE` records them for scalar, hwy and other variants that are not a library or a device",
      join(files, "', '")));
}

int run_roofline(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  const JsonOutput json(arguments);
  if (arguments.has("--explain") && json.asked()) {
    throw argument_error("--explain prints text and cannot be combined with --json");
  }
  const RowFormat format(arguments, "text");
  if (format.asked() && (arguments.has("--explain") || json.asked())) {
    throw argument_error(
        "--format replaces the summary and cannot be combined with --explain or --json");
  }
  const std::vector<std::string> files = files_of(arguments);
  std::vector<std::size_t> counts;
  const std::vector<MeasuredRow> rows =
      read_measured_rows(files, !arguments.has("--without-samples"), &counts);
  if (rows.empty() && !json.replaces_text()) {
    throw argument_error("'" + files.front() + "' contains no rows");
  }
  for (const MeasuredRow& measured : rows) {
    if (!parse_status(measured.row.status)) {
      throw argument_error(
          fmt::format("'{}': unknown status '{}'", join(files, "', '"), measured.row.status));
    }
  }
  if (arguments.has("--explain")) {
    std::cout << explanation_of(rows, files, counts, arguments.has("--markdown"));
    return 0;
  }
  if (format.asked()) {
    format.write(rows);
    return 0;
  }
  if (!json.replaces_text()) {
    std::cout << text_of(rows, arguments.has("--markdown"),
                         arguments.has("--all") ? Shown::all : Shown::close, rung_texts(catalogue));
  }
  if (json.asked()) {
    std::vector<ReadFile> read;
    for (std::size_t i = 0; i < files.size(); ++i) read.push_back({files[i], counts[i]});
    json.write(summary_json(rows, read));
  }
  return 0;
}

}  // namespace

const Verb roofline_verb = {"roofline", "prints the roofline summary of measured rows",
                            declare_roofline, run_roofline};

}  // namespace rooflane
