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

// So many degrees of freedom that Student's distribution is a normal one.
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

namespace {

double student_density(double t, double df) {
  return std::exp(std::lgamma((df + 1) / 2) - std::lgamma(df / 2)) /
         std::sqrt(std::numbers::pi * df) * std::pow(1 + t * t / df, -(df + 1) / 2);
}

// The continued fraction of the incomplete beta function (Numerical Recipes 6.4, Lentz's method).
// Where x < (a + 1) / (a + b + 2), about sqrt(max(a, b)) terms are enough.
double beta_fraction(double x, double a, double b) {
  double up = 1;
  double down = 1 / (1 - (a + b) * x / (a + 1));
  double value = down;
  const auto multiply = [&](double term) {
    down = 1 / (1 + term * down);
    up = 1 + term / up;
    value *= up * down;
  };
  int m = 0;
  do {
    ++m;
    multiply(m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)));
    multiply(-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)));
  } while (std::abs(up * down - 1) > 1e-14);
  return value;
}

}  // namespace

// Half the incomplete beta function of df / (df + t²), or 1/2 minus half that of the rest, which
// converges faster near 0. The factor in front of either fraction is a multiple of t · density.
double student_tail(double t, double df) {
  if (t < 0) return 1 - student_tail(-t, df);
  if (std::isinf(t)) return 0;
  const double factor = t * student_density(t, df);
  const double x = df / (df + t * t);
  if (x < (df + 2) / (df + 5)) return factor / df * beta_fraction(x, df / 2, 0.5);
  return 0.5 - factor * beta_fraction(t * t / (df + t * t), 0.5, df / 2);
}

// By Newton's method: the tail is convex from 0 on, so that a step from there never goes too far.
double student_quantile(double tail, double df) {
  double t = 0;
  double step = 0;
  do {
    step = (student_tail(t, df) - tail) / student_density(t, df);
    t += step;
  } while (step > 1e-13 * t);
  return t;
}

Interval Estimate::interval(double level) const {
  if (std::isnan(error)) return {nan, nan};
  const double half = student_quantile((1 - level) / 2, std::min(df, most_df)) * error;
  return {value - half, value + half};
}

double Estimate::half_width_pct() const {
  const Interval around = interval();
  return 50 * (std::exp(around.high - value) - std::exp(around.low - value));
}

double Estimate::p_beyond(double margin) const {
  if (error <= 0) return std::abs(value) > margin ? 0 : 1;
  const double distance = std::abs(value);
  return std::min(
      student_tail((distance - margin) / error, df) + student_tail((distance + margin) / error, df),
      1.0);
}

namespace {

// The standard deviation of normal values over the median distance from their median.
constexpr double deviation_over_distance = 1.4826;

// Distances of rounds from their repetition's median, as so many distances from the true centre
// would be: of an odd number the median itself has none, of an even number all are too small.
void add_distances(const std::vector<double>& rounds, double middle,
                   std::vector<double>& distances) {
  const auto n = static_cast<double>(rounds.size());
  const bool even = rounds.size() % 2 == 0;
  // Both found by simulation of normal values, within 3 % from n = 2 on.
  const double factor = even ? std::min(std::numbers::sqrt2, 1 + 1.5 / n) : 1;
  bool centre_left_out = even;
  for (const double x : rounds) {
    const double distance = std::abs(x - middle);
    if (!centre_left_out && distance == 0) {
      centre_left_out = true;
      continue;
    }
    distances.push_back(factor * distance);
  }
}

double spread_of(std::vector<double>& distances) {
  return distances.empty() ? 0 : deviation_over_distance * median_in_place(distances);
}

// A repetition's median and the variance of that by its rounds.
struct RepetitionMedian {
  double value = 0;
  double variance = 0;
};

std::vector<RepetitionMedian> medians_of(std::span<const std::vector<double>> repetitions) {
  std::vector<RepetitionMedian> medians;
  std::vector<double> all, own;
  for (const std::vector<double>& rounds : repetitions) {
    medians.push_back({median(rounds)});
    add_distances(rounds, medians.back().value, all);
  }
  const double common = spread_of(all);
  for (std::size_t i = 0; i < medians.size(); ++i) {
    own.clear();
    add_distances(repetitions[i], medians[i].value, own);
    const double spread = std::max(common, spread_of(own));
    // The variance of the median of n normal values is pi/2 of the mean's.
    medians[i].variance =
        std::numbers::pi / 2 * spread * spread / static_cast<double>(repetitions[i].size());
  }
  return medians;
}

// Between repetitions of one variant against itself in fresh processes, as a logarithm: below 1 %
// for most problems on the machines in results/, up to 8 % for products with one row.
constexpr double usual_repetition_error = 0.01;
constexpr double usual_df = 1;
constexpr double far = 3;  // errors; of normal values one in 370

}  // namespace

Estimate estimate_over_repetitions(std::span<const std::vector<double>> repetitions) {
  const std::vector<RepetitionMedian> medians = medians_of(repetitions);
  if (medians.size() == 1) {
    const auto rounds = static_cast<double>(repetitions.front().size());
    if (rounds < 2) return {medians[0].value, nan, 0};
    // Few rounds may lie together by chance: moderated as the variance between repetitions is.
    const double usual =
        std::numbers::pi / 2 * usual_repetition_error * usual_repetition_error / rounds;
    const double df = usual_df + rounds - 1;
    const double variance = (usual_df * usual + (rounds - 1) * medians[0].variance) / df;
    return {medians[0].value, std::sqrt(variance), df};
  }
  std::vector<double> values, variances, relative;
  for (const RepetitionMedian& one : medians) {
    values.push_back(one.value);
    variances.push_back(one.variance + usual_repetition_error * usual_repetition_error);
  }
  double mean = median(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    relative.push_back((values[i] - mean) / std::sqrt(variances[i]));
  }
  std::vector<double> distances;
  add_distances(relative, 0, distances);
  // If most repetitions differ by more than their errors, the cause is not a disturbance.
  const double limit = far * std::max(1.0, spread_of(distances));
  constexpr int most_steps = 30;
  for (int step = 0; step < most_steps; ++step) {  // Huber's mean by repeated weighting
    double sum = 0, weights = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double distance = std::abs(values[i] - mean) / std::sqrt(variances[i]);
      const double weight = std::min(1.0, limit / std::max(distance, limit)) / variances[i];
      sum += weight * values[i];
      weights += weight;
    }
    const double next = sum / weights;
    if (next == mean) break;
    mean = next;
  }
  double squares = 0, weights = 0, near = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double distance = std::abs(values[i] - mean) / std::sqrt(variances[i]);
    squares += std::min(distance, limit) * std::min(distance, limit);
    if (distance >= limit) continue;
    weights += 1 / variances[i];
    ++near;
  }
  const double df = usual_df + std::max(near, 1.0) - 1;
  const double scale = (usual_df + squares) / (usual_df + static_cast<double>(values.size()) - 1);
  return {mean, std::sqrt(scale / weights), df};
}

double median_half_width_pct(std::span<const double> samples) {
  std::vector<double> logs;
  for (const double sample : samples) logs.push_back(std::log(sample));
  return logs.empty() ? nan : estimate_over_repetitions({&logs, 1}).half_width_pct();
}

PairVerdict verdict_of(const Estimate& log_ratio) {
  const Interval shown = log_ratio.interval();
  if (std::isnan(shown.low)) return PairVerdict::undecided;
  const double margin = std::log1p(tie_margin);
  if (shown.low >= -margin && shown.high <= margin) return PairVerdict::equal;
  const Interval sure = log_ratio.interval(winner_level);
  if (sure.low > 0) return PairVerdict::slower;
  if (sure.high < 0) return PairVerdict::faster;
  return PairVerdict::undecided;
}

bool certainly_above(const Estimate& log_ratio, double ratio) {
  return log_ratio.interval(winner_level).low > std::log(ratio);
}

double repetitions_to_decide(const Estimate& log_ratio) {
  if (std::isnan(log_ratio.error)) return 2;
  const double margin = std::log1p(tie_margin);
  const double distance = std::abs(log_ratio.value);
  // Widths for which the pair would be decided either way; the wider one comes first. Errors fall
  // with the root of the number of repetitions, and Student's quantiles a little besides.
  const double to_win = distance / student_quantile((1 - winner_level) / 2, log_ratio.df);
  const double to_tie = (margin - distance) / student_quantile(0.025, log_ratio.df);
  const double wanted = std::max(to_win, to_tie);
  return std::max(1.0, std::pow(log_ratio.error / wanted, 2));
}

Estimate estimate_from_interval(double value, Interval interval) {
  const double width = std::log(interval.high / interval.low);
  return {std::log(value), width / (2 * student_quantile(0.025, most_df)), most_df};
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
  for (std::size_t k = 0; k < order.size(); ++k) {  // from the largest; its rank is `count`
    const double rank = count - static_cast<double>(k);
    least = std::min(least, p_values[order[k]] * count / rank);
    adjusted[order[k]] = least;
  }
  return adjusted;
}

}  // namespace rooflane
