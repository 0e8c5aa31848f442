// The timed bandwidth curve. The loops themselves: stream_loops.cpp; the levels in the curve:
// plateaus.cpp.
#include "measure/bandwidth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "measure/plateaus.hpp"
#include "measure/stream_loops.hpp"
#include "measure/together.hpp"

namespace rooflane {
namespace {

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
constexpr std::size_t page_bytes = 4 * KiB;
constexpr std::size_t huge_page_bytes = 2 * MiB;

// The first point, per thread: half of the smallest L1 in use (32 KiB), and still 32 iterations of
// the loops, so that their start does not count.
constexpr std::size_t smallest_share = 16 * KiB;
constexpr int base_points = bandwidth_points * 2 / 3;

// Each thread moves at least this much per repeat: 60 µs in the fastest L1 (500 GB/s), where
// meeting at the barrier costs well below 1 µs; beyond it one pass is a repeat.
constexpr std::size_t bytes_per_repeat = 32 * MiB;

enum Traffic : std::size_t { reading, writing, copying };
constexpr std::array traffics = {reading, writing, copying};

std::size_t round_down(std::size_t bytes, std::size_t unit) { return bytes / unit * unit; }
std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return round_down(bytes + unit - 1, unit);
}

// The best of one loop at one footprint, per method.
struct Trial {
  StreamMethod method;
  double gb_s = 0;
};

std::vector<Trial> trials_of(Traffic traffic) {
  std::vector<Trial> trials;
  for (bool non_temporal : {false, true}) {
    if (non_temporal && traffic == reading) continue;
    for (int streams : {1, 4, 8}) trials.push_back({{streams, non_temporal}, 0});
  }
  return trials;
}

// One footprint's figures: every loop's methods, the best first once settled.
struct Point {
  std::size_t footprint = 0;
  std::array<std::vector<Trial>, 3> trials = {trials_of(reading), trials_of(writing),
                                              trials_of(copying)};

  const Trial& best(Traffic traffic) const {
    return *std::max_element(trials[traffic].begin(), trials[traffic].end(),
                             [](const Trial& a, const Trial& b) { return a.gb_s < b.gb_s; });
  }
};

// The arrays of all threads and the timing of one loop on them.
class Bench {
 public:
  Bench(int threads, std::size_t largest_footprint)
      : together_(threads),
        slab_(round_up(largest_footprint / static_cast<std::size_t>(threads) + 2 * page_bytes,
                       huge_page_bytes)),
        memory_(slab_ * static_cast<std::size_t>(threads)) {
    together_.run_ns([&](int thread) { std::memset(slab(thread), 1, slab_); });
  }

  // GB/s of all threads together in one repeat; 0 when the footprint is too small for the method.
  double repeat(Traffic traffic, std::size_t footprint, StreamMethod method) {
    const StreamLoops& loops = stream_loops();
    const auto threads = static_cast<std::size_t>(together_.threads());
    const std::size_t share = footprint / threads;
    const std::size_t passes = std::max<std::size_t>(1, bytes_per_repeat / share);
    std::size_t touched = 0;  // per thread and pass; the same for all
    const double ns = together_.run_ns([&](int thread) {
      std::byte* x = slab(thread);
      std::size_t moved = 0;
      if (traffic == reading) {
        moved = loops.read(x, share, method, passes);
      } else if (traffic == writing) {
        moved = loops.write(x, share, method, passes);
      } else {
        // Both arrays start at the same place of a page: a load and an older store then differ in
        // their low 12 bits, which some CPUs compare first.
        moved = 2 * loops.copy(x, x + round_up(share / 2, page_bytes), share / 2, method, passes);
      }
      if (thread == 0) touched = moved;
    });
    return static_cast<double>(touched * passes * threads) / ns;
  }

 private:
  std::byte* slab(int thread) {
    return static_cast<std::byte*>(memory_.data()) + slab_ * static_cast<std::size_t>(thread);
  }

  Together together_;
  std::size_t slab_;
  Buffer memory_;
};

// Tries every method once, then spends the rest of `seconds` on the two best in turn.
void measure(Bench& bench, Point& point, Traffic traffic, double seconds) {
  const Stopwatch watch;
  std::vector<Trial>& trials = point.trials[traffic];
  const auto repeat = [&](Trial& trial) {
    trial.gb_s = std::max(trial.gb_s, bench.repeat(traffic, point.footprint, trial.method));
  };
  // An untimed repeat fills the caches; beyond a repeat's bytes there is nothing to fill.
  if (point.footprint < bytes_per_repeat) {
    bench.repeat(traffic, point.footprint, trials.front().method);
  }
  for (Trial& trial : trials) repeat(trial);
  for (std::size_t turn = 0; watch.seconds() < seconds; ++turn) {
    std::nth_element(trials.begin(), trials.begin() + 1, trials.end(),
                     [](const Trial& a, const Trial& b) { return a.gb_s > b.gb_s; });
    repeat(trials[turn % 2]);
  }
}

void measure(Bench& bench, Point& point, double seconds) {
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
void mend_outliers(Bench& bench, std::vector<Point>& points, double slot, double seconds) {
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

std::string describe(StreamMethod method, bool stores) {
  const std::string streams =
      method.streams == 1 ? "1 stream" : fmt::format("{} streams", method.streams);
  return stores ? fmt::format("{},{}", method.non_temporal ? "nt" : "plain", streams) : streams;
}

BandwidthPoint result_of(const Point& point) {
  BandwidthPoint out;
  out.footprint_bytes = static_cast<double>(point.footprint);
  out.read_gb_s = point.best(reading).gb_s;
  out.write_gb_s = point.best(writing).gb_s;
  out.copy_gb_s = point.best(copying).gb_s;
  out.read_method = describe(point.best(reading).method, false);
  out.write_method = describe(point.best(writing).method, true);
  out.copy_method = describe(point.best(copying).method, true);
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
  Bench bench(threads, most);

  // A fifth of the time is kept for points that must be measured again.
  const double slot = 0.8 * seconds / bandwidth_points;
  std::vector<Point> points;
  const auto add = [&](std::size_t footprint) {
    Point point;
    point.footprint = footprint;
    measure(bench, point, slot);
    const auto place = std::find_if(points.begin(), points.end(), [&](const Point& other) {
      return other.footprint > footprint;
    });
    points.insert(place, std::move(point));
    if (progress) progress(0.8 * static_cast<double>(points.size()) / bandwidth_points);
  };
  const double step =
      std::pow(static_cast<double>(most) / static_cast<double>(least), 1.0 / (base_points - 1));
  for (int i = 0; i < base_points; ++i) {
    const double footprint = static_cast<double>(least) * std::pow(step, i);
    add(i + 1 < base_points ? round_down(static_cast<std::size_t>(footprint), unit) : most);
  }
  while (points.size() < bandwidth_points) {
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
