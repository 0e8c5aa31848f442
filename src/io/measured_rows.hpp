// Rows with their samples, read from files, and the times and ratios of their rounds.
// core/statistics.hpp has the statistics, io/summary.hpp and io/compare.hpp the verdicts.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "io/csv.hpp"
#include "io/row.hpp"

namespace rooflane {

// A row with its own samples (none: the row's percentiles and intervals are used).
struct MeasuredRow {
  Row row;
  std::vector<Sample> samples;
};

// Rows of all files, in order, with the samples of `FILE.samples.csv` where it exists and is asked
// for. `rows_of_file`, where given, learns how many rows each file has.
std::vector<MeasuredRow> read_measured_rows(const std::vector<std::string>& csv_paths,
                                            bool with_samples = true,
                                            std::vector<std::size_t>* rows_of_file = nullptr);

// The rows of one identity: of one run, or of repeated files.
using SameRows = std::vector<const MeasuredRow*>;
// The values of each repetition's rounds.
using Repetitions = std::vector<std::vector<double>>;

// Logarithms of the samples, by repetition; divided by the probe of their round when `normalised`:
// samples that lack it are left out. A repetition keeps its undisturbed samples where there are at
// least three, else all of them.
Repetitions log_times(const SameRows& rows, bool normalised);
// Logarithms of x / y where both have a sample of one round, likewise. Rounds of other groups or
// runs have another probe or run.
Repetitions log_ratios(const SameRows& x, const SameRows& y);

// A ratio, or another positive figure, by the estimate of its logarithm.
struct Ratio {
  Estimate log;
  double value() const;
  // 95 %; nothing where the error is not known.
  std::optional<Interval> interval() const;
};

// One of several rows with one identity: the one with the median time, or the first without any.
const MeasuredRow* representative(SameRows rows);
// Time of x / time of y: from the rounds that they share; without any, from the samples of each;
// where one has none, from the medians and intervals of their representatives, which both must have
// a time.
Ratio time_ratio(const SameRows& x, const SameRows& y);

// What the pairs of a group say. `leader`: the fastest, which no other beats beyond doubt;
// `against`: the time of each of the others / the leader's, with its verdict (slower: it has lost).
struct Ranking {
  enum class State { winner, tie, undecided } state = State::undecided;
  std::size_t leader = 0;
  std::vector<PairVerdict> against;  // equal for the leader itself
  std::vector<Ratio> over_leader;
};
// An implementation with its median time in ns; a ranking needs at least one.
struct Contender {
  SameRows same;
  double ns = 0;
};
Ranking rank(std::span<const Contender> contenders);
// The geometric mean of figures of independent problems; nothing when there is none.
std::optional<Ratio> geometric_mean(std::span<const Ratio> figures);
// The share of the roof with the row's interval; nothing where the row has none.
std::optional<Ratio> roof_share(const Row& row);

bool has_time(const Row& row);
// Whether the row is right and timed; whether it is timed and at most INACCURATE, so that others
// are held against it.
bool may_win(const Row& row);
bool may_be_peer(const Row& row);
// Whether it is a third-party library; a variant from another build (hwy@old) is not.
bool is_peer(const Row& row);
bool is_other_build(const Row& row);

}  // namespace rooflane
