// Files to rows with samples; samples to estimates of ratios. See measured_rows.hpp.
#include "io/measured_rows.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "core/status.hpp"

namespace rooflane {
namespace {

struct Observation {
  double value = 0;
  bool disturbed = false;
};

using RepetitionKey = std::pair<std::string, std::int64_t>;  // run, repetition
using ByRepetition = std::map<RepetitionKey, std::vector<Observation>>;

Repetitions kept(const ByRepetition& by_repetition) {
  constexpr std::size_t least_undisturbed = 3;
  Repetitions repetitions;
  for (const auto& [repetition, observations] : by_repetition) {
    std::vector<double> all, calm;
    for (const Observation& observation : observations) {
      all.push_back(observation.value);
      if (!observation.disturbed) calm.push_back(observation.value);
    }
    repetitions.push_back(calm.size() >= least_undisturbed ? std::move(calm) : std::move(all));
  }
  return repetitions;
}

using Round = std::tuple<RepetitionKey, std::int64_t, std::optional<double>>;

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

Repetitions log_times(const SameRows& rows, bool normalised) {
  ByRepetition by_repetition;
  for (const MeasuredRow* measured : rows) {
    for (const Sample& sample : measured->samples) {
      if (!(sample.ns > 0)) continue;
      if (normalised && !(sample.probe_ns && *sample.probe_ns > 0)) continue;
      by_repetition[{measured->row.run_id, sample.launch}].push_back(
          {std::log(sample.ns) - (normalised ? std::log(*sample.probe_ns) : 0),
           !sample.disturbance.empty()});
    }
  }
  return kept(by_repetition);
}

Repetitions log_ratios(const SameRows& x, const SameRows& y) {
  const auto others = by_round(y);
  ByRepetition by_repetition;
  for (const auto& [round, sample] : by_round(x)) {
    const auto found = others.find(round);
    if (found == others.end()) continue;
    by_repetition[std::get<0>(round)].push_back({std::log(sample.value / found->second.value),
                                                 sample.disturbed || found->second.disturbed});
  }
  return kept(by_repetition);
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
  if (const Repetitions shared = log_ratios(x, y); !shared.empty()) {
    return {estimate_over_repetitions(shared)};
  }
  const Repetitions of_x = log_times(x, false), of_y = log_times(y, false);
  if (!of_x.empty() && !of_y.empty()) {
    return {difference(estimate_over_repetitions(of_x), estimate_over_repetitions(of_y))};
  }
  const Row& row_x = representative(x)->row;
  const Row& row_y = representative(y)->row;
  return {difference(estimate_from_interval(*row_x.p50_ns, time_interval(row_x)),
                     estimate_from_interval(*row_y.p50_ns, time_interval(row_y)))};
}

namespace {

Ranking ranking_by(std::span<const Contender> contenders, std::size_t leader) {
  Ranking ranking;
  ranking.leader = leader;
  ranking.state = Ranking::State::winner;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const bool itself = i == leader;
    ranking.over_leader.push_back(itself ? Ratio{{0, std::nan(""), 1}}
                                         : time_ratio(contenders[i].same, contenders[leader].same));
    ranking.against.push_back(itself ? PairVerdict::equal
                                     : verdict_of(ranking.over_leader.back().log));
    if (itself) continue;
    const PairVerdict verdict = ranking.against.back();
    if (verdict == PairVerdict::undecided) {
      ranking.state = Ranking::State::undecided;
    } else if (verdict == PairVerdict::equal && ranking.state == Ranking::State::winner) {
      ranking.state = Ranking::State::tie;
    }
  }
  return ranking;
}

}  // namespace

Ranking rank(std::span<const Contender> contenders) {
  const auto fastest =
      std::min_element(contenders.begin(), contenders.end(),
                       [](const Contender& x, const Contender& y) { return x.ns < y.ns; });
  auto leader = static_cast<std::size_t>(fastest - contenders.begin());
  // Ratios within rounds decide, not medians of all times. Three that beat one another in a circle
  // would never end.
  for (std::size_t changes = 0;; ++changes) {
    Ranking ranking = ranking_by(contenders, leader);
    const auto better =
        std::find(ranking.against.begin(), ranking.against.end(), PairVerdict::faster);
    if (better == ranking.against.end()) return ranking;
    if (changes == contenders.size()) {
      ranking.state = Ranking::State::undecided;
      return ranking;
    }
    leader = static_cast<std::size_t>(better - ranking.against.begin());
  }
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
