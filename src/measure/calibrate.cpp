// The rounds that measure traits. See calibrate.hpp.
#include "measure/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/statistics.hpp"
#include "core/stopwatch.hpp"
#include "measure/bandwidth.hpp"
#include "measure/fma_peak.hpp"
#include "measure/stream_bench.hpp"
#include "measure/transpose_loop.hpp"
#include "measure/unit_peak.hpp"

namespace rooflane {
namespace {

// The part of the time that finding the end of the last cache may take, before all else: where it
// ends decides about the footprints of the others.
constexpr double knee_share = 0.3;
// Footprints in search of that end, an octave. Closer ones say nothing more, since sets and pages
// blur a cache's end by an eighth.
constexpr int knee_steps = 3;
// Beyond L2 from this multiple of it on: a cache keeps a part of an array little larger than it.
constexpr double beyond_l2 = 1.5;
// A figure's least time in a round. Several of the loops' repeats (0.1 to 1 ms each in caches), yet
// many rounds.
constexpr double turn_s = 0.004;

// --- one loop at one footprint -------------------------------------------------------------------

// Reads or writes by plain or non-temporal accesses, always in the same direction, like a kernel
// that does not walk back.
struct StreamFigure {
  StreamFigure(StreamBench& of, Traffic what, bool non_temporal, std::size_t bytes,
               std::initializer_list<int> streams = {1, 4, 8})
      : bench(&of), traffic(what), footprint(bytes) {
    for (int count : streams) trials.push_back({{count, non_temporal}, false});
  }

  void measure() {
    bench->begin(traffic, footprint);
    const Stopwatch watch;
    do {
      for (StreamTrial& trial : trials) {
        bench->repeat(traffic, trial);
        best = std::max(best, trial.gb_s * 1e9);
      }
    } while (watch.seconds() < turn_s);
  }

  StreamBench* bench;
  Traffic traffic;
  std::size_t footprint;
  std::vector<StreamTrial> trials;
  double best = 0;  // bytes/s of all threads
};

// The whole pages of each thread next below a footprint, at least one.
std::size_t in_pages(double footprint, int threads) {
  const std::size_t unit = page_bytes * static_cast<std::size_t>(threads);
  return std::max(unit, round_down(static_cast<std::size_t>(footprint), unit));
}

// --- rounds --------------------------------------------------------------------------------------

struct CalibrationStep {
  std::string what;
  std::function<void()> run;
};

// Runs all steps one after another until `seconds` have passed, at least once.
class Rounds {
 public:
  explicit Rounds(const CalibrateRequest& request) : request_(request) {}

  void run(const std::vector<CalibrationStep>& steps, double until) {
    for (bool first = true; first || watch_.seconds() < until; first = false) {
      for (const CalibrationStep& step : steps) {
        if (!first && watch_.seconds() >= until) return;
        if (request_.progress) {
          request_.progress(std::min(1.0, watch_.seconds() / request_.seconds), step.what);
        }
        step.run();
      }
    }
  }

 private:
  const CalibrateRequest& request_;
  Stopwatch watch_;
};

// --- the figures ---------------------------------------------------------------------------------

// Everything measured at one number of threads.
struct Side {
  Side(int count, std::size_t largest) : threads(count), bench(count, largest) {}

  int threads;
  StreamBench bench;
  std::vector<double> fma;    // flop/s of all threads, by target
  std::vector<double> units;  // operations/s of all threads
  // Read and write of each level, then the stores past them, then the copies.
  std::vector<StreamFigure> figures;

  void add_figures(const double (&footprints)[levels]) {
    for (double footprint : footprints) {
      for (Traffic traffic : {reading, writing}) {
        figures.emplace_back(bench, traffic, false, in_pages(footprint, threads));
      }
    }
    const std::size_t memory = in_pages(footprints[in_memory], threads);
    figures.emplace_back(bench, writing, true, memory);
    for (int places : {1, 4}) {
      figures.emplace_back(bench, copying, true, memory, std::initializer_list<int>{places});
    }
    figures.emplace_back(bench, copying, false, in_pages(footprints[in_l3], threads));
  }

  // Per thread.
  Traits::Rates rates() const {
    Traits::Rates rates;
    for (int level = levels - 1; level >= 0; --level) {
      const auto i = static_cast<std::size_t>(level) * 2;
      rates.read[level] = figures[i].best / threads;
      rates.write[level] = figures[i + 1].best / threads;
      // The rate of a larger footprint does not limit a smaller one.
      if (level + 1 == levels) continue;
      rates.read[level] = std::max(rates.read[level], rates.read[level + 1]);
      rates.write[level] = std::max(rates.write[level], rates.write[level + 1]);
    }
    constexpr std::size_t beyond = 2 * static_cast<std::size_t>(levels);
    rates.stream = figures[beyond].best / threads;
    for (std::size_t copy = 0; copy < copies; ++copy) {
      rates.copy[copy] = figures[beyond + 1 + copy].best / threads;
    }
    return rates;
  }
};

// Units for short operands that this CPU has.
std::vector<UnitLoop> units_here(const std::string& isa) {
  std::vector<UnitLoop> list;
  if (const auto pairs = pair_loop(resolve_isa(isa))) list.push_back(*pairs);
  for (const UnitLoop& unit : unit_loops()) {
    if (!unit.missing()) list.push_back(unit);
  }
  return list;
}

void add_steps(Side& side, const std::vector<std::string>& isas, const std::vector<UnitLoop>& units,
               std::vector<CalibrationStep>& steps) {
  const std::string count =
      side.threads == 1 ? "1 thread" : fmt::format("{} threads", side.threads);
  side.fma.assign(isas.size(), 0);
  for (std::size_t i = 0; i < isas.size(); ++i) {
    steps.push_back({fmt::format("FMA peak at {}, {}", isas[i], count), [&side, &isas, i] {
                       const double gflops =
                           measure_fma_gflops(resolve_isa(isas[i]), side.threads, turn_s);
                       side.fma[i] = std::max(side.fma[i], gflops * 1e9);
                     }});
  }
  side.units.assign(units.size(), 0);
  for (std::size_t i = 0; i < units.size(); ++i) {
    steps.push_back({fmt::format("{} in registers, {}", units[i].path, count), [&side, &units, i] {
                       const double giga = measure_unit_gflops(units[i], side.threads, turn_s);
                       side.units[i] = std::max(side.units[i], giga * 1e9);
                     }});
  }
  for (StreamFigure& figure : side.figures) {
    steps.push_back({fmt::format("bandwidth, {}", count), [&figure] { figure.measure(); }});
  }
}

// Bytes/s that a transposed copy reads, its two squares together half of L2.
class Transposition {
 public:
  explicit Transposition(std::int64_t l2_bytes) {
    const auto elements = static_cast<double>(l2_bytes) / 4 / sizeof(float);
    // An odd multiple of 16, the loop's unit: rows do not meet in the same cache sets.
    n_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::sqrt(elements)) / 16);
    n_ = (n_ % 2 == 0 ? n_ - 1 : n_) * 16;
    const std::size_t bytes = static_cast<std::size_t>(n_ * n_) * sizeof(float);
    from_ = Buffer(bytes);
    to_ = Buffer(bytes);
    std::fill_n(from_.f32(), n_ * n_, 1.0f);
    std::fill_n(to_.f32(), n_ * n_, 0.0f);
  }

  void measure() {
    constexpr int passes = 16;  // of 10 to 50 µs
    const Stopwatch watch;
    do {
      const double ns = together_.run_ns([&](int) {
        for (int pass = 0; pass < passes; ++pass) {
          transpose_square(from_.f32(), n_, to_.f32());
          keep(*to_.f32());
        }
      });
      best = std::max(best, passes * static_cast<double>(n_ * n_) * sizeof(float) / (ns * 1e-9));
    } while (watch.seconds() < turn_s);
  }

  double best = 0;

 private:
  std::int64_t n_;
  Buffer from_, to_;
  Together together_{1};
};

// Regions with nothing to do, one after the other, and tasks with nothing to do.
class Regions {
 public:
  explicit Regions(int threads) : threads_(threads) {}

  void measure() {
    const auto nothing = [](std::int64_t, int) {};
    const auto time = [&](std::int64_t tasks) {
      const Stopwatch watch;
      parallel_for(nullptr, threads_, tasks, nothing);
      return watch.seconds();
    };
    const Stopwatch turn;
    do {
      for (int i = 0; i < regions_each; ++i) regions_.push_back(time(threads_));
      tasks_.push_back(time(many_tasks) / many_tasks);
    } while (turn.seconds() < turn_s);
  }

  double region() const { return threads_ > 1 ? median(regions_) : 0; }
  double task() const { return median(tasks_); }

 private:
  static constexpr int regions_each = 100;
  // Their region is a thousandth of the whole.
  static constexpr std::int64_t many_tasks = 10'000;

  int threads_;
  std::vector<double> regions_, tasks_;  // s
};

// Equal work of all threads at once.
class Evenness {
 public:
  Evenness(int threads, const std::string& isa)
      : ended_(static_cast<std::size_t>(threads)), loop_(fma_loop(resolve_isa(isa))) {}

  void measure() {
    constexpr std::int64_t steps = 200'000;  // 0.2 to 0.6 ms
    const auto threads = static_cast<int>(ended_.size());
    const Stopwatch turn;
    do {
      parallel_region(nullptr, threads, [&](const Team& team) {
        team.barrier();
        const Stopwatch watch;
        keep(loop_.run(steps, 0.5f, 1.0f));
        ended_[static_cast<std::size_t>(team.thread)].seconds = watch.seconds();
      });
      double sum = 0, last = 0;
      for (const Ended& thread : ended_) {
        sum += thread.seconds;
        last = std::max(last, thread.seconds);
      }
      later_.push_back(last * threads / sum - 1);
    } while (turn.seconds() < turn_s);
  }

  double jitter() const { return ended_.size() > 1 ? median(later_) : 0; }

 private:
  struct alignas(64) Ended {
    double seconds = 0;
  };
  std::vector<Ended> ended_;
  FmaLoop loop_;
  std::vector<double> later_;  // the last one's time over the mean, less 1
};

// Reading a line of each of so many pages, over and over: rows of a matrix that lie pages apart.
class Pages {
 public:
  Pages() : memory_(counts.back() * page_bytes), best_(counts.size(), 1) {
    std::fill_n(memory_.f32(), memory_.bytes() / sizeof(float), 1.0f);
  }

  void measure() {
    constexpr std::size_t reads = 20'000;
    const Stopwatch turn;
    do {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::size_t passes = std::max<std::size_t>(1, reads / counts[i]);
        const Stopwatch watch;
        float sum = 0;
        for (std::size_t pass = 0; pass < passes; ++pass) sum += read(counts[i]);
        keep(sum);
        best_[i] = std::min(best_[i], watch.seconds() / static_cast<double>(passes * counts[i]));
      }
    } while (turn.seconds() < turn_s);
  }

  // s that a page takes beyond what the fewest take.
  double walk() const { return std::max(0.0, best_.back() - best_.front()); }
  // As many as take half of that.
  double reach() const {
    std::size_t i = 0;
    while (i + 2 < counts.size() && best_[i + 1] < best_.front() + walk() / 2) ++i;
    const double share =
        (best_.front() + walk() / 2 - best_[i]) / std::max(1e-12, best_[i + 1] - best_[i]);
    return static_cast<double>(counts[i]) +
           std::clamp(share, 0.0, 1.0) * static_cast<double>(counts[i + 1] - counts[i]);
  }

 private:
  // The fewest fill L1 with lines, the most, half of the smallest L2.
  static constexpr std::array<std::size_t, 7> counts = {768, 1024, 1536, 2048, 3072, 4096, 6144};

  float read(std::size_t pages) const {
    // Lines of neighbours are in sets of their own.
    const float* line = memory_.f32();
    float sum[4] = {};
    for (std::size_t page = 0; page < pages; page += 4) {
      for (std::size_t i = 0; i < 4; ++i) {
        sum[i] += line[(page + i) * (page_bytes / sizeof(float)) + (page + i) % 64 * 16];
      }
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
  }

  Buffer memory_;
  std::vector<double> best_;  // s a page
};

// As far as all threads find the last cache fast: at most what is reported, at least their L2.
std::int64_t measure_last_level(Rounds& rounds, Side& all, std::size_t largest,
                                const Traits& reported, double until) {
  std::vector<StreamFigure> figures;
  const double first = beyond_l2 * static_cast<double>(reported.l2_bytes) * all.threads;
  const double octaves = std::log2(static_cast<double>(largest) / first);
  for (int i = 0; i < octaves * knee_steps; ++i) {
    const double bytes = first * std::exp2(static_cast<double>(i) / knee_steps);
    figures.emplace_back(all.bench, reading, false, in_pages(bytes, all.threads));
  }
  figures.emplace_back(all.bench, reading, false, largest);
  std::vector<CalibrationStep> steps;
  for (StreamFigure& figure : figures) {
    // One of the loops finds a cache's end as well as three.
    figure.trials.resize(1);
    steps.push_back({"the end of the last cache", [&figure] { figure.measure(); }});
  }
  rounds.run(steps, until);
  std::vector<ReadPoint> points;
  points.reserve(figures.size());
  for (const StreamFigure& figure : figures) {
    points.push_back({static_cast<double>(figure.footprint), figure.best});
  }
  const double knee = find_read_knee(points);
  std::int64_t bytes = reported.l3_bytes;
  if (knee > 0) bytes = std::min(bytes, static_cast<std::int64_t>(knee));
  return std::max(bytes, reported.l2_bytes * all.threads);
}

// Footprints well inside each level: half of L1 and of L2, between L2 and the last level's end, and
// far beyond it.
void add_figures(Side& side, const Traits& sizes, std::size_t largest) {
  const double l2 = static_cast<double>(sizes.l2_bytes) * side.threads;
  const double l3 = std::max(beyond_l2 * l2, std::sqrt(l2 * static_cast<double>(sizes.l3_bytes)));
  const double footprints[levels] = {static_cast<double>(sizes.l1_bytes) * side.threads / 2, l2 / 2,
                                     std::min(l3, static_cast<double>(largest)),
                                     static_cast<double>(largest)};
  side.add_figures(footprints);
}

// What each of several threads reached one alone reaches too.
void raise(Traits::Rates& one, const Traits::Rates& many) {
  for (int level = 0; level < levels; ++level) {
    one.read[level] = std::max(one.read[level], many.read[level]);
    one.write[level] = std::max(one.write[level], many.write[level]);
  }
  one.stream = std::max(one.stream, many.stream);
  for (int copy = 0; copy < copies; ++copy) {
    one.copy[copy] = std::max(one.copy[copy], many.copy[copy]);
  }
}

// All threads' rates were measured until the last one was done. For the private parts of a core the
// mean of the threads counts, since tasks go to free threads. That mean falls like the rate of
// FMAs; a lower rate means that a neighbour in the same cache interfered.
void take_mean(Traits::Rates& many, const Traits::Rates& one, double jitter) {
  for (int level = in_l1; level <= in_l2; ++level) {
    const auto mean = [&](double alone, double until_last) {
      return std::min(alone, std::max(until_last * (1 + jitter), alone * many.fma / one.fma));
    };
    many.read[level] = mean(one.read[level], many.read[level]);
    many.write[level] = mean(one.write[level], many.write[level]);
  }
  many.read[in_l3] = std::min(one.read[in_l3], many.read[in_l3] * (1 + jitter));
  many.write[in_l3] = std::min(one.write[in_l3], many.write[in_l3] * (1 + jitter));
}

// The peak of one thread, and of each of all threads: their mean, as for memory's rates.
Traits::Peak peak_of(double one, double all, int threads, double jitter) {
  const double many = all / threads;
  return {std::max(one, many), std::min(std::max(one, many), many * (1 + jitter))};
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

}  // namespace

double find_read_knee(std::span<const ReadPoint> points) {
  if (points.size() < 2) return 0;
  std::vector<double> best(points.size());
  double beyond = 0;
  for (std::size_t i = points.size(); i-- > 0;) {
    beyond = std::max(beyond, points[i].rate);
    best[i] = beyond;
  }
  if (best.front() < 1.25 * best.back()) return 0;
  const double middle = std::sqrt(best.front() * best.back());
  std::size_t i = 0;
  while (best[i + 1] >= middle) ++i;
  const double share = std::log(best[i] / middle) / std::log(best[i] / best[i + 1]);
  return points[i].footprint_bytes *
         std::pow(points[i + 1].footprint_bytes / points[i].footprint_bytes, share);
}

MeasuredTraits calibrate(const CalibrateRequest& request) {
  if (request.threads < 1) {
    throw argument_error(fmt::format("threads {}: at least 1", request.threads));
  }
  const std::vector<std::string> isas = isa_targets();
  const std::vector<UnitLoop> units = units_here(isas.front());
  MeasuredTraits out;
  out.machine = machine_key(machine());
  out.isa = isas.front();
  Traits& traits = out.at_isa;
  traits = derived_traits(machine(), out.isa, request.threads);
  traits.origin.clear();

  Rounds rounds(request);
  const bool several = request.threads > 1;
  const std::size_t largest =
      in_pages(static_cast<double>(largest_bandwidth_footprint()), request.threads);
  Side one(1, largest);
  const auto all = several ? std::make_unique<Side>(request.threads, largest) : nullptr;
  traits.l3_bytes = measure_last_level(rounds, several ? *all : one, largest, traits,
                                       knee_share * request.seconds);

  Transposition transposition(traits.l2_bytes);
  Regions regions(request.threads);
  Evenness evenness(request.threads, out.isa);
  Pages pages;
  std::vector<CalibrationStep> steps;
  for (Side* side : {&one, all.get()}) {
    if (side == nullptr) continue;
    add_figures(*side, traits, largest);
    add_steps(*side, isas, units, steps);
  }
  steps.push_back({"transposed copy", [&] { transposition.measure(); }});
  steps.push_back({"parallel regions and tasks", [&] { regions.measure(); }});
  steps.push_back({"equal work of all threads", [&] { evenness.measure(); }});
  steps.push_back({"rows pages apart", [&] { pages.measure(); }});
  rounds.run(steps, request.seconds);

  out.date = now_utc();
  traits.one = one.rates();
  traits.many = several ? all->rates() : traits.one;
  traits.jitter = evenness.jitter();
  const Side& last = several ? *all : one;
  for (std::size_t i = 0; i < isas.size(); ++i) {
    out.fma[isas[i]] = peak_of(one.fma[i], last.fma[i], request.threads, traits.jitter);
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    traits.units[units[i].path] =
        peak_of(one.units[i], last.units[i], request.threads, traits.jitter);
  }
  traits.one.fma = out.fma[out.isa].one;
  traits.many.fma = out.fma[out.isa].many;
  raise(traits.one, traits.many);
  if (several) take_mean(traits.many, traits.one, traits.jitter);
  traits.transpose = transposition.best;
  traits.region = regions.region();
  traits.task = regions.task();
  traits.pages = pages.reach();
  traits.page_walk = pages.walk();
  return out;
}

}  // namespace rooflane
