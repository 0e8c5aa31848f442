// Groups of rows, speed-ups and verdicts.
#include "io/summary.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/statistics.hpp"

namespace rooflane {
namespace {

// What must be equal for two rows to be compared, thread count aside.
using ProblemKey =
    std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
ProblemKey problem_key(const Row& row) {
  return {row.kernel, row.shape, row.dtype, row.math, row.cache, row.cpu};
}

// "OpenBLAS 0.3.21 SkylakeX" and "OpenBLAS 0.3.21 Haswell" are one library by name.
std::string library_name(const Row& row) { return row.library.substr(0, row.library.find(' ')); }

using Identity = std::tuple<std::string, std::string, std::string, std::string>;
Identity identity_in_group(const Row& row) {
  return {row.variant, library_name(row), row.isa, row.device};
}

bool has_time(const Row& row) { return row.p50_ns && *row.p50_ns > 0; }
bool may_win(const Row& row) { return row.status == "PASSED" && has_time(row); }

// Variants that only ever ran on one thread, while others of the same rows ran on more.
std::set<std::string> one_thread_variants(std::span<const MeasuredRow> rows) {
  std::set<std::string> one, many;
  for (const MeasuredRow& measured : rows) {
    const Row& row = measured.row;
    if (row.threads && !step_of(row)) (*row.threads > 1 ? many : one).insert(row.variant);
  }
  std::set<std::string> result;
  if (many.empty()) return result;
  std::set_difference(one.begin(), one.end(), many.begin(), many.end(),
                      std::inserter(result, result.end()));
  return result;
}

// A round of one group: rounds of other groups, or of other runs, have another probe.
using RoundKey = std::tuple<std::int64_t, std::int64_t, std::optional<double>>;
RoundKey round_key(const Sample& sample) { return {sample.launch, sample.round, sample.probe_ns}; }

// Per-round ratios x / y where both have a sample of the same round.
std::vector<double> round_ratios(const MeasuredRow& x, const MeasuredRow& y) {
  std::map<RoundKey, double> by_round;
  for (const Sample& sample : y.samples) by_round[round_key(sample)] = sample.ns;
  std::vector<double> ratios;
  for (const Sample& sample : x.samples) {
    const auto found = by_round.find(round_key(sample));
    if (found != by_round.end() && found->second > 0) ratios.push_back(sample.ns / found->second);
  }
  return ratios;
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

// Fewer paired rounds than this say nothing about an interval.
constexpr std::size_t least_rounds = 3;

// An interval wholly below 1 names the other one as the faster, against the medians of the times:
// that decides nothing either.
bool is_tie(const MeasuredRow& winner, const MeasuredRow& other) {
  const std::vector<double> ratios = round_ratios(other, winner);
  if (ratios.size() >= least_rounds) return median_interval(ratios, 1).low <= 1;
  const Interval fast = time_interval(winner.row);
  const Interval slow = time_interval(other.row);
  return slow.low <= fast.high;
}

// The fastest PASSED row that counts; rows are sorted by time. Null when there is none.
const MeasuredRow* fastest(const std::vector<const MeasuredRow*>& rows,
                           bool (*counts)(const Row&)) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow* measured) {
    return may_win(measured->row) && counts(measured->row);
  });
  return found == rows.end() ? nullptr : *found;
}

std::vector<SummaryLine> lines_of(std::vector<const MeasuredRow*> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const MeasuredRow* x, const MeasuredRow* y) {
    if (has_time(x->row) != has_time(y->row)) return has_time(x->row);
    return has_time(x->row) && *x->row.p50_ns < *y->row.p50_ns;
  });
  const MeasuredRow* scalar = fastest(rows, [](const Row& row) { return row.variant == "scalar"; });
  // A peer is other people's library; a variant of another build (hwy@old) is none.
  const MeasuredRow* peer = fastest(rows, [](const Row& row) {
    return !row.library.empty() && row.variant.find('@') == std::string::npos;
  });
  const auto winner =
      std::find_if(rows.begin(), rows.end(), [](const MeasuredRow* m) { return may_win(m->row); });
  std::vector<SummaryLine> lines;
  std::size_t ties = 0;
  for (const MeasuredRow* measured : rows) {
    SummaryLine line{&measured->row, {}, {}, SummaryLine::Verdict::none};
    if (has_time(measured->row)) {
      if (scalar != nullptr) line.over_scalar = time_ratio(*scalar, *measured);
      if (peer != nullptr) line.over_peer = time_ratio(*peer, *measured);
    }
    if (winner != rows.end() && measured != *winner && may_win(measured->row) &&
        is_tie(**winner, *measured)) {
      line.verdict = SummaryLine::Verdict::tie;
      ++ties;
    }
    lines.push_back(line);
  }
  if (winner != rows.end()) {
    lines[static_cast<std::size_t>(winner - rows.begin())].verdict =
        ties > 0 ? SummaryLine::Verdict::tie : SummaryLine::Verdict::winner;
  }
  return lines;
}

}  // namespace

double time_ratio(const MeasuredRow& x, const MeasuredRow& y) {
  const std::vector<double> ratios = round_ratios(x, y);
  return ratios.size() >= least_rounds ? median(ratios) : *x.row.p50_ns / *y.row.p50_ns;
}

const MeasuredRow* representative(std::vector<const MeasuredRow*> rows) {
  const auto timed_end = std::stable_partition(
      rows.begin(), rows.end(), [](const MeasuredRow* m) { return may_win(m->row); });
  if (timed_end == rows.begin()) return rows.front();
  std::sort(rows.begin(), timed_end, [](const MeasuredRow* x, const MeasuredRow* y) {
    return *x->row.p50_ns < *y->row.p50_ns;
  });
  return rows[static_cast<std::size_t>(timed_end - rows.begin() - 1) / 2];
}

std::vector<MeasuredRow> read_measured_rows(const std::vector<std::string>& csv_paths) {
  std::vector<MeasuredRow> all;
  for (const std::string& path : csv_paths) {
    const std::size_t first = all.size();
    for (Row& row : read_csv(path)) all.push_back({std::move(row), {}});
    const std::string samples = samples_path(path);
    if (::access(samples.c_str(), F_OK) != 0) continue;
    for (const Sample& sample : read_samples(samples)) {
      // Samples of a group that never ended have no row.
      const std::size_t position = first + static_cast<std::size_t>(sample.row);
      if (sample.row >= 0 && position < all.size()) all[position].samples.push_back(sample);
    }
  }
  return all;
}

std::vector<SummaryGroup> summarise_rows(std::span<const MeasuredRow> rows) {
  const std::set<std::string> one_thread = one_thread_variants(rows);
  const auto everywhere = [&](const Row& row) {
    return !row.threads || one_thread.contains(row.variant);
  };

  std::vector<ProblemKey> order;
  std::map<ProblemKey, std::vector<const MeasuredRow*>> problems;
  for (const MeasuredRow& measured : rows) {
    if (step_of(measured.row)) continue;
    auto& members = problems[problem_key(measured.row)];
    if (members.empty()) order.push_back(problem_key(measured.row));
    members.push_back(&measured);
  }

  std::vector<SummaryGroup> groups;
  for (const ProblemKey& key : order) {
    const std::vector<const MeasuredRow*>& members = problems[key];
    std::set<std::optional<std::int64_t>> counts;
    for (const MeasuredRow* m : members) {
      if (!everywhere(m->row)) counts.insert(m->row.threads);
    }
    if (counts.empty()) counts.insert(members.front()->row.threads);
    for (const std::optional<std::int64_t>& threads : counts) {
      std::vector<Identity> seen;
      std::map<Identity, std::vector<const MeasuredRow*>> same;
      for (const MeasuredRow* m : members) {
        if (!everywhere(m->row) && m->row.threads != threads) continue;
        auto& list = same[identity_in_group(m->row)];
        if (list.empty()) seen.push_back(identity_in_group(m->row));
        list.push_back(m);
      }
      std::vector<const MeasuredRow*> chosen;
      for (const Identity& identity : seen) chosen.push_back(representative(same[identity]));
      const Row& first = members.front()->row;
      groups.push_back({first.kernel, first.shape, first.dtype, first.math, first.cache, first.cpu,
                        threads, lines_of(std::move(chosen))});
    }
  }
  return groups;
}

}  // namespace rooflane
