// What the opencl variants of the row kernels (softmax, LayerNorm) share: how items are laid over
// rows, and the plan that launches them. The maths is in the rooms' .cl files, what the tunables
// mean to a kernel in rows.cl.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/opencl_features.hpp"
#include "backends/opencl_plan.hpp"
#include "core/error.hpp"

namespace rooflane::common {

inline constexpr Tunable opencl_row_tunables[] = {
    {"v", "floats per vector: 1, 2, 4, 8 or 16; 4 for forms 1 and 2", 1, 16},
    {"chunk", "vectors (form 2: elements) of a row that a work-item holds in registers", 1, 256},
    {"lx", "work-items of a group that share a row, a power of two", 1, 1024},
    {"ly", "rows that a group works on side by side, a power of two", 1, 512},
    {"ry", "rows that a work-item holds at a time; form 1 only", 1, 8},
    {"form",
     "0: each pass reads the row again unless it fits the registers of lx items; 1: read once into "
     "registers; 2: short rows, by way of local memory",
     0, 2},
    {"splits", "groups that share a row; forms 0 and 1", 1, 1024},
    {"load", "hint of loads on code_path 1: 1 not kept in L1, 2 and by 256 bytes into L2", 0, 2},
    {"store", "hint of stores on code_path 1: 1 not kept in L2", 0, 1},
    {"regs", "form 1 on code_path 1: most registers of an item; 0: the compiler decides", 0, 255},
    {"code_path", "0: portable OpenCL C; 1: NVIDIA's inline PTX", 0, 1},
};

namespace row_form {
inline constexpr std::int64_t loop = 0;
inline constexpr std::int64_t registers = 1;
inline constexpr std::int64_t staged = 2;
}  // namespace row_form

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t power_of_two_from(std::int64_t x) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x)));
}

// The most 16-byte vectors of the tensor that a row touches: if cols is not a multiple of 4, a row
// starts anywhere in a vector.
constexpr std::int64_t vectors_of_row(std::int64_t cols) {
  return cols % 4 == 0 ? cols / 4 : (cols + (cols % 2 == 0 ? 5 : 6)) / 4;
}

// Whether the whole vectors of a row fit the registers of its items, so that form 0 reads memory
// once.
inline bool is_single(const Tuning& t, std::int64_t cols) {
  return cols / t.get("v", 1) <= t.get("lx", 1) * t.get("chunk", 1);
}

// What is wrong with the complete tuning on this device; nothing when it will run.
std::optional<std::string> opencl_row_defect(const Problem& problem, const Tuning& tuning,
                                             const Environment& env);

// The search space, the model's first guess at the front.
std::vector<Tuning> opencl_row_tunings(const Problem& problem, const Environment& env);

// Launches form 0 from one source, the others from another, both with a kernel of the same name and
// arguments; groups that share a row get memory to meet in.
class OpenclRowPlan : public opencl::DevicePlan {
 protected:
  struct Sources {
    const char* loop;
    const char* once;
    const char* kernel_name;
    const char* options = "";  // further ones
  };

  OpenclRowPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")) {}

  template <class... Args>
  void prepare(const Sources& sources, Args... args) {
    const std::int64_t form = tuning().get("form", 0);
    const bool is_split = tuning().get("splits", 1) > 1;
    const char* source = form == row_form::loop ? sources.loop : sources.once;
    if (is_split) make_partials();
    // Without groups that wait for each other: the parts' sums first, then everything else.
    const bool in_two = is_split && tuning().get("code_path", 0) == 0;
    for (const int phase : in_two ? std::vector<int>{1, 2} : std::vector<int>{0}) {
      opencl::KernelCall call =
          kernel(source, options(phase) + sources.options, sources.kernel_name);
      if (is_split) {
        call.set_args(context(), args..., partials_, next_number_);
      } else {
        call.set_args(context(), args...);
      }
      calls_.push_back(std::move(call));
    }
    size_ = launch_size();
  }

 private:
  void enqueue() final {
    for (const opencl::KernelCall& call : calls_) launch(call, size_);
  }
  std::int64_t blocks() const {
    return ceil_div(rows_, tuning().get("ly", 1) * tuning().get("ry", 1));
  }
  std::string options(int phase);
  bool all_resident();
  opencl::Launch launch_size();
  void make_partials();

  std::int64_t rows_;
  std::int64_t cols_;
  std::vector<opencl::KernelCall> calls_;
  cl_mem partials_ = nullptr;     // what each group found in its part of each row
  cl_mem next_number_ = nullptr;  // the number that groups draw, 0 before the first run
  opencl::Launch size_{};
};

// The record of the variant `self` of a kernel, with the plan that kMake makes of a complete
// tuning.
template <const Variant& self, auto kMake>
constexpr Variant opencl_row_variant(const Kernel& kernel,
                                     decltype(Variant::unsupported) unsupported,
                                     std::span<const Rung> ladder = {}) {
  return {.name = "opencl",
          .kernel = &kernel,
          .backend = &opencl::backend,
          .threads = Threads::device,
          .tunables = opencl_row_tunables,
          .unsupported = unsupported,
          .tunings = opencl_row_tunings,
          .plan = [](const Problem& problem, const Tuning& tuning, const Environment& env,
                     const Operands&) -> std::unique_ptr<Plan> {
            require_tuning(self, problem, env, tuning);
            return kMake(problem, complete_tuning(self, problem, env, tuning), env);
          },
          .tuning_defect = opencl_row_defect,
          .ladder = ladder,
          .dtypes = float_types};
}

}  // namespace rooflane::common
