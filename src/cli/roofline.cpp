// `rooflane roofline`: the summary of rows that `bench` wrote. Knows rows only.
#include <fmt/format.h>

#include <iostream>

#include "cli/ladder.hpp"
#include "cli/verbs.hpp"
#include "core/status.hpp"
#include "core/text.hpp"
#include "io/crossover.hpp"
#include "io/summary_text.hpp"

namespace rooflane {
namespace {

void declare(Arguments& arguments) {
  arguments.positionals("FILE", "CSV files of `rooflane bench --csv`");
  arguments.flag("--markdown", "tables for a README");
  arguments.examples(
      {"rooflane bench --shape softmax:rows=64,cols=512 --threads 1 --ceilings-time 1 --csv "
       "softmax.csv > summary.txt",
       "rooflane roofline softmax.csv", "rooflane roofline --markdown softmax.csv"});
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  // A pattern such as results/*/*.csv also names samples files; each is read beside its rows.
  std::vector<std::string> files = arguments.values("FILE");
  if (files.size() > 1) {
    std::erase_if(files, [](const std::string& file) { return file.ends_with(".samples.csv"); });
  }
  if (files.empty()) {
    throw argument_error("FILE is missing: a CSV written by `rooflane bench --csv FILE`");
  }
  const std::vector<MeasuredRow> rows = read_measured_rows(files);
  if (rows.empty()) throw argument_error("'" + files.front() + "' holds no row");
  for (const MeasuredRow& measured : rows) {
    if (!parse_status(measured.row.status)) {
      throw argument_error(
          fmt::format("'{}': status '{}' is not known", join(files, "', '"), measured.row.status));
    }
  }
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  const bool markdown = arguments.has("--markdown");
  std::cout << (markdown ? markdown_summary(groups) : terminal_summary(groups));
  std::cout << crossover_text(rows, markdown ? "- " : "");
  const std::vector<Ladder> ladders = ladders_of(rows);
  const RungTexts texts = rung_texts(catalogue);
  std::cout << (markdown ? markdown_ladders(ladders, texts) : terminal_ladders(ladders, texts));
  return 0;
}

}  // namespace

const Verb roofline_verb = {"roofline", "the roofline summary of measured rows", declare, run};

}  // namespace rooflane
