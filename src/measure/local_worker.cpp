// A worker in this process: plans, verifies and samples one case at a time. It survives what
// throws; what crashes or hangs takes the process along (process_worker.cpp puts it behind a wall).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/runs_often.hpp"
#include "core/tuned.hpp"
#include "measure/cache_control.hpp"
#include "measure/cheating.hpp"
#include "measure/odd_operands.hpp"
#include "measure/process_usage.hpp"
#include "measure/reference_file.hpp"
#include "measure/sampler.hpp"
#include "measure/series_guard.hpp"
#include "measure/worker.hpp"

namespace rooflane {

namespace {

// What the current exception means for a row.
[[noreturn]] void throw_worker_error() {
  try {
    throw;
  } catch (const WorkerError&) {
    throw;
  } catch (const Error& error) {
    throw WorkerError(
        error.kind() == ErrorKind::unavailable ? Status::unsupported : Status::runtime_error,
        error.what());
  } catch (const BuildError& error) {
    throw WorkerError(Status::build_error, error.what());
  } catch (const std::bad_alloc&) {
    throw WorkerError(Status::runtime_error, "out of memory");
  } catch (const std::exception& error) {
    throw WorkerError(Status::runtime_error, error.what());
  }
}

// A device other than a CPU leaves the host's cores to whoever fills its operands.
int fill_threads(const Case& c) {
  return c.threads > 0 ? c.threads : static_cast<int>(machine().placement.size());
}

// A case with its memory and plan.
struct OpenCase {
  OpenCase(const Case& opened, const Variant& chosen)
      : c(opened),
        variant(chosen),
        operands(c.problem, c.inputs(), fill_threads(c)),
        input_hash(operands.input_hash()) {}

  Case c;
  const Variant& variant;
  OwnedOperands operands;
  std::uint64_t input_hash;
  std::unique_ptr<Plan> plan;
  bool asked_before = false;             // whether its output is right
  std::optional<Verification> verified;  // the first verification, when it passed
  std::uint64_t verified_hash = 0;       // of the output it saw
  std::optional<SeriesGuard> guard;      // of an untrusted variant
};

// While it lives the plan's kernel may run, in whichever process that is; behind it, not.
class Awake {
 public:
  explicit Awake(Plan& plan) : plan_(plan) { plan_.wake(); }
  ~Awake() { plan_.rest(); }
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

 private:
  Plan& plan_;
};

class LocalWorker final : public Worker {
 public:
  explicit LocalWorker(const Catalogue& catalogue) : catalogue_(catalogue) {}

  Opened open(const Case& c) override {
    close();
    try {
      return open_case(c);
    } catch (...) {
      close();
      throw_worker_error();
    }
  }

  Verification verify(const std::string& reference_path) override {
    try {
      return verify_open(reference_path);
    } catch (...) {
      throw_worker_error();
    }
  }

  bool reproduces(std::uint64_t output_hash, bool follow) override {
    try {
      OpenCase& open = opened();
      const Awake awake(*open.plan);
      open.asked_before = true;
      if (follow && !follows_inputs(open)) return false;
      return defect_of_run(open).empty() && open.operands.output_hash() == output_hash;
    } catch (...) {
      throw_worker_error();
    }
  }

  Calibration calibrate() override {
    try {
      return calibrate_open();
    } catch (...) {
      throw_worker_error();
    }
  }

  Samples sample(int n, std::int64_t runs) override {
    try {
      Samples samples;
      OpenCase& open = opened();
      const Awake awake(*open.plan);
      warm_clock(open);
      const double call_ns = open.c.timer == Timer::steady ? open.plan->call_ns() : 0;
      warm_up([&] { open.plan->run(); }, steady_clock_ns);
      for (int i = 0; i < n; ++i) take_sample(open, runs, call_ns, samples);
      return samples;
    } catch (...) {
      throw_worker_error();
    }
  }

  std::optional<PhaseProfile> profile(const PhaseRequest& request) override {
    try {
      return profile_open(request);
    } catch (...) {
      throw_worker_error();
    }
  }

  bool draws(const Distribution&) override { return true; }

  void close() override { open_.reset(); }

  bool settle() override { return rooflane::settle(getpid()); }

  pid_t process() override { return getpid(); }

  std::int64_t peak_rss_bytes() override { return peak_resident_bytes(getpid()); }

 private:
  OpenCase& opened() {
    if (!open_) throw WorkerError(Status::runtime_error, "no case is open");
    return *open_;
  }

  Opened open_case(const Case& c) {
    const Variant& variant = variant_of(c, catalogue_);
    const Environment env = c.environment();
    if (const auto reason = refusal(variant, c.problem, env)) {
      throw WorkerError(Status::unsupported, *reason);
    }
    require_memory(c.problem, 1);
    reset_peak_resident();
    OpenCase& open = open_.emplace(c, variant);
    Operands constants;
    for (const TensorSpec& tensor : c.problem.kernel().tensors(c.problem)) {
      if (tensor.role == Role::constant) {
        constants.set(tensor.name, open.operands.all().at(tensor.name));
      }
    }
    if (variant.backend->devices != nullptr) variant.backend->devices->prepare(c.device);
    Opened answer;
    plan(open, constants, answer);
    open.plan->bind(open.operands.all());
    open.plan->upload();
    if (c.cache == CacheMode::cold && operand_bytes(c.problem) > 0 && !make_cold(*open.plan)) {
      throw WorkerError(Status::unsupported,
                        "cache cold: the caches of this device cannot be emptied from here");
    }
    answer.facts = open.plan->facts();
    if (variant.backend->untrusted) {
      open.guard.emplace(open.c.problem, open.operands, open.c.inputs(), open.c.math_record());
    }
    return answer;
  }

  // A stored tuning that cannot be planned gives way to the variant's own choice.
  static void plan(OpenCase& open, const Operands& constants, Opened& answer) {
    const Case& c = open.c;
    const auto plan_with = [&](const Tuning& tuning) {
      const double start = steady_clock_ns();
      open.plan = make_plan(open.variant, c.problem, tuning, c.environment(), constants);
      answer.plan_ns = steady_clock_ns() - start;
    };
    answer.tuning_source = tuning_source_of(c, open.variant);
    try {
      plan_with(c.tuning);
    } catch (const std::exception&) {
      if (!c.stored) throw;
      answer.tuning_source = from_model;
      plan_with({});
    }
  }

  // Runs once into poisoned outputs, and says what it did besides filling them; empty: nothing.
  static std::string defect_of_run(OpenCase& open) {
    open.operands.poison_output();
    open.plan->upload();
    open.plan->run();
    open.plan->download();
    if (open.operands.input_hash() != open.input_hash) return "the run changed its inputs";
    if (!open.operands.guards_intact()) return "the run wrote outside the output";
    return {};
  }

  Verification verify_open(const std::string& reference_path) {
    OpenCase& open = opened();
    const Awake awake(*open.plan);
    const Problem& problem = open.c.problem;
    Verification result;
    if (std::exchange(open.asked_before, true) && !follows_inputs(open)) {
      result.reason = how_it_kept(open);
      return result;
    }
    result.reason = defect_of_run(open);
    if (!result.reason.empty()) return result;
    const std::uint64_t hash = open.operands.output_hash();
    if (open.verified && hash == open.verified_hash) return *open.verified;
    const Math& math = open.c.math_record();
    const Reference reference =
        reference_path.empty()
            ? compute_reference(problem, open.operands.inputs(), open.c.inputs(), math)
            : read_reference(reference_path);
    result = verify_output(problem, open.operands.all(), reference, open.c.inputs(), math);
    result.output_hash = hash;
    if (!result.usable() && open.variant.backend->untrusted) {
      const bool was_right = open.verified.has_value();
      result.reason = how_it_cheats(*open.plan, open.operands, open.c, was_right) + result.reason;
    }
    if (result.usable() && !open.verified) {
      if (open.variant.backend->untrusted && open.c.distribution == &uniform) {
        const std::string odd =
            defect_on_odd_operands(*open.plan, open.operands, reference, open.c);
        if (!odd.empty()) {
          result.status = Status::failed;
          result.reason = how_it_cheats(*open.plan, open.operands, open.c, true) + odd;
          return result;
        }
      }
      open.verified = result;
      open.verified_hash = hash;
    }
    return result;
  }

  // Why a variant's outputs did not become NaN with its inputs.
  static std::string how_it_kept(OpenCase& open) {
    std::string kept = "the run kept its output although its inputs changed";
    if (!open.variant.backend->untrusted) return kept;
    const std::string how = how_it_cheats(*open.plan, open.operands, open.c, true);
    return how.empty() ? "NaN in the inputs must reach the outputs that depend on them"
                       : how + kept;
  }

  // A timed sample with runs that are looked at. Which of the guard's checks finds a cheat first
  // depends on the moment, so experiments name it.
  static double guarded_ns(OpenCase& open, std::int64_t runs, double call_ns) {
    try {
      auto& plan = dynamic_cast<RunsOften&>(*open.plan);
      const auto run = [&](std::int64_t often) { plan.run_often(often); };
      return open.guard->time(run, runs, steady_clock_ns,
                              {call_ns, plan.call_spread_ns(), open.c.threads});
    } catch (const WorkerError& error) {
      const std::string reason = error.what();
      if (error.status() != Status::failed || reason.starts_with("low-precision: ")) throw;
      const std::string how = how_it_cheats(*open.plan, open.operands, open.c, true);
      if (how.empty()) throw;
      throw WorkerError(Status::failed, how + reason.substr(reason.find(": ") + 2));
    }
  }

  // Runs once with every input NaN and restores them: corners of the outputs must be NaN if their
  // exact value then is. Poison alone does not reach a device's copy of an output, nor what a plan
  // keeps from earlier runs. (Integers, which have no NaN, become -1; an exact result must follow.)
  static bool follows_inputs(OpenCase& open) {
    const Problem& problem = open.c.problem;
    open.operands.spoil_inputs();
    open.operands.reset_updated();
    open.plan->upload();
    open.plan->run();
    open.plan->download();
    bool follows = true;
    for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
      if (is_written(tensor.role)) follows = follows && corners_follow(open, tensor);
    }
    open.operands.restore_inputs();
    return follows;
  }

  static bool corners_follow(const OpenCase& open, const TensorSpec& tensor) {
    const View& output = open.operands.all().at(tensor.name);
    if (output.empty()) return true;
    const std::int64_t rows = output.rows(), cols = output.cols();
    const Region corners = {{0, rows - 1}, {0, cols - 1}};
    const std::vector<double> expected =
        reference_values(open.c.problem, open.operands.inputs(), tensor, corners);
    std::vector<double> values(static_cast<std::size_t>(cols));
    bool follows = true;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      read_row(output, corners.rows[i / 2], 0, values);
      const double got = values[static_cast<std::size_t>(corners.cols[i % 2])];
      if (std::isnan(expected[i])) follows = follows && std::isnan(got);
      if (tensor.dtype->is_integer()) follows = follows && got == expected[i];
    }
    return follows;
  }

  // Takes operands and constants out of the caches. False when nobody can.
  static bool make_cold(Plan& plan) {
    if (plan.turn_cold()) return true;
    const auto regions = plan.regions();
    evict(regions);
    return !regions.empty();
  }

  // A device that idled lowered its clock; what is timed first would pay for raising it.
  static void warm_clock(const OpenCase& open) {
    const Devices* devices = open.variant.backend->devices;
    if (devices != nullptr) devices->warm_clock(open.c.device);
  }

  Calibration calibrate_open() {
    OpenCase& open = opened();
    const Awake awake(*open.plan);
    warm_clock(open);
    const auto run = [&] { open.plan->run(); };
    Calibration calibration;
    if (open.c.cache == CacheMode::cold) {
      warm_up(run, steady_clock_ns);
      make_cold(*open.plan);
      calibration.run_ns = time_runs(run, 1, steady_clock_ns);
      return calibration;
    }
    calibration.run_ns = undisturbed_run_ns(run, steady_clock_ns);
    calibration.runs_per_sample = runs_for_sample(calibration.run_ns);
    return calibration;
  }

  // `call_ns`: what a run takes beyond the kernel (Plan::call_ns).
  void take_sample(OpenCase& open, std::int64_t runs, double call_ns, Samples& samples) {
    if (open.c.cache == CacheMode::cold) make_cold(*open.plan);
    if (open.c.timer == Timer::steady) {
      const auto run = [&] { open.plan->run(); };
      samples.ns.push_back(open.guard ? guarded_ns(open, runs, call_ns)
                                      : time_runs(run, runs, steady_clock_ns));
    } else {
      samples.ns.push_back(time_device_runs(*open.plan, runs));
    }
    if (open.variant.threads != Threads::device) return;
    const double start = steady_clock_ns();
    open.plan->upload();
    open.plan->run();
    open.plan->download();
    samples.e2e_ns.push_back(steady_clock_ns() - start);
    const auto times = open.plan->device_times();
    if (times && !times->on_cpu) {
      samples.h2d_ns.push_back(times->h2d_ns);
      samples.kernel_ns.push_back(times->kernel_ns);
      samples.d2h_ns.push_back(times->d2h_ns);
    }
  }

  // A device's work, or a library's with threads of its own, cannot be seen from here.
  std::optional<PhaseProfile> profile_open(const PhaseRequest& request) {
    OpenCase& open = opened();
    const Backend& backend = *open.variant.backend;
    if (backend.devices != nullptr || backend.foreign_threads ||
        !open.plan->facts().library.empty()) {
      return std::nullopt;
    }
    const auto run = [&] { open.plan->run(); };
    const auto before = [&] {
      if (open.c.cache == CacheMode::cold) make_cold(*open.plan);
    };
    warm_up(run, steady_clock_ns);
    return profile_phases(run, before, request);
  }

  // Mean of the device's own time of one run.
  static double time_device_runs(Plan& plan, std::int64_t runs) {
    if (const auto ns = plan.time_device_runs(runs)) return *ns;
    throw WorkerError(Status::unsupported, "timer event: only device variants have one");
  }

  const Catalogue& catalogue_;
  std::optional<OpenCase> open_;
};

}  // namespace

std::unique_ptr<Worker> local_worker(const Catalogue& catalogue) {
  return std::make_unique<LocalWorker>(catalogue);
}

}  // namespace rooflane
