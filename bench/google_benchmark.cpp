// Flags, registration and reporting through Google Benchmark. See google_benchmark.hpp.
#include "bench/google_benchmark.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <string_view>

#include "core/error.hpp"
#include "core/status.hpp"
#include "core/text.hpp"
#include "io/files.hpp"

namespace rooflane {

namespace {

// What Google Benchmark appends to the name of a case with one iteration and manual time.
constexpr char name_suffix[] = "/iterations:1/manual_time";

bool bool_value(std::string_view flag, const std::string& value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  throw argument_error(fmt::format("{}={}: allowed is true or false", flag, value));
}

std::string format_value(std::string_view flag, const std::string& value) {
  if (value == "console" || value == "json" || value == "csv") return value;
  throw argument_error(fmt::format("{}={}: allowed is console, json or csv", flag, value));
}

// Seconds as "0.5" or "0.5s".
double seconds_value(std::string_view flag, std::string_view value) {
  std::string_view number = value;
  if (number.ends_with('s')) number.remove_suffix(1);
  const auto seconds = parse_real(number);
  if (!seconds || !(*seconds >= 0 && *seconds <= 1e6)) {
    throw argument_error(fmt::format("{}={}: allowed are seconds, 0.5 or 0.5s", flag, value));
  }
  return *seconds;
}

class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// Every counter in every case: Google Benchmark's CSV takes its columns from the first one. A case
// without a speed has NaN and says why in its label; its own error reports would lack counters.
void report(benchmark::State& state, const Row& row) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  for ([[maybe_unused]] auto _ : state)
    state.SetIterationTime(row.p50_ns ? *row.p50_ns * 1e-9 : none);
  state.counters["gflops"] = row.gflops.value_or(none);
  state.counters["gb_s"] = row.gb_s.value_or(none);
  state.counters["roof_pct"] = row.roof_pct.value_or(none);
  state.counters["noise_pct"] = row.noise_pct.value_or(none);
  state.counters["samples"] = static_cast<double>(row.n_samples.value_or(0));
  state.SetLabel(row.reason.empty() ? row.status : row.status + ": " + row.reason);
}

// Sets all flags, so that neither BENCHMARK_* of the environment nor an earlier call has a say. The
// filter has chosen the cases already.
void initialise(const GoogleBenchmarkFlags& flags) {
  std::vector<std::string> arguments = {
      "--benchmark_filter=all",
      "--benchmark_repetitions=1",
      "--benchmark_enable_random_interleaving=false",
      "--benchmark_report_aggregates_only=false",
      "--benchmark_display_aggregates_only=false",
      fmt::format("--benchmark_list_tests={}", flags.list),
      "--benchmark_out=" + flags.out,
      "--benchmark_out_format=" + (flags.out_format.empty() ? "json" : flags.out_format),
      "--benchmark_format=" + (flags.format.empty() ? "console" : flags.format),
      fmt::format("--benchmark_counters_tabular={}", flags.counters_tabular)};
  static char program[] = "rooflane";  // its name is printed when cases run: the pointer is kept
  std::vector<char*> argv = {program};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(arguments.size()) + 1;
  benchmark::Initialize(&argc, argv.data());
  benchmark::ClearRegisteredBenchmarks();
}

template <class Body>
void add_case(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace

GoogleBenchmarkFlags parse_google_benchmark_flags(const std::vector<std::string>& given) {
  const std::vector<std::string> names = {"--benchmark_filter",          "--benchmark_list_tests",
                                          "--benchmark_min_time",        "--benchmark_out",
                                          "--benchmark_out_format",      "--benchmark_format",
                                          "--benchmark_counters_tabular"};
  GoogleBenchmarkFlags flags;
  for (const std::string& text : given) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const bool has_value = equals != std::string::npos;
    const std::string value = has_value ? text.substr(equals + 1) : "true";
    const bool is_switch =
        name == "--benchmark_list_tests" || name == "--benchmark_counters_tabular";
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw argument_error(unknown_name("Google Benchmark flag", name, names));
    }
    if (!has_value && !is_switch) {
      throw argument_error(fmt::format("{} needs a value: {}=...", name, name));
    }
    if (name == "--benchmark_filter") {
      name_filter(value);  // parses
      flags.filter = value;
    } else if (name == "--benchmark_list_tests") {
      flags.list = bool_value(name, value);
    } else if (name == "--benchmark_min_time") {
      flags.min_time = seconds_value(name, value);
    } else if (name == "--benchmark_out") {
      // Google Benchmark would leave the program when it cannot open the file.
      try {
        require_writable(value);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("{}: {}", name, error.what()));
      }
      flags.out = value;
    } else if (name == "--benchmark_out_format") {
      flags.out_format = format_value(name, value);
    } else if (name == "--benchmark_format") {
      flags.format = format_value(name, value);
    } else {
      flags.counters_tabular = bool_value(name, value);
    }
  }
  return flags;
}

std::function<bool(const std::string&)> name_filter(const std::string& filter) {
  if (filter.empty() || filter == "all") return [](const std::string&) { return true; };
  const bool negative = filter.front() == '-';
  try {
    const std::regex pattern(filter.substr(negative ? 1 : 0), std::regex::extended);
    return [pattern, negative](const std::string& name) {
      const bool found =
          std::regex_search(name, pattern) || std::regex_search(name + name_suffix, pattern);
      return found != negative;
    };
  } catch (const std::regex_error&) {
    throw argument_error(
        fmt::format("--benchmark_filter={}: not a POSIX extended regular expression", filter));
  }
}

void list_in_google_benchmark(const GoogleBenchmarkFlags& flags,
                              const std::vector<std::string>& names) {
  initialise(flags);
  for (const std::string& name : names) add_case(name, [](benchmark::State&) {});
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();
}

void report_to_google_benchmark(const GoogleBenchmarkFlags& flags,
                                const std::vector<std::string>& names,
                                const std::vector<Row>& rows) {
  if (!flags.prints() && flags.out.empty()) return;
  initialise(flags);
  for (std::size_t i = 0; i < names.size(); ++i) {
    add_case(names[i], [&row = rows.at(i)](benchmark::State& state) { report(state, row); });
  }
  if (flags.prints()) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    SilentReporter silent;
    benchmark::RunSpecifiedBenchmarks(&silent);
  }
  benchmark::ClearRegisteredBenchmarks();
}

}  // namespace rooflane
