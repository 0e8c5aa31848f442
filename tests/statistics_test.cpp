// Statistics on samples with known figures, and intervals that cover as often as they claim.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numbers>
#include <sstream>
#include <string>
#include <vector>

#include "core/seeds.hpp"
#include "core/statistics.hpp"

using namespace rooflane;

namespace {

// Normal samples by Box and Muller from the seed and a running counter.
std::vector<double> normal_samples(std::uint64_t seed, int count, double mean, double stdev) {
  const auto uniform = [&](std::uint64_t i) {
    return (static_cast<double>(splitmix64(seed * 1000003 + i) >> 11) + 0.5) * 0x1p-53;
  };
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(uniform(2 * static_cast<std::uint64_t>(i))));
    const double angle = 2 * std::numbers::pi * uniform(2 * static_cast<std::uint64_t>(i) + 1);
    samples.push_back(mean + stdev * radius * std::cos(angle));
  }
  return samples;
}

// Expected figures from NumPy 2: np.quantile, mean, std(ddof=1).
const std::vector<double> known = {3.5, 1.25, 9, 4, 4.5, 2.75, 100, 6, 5.5, 3};

}  // namespace

TEST_CASE("quantiles of a known sample are NumPy's") {
  CHECK(quantile(known, 0.2) == doctest::Approx(2.95).epsilon(1e-14));
  CHECK(quantile(known, 0.5) == doctest::Approx(4.25).epsilon(1e-14));
  CHECK(quantile(known, 0.8) == doctest::Approx(6.6).epsilon(1e-14));
  CHECK(quantile(known, 0.99) == doctest::Approx(91.81).epsilon(1e-14));
  CHECK(quantile(known, 0.025) == doctest::Approx(1.5875).epsilon(1e-14));
  CHECK(quantile(known, 0) == 1.25);
  CHECK(quantile(known, 1) == 100);
  CHECK(median(known) == quantile(known, 0.5));
}

TEST_CASE("the summary of a known sample is NumPy's") {
  const Summary s = summarise(known);
  CHECK(s.count == 10);
  CHECK(s.min == 1.25);
  CHECK(s.p20 == doctest::Approx(2.95).epsilon(1e-14));
  CHECK(s.p50 == doctest::Approx(4.25).epsilon(1e-14));
  CHECK(s.p80 == doctest::Approx(6.6).epsilon(1e-14));
  CHECK(s.p99 == doctest::Approx(91.81).epsilon(1e-14));
  CHECK(s.mean == doctest::Approx(13.95).epsilon(1e-14));
  CHECK(s.stdev == doctest::Approx(30.30923951536891).epsilon(1e-14));
  CHECK(s.noise_pct == doctest::Approx(32.35294117647059).epsilon(1e-14));
}

TEST_CASE("a summary of nothing is NaN, of one sample a point") {
  const Summary none = summarise({});
  CHECK(none.count == 0);
  CHECK(std::isnan(none.p50));
  CHECK(std::isnan(none.mean));
  CHECK(std::isnan(quantile({}, 0.5)));

  const std::vector<double> one = {7};
  const Summary s = summarise(one);
  CHECK(s.count == 1);
  for (double figure : {s.min, s.p20, s.p50, s.p80, s.p99, s.mean}) CHECK(figure == 7);
  CHECK(s.stdev == 0);
  CHECK(s.noise_pct == 0);
}

TEST_CASE("the order of samples does not matter and the samples stay as they are") {
  std::vector<double> reversed(known.rbegin(), known.rend());
  const std::vector<double> before = reversed;
  CHECK(summarise(reversed).p99 == summarise(known).p99);
  CHECK(summarise(reversed).mean == summarise(known).mean);
  CHECK(reversed == before);
}

TEST_CASE("an infinite sample leaves the quantiles below it finite") {
  const std::vector<double> samples = {1, 2, 3, 4, std::numeric_limits<double>::infinity()};
  CHECK(quantile(samples, 0.5) == 3);
  CHECK(quantile(samples, 0.75) == 4);
  CHECK(std::isinf(quantile(samples, 1)));
}

TEST_CASE("the spread of samples far from zero is not lost to rounding") {
  std::vector<double> samples;
  for (int i = 0; i < 100; ++i) samples.push_back(1e9 + (i % 2 == 0 ? -1 : 1));
  CHECK(summarise(samples).stdev == doctest::Approx(std::sqrt(100.0 / 99)).epsilon(1e-9));
}

TEST_CASE("the interval of nothing is NaN, of one or equal samples a point") {
  CHECK(std::isnan(median_interval({}, 1).low));
  CHECK(std::isnan(median_interval({}, 1).high));
  const std::vector<double> one = {3};
  CHECK(median_interval(one, 1).low == 3);
  CHECK(median_interval(one, 1).high == 3);
  const std::vector<double> equal(20, 5.0);
  CHECK(median_interval(equal, 1).low == 5);
  CHECK(median_interval(equal, 1).high == 5);
}

TEST_CASE("the interval is the same for the same seed and holds the median") {
  const std::vector<double> samples = normal_samples(11, 41, 100, 5);
  const Interval first = median_interval(samples, 7);
  const Interval again = median_interval(samples, 7);
  CHECK(first.low == again.low);
  CHECK(first.high == again.high);
  CHECK(first.contains(median(samples)));
  CHECK(first.low >= quantile(samples, 0));
  CHECK(first.high <= quantile(samples, 1));
}

TEST_CASE("95 % intervals of normal samples cover the true median about 95 times of 100") {
  for (int count : {15, 40}) {
    constexpr int trials = 400;
    int covered = 0;
    for (int trial = 0; trial < trials; ++trial) {
      const auto seed = static_cast<std::uint64_t>(trial + 1000 * count);
      const std::vector<double> samples = normal_samples(seed, count, 10, 2);
      if (median_interval(samples, seed).contains(10)) ++covered;
    }
    // The seeds are fixed, so this cannot flicker; 0.92 to 0.98 is 95 % give or take three standard
    // errors of 400 trials.
    CAPTURE(count);
    CHECK(covered >= 0.92 * trials);
    CHECK(covered <= 0.98 * trials);
  }
}

TEST_CASE("the interval narrows with the square root of the number of samples") {
  const auto mean_width = [](int count) {
    double sum = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const Interval i = median_interval(normal_samples(seed, count, 0, 1), seed);
      sum += i.high - i.low;
    }
    return sum / 40;
  };
  const double ratio = mean_width(25) / mean_width(400);
  CHECK(ratio > 3);
  CHECK(ratio < 5);
}

TEST_CASE("the half width of a single repetition covers the median in 95 of 100 trials") {
  for (const int count : {6, 21, 200}) {
    int covered = 0;
    constexpr int trials = 400;
    for (std::uint64_t seed = 1; seed <= trials; ++seed) {
      const std::vector<double> samples = normal_samples(seed, count, 100, 1);
      const double reach = median_half_width_pct(samples) / 100 * median(samples);
      covered += std::abs(median(samples) - 100) <= reach;
    }
    CAPTURE(count);
    CHECK(covered >= 0.90 * trials);
  }
  CHECK(std::isnan(median_half_width_pct(std::vector<double>{7})));
  CHECK(std::isnan(median_half_width_pct(std::vector<double>{})));
}

TEST_CASE("a single repetition has its rounds for units, a single round no interval") {
  const std::vector<std::vector<double>> one = {{1.0, 1.1, 0.9, 1.0, 1.05}};
  const Estimate estimate = estimate_over_repetitions(one);
  CHECK(estimate.value == 1.0);
  CHECK(estimate.df == 5);
  CHECK(estimate.error > 0);
  CHECK(estimate.interval().contains(1.0));
  const std::vector<std::vector<double>> round = {{1.5}};
  CHECK(estimate_over_repetitions(round).value == 1.5);
  CHECK(std::isnan(estimate_over_repetitions(round).interval().low));
  CHECK(verdict_of(estimate_over_repetitions(round)) == PairVerdict::undecided);
}

TEST_CASE("rounds without noise: the error over repetitions is moderated towards the usual one") {
  // s = 0.01 over {-0.01, 0, 0.01}, which is the usual error: the moderated variance is the same.
  const std::vector<std::vector<double>> usual = {{-0.01, -0.01}, {0, 0}, {0.01, 0.01}};
  const Estimate estimate = estimate_over_repetitions(usual);
  CHECK(estimate.value == doctest::Approx(0));
  CHECK(estimate.df == 3);
  CHECK(estimate.error == doctest::Approx(0.01 / std::sqrt(3)));
  // Equal repetitions leave the usual error's own degree of freedom: 1 of 3.
  const std::vector<std::vector<double>> equal(3, std::vector<double>{0.5, 0.5});
  CHECK(estimate_over_repetitions(equal).error ==
        doctest::Approx(0.01 / std::sqrt(3) * std::sqrt(1.0 / 3)));
}

TEST_CASE("a disturbed round and a disturbed repetition have no leverage") {
  std::vector<std::vector<double>> calm;
  for (std::uint64_t i = 0; i < 7; ++i) calm.push_back(normal_samples(i + 1, 7, 0.1, 0.01));
  const Estimate before = estimate_over_repetitions(calm);
  std::vector<std::vector<double>> one_round = calm;
  one_round[2][3] += 2;  // 7 times as long
  const Estimate round = estimate_over_repetitions(one_round);
  CHECK(std::abs(round.value - before.value) < before.error);
  CHECK(round.error < 1.2 * before.error);
  std::vector<std::vector<double>> one_repetition = calm;
  for (double& x : one_repetition[2]) x += 2;
  const Estimate repetition = estimate_over_repetitions(one_repetition);
  CHECK(std::abs(repetition.value - before.value) < 3 * before.error);
  CHECK(repetition.error < 3 * before.error);
  CHECK(verdict_of(repetition) == PairVerdict::slower);  // 10 %
}

TEST_CASE("verdicts: equal within 2 %, beyond doubt at 99 %, else undecided with what decides") {
  const auto of = [](double value, double error) { return Estimate{value, error, 1000}; };
  CHECK(verdict_of(of(0.005, 0.005)) == PairVerdict::equal);
  CHECK(verdict_of(of(0.03, 0.01)) == PairVerdict::slower);
  CHECK(verdict_of(of(-0.03, 0.01)) == PairVerdict::faster);
  CHECK(verdict_of(of(0.03, 0.014)) == PairVerdict::undecided);  // beyond 95 %, not beyond 99 %
  CHECK(verdict_of(of(0.0, 0.05)) == PairVerdict::undecided);
  CHECK(certainly_above(of(0.6, 0.05), 1.5));
  CHECK_FALSE(certainly_above(of(0.41, 0.05), 1.5));
  // 0.03 is found when its error is 0.03 / 2.58: (0.014 / 0.01163)^2.
  CHECK(repetitions_to_decide(of(0.03, 0.014)) == doctest::Approx(1.448).epsilon(0.01));
  // 0 is shown to be within 2 % when its error is 0.0198 / 1.96.
  CHECK(repetitions_to_decide(of(0, 0.05)) == doctest::Approx(24.5).epsilon(0.01));
}

namespace {

// What a made-up machine does to ratios of a pair, as logarithms.
struct Disturbance {
  double repetition = 0;  // standard deviation from one repetition to the next
  double round = 0;       // of a round, by Student's distribution with 4 degrees of freedom
  double neighbour =
      0;  // share of repetitions beside a neighbour, which spoils up to 80 % of the rounds
};

class Machine {
 public:
  explicit Machine(std::uint64_t seed) : state_(splitmix64(seed)) {}
  std::vector<std::vector<double>> ratios(int repetitions, int rounds, double truth,
                                          const Disturbance& by) {
    std::vector<std::vector<double>> all;
    for (int r = 0; r < repetitions; ++r) {
      const double shift = truth + by.repetition * normal();
      const double spoilt = uniform() < by.neighbour ? 0.8 * uniform() : 0;
      std::vector<double>& values = all.emplace_back();
      for (int i = 0; i < rounds; ++i) {
        double value = shift + by.round * normal() / std::sqrt(chi_square_4() / 4);
        // One of the pair takes up to several times as long.
        if (uniform() < spoilt) value += (uniform() < 0.5 ? 1 : -1) * std::abs(normal());
        values.push_back(value);
      }
    }
    return all;
  }
  double uniform() {
    state_ += 0x9e3779b97f4a7c15;
    return (static_cast<double>(splitmix64(state_) >> 11) + 0.5) * 0x1p-53;
  }

 private:
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }
  double chi_square_4() { return -2 * std::log(uniform()) - 2 * std::log(uniform()); }
  std::uint64_t state_;
};

struct Counts {
  int trials = 0, covered = 0, winners = 0, wrong = 0;
  void add(const Estimate& estimate, double truth) {
    const PairVerdict verdict = verdict_of(estimate);
    const bool won = verdict == PairVerdict::faster || verdict == PairVerdict::slower;
    ++trials;
    covered += estimate.interval().contains(truth);
    winners += won;
    wrong += won && (truth == 0 || (verdict == PairVerdict::slower) != (truth > 0));
  }
  double share(int count) const { return static_cast<double>(count) / trials; }
};

}  // namespace

TEST_CASE("simulated pairs: intervals cover, nothing wins against itself, 5 and 25 % are found") {
  // Noise as recorded on two cores (tests/data/pairs.csv): rounds of 1 to 5 %, repetitions of 0 to
  // 2 %.
  Counts same, beside, five, quarter, quarter_beside;
  Machine machine(7);
  for (const int repetitions : {5, 8}) {
    for (const double between : {0.0, 0.01, 0.02}) {
      for (const double round : {0.01, 0.03, 0.05}) {
        const Disturbance calm{between, round, 0}, busy{between, round, 0.3};
        for (int trial = 0; trial < 100; ++trial) {
          const auto estimate = [&](double truth, const Disturbance& by) {
            return estimate_over_repetitions(machine.ratios(repetitions, 8, truth, by));
          };
          same.add(estimate(0, calm), 0);
          beside.add(estimate(0, busy), 0);
          quarter.add(estimate(std::log(1.25), calm), std::log(1.25));
          quarter_beside.add(estimate(std::log(1.25), busy), std::log(1.25));
        }
      }
    }
  }
  // What a default run has of contenders: rounds of 2 % and repetitions of 1 %.
  for (int trial = 0; trial < 400; ++trial) {
    five.add(estimate_over_repetitions(machine.ratios(5, 8, std::log(1.05), {0.005, 0.02, 0})),
             std::log(1.05));
  }
  for (const Counts& counts : {same, beside}) {
    CHECK(counts.share(counts.covered) >= 0.93);
    CHECK(counts.share(counts.covered) <= 0.98);
    CHECK(counts.share(counts.wrong) <= 0.01);
  }
  CHECK(five.share(five.winners) >= 0.90);
  CHECK(five.wrong == 0);
  CHECK(quarter.share(quarter.winners) == 1);
  CHECK(quarter.wrong == 0);
  CHECK(quarter_beside.share(quarter_beside.winners) >= 0.99);
  CHECK(quarter_beside.wrong == 0);
}

TEST_CASE("recorded pairs of one build with itself: five repetitions cover 1, and name no winner") {
  // Logarithms of ratios by group, machine state and repetition; the file says how they were taken.
  std::ifstream file(PAIRS_FILE);
  REQUIRE(file);
  std::map<std::string, std::map<int, std::vector<double>>> groups;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream cells(line);
    std::string group, repetition, value;
    std::getline(cells, group, ',');
    std::getline(cells, repetition, ',');
    while (std::getline(cells, value, ',')) {
      groups[group][std::stoi(repetition)].push_back(std::stod(value));
    }
  }
  REQUIRE(groups.size() >= 20);
  Counts same, quarter;
  Machine draw(11);
  for (const auto& [name, repetitions] : groups) {
    std::vector<std::vector<double>> all;
    for (const auto& [number, rounds] : repetitions) all.push_back(rounds);
    REQUIRE(all.size() >= 10);
    for (int trial = 0; trial < 40; ++trial) {
      // Five of them, in an order drawn by Fisher and Yates.
      for (std::size_t i = 0; i < 5; ++i) {
        const auto left = static_cast<double>(all.size() - i);
        std::swap(all[i], all[i + static_cast<std::size_t>(draw.uniform() * left)]);
      }
      std::vector<std::vector<double>> five(all.begin(), all.begin() + 5);
      same.add(estimate_over_repetitions(five), 0);
      for (auto& rounds : five) {
        for (double& x : rounds) x += std::log(1.25);
      }
      quarter.add(estimate_over_repetitions(five), std::log(1.25));
    }
  }
  MESSAGE("covered ", same.share(same.covered), ", false winners ", same.share(same.wrong),
          ", 1.25 found ", quarter.share(quarter.winners));
  CHECK(same.share(same.covered) >= 0.93);
  CHECK(same.share(same.wrong) <= 0.01);
  CHECK(quarter.share(quarter.winners) >= 0.95);  // half of these repetitions ran beside stress-ng
  CHECK(quarter.wrong == 0);
}

TEST_CASE("the mean of independent estimates has their errors' and Welch's degrees of freedom") {
  const std::vector<Estimate> equal(4, Estimate{2, 0.1, 5});
  const Estimate mean = mean_of(equal);
  CHECK(mean.value == doctest::Approx(2));
  CHECK(mean.error == doctest::Approx(0.1 / 2));
  CHECK(mean.df == doctest::Approx(4 * 5));
  const std::vector<Estimate> unknown = {{2, 0.1, 5}, {4, std::nan(""), 1}};
  CHECK(mean_of(unknown).value == 3);
  CHECK(std::isnan(mean_of(unknown).interval().high));
}

TEST_CASE("an interval comes back from the estimate made of it") {
  const Estimate estimate = estimate_from_interval(90, {81, 100});
  CHECK(std::exp(estimate.interval().low) == doctest::Approx(81));
  CHECK(std::exp(estimate.interval().high) == doctest::Approx(100));
}
