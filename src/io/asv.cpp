// asv's files, versions 1 (machine) and 2 (benchmarks, results), as its documentation lays them out
// under "Developer Docs", "File formats". See asv.hpp.
#include "io/asv.hpp"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

constexpr double ns_per_s = 1e9;
// The version of a benchmark's meaning: results of another one are not shown beside these.
constexpr const char* benchmark_version = "1";
// Files of asv are told apart by this many digits of the commit.
constexpr std::size_t commit_digits = 8;
// A 99 % interval over one of 95 %, both of a normal distribution.
constexpr double wider_99 = 2.5758 / 1.96;

// What a file holds, or nothing. Throws Error for what is not asv's in this version.
std::optional<ordered_json> read_version(const std::string& path, int version) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  ordered_json document = ordered_json::parse(read_text_file(path), nullptr, false);
  if (!document.is_object() || document.value("version", ordered_json()) != version) {
    throw argument_error(
        fmt::format("'{}' is not an asv file in version {} of its format", path, version));
  }
  return document;
}

// "2026-01-02T03:04:05Z" in milliseconds since 1970, as JavaScript counts.
std::int64_t milliseconds(const std::string& test_time) {
  std::tm parts{};
  if (strptime(test_time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return 0;
  return std::int64_t{1000} * timegm(&parts);
}

// One result by column. asv shows spread only where it has all statistics.
ordered_json result_of(const MeasuredRow& measured) {
  const Row& row = measured.row;
  const auto seconds = [](double ns) { return ordered_json::array({ns / ns_per_s}); };
  ordered_json result = {{"result", seconds(*row.p50_ns)},
                         {"params", ordered_json::array()},
                         {"version", benchmark_version},
                         {"started_at", milliseconds(row.test_time)}};
  std::vector<double> times;
  for (const Sample& sample : measured.samples) times.push_back(sample.ns);
  const std::optional<Interval> interval = median_interval_ns(row);
  if (!interval || times.empty()) return result;
  const double half = wider_99 * (*row.p50_ns - interval->low);
  result["stats_ci_99_a"] = seconds(*row.p50_ns - half);
  result["stats_ci_99_b"] = seconds(*row.p50_ns + half);
  result["stats_q_25"] = seconds(quantile(times, 0.25));
  result["stats_q_75"] = seconds(quantile(times, 0.75));
  result["stats_number"] = {row.runs_per_sample.value_or(1)};
  result["stats_repeat"] = {times.size()};
  return result;
}

// The values in the order of `columns`; those behind the last known one are left out.
ordered_json in_columns(const ordered_json& result, const ordered_json& columns) {
  ordered_json values = ordered_json::array();
  for (const ordered_json& column : columns) {
    values.push_back(result.value(column.get<std::string>(), ordered_json()));
  }
  while (!values.empty() && values.back().is_null()) values.erase(values.size() - 1);
  return values;
}

ordered_json benchmark_entry(const TrackedRow& tracked) {
  return {{"code", tracked.measured->row.kernel + ":" + tracked.measured->row.shape},
          {"name", tracked.name},
          {"param_names", ordered_json::array()},
          {"params", ordered_json::array()},
          {"type", "time"},
          {"unit", "seconds"},
          {"version", benchmark_version}};
}

// "GCC 12.2.0" becomes gcc-12.2.0: what asv calls the environment, part of a file's name.
std::string environment_name(const std::string& compiler) {
  std::string name;
  for (const char c : compiler) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.';
    name += upper ? static_cast<char>(c - 'A' + 'a') : word ? c : '-';
  }
  return name.empty() ? "unknown" : name;
}

ordered_json new_results(const AsvTarget& target, const ordered_json& params, const Row& row) {
  return {
      {"version", 2},
      {"commit_hash", target.commit},
      {"env_name", environment_name(row.compiler)},
      {"date", milliseconds(row.test_time)},
      {"params", params},
      {"python", ""},
      {"requirements", ordered_json::object()},
      {"env_vars", ordered_json::object()},
      {"result_columns",
       {"result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b",
        "stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples", "profile"}},
      {"results", ordered_json::object()},
      {"durations", ordered_json::object()}};
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return;
  throw argument_error(fmt::format("'{}' cannot be created: {}", folder, error.message()));
}

}  // namespace

void write_asv(const AsvTarget& target, const TrackedRows& tracked) {
  const std::string machine_folder = target.folder + "/" + target.machine;
  const Row& first = tracked.rows.front().measured->row;
  ordered_json machine = {{"version", 1}, {"machine", target.machine}};
  ordered_json params = {{"machine", target.machine}};
  for (const auto& [fact, value] : target.facts) machine[fact] = params[fact] = value;
  params["compiler"] = first.compiler;

  const std::string benchmarks_path = target.folder + "/benchmarks.json";
  const std::string results_path =
      fmt::format("{}/{}-{}.json", machine_folder, target.commit.substr(0, commit_digits),
                  environment_name(first.compiler));
  ordered_json benchmarks = read_version(benchmarks_path, 2).value_or(ordered_json{{"version", 2}});
  ordered_json results = read_version(results_path, 2).value_or(new_results(target, params, first));
  if (results.value("commit_hash", "") != target.commit) {
    throw argument_error(fmt::format("'{}' belongs to another commit", results_path));
  }
  for (const TrackedRow& row : tracked.rows) {
    benchmarks[row.name] = benchmark_entry(row);
    results["results"][row.name] =
        in_columns(result_of(*row.measured), results.at("result_columns"));
  }
  make_folder(machine_folder);
  write_json(benchmarks_path, benchmarks);
  write_json(machine_folder + "/machine.json", machine);
  write_json(results_path, results);
}

}  // namespace rooflane
