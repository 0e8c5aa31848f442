// The arguments of `bench`.
#pragma once

#include <string>

#include "cli/options.hpp"
#include "cli/row_format.hpp"

namespace rooflane {

struct BenchArguments {
  BenchOptions options;
  std::vector<std::string> named;     // variants that the user selects: by -v, or all with a ladder
  std::vector<AbsentVariant> absent;  // not named, and left out
  std::string csv, json, trace;       // files; empty: none
  std::optional<RowFormat> format;    // never empty once read
  bool dry_run = false;
  bool resume = false;
  bool fail_on_regression = false;
  bool profile = false;    // where the time of the run went
  bool shows_all = false;  // rows that lose by far too

  // Rows and samples go to a file, and what is printed is a summary of them.
  bool has_file() const { return !csv.empty(); }
  // Only rows, or the output of Google Benchmark or --format, may go to standard output.
  bool prints_summary() const {
    return !options.google_benchmark.prints() && !format->replaces_text();
  }
};

void declare_bench(Arguments& arguments);

// Adds libraries, plugins, other builds and peers to the catalogue. Nothing is written. Throws
// Error for the first argument that is wrong, else for the first that cannot be served.
BenchArguments read_bench_arguments(const Arguments& arguments, Catalogue& catalogue,
                                    const CliSettings& settings);

}  // namespace rooflane
