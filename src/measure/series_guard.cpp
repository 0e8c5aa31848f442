// See series_guard.hpp.
#include "measure/series_guard.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "core/float_unit.hpp"
#include "core/seeds.hpp"
#include "core/statistics.hpp"
#include "measure/worker.hpp"

namespace rooflane {

namespace {

// Runs of at least this are all preceded by a change; it moves three cache lines, a fiftieth of it.
constexpr double changed_each_ns = 10e3;
// And of at least as many times what a call costs, which is known to some per cent, or is several
// times as large the next moment where measuring process and kernel share a CPU.
constexpr double changed_each_calls = 20;
// Calls that ask for the runs of a series of shorter ones, a millisecond long: each is behind a
// change, and the CPU of another process takes up to a microsecond to fetch the lines.
constexpr std::int64_t changes_of_series = 12;
// Changes of a series that are compared with the reference; where inputs are converted for it, one.
constexpr std::size_t compared_changes = 6;
// Elements of an output row that are looked at: as many as lie in a cache line.
constexpr std::int64_t looked_at = 16;

// Where in an input an element lies that has to do with an element of an output: axes of one name
// have one index, all others any.
std::vector<std::int64_t> indices_of(const View& view, std::int64_t row, std::int64_t col) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(view.rank));
  indices.back() = col;
  for (int axis = view.rank - 2; axis >= 0; --axis) {
    indices[static_cast<std::size_t>(axis)] = row % view.shape[axis];
    row /= view.shape[axis];
  }
  return indices;
}

bool is_all_ones(const std::byte* bytes, std::size_t count) {
  return std::all_of(bytes, bytes + count, [](std::byte b) { return b == std::byte{0xff}; });
}

}  // namespace

// A call's cost is known to some 50 ns, and less well where measuring process and kernel share a
// CPU. Where two CPUs look at the doorbell, its cost is that of four cache lines that go from one
// to the other, five times as much between distant CPUs; a single run fetches lines that the
// measuring CPU had, at least the one of the output that was looked at before. A call of more than
// a microsecond is one behind a sleep, which says nothing of lines. And a single run finds branch
// predictors and instruction caches cold: of 600 ns in a BLAS with a long way to its loop it took
// up to 340 more, in one of seventy processes on an Intel Xeon.
double unseen_ns(const CallCost& call) {
  if (call.wakes_threads()) return std::numeric_limits<double>::infinity();
  constexpr double least = 250, spreads = 4, lines = 0.5;
  return std::max(
      {least, spreads * call.spread_ns, lines * std::min(call.ns, CallCost::sleeping_ns)});
}

double changed_each_from_ns(const CallCost& call) {
  return std::max(changed_each_ns, changed_each_calls * call.ns);
}

struct SeriesGuard::Change {
  std::byte* input = nullptr;  // null: no input could be changed
  std::vector<std::byte> before;
  std::string input_name;
  std::size_t output = 0;
  std::int64_t row = 0, first_col = 0, cols = 0;
  std::vector<std::byte> stale, result;  // of the elements looked at
};

SeriesGuard::SeriesGuard(const Problem& problem, const OwnedOperands& operands,
                         const InputSeed& seed, const Math& math)
    : problem_(problem),
      operands_(operands),
      seed_(seed),
      math_(math),
      // Nobody must be able to say beforehand what is changed.
      state_(splitmix64(static_cast<std::uint64_t>(
          std::chrono::steady_clock::now().time_since_epoch().count()))) {
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    const bool empty = operands.all().has(tensor.name) && operands.all().at(tensor.name).empty();
    if (empty) continue;
    // Indices and lengths have an order to keep; what is updated starts from what it was.
    if (tensor.role == Role::input && !tensor.domain.limited()) inputs_.push_back(tensor);
    if (tensor.role == Role::output) outputs_.push_back(tensor);
  }
}

std::uint64_t SeriesGuard::draw(std::uint64_t below) {
  state_ += 0x9e3779b97f4a7c15;
  return below > 0 ? splitmix64(state_) % below : 0;
}

SeriesGuard::Change SeriesGuard::change() {
  Change change;
  change.output = draw(outputs_.size());
  const TensorSpec& output = outputs_[change.output];
  const View& to = operands_.all().at(output.name);
  change.row = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(to.rows())));
  const auto col = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(to.cols())));
  change.cols = std::min(looked_at, to.cols());
  const std::size_t size = to.dtype->bytes(1);
  // In one cache line: the changed lines are fetched from this CPU by the one that computes.
  const auto place = reinterpret_cast<std::uintptr_t>(to.row(change.row)) / size;
  const auto before = (place + static_cast<std::uintptr_t>(col)) % looked_at;
  change.first_col = std::min(std::max<std::int64_t>(0, col - static_cast<std::int64_t>(before)),
                              to.cols() - change.cols);
  if (!inputs_.empty()) {
    const TensorSpec& input = inputs_[draw(inputs_.size())];
    const View& from = operands_.all().at(input.name);
    const std::vector<std::int64_t> place = indices_of(to, change.row, col);
    std::int64_t element = 0;
    for (int axis = 0; axis < from.rank; ++axis) {
      const std::int64_t length = from.shape[axis];
      auto index = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(length)));
      for (std::size_t i = 0; i < place.size(); ++i) {
        const bool same = std::string_view(input.axes[static_cast<std::size_t>(axis)].param) ==
                          output.axes[i].param;
        if (same && place[i] < length) index = place[i];
      }
      element = element * length + index;
    }
    const auto block = std::max<std::int64_t>(from.dtype->block, 1);
    const std::size_t bytes = from.dtype->bytes(block);
    auto* const data = static_cast<std::byte*>(from.data);
    change.input = data + from.dtype->bytes(element / block * block);
    change.before.assign(change.input, change.input + bytes);
    change.input_name = input.name;
    // Another element of the tensor: a value of its format and range.
    const auto other =
        static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(from.elements() / block)));
    std::memmove(change.input, data + from.dtype->bytes(other * block), bytes);
  }
  std::byte* const cells = to.row(change.row) + static_cast<std::size_t>(change.first_col) * size;
  const std::size_t bytes = static_cast<std::size_t>(change.cols) * size;
  change.stale.assign(cells, cells + bytes);
  std::memset(cells, 0xff, bytes);
  return change;
}

void SeriesGuard::note_result(Change& change) {
  const View& to = operands_.all().at(outputs_[change.output].name);
  const std::size_t size = to.dtype->bytes(1);
  const std::byte* const cells =
      to.row(change.row) + static_cast<std::size_t>(change.first_col) * size;
  change.result.assign(cells, cells + static_cast<std::size_t>(change.cols) * size);
}

void SeriesGuard::undo(const Change& change) {
  if (change.input != nullptr) {
    std::memcpy(change.input, change.before.data(), change.before.size());
  }
}

// Writes what a change writes, and leaves all contents as they were: the run then fetches as many
// cache lines.
void SeriesGuard::rewrite() {
  const Change made = change();
  const View& to = operands_.all().at(outputs_[made.output].name);
  std::memcpy(to.row(made.row) + static_cast<std::size_t>(made.first_col) * to.dtype->bytes(1),
              made.stale.data(), made.stale.size());
  undo(made);
}

// No kernel computes this number, all ones.
void SeriesGuard::check_written(const Change& change) {
  const TensorSpec& output = outputs_[change.output];
  const std::size_t size = output.dtype->bytes(1);
  if (output.dtype->is_integer()) return;
  for (std::int64_t i = 0; i < change.cols; ++i) {
    if (!is_all_ones(change.result.data() + static_cast<std::size_t>(i) * size, size)) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Change later = change;
    note_result(later);
    const bool late = later.result != change.result;
    throw WorkerError(
        Status::failed,
        fmt::format("{}: element {}[{},{}] was not written when a timed run returned{}",
                    late ? "late-return" : "skipped-calls", output.name, change.row,
                    change.first_col + i, late ? ", and was later" : ""));
  }
}

bool SeriesGuard::is_right(const Change& change, bool& followed) const {
  const TensorSpec& output = outputs_[change.output];
  Region region;
  region.rows = {change.row};
  region.cols.resize(static_cast<std::size_t>(change.cols));
  std::iota(region.cols.begin(), region.cols.end(), change.first_col);
  followed = change.result != change.stale;
  return right_elements(problem_, operands_.inputs(), seed_, math_, output, region, change.result);
}

// From the last change to the first, since each was made on top of those before it.
void SeriesGuard::check(std::vector<Change>& changes) {
  const auto converted = [](const TensorSpec& tensor) {
    return tensor.dtype != &float32 && tensor.dtype != &int32;
  };
  const bool converts = std::any_of(inputs_.begin(), inputs_.end(), converted);
  const std::size_t compared = converts ? 1 : compared_changes;
  std::string wrong, right;  // inputs with changes that were not seen, and were
  std::string where;
  bool stale = false;
  for (std::size_t left = changes.size(); left-- > 0;) {
    const Change& change = changes[left];
    // So that `compared` of all are, on average.
    if (draw(changes.size()) < compared || changes.size() <= compared) {
      bool followed = false;
      if (is_right(change, followed)) {
        if (followed) right = change.input_name;
      } else {
        wrong = change.input_name;
        stale = !followed;
        where = fmt::format("row {} of {}", change.row, outputs_[change.output].name);
      }
    }
    undo(change);
  }
  if (where.empty()) return;
  const bool others_seen = !right.empty() && right != wrong;
  throw WorkerError(Status::failed,
                    fmt::format("{}: after {} had changed, unannounced, a timed run gave {} {}",
                                others_seen ? "packed-constants"
                                : stale     ? "replay"
                                            : "recognises-verification",
                                wrong.empty() ? "nothing" : wrong,
                                stale ? "what it gave before in" : "a wrong", where));
}

// The time of `runs` runs of one call, behind a change. The result of the change is looked at.
double SeriesGuard::time_changed(TimedRuns timed_runs, std::int64_t runs,
                                 std::vector<Change>& changes) {
  changes.push_back(change());
  const double ns = timed_runs(runs);
  note_result(changes.back());
  check_written(changes.back());
  return ns;
}

// One run a call: without a change, behind one, and behind as many writes without one. Nobody must
// be able to say beforehand which it is.
void SeriesGuard::time_single_runs(TimedRuns timed_runs, std::vector<Change>& changes) {
  constexpr std::uint64_t kinds = 3;
  const std::uint64_t first = draw(kinds), step = 1 + draw(kinds - 1);
  for (std::uint64_t i = 0; i < kinds; ++i) {
    switch ((first + i * step) % kinds) {
      case 0:
        times_.undisturbed.push_back(timed_runs(1));
        break;
      case 1:
        times_.changed.push_back(time_changed(timed_runs, 1, changes));
        break;
      default:
        rewrite();
        times_.rewritten.push_back(timed_runs(1));
    }
  }
}

// What is uneven in times of single runs and of others; empty: nothing. What disturbs a run only
// makes it longer, so the quick ones of the single runs are compared.
std::string SeriesGuard::unevenness(const Times& times) {
  constexpr double quick = 0.25;
  const double call_ns = median(times.unseen);
  const double undisturbed = quantile(times.undisturbed, quick);
  const double rewritten = std::max(quantile(times.rewritten, quick), 0.0);
  const double changed = quantile(times.changed, quick);
  // The mean of all, since a quantile would hide calls that leave out runs as long as few enough of
  // them do; and the quick series, since a mean would hide series that leave out runs as long as
  // others take longer. What is reported is a median of medians of three series (rounds.cpp): it is
  // wrong where a third of the series are. The cost of these calls is known no better than a single
  // run's.
  const double among_others = std::min(times.others_ns / static_cast<double>(times.others_runs),
                                       quantile(times.means, quick));
  const double others_call_ns =
      call_ns * static_cast<double>(times.others_calls) / static_cast<double>(times.others_runs);
  if (undisturbed > unseen_ratio * among_others + call_ns + others_call_ns) {
    return fmt::format(
        "skipped-calls: a run takes {:.3g} us by itself and {:.3g} us where others follow it at "
        "once",
        undisturbed / 1e3, among_others / 1e3);
  }
  // A result kept by the whole of its inputs serves a run that finds them as they were before.
  if (changed > unseen_ratio * rewritten + call_ns) {
    return fmt::format(
        "replay: a run takes {:.3g} us where its inputs changed and {:.3g} us where they were "
        "written as they were",
        changed / 1e3, rewritten / 1e3);
  }
  return {};
}

// All calls since the first series are compared, so it does not help to leave out runs of every
// second series. What disturbs few calls by chance is less of all of them at the next look.
void SeriesGuard::require_even_times() {
  if (times_.others_calls < next_look_) return;
  // A look sorts all times, so looks become rarer: a sixteenth of all calls is too few to win by.
  next_look_ = times_.others_calls + std::max(between_looks, times_.others_calls / 16);
  const std::string uneven = unevenness(times_);
  if (std::exchange(was_uneven_, !uneven.empty()) && !uneven.empty()) {
    throw WorkerError(Status::failed, uneven);
  }
}

double SeriesGuard::time(FunctionRef<void(std::int64_t)> run, std::int64_t runs, Clock now,
                         CallCost call) {
  const auto timed_runs = [&](std::int64_t count) {
    const double start = now();
    run(count);
    return now() - start - call.ns;
  };
  // Logarithms follow: no time is 0, however much is subtracted.
  const auto mean = [&](double ns) { return std::max(ns, 1.0) / static_cast<double>(runs); };
  if (outputs_.empty()) return mean(timed_runs(runs));
  const std::uint32_t unit = float_unit_state();
  const bool each = run_ns_ >= changed_each_from_ns(call) || runs <= changes_of_series;
  std::vector<Change> changes;
  double timed = 0;
  try {
    for (std::int64_t done = 0; done < runs;) {
      const std::int64_t parts = std::max<std::int64_t>(1, 2 * runs / changes_of_series);
      const std::int64_t count =
          each ? 1
               : std::min(runs - done,
                          1 + static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(parts))));
      if (!each) time_single_runs(timed_runs, changes);
      const double ns = time_changed(timed_runs, count, changes);
      if (count > 1) {
        times_.others_ns += ns;
        times_.others_runs += count;
        ++times_.others_calls;
      }
      timed += ns;
      done += count;
    }
  } catch (...) {
    while (!changes.empty()) {
      undo(changes.back());
      changes.pop_back();
    }
    throw;
  }
  check(changes);
  if (float_unit_state() != unit) {
    set_float_unit_state(unit);
    throw WorkerError(Status::failed,
                      "low-precision: a run left another rounding mode behind, or denormals that "
                      "are zeros");
  }
  run_ns_ = mean(timed);
  times_.means.push_back(run_ns_);
  times_.unseen.push_back(unseen_ns(call));
  require_even_times();
  return run_ns_;
}

}  // namespace rooflane
