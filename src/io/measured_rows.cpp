// Files to rows with samples; samples to estimates of ratios. See measured_rows.hpp.
#include "io/measured_rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "core/seeds.hpp"
#include "core/status.hpp"

namespace rooflane {
namespace {

struct Observation {
  double value = 0;
  bool disturbed = false;
};

using LaunchKey = std::pair<std::string, std::int64_t>;  // run, launch
using ByLaunch = std::map<LaunchKey, std::vector<Observation>>;

Launches kept(const ByLaunch& by_launch) {
  constexpr std::size_t least_undisturbed = 3;
  Launches launches;
  for (const auto& [launch, observations] : by_launch) {
    std::vector<double> all, calm;
    for (const Observation& observation : observations) {
      all.push_back(observation.value);
      if (!observation.disturbed) calm.push_back(observation.value);
    }
    launches.push_back(calm.size() >= least_undisturbed ? std::move(calm) : std::move(all));
  }
  return launches;
}

using Round = std::tuple<LaunchKey, std::int64_t, std::optional<double>>;

std::map<Round, Observation> by_round(const SameRows& rows) {
  std::map<Round, Observation> samples;
  for (const MeasuredRow* measured : rows) {
    for (const Sample& sample : measured->samples) {
      if (!(sample.ns > 0)) continue;
      // A round that was repeated has a disturbed sample and the one that replaces it.
      Observation& known =
          samples[{{measured->row.run_id, sample.launch}, sample.round, sample.probe_ns}];
      if (known.value == 0 || known.disturbed) known = {sample.ns, !sample.disturbance.empty()};
    }
  }
  return samples;
}

// 95 % interval of the time from that of the roof's share, which is proportional to 1/time; else
// the 20th to 80th percentile, wider than the interval of the median.
Interval time_interval(const Row& row) {
  if (row.roof_pct && row.roof_pct_lo && row.roof_pct_hi && *row.roof_pct_lo > 0) {
    return {*row.p50_ns * *row.roof_pct / *row.roof_pct_hi,
            *row.p50_ns * *row.roof_pct / *row.roof_pct_lo};
  }
  return {row.p20_ns.value_or(*row.p50_ns), row.p80_ns.value_or(*row.p50_ns)};
}

}  // namespace

std::vector<MeasuredRow> read_measured_rows(const std::vector<std::string>& csv_paths,
                                            bool with_samples,
                                            std::vector<std::size_t>* rows_of_file) {
  std::vector<MeasuredRow> all;
  for (const std::string& path : csv_paths) {
    const std::size_t first = all.size();
    for (Row& row : read_csv(path)) all.push_back({std::move(row), {}});
    if (rows_of_file != nullptr) rows_of_file->push_back(all.size() - first);
    const std::string samples = samples_path(path);
    if (!with_samples || ::access(samples.c_str(), F_OK) != 0) continue;
    for (const Sample& sample : read_samples(samples)) {
      // Samples of a group that never ended have no row.
      const std::size_t position = first + static_cast<std::size_t>(sample.row);
      if (sample.row >= 0 && position < all.size()) all[position].samples.push_back(sample);
    }
  }
  return all;
}

Launches log_times(const SameRows& rows, bool normalised) {
  ByLaunch by_launch;
  for (const MeasuredRow* measured : rows) {
    for (const Sample& sample : measured->samples) {
      if (!(sample.ns > 0)) continue;
      if (normalised && !(sample.probe_ns && *sample.probe_ns > 0)) continue;
      by_launch[{measured->row.run_id, sample.launch}].push_back(
          {std::log(sample.ns) - (normalised ? std::log(*sample.probe_ns) : 0),
           !sample.disturbance.empty()});
    }
  }
  return kept(by_launch);
}

Launches log_ratios(const SameRows& x, const SameRows& y) {
  const auto others = by_round(y);
  ByLaunch by_launch;
  for (const auto& [round, sample] : by_round(x)) {
    const auto found = others.find(round);
    if (found == others.end()) continue;
    by_launch[std::get<0>(round)].push_back({std::log(sample.value / found->second.value),
                                             sample.disturbed || found->second.disturbed});
  }
  return kept(by_launch);
}

double Ratio::value() const { return std::exp(log.value); }

std::optional<Interval> Ratio::interval() const {
  if (std::isnan(log.error)) return std::nullopt;
  const Interval interval = log.interval();
  return Interval{std::exp(interval.low), std::exp(interval.high)};
}

const MeasuredRow* representative(SameRows rows) {
  const auto timed_end = std::stable_partition(
      rows.begin(), rows.end(), [](const MeasuredRow* m) { return may_be_peer(m->row); });
  if (timed_end == rows.begin()) return rows.front();
  std::sort(rows.begin(), timed_end, [](const MeasuredRow* x, const MeasuredRow* y) {
    return *x->row.p50_ns < *y->row.p50_ns;
  });
  return rows[static_cast<std::size_t>(timed_end - rows.begin() - 1) / 2];
}

Ratio time_ratio(const SameRows& x, const SameRows& y) {
  constexpr std::size_t least_rounds = 3;  // fewer say nothing of an interval
  const Launches launches = log_ratios(x, y);
  std::size_t rounds = 0;
  for (const std::vector<double>& launch : launches) rounds += launch.size();
  const Row& of_x = representative(x)->row;
  const Row& of_y = representative(y)->row;
  if (rounds >= least_rounds) {
    const std::uint64_t seed = fnv1a64(of_x.kernel + of_x.shape + of_x.variant + of_y.variant);
    return {estimate_over_launches(launches, seed)};
  }
  return {difference(estimate_from_interval(*of_x.p50_ns, time_interval(of_x)),
                     estimate_from_interval(*of_y.p50_ns, time_interval(of_y)))};
}

std::optional<Ratio> geometric_mean(std::span<const Ratio> figures) {
  if (figures.empty()) return std::nullopt;
  std::vector<Estimate> logs;
  for (const Ratio& figure : figures) logs.push_back(figure.log);
  return Ratio{mean_of(logs)};
}

std::optional<Ratio> roof_share(const Row& row) {
  if (!row.roof_pct || *row.roof_pct <= 0) return std::nullopt;
  if (!row.roof_pct_lo || !row.roof_pct_hi || *row.roof_pct_lo <= 0) {
    return Ratio{{std::log(*row.roof_pct), std::nan(""), 1}};
  }
  return Ratio{estimate_from_interval(*row.roof_pct, {*row.roof_pct_lo, *row.roof_pct_hi})};
}

bool has_time(const Row& row) { return row.p50_ns && *row.p50_ns > 0; }
bool may_win(const Row& row) { return row.status == "PASSED" && has_time(row); }
bool may_be_peer(const Row& row) {
  const auto status = parse_status(row.status);
  return status && has_speed(*status) && has_time(row);
}
bool is_other_build(const Row& row) { return row.variant.find('@') != std::string::npos; }
bool is_peer(const Row& row) { return !row.library.empty() && !is_other_build(row); }

}  // namespace rooflane
