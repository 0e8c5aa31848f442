// Statistics on samples whose figures are known, and intervals that cover as often as they claim.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
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

TEST_CASE("the half width from order statistics covers the median in 95 of 100 trials") {
  for (const int count : {6, 21, 200}) {
    int covered = 0;
    constexpr int trials = 400;
    for (std::uint64_t seed = 1; seed <= trials; ++seed) {
      const std::vector<double> samples = normal_samples(seed, count, 100, 1);
      const double reach = median_half_width_pct(samples) / 100 * median(samples);
      // The interval need not be symmetric about the median; its half width nearly covers as well.
      covered += std::abs(median(samples) - 100) <= reach;
    }
    CAPTURE(count);
    CHECK(covered >= 0.90 * trials);
  }
  const std::vector<double> few = {1, 2, 3, 4, 5};
  CHECK(std::isnan(median_half_width_pct(few)));
  const std::vector<double> six = {90, 98, 100, 100, 102, 110};
  CHECK(median_half_width_pct(six) == doctest::Approx(10));
}

TEST_CASE("a single launch has its rounds for units, a single round no interval") {
  const std::vector<std::vector<double>> one = {{1.0, 1.1, 0.9, 1.0, 1.05}};
  const Estimate estimate = estimate_over_launches(one, 1);
  CHECK(estimate.value == 1.0);
  CHECK(estimate.df == 4);
  CHECK(estimate.error > 0);
  CHECK(estimate.interval().contains(1.0));
  const std::vector<std::vector<double>> round = {{1.5}};
  CHECK(estimate_over_launches(round, 1).value == 1.5);
  CHECK(std::isnan(estimate_over_launches(round, 1).interval().low));
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
