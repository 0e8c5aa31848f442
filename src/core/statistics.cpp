// Quantiles, spread and bootstrap intervals. No time, no threads, no global state.
#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "seeds.hpp"

namespace rooflane {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// 2000 resamples put about 50 medians beyond each end of a 95 % interval, enough for its ends to
// repeat within a few per cent of its width from seed to seed.
constexpr int resamples = 2000;

// Half a 95 % interval of a normal distribution, in standard deviations; and so many degrees of
// freedom that Student's distribution is one.
constexpr double normal_quantile = 1.96;
constexpr double most_df = 1000;

// Type 7: position q·(n-1) between the order statistics, linearly. `sorted` must not be empty.
double quantile_of_sorted(std::span<const double> sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  if (share == 0) return sorted[below];  // an infinite neighbour must not make 0·inf
  return sorted[below] + share * (sorted[above] - sorted[below]);
}

std::vector<double> sorted_copy(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Median of values that may be reordered: half a selection is enough, no full sort.
double median_in_place(std::vector<double>& values) {
  const std::size_t middle = values.size() / 2;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(middle);
  std::nth_element(values.begin(), at, values.end());
  if (values.size() % 2 == 1) return *at;
  const double lower = *std::max_element(values.begin(), at);
  return lower + 0.5 * (*at - lower);
}

// Uniform integers from a counter through splitmix64's finaliser; the stream depends on the seed
// only, not on the standard library.
class CounterRng {
 public:
  explicit CounterRng(std::uint64_t seed) : state_(splitmix64(seed)) {}
  // In [0, bound): the high 32 bits scaled; the bias, bound/2^32, is far below the resampling
  // noise.
  std::size_t below(std::size_t bound) {
    state_ += 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(((splitmix64(state_) >> 32) * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

double quantile(std::span<const double> samples, double q) {
  if (samples.empty()) return nan;
  return quantile_of_sorted(sorted_copy(samples), std::clamp(q, 0.0, 1.0));
}

Summary summarise(std::span<const double> samples) {
  Summary s;
  s.count = static_cast<int>(samples.size());
  if (samples.empty()) {
    s.min = s.p20 = s.p50 = s.p80 = s.p99 = s.mean = s.stdev = s.noise_pct = nan;
    return s;
  }
  const std::vector<double> sorted = sorted_copy(samples);
  s.min = sorted.front();
  s.p20 = quantile_of_sorted(sorted, 0.20);
  s.p50 = quantile_of_sorted(sorted, 0.50);
  s.p80 = quantile_of_sorted(sorted, 0.80);
  s.p99 = quantile_of_sorted(sorted, 0.99);

  const auto n = static_cast<double>(sorted.size());
  double sum = 0;
  for (double x : sorted) sum += x;
  s.mean = sum / n;
  // The second pass keeps the full precision that Σx² - n·mean² would lose.
  double squares = 0;
  for (double x : sorted) squares += (x - s.mean) * (x - s.mean);
  s.stdev = sorted.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;

  std::vector<double> deviations;
  deviations.reserve(sorted.size());
  for (double x : sorted) deviations.push_back(std::abs(x - s.p50));
  s.noise_pct = s.p50 != 0 ? 100 * median_in_place(deviations) / std::abs(s.p50) : 0;
  return s;
}

Interval median_interval(std::span<const double> samples, std::uint64_t seed) {
  if (samples.empty()) return {nan, nan};
  if (samples.size() == 1) return {samples[0], samples[0]};
  CounterRng rng(seed);
  std::vector<double> drawn(samples.size());
  std::vector<double> medians(resamples);
  for (double& middle : medians) {
    for (double& x : drawn) x = samples[rng.below(samples.size())];
    middle = median_in_place(drawn);
  }
  std::sort(medians.begin(), medians.end());
  return {quantile_of_sorted(medians, 0.025), quantile_of_sorted(medians, 0.975)};
}

// With t = sqrt(df)·tan(x) the density becomes a multiple of cos(x)^(df-1), and the tail an
// integral up to pi/2, done by Simpson's rule.
double median_half_width_pct(std::span<const double> samples) {
  const auto n = static_cast<double>(samples.size());
  const double reach = 0.98 * std::sqrt(n);  // 1.96 standard deviations of a binomial of 1/2
  if (n / 2 - reach < 0.5) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const auto low = static_cast<std::size_t>(std::max(n / 2 - reach - 0.5, 0.0));
  const std::size_t high = sorted.size() - 1 - low;
  return 50 * (sorted[high] - sorted[low]) / median(sorted);
}

double student_tail(double t, double df) {
  if (t < 0) return 1 - student_tail(-t, df);
  constexpr int steps = 400;  // even; 5 digits for df from 1 to 1000
  const double from = std::atan(t / std::sqrt(df));
  const double step = (std::numbers::pi / 2 - from) / steps;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double weight = i == 0 || i == steps ? 1 : (i % 2 == 1 ? 4 : 2);
    sum += weight * std::pow(std::max(std::cos(from + i * step), 0.0), df - 1);
  }
  const double scale = std::exp(std::lgamma((df + 1) / 2) - std::lgamma(df / 2));
  return std::min(sum * step / 3 * scale / std::sqrt(std::numbers::pi), 0.5);
}

double student_quantile(double tail, double df) {
  double low = 0;
  double high = 1;
  while (student_tail(high, df) > tail) high *= 2;
  constexpr int halvings = 40;  // 12 digits of any quantile
  for (int i = 0; i < halvings; ++i) {
    const double middle = 0.5 * (low + high);
    (student_tail(middle, df) > tail ? low : high) = middle;
  }
  return high;
}

Interval Estimate::interval() const {
  if (std::isnan(error)) return {nan, nan};
  const double half = (df >= most_df ? normal_quantile : student_quantile(0.025, df)) * error;
  return {value - half, value + half};
}

double Estimate::p_beyond(double margin) const {
  if (error <= 0) return std::abs(value) > margin ? 0 : 1;
  const double distance = std::abs(value);
  return std::min(
      student_tail((distance - margin) / error, df) + student_tail((distance + margin) / error, df),
      1.0);
}

Estimate estimate_over_launches(std::span<const std::vector<double>> launches, std::uint64_t seed) {
  const std::size_t count = launches.size();
  const auto n = static_cast<double>(count);
  const auto units = static_cast<double>(count > 1 ? count : launches.front().size());
  Estimate estimate{0, nan, units - 1};
  for (const std::vector<double>& rounds : launches) estimate.value += median(rounds) / n;
  if (units < 2) return estimate;

  // The standard error of a standard error from B resamples is 1/sqrt(2B) of it: 4 % here.
  constexpr int error_resamples = 400;
  CounterRng rng(seed);
  std::vector<double> means(error_resamples, 0.0);
  std::vector<double> drawn;
  for (double& mean : means) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<double>& rounds = launches[rng.below(count)];
      drawn.resize(rounds.size());
      for (double& x : drawn) x = rounds[rng.below(rounds.size())];
      mean += median_in_place(drawn) / n;
    }
  }
  estimate.error = summarise(means).stdev * std::sqrt(units / (units - 1));
  return estimate;
}

Estimate estimate_from_interval(double value, Interval interval) {
  return {std::log(value), std::log(interval.high / interval.low) / (2 * normal_quantile), most_df};
}

Estimate mean_of(std::span<const Estimate> estimates) {
  const auto n = static_cast<double>(estimates.size());
  double value = 0;
  double variance = 0;
  double spread = 0;
  for (const Estimate& estimate : estimates) {
    value += estimate.value / n;
    variance += estimate.error * estimate.error;
    spread += std::pow(estimate.error, 4) / estimate.df;
  }
  return {value, std::sqrt(variance) / n, spread > 0 ? variance * variance / spread : most_df};
}

Estimate difference(const Estimate& x, const Estimate& y) {
  const double vx = x.error * x.error;
  const double vy = y.error * y.error;
  const double sum = vx + vy;
  const double df = sum > 0 ? sum * sum / (vx * vx / x.df + vy * vy / y.df) : std::min(x.df, y.df);
  return {x.value - y.value, std::sqrt(sum), df};
}

std::vector<double> adjusted_for_false_discoveries(std::span<const double> p_values) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p_values.size(); ++i) {
    if (!std::isnan(p_values[i])) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return p_values[a] > p_values[b]; });
  std::vector<double> adjusted(p_values.begin(), p_values.end());
  const auto count = static_cast<double>(order.size());
  double least = 1;
  for (std::size_t k = 0; k < order.size(); ++k) {  // from the largest, whose rank is `count`
    const double rank = count - static_cast<double>(k);
    least = std::min(least, p_values[order[k]] * count / rank);
    adjusted[order[k]] = least;
  }
  return adjusted;
}

}  // namespace rooflane
