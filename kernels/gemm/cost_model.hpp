// What a schedule costs, whatever multiplies: the constants of the cost model and the terms that
// float32's paths (hwy_cost.cpp) and units (unit_schedule.cpp) have in common. In the way of the
// execution-cache-memory model (Treibig & Hager, 2010) and of the analytical blocking of BLIS (Low
// et al., "Analytical modeling is enough for high-performance BLIS", 2016); it knows no CPU and no
// shape. What the machine is was measured: core/traits.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/model_constants.hpp"
#include "core/traits.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_schedule.hpp"

namespace rooflane::gemm::cost {

// Exponent of the norm that joins times which overlap: 1 would add them, infinity take the longest.
// Fitted as GemmConstants are (core/model_constants.hpp), which have the rest.
inline constexpr double overlap = 3;

// Costs that follow from the instructions.
inline constexpr double store_ops = 2;  // storing an accumulator: one store a cycle
inline constexpr double load_ops = 1;   // adding what c held: two loads a cycle
inline constexpr double sum_ops = 4;    // an accumulator's sum across lanes: four share 16
// A function of the epilogue for a vector: its load, its operation and its store; exp, erf or tanh.
inline constexpr double function_ops = 3, exp_ops = 20;
// Decoding a vector that goes to registers: it is widened and converted; of blocks it is also
// unpacked, scaled and offset.
inline constexpr double decode_ops = 2, decode_block_ops = 5;
// FMA latency, four cycles: a chain of one accumulator, and of two with even and odd k apart.
inline constexpr double latency_ops = 8;
inline constexpr double accumulators_of_two_chains = 8;

inline constexpr double endless = 1e9;  // bytes of a run without end

inline double real(std::int64_t i) { return static_cast<double>(i); }

// Starting and joining a parallel region.
inline double region_of(const Traits& traits) {
  return traits.constants.gemm.region_share * traits.region;
}

// Seconds of one thread: what its core does, and what memory does meanwhile.
struct Times {
  double core = 0;
  double within_l2 = 0;  // traffic of L1 and L2
  double beyond_l2 = 0;  // traffic of L3 and memory
  double& of(Level level) { return level >= in_l3 ? beyond_l2 : within_l2; }
  double together() const {
    static_assert(overlap == 3);
    const auto cube = [](double x) { return x * x * x; };
    return std::cbrt(cube(core) + cube(within_l2) + cube(beyond_l2));
  }
};

// The time of `tasks` tasks until the last thread is done, in units of the largest task; their mean
// is `mean` of the largest. The last thread is later than the others because the tasks do not
// divide by the threads, or because it is slower: more so if a slow thread has tasks of its own.
inline double until_last(double tasks, double mean, int threads, bool fixed, const Traits& traits) {
  if (threads == 1) return tasks * mean;
  const double each = std::max(1.0, tasks / threads), most = std::ceil(each);
  const double jitter = traits.constants.gemm.jitter_share * traits.jitter;
  const double own = fixed ? (1 - 1 / each) * jitter : 0;
  // Few tasks do not even out.
  const double size = 1 - (1 - mean) * (1 - 1 / each);
  return size * each + std::max(most - each, jitter + own);
}

// c of all batches, to be cut into tasks: rows × cols in steps of row_step × col_step, which no cut
// divides, in at most so many parts.
struct Grid {
  std::int64_t batches, rows, row_step, most_rows, cols, col_step, most_cols;
  int threads;
  bool small_squares = false;  // tasks may be many, and are nearly square
  bool runs = false;           // uncut, batches are tasks in runs of neighbours
  friend bool operator==(const Grid&, const Grid&) = default;

  std::int64_t uncut_tasks() const {
    if (!runs) return batches;
    return threads == 1 ? 1 : std::min<std::int64_t>(batches, std::int64_t{4} * threads);
  }
  // What part of all work passes, dynamically scheduled, until the last thread is done.
  double until_last(std::int64_t m_parts, std::int64_t n_parts, std::int64_t k_parts,
                    const Traits& traits) const {
    const std::int64_t parts = m_parts * n_parts * k_parts;
    if (parts == 1) {
      const double tasks = real(uncut_tasks());
      return std::ceil(real(batches) / tasks) / real(batches) *
             cost::until_last(tasks, 1, threads, false, traits);
    }
    double largest = 1, mean = 1;
    const auto cut = [&](std::int64_t total, std::int64_t step, std::int64_t into) {
      const std::int64_t steps = (total + step - 1) / step, most = (steps + into - 1) / into;
      largest *= real(most) / real(steps);
      mean *= std::min(1.0, real(total) / real(into * std::min(total, most * step)));
    };
    cut(rows, row_step, m_parts);
    cut(cols, col_step, n_parts);
    return largest / real(k_parts * batches) *
           cost::until_last(real(parts * batches), mean, threads, false, traits);
  }
};

struct Cut {
  std::int64_t m_parts, n_parts;
  double last;  // Grid::until_last
};

// The cuts worth trying of grids that many schedules share, the one that is done first in front:
// uncut where batches are enough, and rows and columns in all ways that multiply to one, two or
// four tasks a thread; small squares also to 8 and 16.
class Cuts {
 public:
  const std::vector<Cut>& of(const Grid& grid, const Traits& traits) {
    for (const auto& [known, cuts] : known_) {
      if (known == grid) return cuts;
    }
    return known_.emplace_back(grid, cuts_of(grid, traits)).second;
  }

 private:
  static std::vector<Cut> cuts_of(const Grid& grid, const Traits& traits) {
    std::vector<Cut> cuts;
    const auto add = [&](std::int64_t m, std::int64_t n) {
      m = std::min(m, grid.most_rows), n = std::min(n, grid.most_cols);
      const bool tried = std::any_of(cuts.begin(), cuts.end(), [&](const Cut& cut) {
        return cut.m_parts == m && cut.n_parts == n;
      });
      if (!tried) cuts.push_back({m, n, grid.until_last(m, n, 1, traits)});
    };
    if (grid.batches >= grid.threads) add(1, 1);
    for (std::int64_t per_thread = 1; grid.threads > 1 && per_thread <= 16; per_thread *= 2) {
      if (per_thread > 4 && !grid.small_squares) break;
      const std::int64_t parts = (per_thread * grid.threads + grid.batches - 1) / grid.batches;
      for (std::int64_t m = 1; m <= parts; ++m) {
        if (parts % m != 0) continue;
        const std::int64_t n = parts / m;
        const double height = std::ceil(real(grid.rows) / real(m));
        const double width = std::ceil(real(grid.cols) / real(n));
        if (grid.small_squares && (height > 4 * width || width > 4 * height)) continue;
        add(m, n);
      }
    }
    std::stable_sort(cuts.begin(), cuts.end(),
                     [](const Cut& x, const Cut& y) { return x.last < y.last; });
    return cuts;
  }

  std::deque<std::pair<Grid, std::vector<Cut>>> known_;
};

// The constants are members: terms name them.
class Costs : protected GemmConstants {
 protected:
  Costs(const Schedule& s, const Gemm& g, double lanes, const Traits& traits)
      : GemmConstants(traits.constants.gemm),
        s_(s),
        g_(g),
        traits_(traits),
        rates_(s.threads > 1 ? traits.many : traits.one),
        lanes_(lanes),
        op_(2 * lanes / rates_.fma),
        l1_(cache_share * real(traits.l1_bytes)),
        l2_(cache_share * real(traits.l2_bytes)) {}

  double ops(double count) const { return count * op_; }
  double begin() const { return ops(call_ops) + (s_.threads > 1 ? region_of(traits_) : 0); }

  // The epilogue of all of c, shared among so many tasks.
  double epilogue(double tasks) const {
    const double of_vector = function_ops * real(static_cast<std::int64_t>(g_.epilogue.count)) +
                             exp_ops * exps_of(g_.epilogue);
    const double vectors = real(g_.batch) * real(g_.m) * real(g_.n) / lanes_;
    return ops(of_vector * vectors) / std::min(std::max(tasks, 1.0), real(s_.threads));
  }

  // The level that holds so many bytes of each thread.
  Level level(double bytes) const {
    if (bytes <= l1_) return in_l1;
    if (bytes <= l2_) return in_l2;
    return bytes * s_.threads <= cache_share * real(traits_.l3_bytes) ? in_l3 : in_memory;
  }
  Level beyond_l1(double bytes) const { return std::max(in_l2, level(bytes)); }
  double read(double bytes, Level from, double run = endless) const {
    return bytes * (1 + (from >= in_l3 ? lead_bytes / run : 0)) / rates_.read[from];
  }
  // Bytes that L1 takes from L2 again, over those of `rows` rows of floats, `row` floats apart,
  // that are read side by side, so many floats at a time. Rows that lie at the same place of a page
  // meet in one set of L1: more of them than it has ways, of 4 KiB each, evict each other before a
  // line is used up.
  double evicted_lines(double rows, std::int64_t row, double at_once) const {
    const double places = real(page_bytes / std::gcd(page_bytes, float_bytes * row));
    const double over = rows / places / (real(traits_.l1_bytes) / real(page_bytes)) - 1;
    return std::clamp(over, 0.0, 1.0) * std::max(0.0, 16 / at_once - 1);
  }
  // The part of a cache with ways of so many bytes that `width` floats of each row of `row` floats
  // can use: rows in place may compete for few of its places.
  static double usable(std::int64_t way, std::int64_t row, double width) {
    const std::int64_t stride = std::gcd(way, float_bytes * row);
    return std::min(1.0, std::max(64.0, 4 * width) / real(stride));
  }
  std::int64_t l2_way() const { return traits_.l2_bytes / 16; }
  // Pages that `width` floats of each of so many rows touch; the page walks when an inner loop
  // comes to so many pages at once: none where they are all translated already.
  static double pages(double rows, double width, std::int64_t row) {
    return rows * std::min(1 + 4 * width / real(page_bytes), 4 * real(row) / real(page_bytes));
  }
  double page_walks(double at_once) const {
    return std::clamp(2 * at_once / traits_.pages - 1, 0.0, 1.0) * at_once;
  }
  double write(double bytes, Level to) const { return bytes / rates_.write[to]; }

  // Lines that another core wrote and still holds.
  double taken(double bytes) const {
    return s_.threads == 1 ? 0
                           : taken_share * bytes * (1 - 1.0 / s_.threads) / rates_.write[in_memory];
  }
  // Those of c that another core wrote last time.
  double dirty(double bytes) const {
    const double all = 4 * real(g_.batch) * real(g_.m) * real(g_.n);
    return s_.fixed || all > l2_ * s_.threads ? 0 : taken(bytes);
  }

  // A transposed copy, in blocks of four vectors.
  double transposed(double rows, double cols) const {
    const double blocks = std::min(std::ceil(rows / lanes_) * std::ceil(cols / 4),
                                   std::ceil(rows / 4) * std::ceil(cols / lanes_));
    return blocks * 4 * (4 * lanes_ / traits_.transpose + ops(block_ops) / lanes_);
  }
  // `stored` bytes of operands become rows × cols words in micro-panels `width` wide.
  double copy(double stored, double rows, double cols, double width, bool transposes, Level to,
              Level from) const {
    const double panels = std::ceil(cols / width);
    const double plain = read(stored, from) + 4 * rows * cols / rates_.write[std::min(to, in_l3)];
    if (transposes) {
      const double whole = std::floor(cols / width), left = cols - whole * width;
      return std::max(whole * transposed(rows, width) + transposed(rows, left), plain);
    }
    return ops(rows * panels * vector_ops) + plain;
  }

  // So many tasks of all threads. The largest takes `time`, and their mean is `mean` of that.
  double of_tasks(double tasks, double time, double mean = 1) const {
    if (s_.threads == 1) return tasks * (mean * time + ops(call_ops));
    return time * until_last(tasks, mean, s_.threads, s_.fixed, traits_) +
           std::ceil(std::max(1.0, tasks / s_.threads)) * (ops(call_ops) + traits_.task);
  }

  const Schedule& s_;
  const Gemm& g_;
  const Traits& traits_;
  const Traits::Rates& rates_;
  const double lanes_;
  const double op_;           // seconds of a vector's multiply-add
  const double l1_, l2_;      // bytes of them that are reused
  Level source_ = in_memory;  // where operands are found that one run after the other reads
};

// Schedules with the time that each is predicted to take: all of them, or the best alone.
class Ranking {
 public:
  Ranking() = default;
  static Ranking best_below(double seconds = std::numeric_limits<double>::infinity()) {
    Ranking ranking;
    ranking.keeps_all_ = false;
    ranking.best_seconds_ = seconds;
    return ranking;
  }
  void add(const Schedule& schedule, double seconds) {
    if (seconds < best_seconds_) best_ = schedule, best_seconds_ = seconds;
    if (keeps_all_) list_.push_back({schedule, seconds});
  }
  bool only_best() const { return !keeps_all_; }
  // Whether a schedule that takes at least so long need not be predicted.
  bool needless(double least_seconds) const {
    return !keeps_all_ && least_seconds >= best_seconds_;
  }
  // Numbers of threads in the order to try them: one, as most that it has are quickly predicted,
  // then all, half of them and so on.
  static std::vector<int> thread_counts(int most) {
    std::vector<int> counts = {1};
    for (int threads = most; threads > 1;
         threads = static_cast<int>(std::bit_floor(static_cast<unsigned>(threads - 1)))) {
      counts.push_back(threads);
    }
    return counts;
  }
  // Whether no schedule of a product of so many threads can be the best: they take longer at their
  // peak, in operations/s of each.
  bool hopeless(const Gemm& g, int threads, double peak, const Traits& traits) const {
    const double operations = 2 * real(g.batch) * real(g.m) * real(g.n) * real(g.k);
    return operations / (threads * peak) + (threads > 1 ? region_of(traits) : 0) > best_seconds_;
  }
  const std::optional<Schedule>& best() const { return best_; }
  // Least predicted time first.
  std::vector<Schedule> sorted() {
    std::stable_sort(list_.begin(), list_.end(),
                     [](const Ranked& x, const Ranked& y) { return x.seconds < y.seconds; });
    std::vector<Schedule> schedules;
    schedules.reserve(list_.size());
    for (const Ranked& ranked : list_) schedules.push_back(ranked.schedule);
    return schedules;
  }
  // The first 40 of these, of those that are alike only so many.
  template <class KindOf>
  std::vector<Schedule> varied(int of_a_kind, const KindOf& kind_of) {
    constexpr std::size_t most = 40;
    std::vector<Schedule> schedules;
    std::map<decltype(kind_of(Schedule())), int> kinds;
    for (const Schedule& schedule : sorted()) {
      // Blocks of other sizes may come to the same once they are rounded.
      if (std::find(schedules.begin(), schedules.end(), schedule) != schedules.end()) continue;
      if (kinds[kind_of(schedule)]++ >= of_a_kind) continue;
      schedules.push_back(schedule);
      if (schedules.size() == most) break;
    }
    return schedules;
  }

 private:
  struct Ranked {
    Schedule schedule;
    double seconds;
  };
  bool keeps_all_ = true;
  std::vector<Ranked> list_;
  std::optional<Schedule> best_;
  double best_seconds_ = std::numeric_limits<double>::infinity();
};

}  // namespace rooflane::gemm::cost
