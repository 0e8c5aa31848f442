// `rooflane roofline`: the summary of rows that `bench` wrote. Knows rows only.
#include <fmt/format.h>

#include <iostream>

#include "cli/json_output.hpp"
#include "cli/ladder.hpp"
#include "cli/verbs.hpp"
#include "core/status.hpp"
#include "core/text.hpp"
#include "io/crossover.hpp"
#include "io/size_classes.hpp"
#include "io/summary_json.hpp"
#include "io/summary_text.hpp"

namespace rooflane {
namespace {

void declare(Arguments& arguments) {
  arguments.positionals("FILE", "CSV files of `rooflane bench --csv`");
  arguments.flag("--markdown", "tables for a README");
  arguments.flag("--all", "show rows that lose by far too");
  arguments.flag("--without-samples", "from the rows alone, as where no samples file was kept");
  arguments.json_output("groups, ratios, winners, classes and rows as JSON");
  arguments.examples(
      {"rooflane bench --shape softmax:rows=64,cols=512 --threads 1 --ceilings-time 1 --csv "
       "softmax.csv > summary.txt",
       "rooflane roofline softmax.csv", "rooflane roofline --markdown --all softmax.csv",
       "rooflane roofline --json softmax.csv"});
}

// A pattern such as results/*/*.csv also names samples files; each is read beside its rows.
std::vector<std::string> files_of(const Arguments& arguments) {
  std::vector<std::string> files = arguments.values("FILE");
  if (files.size() > 1) {
    std::erase_if(files, [](const std::string& file) { return file.ends_with(".samples.csv"); });
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
           crossover_text(rows, "- ") + markdown_ladders(ladders, texts);
  }
  return terminal_classes(classes) + between + terminal_summary(groups, shown) +
         crossover_text(rows, "") + terminal_ladders(ladders, texts);
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  const JsonOutput json(arguments);
  const std::vector<std::string> files = files_of(arguments);
  std::vector<std::size_t> counts;
  const std::vector<MeasuredRow> rows =
      read_measured_rows(files, !arguments.has("--without-samples"), &counts);
  if (rows.empty() && !json.replaces_text()) {
    throw argument_error("'" + files.front() + "' holds no row");
  }
  for (const MeasuredRow& measured : rows) {
    if (!parse_status(measured.row.status)) {
      throw argument_error(
          fmt::format("'{}': status '{}' is not known", join(files, "', '"), measured.row.status));
    }
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

const Verb roofline_verb = {"roofline", "the roofline summary of measured rows", declare, run};

}  // namespace rooflane
