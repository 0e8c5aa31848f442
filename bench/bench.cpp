// A whole run: ceilings first, then repetition after repetition group after group. See bench.hpp.
#include "bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "bench/group_runner.hpp"
#include "bench/groups.hpp"
#include "bench/race.hpp"
#include "core/machine.hpp"
#include "measure/run_id.hpp"
#include "measure/sampler.hpp"
#include "measure/verify.hpp"

namespace rooflane {

namespace {

class BenchRun {
 public:
  BenchRun(const BenchOptions& options, const Suite& suite, const std::vector<RowSink*>& sinks)
      : options_(options),
        groups_(suite.groups),
        sinks_(sinks),
        runner_(options_, result_.ceilings) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      // Every worker holds its operands, and this process computes the reference from its own.
      require_memory(groups_[g].problem, static_cast<double>(groups_[g].cases.size() + 1));
      group_of_.insert(group_of_.end(), groups_[g].cases.size(), g);
    }
    stamp_ = options.stamp;
    if (stamp_.run_id.empty()) stamp_.run_id = new_run_id();
    stamp_.host = machine().host;
    stamp_.cpu = machine().cpu;
    stamp_.placement =
        options.placements.empty() ? placement_orders().front().name : options.placements.front();
    result_.run_id = stamp_.run_id;
  }

  BenchResult run() {
    begin_ns_ = steady_clock_ns();
    take_ceilings();
    groups_begin_ns_ = steady_clock_ns();
    begin_rows();
    const std::size_t first = groups_of_first_problems();
    if (first < groups_.size()) {
      for (std::int64_t r = 1; r <= repetitions(); ++r) run_pass(0, first, r);
      tell_first(first);
    }
    const std::size_t rest = first < groups_.size() ? first : 0;
    for (std::int64_t r = 1; r <= repetitions(); ++r) run_pass(rest, groups_.size(), r);
    while (run_open_groups()) {
    }
    report(groups_.back().title(), 1, 0);
    result_.workers = runner_.worker_contexts();
    result_.time_use = runner_.time_use().activities();
    return std::move(result_);
  }

 private:
  // What is left is an estimate and may grow; what is done never falls.
  void report(const std::string& doing, double done, double seconds_left) {
    done_ = std::max(done_, done);
    if (options_.progress) options_.progress({doing, done_, seconds_left});
  }

  CeilingsRequest ceilings_request() const {
    CeilingsRequest request;
    request.threads.clear();
    for (const Group& group : groups_) {
      for (const GroupCase& c : group.cases) {
        const int threads = std::max(1, c.measured.threads);
        if (std::find(request.threads.begin(), request.threads.end(), threads) ==
            request.threads.end()) {
          request.threads.push_back(threads);
        }
        if (std::find(request.threads.begin(), request.threads.end(), group.threads) ==
            request.threads.end()) {
          request.threads.push_back(group.threads);
        }
        add_devices(*c.entry->variant, request);
      }
    }
    std::sort(request.threads.begin(), request.threads.end());
    if (options_.short_ceilings) request.largest_footprint = largest_footprint();
    return request;
  }

  // Beyond the largest problem, so that its own bandwidth lies between two points; 0: beyond all
  // caches, for the roofs of cold runs.
  std::size_t largest_footprint() const {
    double largest = 0;
    for (const Group& group : groups_) {
      if (group.cache == CacheMode::cold) return 0;
      largest = std::max(largest, operand_bytes(group.problem));
    }
    return static_cast<std::size_t>(2 * largest);
  }

  // The device of a variant. One that only a foreign worker knows (a peer's CUDA) may be the device
  // of a backend under the same name: that one then.
  void add_devices(const Variant& variant, CeilingsRequest& request) const {
    if (variant.threads != Threads::device) return;
    const Devices* own = variant.backend->devices;
    for (const Backend* backend : all_backends()) {
      if (backend->devices == nullptr || (own != nullptr && own != backend->devices)) continue;
      const DeviceId device = {backend->devices, options_.device};
      const auto& known = request.devices;
      if (backend->devices->count() == 0 ||
          std::find(known.begin(), known.end(), device) != known.end()) {
        continue;
      }
      request.devices.push_back(device);
    }
  }

  void take_ceilings() {
    if (options_.ceilings != nullptr) {
      result_.ceilings = *options_.ceilings;
      return;
    }
    CeilingsRequest request = ceilings_request();
    request.seconds = options_.ceilings_seconds;
    request.progress = [&](double done, const std::string& what) {
      report("ceilings: " + what, 0, (1 - done) * options_.ceilings_seconds);
    };
    result_.ceilings = measure_ceilings(request);
  }

  // What an interrupted run left, and where it stopped.
  void begin_rows() {
    ended_.assign(groups_.size(), false);
    taken_.assign(groups_.size(), 0);
    earlier_.assign(groups_.size(), 0);
    for (const Group& group : groups_) {
      std::vector<Measured>& measured = measured_.emplace_back(group.cases.size());
      for (std::size_t i = 0; i < measured.size(); ++i) measured[i].planned = &group.cases[i];
    }
    for (RowSink* sink : sinks_) sink->on_begin(result_.run_id, result_.ceilings);
    if (options_.earlier == nullptr) return;
    const Earlier& earlier = *options_.earlier;
    result_.rows = earlier.rows;
    for (const auto& [row, runs] : earlier.runs_per_sample) {
      measured_of(row).calibration.runs_per_sample = runs;
    }
    for (const auto& [row, failure] : earlier.failures) {
      std::tie(measured_of(row).status, measured_of(row).reason) = failure;
    }
    for (const Sample& sample : earlier.samples) {
      add_sample(measured_of(sample.row), sample);
      const std::size_t group = group_of_[static_cast<std::size_t>(sample.row)];
      earlier_[group] = std::max(earlier_[group], sample.launch);
    }
    // The last sample's repetition was not finished.
    if (!earlier.samples.empty()) {
      --earlier_[group_of_[static_cast<std::size_t>(earlier.samples.back().row)]];
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      ended_[g] = static_cast<std::size_t>(groups_[g].cases.front().row) < result_.rows.size();
    }
  }

  std::int64_t repetitions() const { return options_.least_repetitions(); }

  // All groups of the first problems; none are apart where those are all.
  std::size_t groups_of_first_problems() const {
    std::size_t problems = 0, count = 0;
    for (; count < groups_.size(); ++count) {
      const bool same =
          count > 0 && groups_[count].problem.text() == groups_[count - 1].problem.text();
      if (!same && ++problems > options_.first_problems) break;
    }
    return options_.first_problems > 0 ? count : groups_.size();
  }

  Measured& measured_of(std::int64_t row) {
    const std::size_t group = group_of_.at(static_cast<std::size_t>(row));
    return measured_[group][static_cast<std::size_t>(row - groups_[group].cases.front().row)];
  }

  double elapsed() const { return (steady_clock_ns() - begin_ns_) * 1e-9; }
  bool is_over_budget() const {
    return options_.budget_seconds > 0 && elapsed() >= options_.budget_seconds;
  }

  // Seconds for the rounds of the next repetition. With a budget, the repetitions that every group
  // has take no more than an equal share of the rest of it; half of the time goes into opening and
  // verifying.
  double seconds_for_rounds() const {
    // Ten, so that undecided groups have several more than the three that all have.
    constexpr double usual_repetitions = 10;
    const double usual =
        options_.max_time / (options_.launches > 0 ? options_.launches : usual_repetitions);
    const double planned = planned_left() + 1;
    if (options_.budget_seconds <= 0) return usual;
    const double left = std::max(0.0, options_.budget_seconds - elapsed());
    return std::min(usual, left / planned / 2);
  }

  // Repetitions of groups that are still to begin, but for those of undecided groups.
  double planned_left() const {
    double count = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!ended_[g]) count += std::max<double>(0, static_cast<double>(repetitions() - taken_[g]));
    }
    return count;
  }

  void report_group(const Group& group, double done_of_group) {
    const double all = static_cast<double>(groups_.size()) * static_cast<double>(repetitions());
    const double to_do = planned_left() + 1 - done_of_group;
    const double used = (steady_clock_ns() - groups_begin_ns_) * 1e-9;
    const double done_here = std::max(all - to_do - skipped_, 0.0);
    double left = done_here > 0 ? used / done_here * to_do : -1;
    double done = std::max(0.0, 1 - to_do / all);
    // Undecided groups use what is left of a budget.
    if (options_.budget_seconds > 0) {
      left = std::max({0.0, options_.budget_seconds - elapsed(), left});
      done = elapsed() / (elapsed() + left);
    }
    report(group.title(), done, left);
  }

  void run_pass(std::size_t begin, std::size_t end, std::int64_t repetition) {
    for (std::size_t g = begin; g < end; ++g) {
      if (!ended_[g]) run_group(g, repetition);
    }
    runner_.end_workers(repetition >= repetitions());
    if (end == groups_.size()) end_groups();
  }

  // One repetition more of those that need it: of undecided groups, or, when there are none, of
  // groups with intervals that are still wide. False when there is nothing left to do.
  bool run_open_groups() {
    std::vector<std::size_t> open, undecided;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (ended_[g]) continue;
      open.push_back(g);
      if (!race_of(groups_[g], measured_[g], options_).decided) undecided.push_back(g);
    }
    for (const std::size_t g : undecided.empty() ? open : undecided) {
      if (!is_over_budget()) run_group(g, taken_[g] + 1);
    }
    runner_.end_workers(/*keep_foreign=*/true);
    end_groups();
    return !open.empty();
  }

  // One repetition of a group, unless an interrupted run had it.
  void run_group(std::size_t index, std::int64_t repetition) {
    const Group& group = groups_[index];
    taken_[index] = repetition;
    if (repetition <= earlier_[index]) {
      if (repetition <= repetitions()) ++skipped_;
      return;
    }
    report_group(group, 0);
    GroupCallbacks callbacks;
    callbacks.on_sample = [&](const Sample& sample) {
      for (RowSink* sink : sinks_) sink->on_sample(sample);
    };
    callbacks.on_calibration = [&](std::int64_t row, std::int64_t runs) {
      for (RowSink* sink : sinks_) sink->on_calibration(row, runs);
    };
    callbacks.on_failure = [&](std::int64_t row, Status status, const std::string& reason) {
      for (RowSink* sink : sinks_) sink->on_failure(row, status, reason);
    };
    callbacks.on_progress = [&](double done) { report_group(group, done); };
    runner_.run(group, repetition, seconds_for_rounds(), measured_[index], callbacks);
  }

  // Whether another repetition would be of use.
  bool goes_on(std::size_t index) const {
    if (options_.launches > 0) return taken_[index] < options_.launches;
    if (taken_[index] < repetitions()) return true;
    const std::vector<Measured>& measured = measured_[index];
    const double seconds = measured.front().rounds_seconds;
    if (seconds >= options_.max_time || is_over_budget()) return false;
    const Race race = race_of(groups_[index], measured, options_);
    // Figures that are not narrow get two repetitions more, verdicts all the time there is.
    constexpr std::int64_t to_narrow = 2;
    return !race.decided || (!race.narrow && taken_[index] < repetitions() + to_narrow);
  }

  // Rows of the groups that have ended, as far as no earlier one goes on.
  void end_groups() {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!ended_[g]) ended_[g] = !goes_on(g);
    }
    for (std::size_t g = told_; g < groups_.size() && ended_[g]; ++g) tell(g);
  }

  void tell(std::size_t index) {
    told_ = index + 1;
    const Group& group = groups_[index];
    if (static_cast<std::size_t>(group.cases.front().row) < result_.rows.size()) return;
    std::vector<Measured>& measured = measured_[index];
    find_suspects(measured);
    stamp_.test_time = utc_now();
    for (const Measured& m : measured) {
      const auto number = static_cast<std::int64_t>(result_.rows.size());
      const Row& row = result_.rows.emplace_back(assemble_row(m, group, stamp_, result_.ceilings));
      for (RowSink* sink : sinks_) {
        if (m.profile && has_speed(m.status)) sink->on_phases(number, row, *m.profile);
        sink->on_row(row);
      }
    }
  }

  void tell_first(std::size_t groups) {
    std::vector<Row> rows;
    for (std::size_t g = 0; g < groups; ++g) {
      for (const Measured& m : measured_[g]) {
        rows.push_back(assemble_row(m, groups_[g], stamp_, result_.ceilings));
      }
    }
    for (RowSink* sink : sinks_) sink->on_first(rows);
  }

  // Faster than the strict roof, and still so when the ceilings were measured again: SUSPECT.
  void find_suspects(std::vector<Measured>& measured) {
    const auto beats = [&](const Measured& m) { return beats_roof(m, result_.ceilings); };
    if (std::none_of(measured.begin(), measured.end(), beats)) return;
    constexpr double seconds_again = 5;
    CeilingsRequest request;
    request.threads.clear();
    for (const Measured& m : measured) {
      if (!beats(m)) continue;
      const int threads = std::max(1, m.planned->measured.threads);
      if (std::find(request.threads.begin(), request.threads.end(), threads) ==
          request.threads.end()) {
        request.threads.push_back(threads);
      }
      add_devices(*m.planned->entry->variant, request);
    }
    request.seconds = std::min(options_.ceilings_seconds, seconds_again);
    if (options_.short_ceilings) request.largest_footprint = largest_footprint();
    keep_better(result_.ceilings, measure_ceilings(request));
    for (Measured& m : measured) {
      if (!beats(m)) continue;
      m.status = Status::suspect;
      m.reason = "faster than the strict roof, also after the ceilings were measured again";
    }
  }

  const BenchOptions& options_;
  const std::vector<Group>& groups_;
  const std::vector<RowSink*>& sinks_;
  std::vector<std::size_t> group_of_;  // of each row
  Row stamp_;
  BenchResult result_;
  GroupRunner runner_;
  std::vector<std::vector<Measured>> measured_;  // by group, what all repetitions gave so far
  std::vector<std::int64_t> taken_;              // repetitions of each group so far
  std::vector<bool> ended_;                      // groups that get no further one
  std::size_t told_ = 0;                         // groups with finished rows, in order
  std::vector<std::int64_t> earlier_;            // those that an interrupted run finished
  double skipped_ = 0;                           // repetitions that it had
  double done_ = 0;                              // as it was last reported
  double begin_ns_ = 0;
  double groups_begin_ns_ = 0;
};

}  // namespace

BenchResult run_bench(const BenchOptions& options, const Suite& suite,
                      const std::vector<RowSink*>& sinks) {
  BenchResult result = BenchRun(options, suite, sinks).run();
  report_to_google_benchmark(options.google_benchmark, suite.names(), result.rows);
  return result;
}

}  // namespace rooflane
