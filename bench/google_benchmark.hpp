// Google Benchmark as the front end: its flags, its list of cases, its reporters. It does not
// measure: each case reports a row that our sampler measured. Works with 1.7.1 and 1.9.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/row.hpp"

namespace rooflane {

// The flags that are passed on; what the others would do (repetitions, shuffling, time units) is
// the sampler's business.
struct GoogleBenchmarkFlags {
  std::string filter;  // empty: everything
  bool list = false;
  std::optional<double> min_time;  // seconds; ours
  std::string out;
  std::string out_format;  // console, json, csv; empty: json
  std::string format;      // empty: Google Benchmark prints nothing
  bool counters_tabular = false;

  // True when it writes to standard output: rows must then go elsewhere.
  bool prints() const { return list || !format.empty() || counters_tabular; }
};

// Throws Error: an unknown or misspelt flag (with the nearest), a value that is not allowed, a file
// that cannot be written.
GoogleBenchmarkFlags parse_google_benchmark_flags(const std::vector<std::string>& flags);

// True when `name` is chosen: a POSIX extended regular expression found anywhere in the name, or,
// after a leading '-', found nowhere. Throws Error for an expression that does not parse.
std::function<bool(const std::string&)> name_filter(const std::string& filter);

// Prints the names of the cases, as Google Benchmark lists them.
void list_in_google_benchmark(const GoogleBenchmarkFlags& flags,
                              const std::vector<std::string>& names);

// Runs one case per name in Google Benchmark; its reporters write to the terminal and to the file
// of --benchmark_out what the row of the same position holds. Nothing where neither is asked for.
void report_to_google_benchmark(const GoogleBenchmarkFlags& flags,
                                const std::vector<std::string>& names,
                                const std::vector<Row>& rows);

}  // namespace rooflane
