// A variant: one implementation of a kernel on one backend, as a constant record. A plan: a
// variant made ready for one problem and tuning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend.hpp"
#include "kernel.hpp"
#include "parallel.hpp"
#include "problem.hpp"
#include "tensor.hpp"

namespace rooflane {

struct TunedSchedules;  // core/tuned.hpp

// Where and how a plan will run. Empty or zero: the variant's default.
struct Environment {
  int threads = 1;
  std::string isa;            // Highway target name, e.g. AVX3; empty: the best of this CPU
  std::string math = "fp32";  // name of one of the kernel's maths
  std::string library;        // path of a CBLAS library; empty: the default search
  int device = 0;             // of the variant's backend
  bool device_timer = false;  // record events on a CPU device too (others always do)
  Pool* pool = nullptr;       // the threads; null: default_pool()
  // Where make_plan looks for a tuning when it is given none; null: tuned_schedules().
  const TunedSchedules* tuned = nullptr;
};

// Values of a variant's tunables, in the order given. Text form: "mc=96,kc=384".
class Tuning {
 public:
  Tuning() = default;
  Tuning(std::initializer_list<std::pair<std::string, std::int64_t>> values) : values_(values) {}
  std::optional<std::int64_t> find(std::string_view key) const;
  std::int64_t get(std::string_view key, std::int64_t otherwise) const;
  void set(std::string_view key, std::int64_t value);
  const std::vector<std::pair<std::string, std::int64_t>>& values() const { return values_; }
  std::string text() const;
  friend bool operator==(const Tuning&, const Tuning&) = default;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

struct Tunable {
  const char* name;
  const char* meaning;
  std::int64_t least;
  std::int64_t most;
  bool selects = false;  // its value decides which other tunables there are
};

// A plan's facts for its row. Empty: not applicable.
struct PlanFacts {
  std::string isa;      // the Highway target it resolved, `baseline` for scalar
  std::string library;  // "OpenBLAS 0.3.21 SkylakeX"
  std::string device;
  std::string driver;
  // The instructions that did the products, where a machine has several kinds: "avx512-fma",
  // "vdpbf16ps", "vpdpbusd", "amx-bf16", "scalar".
  std::string path;
  Tuning tuning;                    // complete: every tunable with the value used
  std::size_t workspace_bytes = 0;  // beyond inputs, outputs and their device copies
  std::size_t packed_bytes = 0;     // constants packed by prepack=1
};

// Nanoseconds of the last upload, run and download by the device's own clock.
struct DeviceTimes {
  bool on_cpu = false;  // the device is a CPU: its transfers mean nothing
  double h2d_ns = 0;
  double kernel_ns = 0;
  double d2h_ns = 0;
};

class Plan {
 public:
  explicit Plan(const Problem& problem) : problem_(problem) {}
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Binds caller-owned memory for every tensor; may be called again at any time. Throws Error for a
  // missing tensor, a wrong dtype or shape, a last axis that is not contiguous, or an output that
  // overlaps itself or another operand (row kernels accept y == x). Constants were given to
  // `plan` and are ignored here.
  void bind(const Operands& operands);
  // Copies inputs to the device. Nothing on a CPU.
  virtual void upload() {}
  // Computes; blocks; allocates nothing; never writes an input. All work that depends on operand
  // values happens here.
  virtual void run() = 0;
  // Copies outputs back from the device. Nothing on a CPU.
  virtual void download() {}
  // Memory a run touches beside workspace: operands, packed constants. For eviction.
  virtual std::vector<std::span<const std::byte>> regions() const;
  virtual PlanFacts facts() const = 0;
  // Nothing when the plan records no events.
  virtual std::optional<DeviceTimes> device_times() const { return std::nullopt; }
  // Mean time of `runs` runs, one right behind the other, by the device's own clock, in
  // nanoseconds. Nothing when the plan records no events.
  virtual std::optional<double> time_device_runs(std::int64_t /*runs*/) { return std::nullopt; }
  // Makes sure that the next run finds its operands in the device's memory and not in its caches;
  // after the first upload. False where the host does that by address: regions().
  virtual bool turn_cold() { return false; }
  // What a plan does that has its kernel called by another process, one that is not trusted; all
  // others nothing. wake(): it will run soon. rest(): nothing of it may run until the next wake()
  // or run(). call_ns(): what such a call takes beyond the kernel itself, measured now.
  virtual void wake() {}
  virtual void rest() {}
  virtual double call_ns() { return 0; }

  const Problem& problem() const { return problem_; }

 protected:
  // The operands passed all checks. Device plans remember them, CPU plans take pointers.
  virtual void on_bind(const Operands& operands) = 0;
  Operands bound_;  // what bind() was last given

 private:
  Problem problem_;
  // The problem's tensors, kept from the first bind() on, so that binding again takes no longer
  // than a short run.
  std::vector<TensorSpec> tensors_;
  std::vector<Shape> shapes_;
};

enum class Threads { one, many, device };
std::string_view name_of(Threads threads);  // "one", "many", "device"

// One rung of a variant's ladder: an implementation kept for what it teaches, from the plainest
// loops up to one idea short of the variant itself. Selected by the tuning `step=I` alone; never a
// first guess, never in `tunings`.
struct Rung {
  const char* name;  // "blocked"
  const char* idea;  // what it adds to the rung before, in a few words
  Threads threads;   // one, many or, of a device variant, device
  // As Variant::plan; `step` holds `step=I` and nothing else, and the plan's facts repeat it.
  std::unique_ptr<Plan> (*plan)(const Problem&, const Tuning& step, const Environment&,
                                const Operands& constants);
};

inline constexpr DType only_float32[] = {&float32};
inline constexpr DType float_types[] = {&float32, &float16, &bfloat16};

struct Variant {
  const char* name;  // "hwy"
  const Kernel* kernel;
  const Backend* backend;
  Threads threads;
  std::span<const Tunable> tunables;
  // Nothing when `plan` will work, else a printable reason; asked only where math and number
  // formats are among those below. Null: everything is supported. Callers ask refusal().
  std::optional<std::string> (*unsupported)(const Problem&, const Environment&);
  // The search space for this problem with the model's first guess at the front; never empty.
  std::vector<Tuning> (*tunings)(const Problem&, const Environment&);
  // `constants`: views of every tensor with the role constant (gemm's b if prepack=1). Keys that
  // `tuning` lacks take the value of the first guess. Throws Error.
  std::unique_ptr<Plan> (*plan)(const Problem&, const Tuning&, const Environment&,
                                const Operands& constants);
  // What is wrong with a complete tuning, each value in range, on a supported problem; nothing if
  // `plan` accepts it. Null: it accepts all.
  std::optional<std::string> (*tuning_defect)(const Problem&, const Tuning&,
                                              const Environment&) = nullptr;
  // Seconds that a complete, legal tuning is predicted to take. Null: there is no model.
  double (*predicted_seconds)(const Problem&, const Tuning&, const Environment&) = nullptr;
  // A tuning with all that the given one leaves open, where that is more than complete_tuning's
  // rule.
  Tuning (*complete)(const Problem&, const Tuning& given, const Environment&) = nullptr;
  // From the plainest rung on; each plans what the variant plans of float32, or throws why not.
  std::span<const Rung> ladder = {};
  // What it computes with, and the formats that tensors may have.
  std::span<const Math* const> maths = only_fp32;
  std::span<const DType> dtypes = only_float32;
};

// Why the variant cannot serve this problem and environment, in words; nothing when it can.
std::optional<std::string> refusal(const Variant& variant, const Problem& problem,
                                   const Environment& env);

// The tuning's key that selects a rung; no tunable has this name.
inline constexpr std::string_view step_key = "step";
// The rung that a tuning selects; null: it selects the variant itself.
const Rung* rung_of(const Variant& variant, const Tuning& tuning);
// `step=0`, `step=1`…: every rung of the ladder.
std::vector<Tuning> step_tunings(const Variant& variant);
// How many threads the variant uses, or the rung that the tuning selects.
Threads threads_of(const Variant& variant, const Tuning& tuning);
// The plan of the variant, or of the rung that the tuning selects. An empty tuning stands for the
// one that Environment::tuned has for the problem, else for the first of `tunings` that the device
// can run; the plan's facts name it. Throws as Variant::plan does;
// UnfitTuning when a tuning with values, or every one of the list, does not fit.
std::unique_ptr<Plan> make_plan(const Variant& variant, const Problem& problem,
                                const Tuning& tuning, const Environment& env,
                                const Operands& constants);

// Checks keys and ranges of a tuning; throws Error with the nearest valid key. `step=I` selects a
// rung if there is a ladder, and must be the only key.
Tuning parse_tuning(const Variant& variant, std::string_view text);
// Variant::complete, or `given` laid over the first guess; over the first tuning of the search
// space that agrees with it on the tunables that select, where one of them is given.
Tuning complete_tuning(const Variant& variant, const Problem& problem, const Environment& env,
                       const Tuning& given);

// Throws Error that names the variant, `given` and what is allowed when, completed, it cannot serve
// this problem.
void require_tuning(const Variant& variant, const Problem& problem, const Environment& env,
                    const Tuning& given);

// For variants without tunables.
std::vector<Tuning> no_tunings(const Problem&, const Environment&);

}  // namespace rooflane
