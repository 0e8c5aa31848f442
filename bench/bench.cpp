// A whole run: ceilings first, then launch after launch group after group. See bench.hpp.
#include "bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "bench/group_runner.hpp"
#include "bench/groups.hpp"
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
    result_.run_id = stamp_.run_id;
  }

  BenchResult run() {
    begin_ns_ = steady_clock_ns();
    take_ceilings();
    groups_begin_ns_ = steady_clock_ns();
    begin_rows();
    for (std::int64_t launch = first_launch_; launch <= options_.launches; ++launch) {
      for (std::size_t g = 0; g < groups_.size(); ++g) run_group(g, launch);
      runner_.end_workers();
    }
    report(groups_.back().title(), 1, 0);
    result_.workers = runner_.worker_contexts();
    return std::move(result_);
  }

 private:
  void report(const std::string& doing, double done, double seconds_left) const {
    if (options_.progress) options_.progress({doing, done, seconds_left});
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
    return request;
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
      last_ = std::max(last_, std::pair(sample.launch, group));
    }
    first_launch_ = std::clamp<std::int64_t>(last_.first, 1, options_.launches);
  }

  Measured& measured_of(std::int64_t row) {
    const std::size_t group = group_of_.at(static_cast<std::size_t>(row));
    return measured_[group][static_cast<std::size_t>(row - groups_[group].cases.front().row)];
  }

  // Seconds for the rounds of the next group: an equal share of what is left of the budget.
  double seconds_for_group() const {
    if (options_.budget_seconds <= 0) return options_.max_time;
    const double used = (steady_clock_ns() - begin_ns_) * 1e-9;
    // A quarter of the time goes into opening and verifying.
    const double share = std::max(0.0, options_.budget_seconds - used) / turns_left() * 0.75;
    return std::min(options_.max_time, share);
  }

  double all_turns() const {
    return static_cast<double>(groups_.size()) * static_cast<double>(options_.launches);
  }
  double turns_left() const { return std::max(1.0, all_turns() - turns_done_); }

  void report_group(const Group& group, std::int64_t launch, double done_of_group) const {
    const double done = (turns_done_ + done_of_group) / all_turns();
    const double here = turns_done_ - turns_skipped_ + done_of_group;
    const double used = (steady_clock_ns() - groups_begin_ns_) * 1e-9;
    const std::string title = options_.launches > 1 ? fmt::format("launch {} of {}: {}", launch,
                                                                  options_.launches, group.title())
                                                    : group.title();
    report(title, done, here > 0 ? used / here * (all_turns() - turns_done_ - done_of_group) : -1);
  }

  // One launch of a group; in the last one its rows are made.
  void run_group(std::size_t index, std::int64_t launch) {
    const Group& group = groups_[index];
    // Before the place where an interrupted run stopped everything is done, but for rows that it
    // had no time to write.
    const bool has_rows = static_cast<std::size_t>(group.cases.front().row) < result_.rows.size();
    const bool sampled = std::pair(launch, index) < last_;
    if (has_rows || (sampled && launch < options_.launches)) {
      ++turns_done_;
      ++turns_skipped_;
      return;
    }
    report_group(group, launch, 0);
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
    callbacks.on_progress = [&](double done) { report_group(group, launch, done); };
    std::vector<Measured>& measured = measured_[index];
    runner_.run(group, launch, seconds_for_group(), measured, callbacks);
    ++turns_done_;
    if (launch < options_.launches) return;

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
  std::vector<std::vector<Measured>> measured_;  // by group, what all launches gave so far
  std::int64_t first_launch_ = 1;
  // Launch and group of the last sample of an interrupted run.
  std::pair<std::int64_t, std::size_t> last_ = {0, 0};
  double turns_done_ = 0;  // groups, each counted once a launch
  double turns_skipped_ = 0;
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
