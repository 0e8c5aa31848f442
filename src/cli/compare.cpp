// `rooflane compare`: which rows became faster or slower, between two files or two builds in one.
// io/compare.hpp computes the verdicts.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/json_output.hpp"
#include "cli/verbs.hpp"
#include "core/status.hpp"
#include "core/text.hpp"
#include "io/compare_json.hpp"
#include "io/compare_text.hpp"

namespace rooflane {
namespace {

void declare_compare(Arguments& arguments) {
  arguments.positionals("FILE", "OLD.csv NEW.csv; with --against one file");
  arguments.option("--against", "NAME", "compare V@NAME (old) with V (new) in one file");
  arguments.flag("--fail-on-regression", "exit status 1 if a row is SLOWER or FAILING");
  arguments.flag("--markdown",
                 "Markdown for a pull request: counts, changed rows, the rest folded");
  arguments.json_output("as JSON");
  arguments.flag("--any-machine", "also compare rows of different machines");
  arguments.examples(
      {"rooflane bench -v scalar,hwy --shape softmax:rows=64,cols=512 --threads 1 --csv old.csv",
       "rooflane bench -v scalar,hwy --shape softmax:rows=64,cols=512 --threads 1 --csv new.csv",
       "rooflane compare old.csv new.csv", "rooflane compare --json old.csv new.csv",
       "rooflane compare old.csv new.csv --markdown"});
}

std::vector<MeasuredRow> rows_of(const std::string& path) {
  std::vector<MeasuredRow> rows = read_measured_rows({path});
  if (rows.empty()) throw argument_error("'" + path + "' contains no rows");
  for (const MeasuredRow& measured : rows) {
    if (!parse_status(measured.row.status)) {
      throw argument_error(fmt::format("'{}': unknown status '{}'", path, measured.row.status));
    }
  }
  return rows;
}

// What the two sides are called, in JSON.
struct Names {
  std::string before, after;
};

int show(const Arguments& arguments, const JsonOutput& json, const Comparison& comparison,
         const std::vector<std::string>& header, const Names& names) {
  if (!json.replaces_text()) {
    std::cout << (arguments.has("--markdown") ? markdown_comparison(comparison, header)
                                              : terminal_comparison(comparison, header));
  }
  if (json.asked()) json.write(comparison_json(comparison, names.before, names.after));
  return arguments.has("--fail-on-regression") && comparison.regressed() ? 1 : 0;
}

int run_compare(const Arguments& arguments, Catalogue&, const CliSettings&) {
  const JsonOutput json(arguments);
  const std::vector<std::string>& files = arguments.values("FILE");
  if (const auto name = arguments.value("--against")) {
    if (files.size() != 1) {
      throw argument_error(fmt::format("--against compares within one FILE, not {}", files.size()));
    }
    const std::vector<MeasuredRow> rows = rows_of(files[0]);
    const std::vector<std::string> builds = other_builds(rows);
    if (std::find(builds.begin(), builds.end(), *name) == builds.end()) {
      if (builds.empty()) {
        throw argument_error(fmt::format(
            "--against: '{}' contains no other build; measure one with bench --against NAME=PATH",
            files[0]));
      }
      throw argument_error("--against: " + unknown_name("build", *name, builds));
    }
    return show(
        arguments, json, compare_against(rows, *name),
        {run_line(files[0], rows), fmt::format("old: V@{}, new: V, in the same rounds", *name)},
        {"V@" + *name, "V"});
  }
  if (files.size() != 2) {
    throw argument_error(
        fmt::format("OLD.csv and NEW.csv are needed, not {} FILE{}; or one FILE and --against NAME",
                    files.size(), files.size() == 1 ? "" : "s"));
  }
  const std::vector<MeasuredRow> before = rows_of(files[0]);
  const std::vector<MeasuredRow> after = rows_of(files[1]);
  const std::string difference = machine_difference(before, after);
  if (!difference.empty() && !arguments.has("--any-machine")) {
    throw argument_error(fmt::format(
        "'{}' and '{}' are from different machines: {}; --any-machine compares them anyway",
        files[0], files[1], difference));
  }
  std::vector<std::string> header = {"old: " + run_line(files[0], before),
                                     "new: " + run_line(files[1], after)};
  if (!difference.empty()) header.push_back("different machines: " + difference);
  return show(arguments, json, compare_rows(before, after), header, {files[0], files[1]});
}

}  // namespace

const Verb compare_verb = {"compare", "shows what became faster or slower", declare_compare,
                           run_compare};

}  // namespace rooflane
