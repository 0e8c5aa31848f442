// The timed bandwidth curve. The loops: stream_loops.cpp, timed by stream_bench.cpp; the levels in
// the curve: plateaus.cpp.
#include "measure/bandwidth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/machine.hpp"
#include "measure/plateaus.hpp"
#include "measure/stream_bench.hpp"

namespace rooflane {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

// The first point, per thread: half of the smallest L1 in use (32 KiB), and still 32 iterations of
// the loops, so that their start does not count.
constexpr std::size_t smallest_share = 16 * KiB;
constexpr int base_points = bandwidth_points * 2 / 3;

// How many times its seconds a point may take for methods that its neighbour does not suggest. With
// a whole budget all methods are tried at any footprint (at 10 GB/s the largest takes 3 times its
// seconds); a hundredth of it suffices for the suggested ones only.
constexpr double overrun = 10;

// In windows every method alternates its direction after each pass: then no pass takes longer, and
// none begins at an end that it did not leave last. Passes over shorter arrays are timed together,
// and the cyclic order is tried as well, because it may be faster if all fits. An array that fits
// in L1 with room to spare only uses the cyclic order. Alternating gains nothing if stores bypass
// the caches.
std::vector<StreamTrial> trials_of(Traffic traffic, std::size_t share) {
  const bool windowed = in_windows(traffic, share);
  std::vector<StreamTrial> trials;
  for (bool non_temporal : {false, true}) {
    if (non_temporal && traffic == reading) continue;
    for (int streams : {1, 4, 8}) {
      const StreamMethod method{streams, non_temporal};
      trials.push_back({method, windowed});
      const bool may_gain =
          streams < 8 && share > 2 * smallest_share && !(non_temporal && traffic == writing);
      if (!windowed && may_gain) trials.push_back({method, true});
    }
  }
  return trials;
}

constexpr std::size_t every_trial = std::numeric_limits<std::size_t>::max();

// One footprint's figures: every loop's methods.
struct Point {
  Point(std::size_t bytes, int threads) : footprint(bytes) {
    const std::size_t share = bytes / static_cast<std::size_t>(threads);
    for (Traffic traffic : traffics) trials[traffic] = trials_of(traffic, share);
  }

  // Puts in front, to be tried in any case, the methods with as many streams as the best at another
  // footprint: plain and non-temporal ones, since which of them wins changes at a cache's end.
  void suggest(const Point& neighbour) {
    for (Traffic traffic : traffics) {
      const int streams = neighbour.best(traffic).method.streams;
      const auto others = std::stable_partition(
          trials[traffic].begin(), trials[traffic].end(),
          [streams](const StreamTrial& trial) { return trial.method.streams == streams; });
      suggested[traffic] = static_cast<std::size_t>(others - trials[traffic].begin());
    }
  }

  std::size_t footprint;
  std::array<std::vector<StreamTrial>, 3> trials;
  // How many of each loop's trials come first: all of them at the first point.
  std::array<std::size_t, 3> suggested = {every_trial, every_trial, every_trial};

  const StreamTrial& best(Traffic traffic) const {
    return *std::max_element(
        trials[traffic].begin(), trials[traffic].end(),
        [](const StreamTrial& a, const StreamTrial& b) { return a.gb_s < b.gb_s; });
  }
};

// Tries every method once, as far as the overrun lasts. Then the best gets half of the slots in the
// remaining `seconds`; the second best and all in rotation get a quarter each, so that a method
// that was disturbed at first gets another chance. The best has its two slots in a row, one in each
// direction if it alternates.
void measure(StreamBench& bench, Point& point, Traffic traffic, double seconds) {
  const Stopwatch watch;
  std::vector<StreamTrial>& trials = point.trials[traffic];
  const auto repeat = [&](StreamTrial& trial) { bench.repeat(traffic, trial); };
  bench.begin(traffic, point.footprint);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (i >= point.suggested[traffic] && watch.seconds() > overrun * seconds) break;
    repeat(trials[i]);
  }
  std::vector<StreamTrial*> order;
  for (StreamTrial& trial : trials) order.push_back(&trial);
  for (std::size_t slot = 0; watch.seconds() < seconds; ++slot) {
    if (slot % 4 == 3) {
      repeat(trials[slot / 4 % trials.size()]);
      continue;
    }
    std::nth_element(order.begin(), order.begin() + 1, order.end(),
                     [](const StreamTrial* a, const StreamTrial* b) { return a->gb_s > b->gb_s; });
    repeat(*order[slot % 4 == 2 ? 1 : 0]);
  }
}

void measure(StreamBench& bench, Point& point, double seconds) {
  for (Traffic traffic : traffics) measure(bench, point, traffic, seconds / traffics.size());
}

// How far bandwidth falls between neighbours, over all loops, in log units.
double fall(const Point& left, const Point& right) {
  double sum = 0;
  for (Traffic traffic : traffics) {
    const double ratio = left.best(traffic).gb_s / right.best(traffic).gb_s;
    sum += std::max(0.0, std::log(ratio));
  }
  return sum;
}

// The footprint in the geometric middle of the steepest step; 0 when no step can be halved.
std::size_t middle_of_steepest(const std::vector<Point>& points, std::size_t unit) {
  double steepest = -1;
  std::size_t middle = 0;
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const auto low = static_cast<double>(points[i].footprint);
    const auto high = static_cast<double>(points[i + 1].footprint);
    // Closer than 12 % says nothing more: sets and pages blur a cache's end by as much.
    if (high / low < 1.12 * 1.12) continue;
    const std::size_t between = round_down(static_cast<std::size_t>(std::sqrt(low * high)), unit);
    const double here = fall(points[i], points[i + 1]);
    if (here > steepest && between > points[i].footprint) {
      steepest = here;
      middle = between;
    }
  }
  return middle;
}

// Points that a larger footprint outran by more than 2 %, measured again until none is left, each
// has had three chances, or the time is over.
void mend_outliers(StreamBench& bench, std::vector<Point>& points, double slot, double seconds) {
  const Stopwatch watch;
  std::vector<std::array<int, 3>> chances(points.size(), {3, 3, 3});
  while (watch.seconds() < seconds) {
    bool mended = false;
    for (Traffic traffic : traffics) {
      double beyond = 0;
      for (std::size_t i = points.size(); i-- > 0 && watch.seconds() < seconds;) {
        if (points[i].best(traffic).gb_s < 0.98 * beyond && chances[i][traffic]-- > 0) {
          measure(bench, points[i], traffic, slot);
          mended = true;
        }
        beyond = std::max(beyond, points[i].best(traffic).gb_s);
      }
    }
    if (!mended) return;
  }
}

// "nt,4 streams, there and back".
std::string describe(const StreamTrial& trial, bool stores) {
  const StreamMethod method = trial.method;
  std::string text = stores ? method.non_temporal ? "nt," : "plain," : "";
  text += method.streams == 1 ? "1 stream" : fmt::format("{} streams", method.streams);
  if (trial.alternates) text += ", there and back";
  return text;
}

BandwidthPoint result_of(const Point& point) {
  BandwidthPoint out;
  out.footprint_bytes = static_cast<double>(point.footprint);
  out.read_gb_s = point.best(reading).gb_s;
  out.write_gb_s = point.best(writing).gb_s;
  out.copy_gb_s = point.best(copying).gb_s;
  out.read_method = describe(point.best(reading), false);
  out.write_method = describe(point.best(writing), true);
  out.copy_method = describe(point.best(copying), true);
  return out;
}

}  // namespace

std::size_t largest_bandwidth_footprint() {
  const std::size_t cache = machine().l3_bytes;
  const std::size_t wanted = std::clamp(4 * cache, 256 * MiB, std::max(1024 * MiB, 2 * cache));
  return std::min(wanted, available_memory_bytes() / 4);
}

BandwidthCurve measure_bandwidth(int threads, std::size_t largest_footprint, double seconds,
                                 const std::function<void(double)>& progress) {
  const Stopwatch watch;
  // Shares are whole pages.
  const std::size_t unit = page_bytes * static_cast<std::size_t>(threads);
  const std::size_t least = smallest_share * static_cast<std::size_t>(threads);
  const std::size_t most =
      round_down(std::max(largest_footprint, MiB * static_cast<std::size_t>(threads)), unit);
  StreamBench bench(threads, most);

  // A fifth of the time is kept for points that must be measured again.
  const double slot = 0.8 * seconds / bandwidth_points;
  std::vector<Point> points;
  const auto add = [&](std::size_t footprint) {
    Point point(footprint, threads);
    const auto place = std::find_if(points.begin(), points.end(), [&](const Point& other) {
      return other.footprint > footprint;
    });
    if (place != points.begin()) point.suggest(*(place - 1));
    measure(bench, point, slot);
    points.insert(place, std::move(point));
    if (progress) progress(0.8 * static_cast<double>(points.size()) / bandwidth_points);
  };
  const double step =
      std::pow(static_cast<double>(most) / static_cast<double>(least), 1.0 / (base_points - 1));
  for (int i = 0; i < base_points; ++i) {
    const double footprint = static_cast<double>(least) * std::pow(step, i);
    add(i + 1 < base_points ? round_down(static_cast<std::size_t>(footprint), unit) : most);
  }
  while (points.size() < bandwidth_points && watch.seconds() < overrun * seconds) {
    const std::size_t middle = middle_of_steepest(points, unit);
    if (middle == 0) break;
    add(middle);
  }
  mend_outliers(bench, points, slot / traffics.size(), seconds - watch.seconds());

  BandwidthCurve curve;
  curve.threads = threads;
  for (const Point& point : points) curve.points.push_back(result_of(point));
  const Machine& m = machine();
  curve.plateaus = find_plateaus(
      curve.points, {static_cast<double>(m.l1d_bytes) * threads,
                     static_cast<double>(m.l2_bytes) * threads, static_cast<double>(m.l3_bytes)});
  if (progress) progress(1);
  return curve;
}

}  // namespace rooflane
