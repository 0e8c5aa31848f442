// Predicts schedules of row kernels. See rows_schedule.hpp.
#include "kernels/common/rows_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/highway.hpp"
#include "core/machine.hpp"
#include "kernels/common/traffic.hpp"

namespace rooflane::common {
namespace {

// Exponents of the norm that joins times which overlap: 1 adds them, infinity takes the longest.
// Work and L2 overlap as out-of-order execution allows; plain stores beyond L2 wait for their
// lines; what is prefetched and streamed overlaps with work again.
constexpr double within_l2_overlap = 2.5, plain_overlap = 1.2, streamed_overlap = 2.5;
// Starting and ending the streaming stores of a row that does not begin and end with a line.
constexpr double streamed_row_ops = 10;
// Calling a plan, and beginning a piece of rows.
constexpr double call_ops = 60, piece_ops = 60;
// The last of several threads is at least this part of its work later than their mean.
constexpr double least_jitter = 0.08;
// A barrier is the end of a region: less than half of a region's time.
constexpr double barrier_share = 0.4;
// What prefetching in another order than the likely one costs, a few per cent: it ranks them.
constexpr double other_prefetch = 1.05;

double real(std::int64_t i) { return static_cast<double>(i); }
double joined(double x, double y, double p) {
  return std::pow(std::pow(x, p) + std::pow(y, p), 1 / p);
}

// How x is best prefetched where y is streamed. By a core that follows pages one by one: alone from
// four pages, with others, which fill the memory's queues anyway, or in short rows into L2. By
// others into an L1 that has room for the distance beside the rows at work, or into L2, where what
// L3 holds comes in time, too, as long as three rows are half of L1.
Prefetch likely_prefetch(const RowShape& shape, const RowWork& work, int threads,
                         const Traits& traits) {
  const std::int64_t three_rows = 3 * 4 * shape.cols;
  if (prefers_pages(traits)) {
    const bool into_l2 = threads > 1 || shape.cols < short_row;
    return into_l2 && three_rows <= traits.l1_bytes ? Prefetch::into_l2 : Prefetch::pages;
  }
  const bool in_time = residence_of(shape.read, threads, traits).memory < 0.5;
  if (in_time && shape.cols >= short_row && 2 * three_rows <= traits.l1_bytes) {
    return Prefetch::into_l2;
  }
  if (traits.l1_bytes >= (48 << 10)) return Prefetch::into_l1;
  return three_rows <= traits.l1_bytes ? Prefetch::into_l2 : work.long_rows;
}

// Vector multiply-adds of a row, or of a part of one.
double ops_of(double cols, const RowWork& work, int lanes) {
  const double whole = work.row_ops + std::ceil(cols / lanes) * work.vector_ops;
  return work.short_ops > 0 ? std::min(whole, work.short_ops * cols * 16 / lanes) : whole;
}

// The last thread's time divided by that of an equal share of all rows. `uneven`: the rows do not
// divide by the threads; `late`: some cores compute more slowly. Memory's rates need no such
// factor, because they were measured until the last thread was done.
struct Lateness {
  double uneven = 1, late = 1;
};
Lateness lateness(const RowSchedule& s, double rows, double pieces, const Traits& traits) {
  if (s.threads == 1) return {};
  const double each = std::max(1.0, pieces / s.threads);
  const double most = s.split ? 1 : std::ceil(each) * std::ceil(rows / pieces) * s.threads / rows;
  return {most, most + std::max(least_jitter, traits.jitter) / each};
}

}  // namespace

RowSchedule::RowSchedule(const Tuning& tuning)
    : stream(tuning.get("stream", 0) != 0),
      split(tuning.get("split", 0) != 0),
      prefetch(prefetch_asked(tuning)),
      threads(static_cast<int>(tuning.get("threads", 1))) {}

Tuning RowSchedule::tuning() const {
  return {{"stream", stream},
          {"split", split},
          {"prefetch", static_cast<std::int64_t>(prefetch)},
          {"threads", threads}};
}

RowShape::RowShape(const Problem& problem)
    : rows(problem.size("rows")),
      cols(problem.size("cols")),
      written(real(problem.dtype("type")->bytes(rows * cols))) {
  read = operand_bytes(problem) - written;
}

double predict(const RowSchedule& s, const RowShape& shape, const RowWork& work,
               const Traits& traits) {
  if (shape.rows == 0 || shape.cols == 0) return 0;
  const Traits::Rates& rates = rates_of(traits, s.threads);
  const double op = 2 * traits.lanes / rates.fma;
  const double rows = real(shape.rows), cols = real(shape.cols);
  const double pieces =
      s.split ? s.threads : real(row_pieces(s.threads, shape.rows, shape.cols, 1));
  double core = rows * op * (s.stream ? streamed_row_ops : 0);
  if (s.split) {
    core += rows * op * (work.row_ops + ops_of(std::ceil(cols / s.threads), work, traits.lanes));
  } else {
    core += rows / s.threads * op * ops_of(cols, work, traits.lanes);
  }
  // A row that no L2 holds is read once more.
  const double row_share = 8 * cols / (s.split ? s.threads : 1);
  const double visits = row_share <= real(traits.l2_bytes) ? 1 : 2;
  const double read = visits * shape.read;
  const Lateness last = lateness(s, rows, pieces, traits);
  core *= last.late;
  double seconds = 0;
  if (s.stream) {
    const Prefetch likely = likely_prefetch(shape, work, s.threads, traits);
    const double memory = streamed_seconds(read, shape.written, s.threads, traits);
    seconds = joined(core, last.uneven * memory, streamed_overlap) *
              (s.prefetch == likely || s.split ? 1 : other_prefetch);
  } else {
    const ByteSeconds memory = plain_seconds(read, shape.written, s.threads, traits);
    seconds = joined(joined(core, last.late * memory.within_l2, within_l2_overlap),
                     last.uneven * memory.beyond_l2, plain_overlap);
  }
  seconds += call_ops * op;
  if (s.threads > 1) {
    seconds += busy_region * traits.region +
               std::ceil(pieces / s.threads) * (traits.task + piece_ops * op);
  }
  if (s.split) seconds += rows * (barrier_share * traits.region + work.row_ops * op);
  return seconds;
}

namespace {

struct Ranked {
  RowSchedule schedule;
  double seconds;
};

// With so many threads, the best for the kernel and for whoever reads its result first.
std::vector<Ranked> ranked(const RowShape& shape, const RowWork& work, int threads,
                           const Traits& traits) {
  std::vector<Ranked> list;
  const double reader = reader_seconds(shape.read, shape.written, threads, traits);
  const auto add = [&](bool stream, bool split, Prefetch prefetch) {
    RowSchedule s;
    s.stream = stream, s.split = split, s.prefetch = prefetch, s.threads = threads;
    list.push_back({s, predict(s, shape, work, traits)});
  };
  for (const bool split : {false, true}) {
    add(false, split, Prefetch::into_l1);
    for (const Prefetch prefetch : {Prefetch::into_l1, Prefetch::pages, Prefetch::into_l2}) {
      // Shares of a row know two ways: pages, and the other.
      if (!split || prefetch != Prefetch::into_l2) add(true, split, prefetch);
    }
  }
  const auto cost = [&](const Ranked& r) { return r.seconds + (r.schedule.stream ? reader : 0); };
  std::stable_sort(list.begin(), list.end(),
                   [&](const Ranked& x, const Ranked& y) { return cost(x) < cost(y); });
  return list;
}

}  // namespace

std::vector<RowSchedule> row_schedules(const RowShape& shape, const RowWork& work, int most_threads,
                                       FunctionRef<const Traits&(int threads)> traits_of) {
  std::vector<std::vector<Ranked>> by_threads;
  for (int threads = std::max(1, most_threads); threads > 0; threads = fewer_threads(threads)) {
    by_threads.push_back(ranked(shape, work, threads, traits_of(threads)));
  }
  std::stable_sort(by_threads.begin(), by_threads.end(), [](const auto& x, const auto& y) {
    return x.front().seconds < y.front().seconds;
  });
  // With the best number of threads all, with others the best.
  std::vector<RowSchedule> list;
  for (const Ranked& r : by_threads.front()) list.push_back(r.schedule);
  for (std::size_t i = 1; i < by_threads.size(); ++i) {
    list.push_back(by_threads[i].front().schedule);
  }
  return list;
}

std::vector<Tuning> row_tunings(const Problem& problem, const Environment& env,
                                const RowWork& work) {
  const std::string isa = isa_name(resolve_isa(env.isa));
  std::vector<Tuning> tunings;
  for (const RowSchedule& schedule :
       row_schedules(RowShape(problem), work, env.threads,
                     [&](int threads) -> const Traits& { return traits(isa, threads); })) {
    tunings.push_back(schedule.tuning());
  }
  return tunings;
}

double predicted_row_seconds(const Problem& problem, const Tuning& tuning, const Environment& env,
                             const RowWork& work) {
  const RowSchedule schedule(tuning);
  return predict(schedule, RowShape(problem), work,
                 traits(isa_name(resolve_isa(env.isa)), schedule.threads));
}

std::optional<std::string> threads_defect(const Problem&, const Tuning& tuning,
                                          const Environment& env) {
  const int most = std::max(1, env.threads);
  if (tuning.get("threads", 1) <= most) return std::nullopt;
  return fmt::format("threads={} of {}", tuning.get("threads", 1), most);
}

bool worth_streaming(double read, double written, int threads, const Environment& env) {
  return streaming_is_faster(read, written, threads,
                             traits(isa_name(resolve_isa(env.isa)), threads));
}

bool halves_vectors(std::string_view isa) {
  return isa.starts_with("AVX3") && traits(isa, 1).one.fma < 1.3 * traits("AVX2", 1).one.fma;
}

}  // namespace rooflane::common
