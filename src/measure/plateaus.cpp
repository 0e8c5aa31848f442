// The staircase fit of plateaus.hpp, by dynamic programming over the cuts.
#include "measure/plateaus.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rooflane {
namespace {

// One point may be an outlier; two in a row are a level.
constexpr std::size_t least_points = 2;
// Neighbouring cache levels differ by a factor of 1.5 to 3, noise and TLB effects within one level
// by less than 1.2.
const double least_step = std::log(1.25);
constexpr double infinity = std::numeric_limits<double>::infinity();

using Logs = std::array<double, 3>;  // of read, write, copy

std::vector<Logs> logs_of(std::span<const BandwidthPoint> points) {
  std::vector<Logs> logs;
  logs.reserve(points.size());
  const auto log_of = [](double gb_s) { return std::log(std::max(gb_s, 1e-9)); };
  for (const BandwidthPoint& p : points) {
    logs.push_back({log_of(p.read_gb_s), log_of(p.write_gb_s), log_of(p.copy_gb_s)});
  }
  return logs;
}

Logs means(std::span<const Logs> run) {
  Logs mean{};
  for (const Logs& point : run) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += point[i];
  }
  for (double& m : mean) m /= static_cast<double>(run.size());
  return mean;
}

double squared_deviation(std::span<const Logs> run) {
  const Logs mean = means(run);
  double sum = 0;
  for (const Logs& point : run) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      sum += (point[i] - mean[i]) * (point[i] - mean[i]);
    }
  }
  return sum;
}

// Ends (exclusive) of the `levels` runs with the least squared deviation; empty when the points do
// not suffice.
std::vector<std::size_t> best_cut(std::span<const Logs> logs, int levels) {
  const std::size_t n = logs.size();
  // best[k][j]: the least cost of the first j points in k runs; from[k][j]: where the last begins.
  std::vector best(static_cast<std::size_t>(levels) + 1, std::vector<double>(n + 1, infinity));
  std::vector from(best.size(), std::vector<std::size_t>(n + 1, 0));
  best[0][0] = 0;
  for (std::size_t k = 1; k < best.size(); ++k) {
    for (std::size_t end = k * least_points; end <= n; ++end) {
      for (std::size_t begin = 0; begin + least_points <= end; ++begin) {
        if (best[k - 1][begin] == infinity) continue;
        const double cost =
            best[k - 1][begin] + squared_deviation(logs.subspan(begin, end - begin));
        if (cost < best[k][end]) {
          best[k][end] = cost;
          from[k][end] = begin;
        }
      }
    }
  }
  if (best.back()[n] == infinity) return {};
  std::vector<std::size_t> ends;
  for (std::size_t k = best.size() - 1, end = n; k > 0; end = from[k][end], --k) {
    ends.push_back(end);
  }
  std::reverse(ends.begin(), ends.end());
  return ends;
}

bool every_step_goes_down(std::span<const Logs> logs, const std::vector<std::size_t>& ends) {
  double previous = infinity;
  std::size_t begin = 0;
  for (std::size_t end : ends) {
    const Logs mean = means(logs.subspan(begin, end - begin));
    const double level = (mean[0] + mean[1] + mean[2]) / 3;
    if (level > previous - least_step) return false;
    previous = level;
    begin = end;
  }
  return true;
}

// Which of L1, L2, L3 the cache runs are: the rising choice with reported sizes nearest to the
// runs' ends, by the sum of squared log ratios. Unknown sizes never speak against a choice.
std::vector<int> choose_labels(const std::vector<double>& run_ends,
                               const std::array<double, 3>& cache_bytes) {
  std::vector<int> best;
  double least = infinity;
  for (unsigned mask = 0; mask < 8; ++mask) {
    std::vector<int> chosen;
    for (int level = 0; level < 3; ++level) {
      if ((mask >> level & 1) != 0 &&
          cache_bytes[static_cast<std::size_t>(level)] != no_such_level) {
        chosen.push_back(level);
      }
    }
    if (chosen.size() != run_ends.size()) continue;
    double cost = 0;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const double reported = cache_bytes[static_cast<std::size_t>(chosen[i])];
      if (reported > 0) cost += std::pow(std::log(run_ends[i] / reported), 2);
    }
    if (cost < least) {
      least = cost;
      best = chosen;
    }
  }
  return best;
}

}  // namespace

std::vector<Plateau> find_plateaus(std::span<const BandwidthPoint> points,
                                   const std::array<double, 3>& cache_bytes) {
  if (points.empty()) return {};
  const std::vector<Logs> logs = logs_of(points);
  std::vector<std::size_t> ends = {points.size()};
  const auto caches = std::count_if(cache_bytes.begin(), cache_bytes.end(),
                                    [](double bytes) { return bytes != no_such_level; });
  for (int levels = static_cast<int>(caches) + 1; levels > 1; --levels) {
    const std::vector<std::size_t> cut = best_cut(logs, levels);
    if (!cut.empty() && every_step_goes_down(logs, cut)) {
      ends = cut;
      break;
    }
  }

  std::vector<double> cache_ends;
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    cache_ends.push_back(points[ends[i] - 1].footprint_bytes);
  }
  constexpr std::array<const char*, 3> names = {"L1", "L2", "L3"};
  std::vector<Plateau> plateaus;
  const std::vector<int> labels = choose_labels(cache_ends, cache_bytes);
  for (std::size_t i = 0; i < cache_ends.size(); ++i) {
    plateaus.push_back({names[static_cast<std::size_t>(labels[i])], cache_ends[i]});
  }
  plateaus.push_back({"memory", points.back().footprint_bytes});
  return plateaus;
}

}  // namespace rooflane
