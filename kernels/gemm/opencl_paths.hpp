// The ways in which the variant `opencl` multiplies; opencl.cpp chooses. A tuning's `path` names
// one, and each has tunables of its own:
//   0  tiles     any device, CPUs included, any number formats and gate=1 (opencl.cpp, gemm.cl)
//   1  pipeline  GPUs: tiles with prefetched copies (opencl_pipeline.cpp, gemm_pipeline.cl)
//   2  skinny    GPUs: m or n of at most 32, memory-bound; few rows of a against short or quantised
//                weights (opencl_skinny.cpp, gemm_skinny.cl)
//   3  tensor    maths 3xtf32, f16, bf16, int8: matrix units (opencl_tensor.cpp, gemm_tensor.cl)
//   7  wgmma     maths f16, bf16, int8: Hopper's matrix units (opencl_wgmma.cpp, gemm_wgmma.cl)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/opencl_plan.hpp"
#include "core/math.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/opencl_tuning.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

enum : std::int64_t { path_tiles, path_pipeline, path_skinny, path_tensor, path_wgmma = 7 };

using common::Guess;

// A problem, and what choosing a tuning asks of it and its device again and again.
struct Task {
  const Problem& problem;
  const Environment& env;
  const Gemm g;
  const DType a, b, c;  // formats
  const common::Device device;

  Task(const Problem& of, const Environment& in)
      : problem(of),
        env(in),
        g(of),
        a(of.dtype("a_type")),
        b(of.dtype("b_type")),
        c(of.dtype("c_type")),
        device(in.device) {}
  // Whether it is of the paths for number formats: it has another format than float32, another math
  // than the others compute, or gate=1.
  bool has_formats() const {
    return (env.math != fp32.name && env.math != math_3xtf32.name) || g.gate || a != &float32 ||
           b != &float32 || c != &float32;
  }
  // Bytes of matrices of x × y elements.
  double bytes(std::int64_t x, std::int64_t y, DType type = &float32) const {
    return static_cast<double>(size_of(type)) * static_cast<double>(g.batch) *
           static_cast<double>(x) * static_cast<double>(y);
  }
  // The least that a product moves.
  double least_bytes() const {
    return bytes(g.m, g.k, a) + bytes(g.k, g.b_cols(), b) + bytes(g.m, g.n, c);
  }
  // Bytes of the sums of groups that share k.
  double parts_bytes(std::int64_t splits) const {
    return splits == 1 ? 0 : static_cast<double>(splits) * bytes(g.m, g.b_cols());
  }
};

// A path: tunings worth trying, in no order; none where it cannot serve the problem, and one or few
// of a portable code path on a CPU device. Why a complete tuning cannot be used. The plan.
struct Path {
  std::vector<Guess> (*guesses)(const Task&);
  std::optional<std::string> (*defect)(const Task&, const Tuning&);
  std::unique_ptr<Plan> (*plan)(const Task&, const Tuning&, const Operands& constants);
};
extern const Path pipeline, skinny, tensor, wgmma;

template <class T>
T read_tuning(const Tuning& tuning) {
  return common::read_tuning<T>(opencl.tunables, tuning);
}
// T is a path's tuning as a struct (opencl_tuning.hpp) and says why it cannot be used.
template <class T, class P>
constexpr Path path_of(std::vector<Guess> (*guesses)(const Task&)) {
  return {
      guesses,
      [](const Task& task, const Tuning& tuning) { return read_tuning<T>(tuning).defect(task); },
      [](const Task& task, const Tuning& tuning, const Operands& constants) {
        return std::unique_ptr<Plan>(std::make_unique<P>(task, tuning, constants));
      }};
}
// Adds a tuning that can be used.
template <class T>
void add_guess(std::vector<Guess>& list, const T& t, const Task& task) {
  if (!t.defect(task)) list.push_back({common::tuning_of(t), t.expected_ns(task)});
}

// Device memory that a tuning of path 3 takes beside the operands.
double tensor_beside_bytes(const Task& task, const Tuning& tuning);

// The options of gemm_output.cl and gemm_epilogue.cl, with vectors of v elements.
std::string output_options(const Task& task, std::int64_t v = 4);
// A format's number in formats.cl.
int number_of(DType type);

// Most bytes of partial sums that a split of k may keep.
inline constexpr double most_parts_bytes = 1 << 28;
inline common::Need few_parts(double bytes) {
  return {bytes <= most_parts_bytes, "partial sums of splits of at most 2^28 bytes"};
}

// What the models know of a GPU: multiply-adds a nanosecond of one compute unit, bytes a nanosecond
// of the device's memory, and a launch with its wait. The last two are read off an H200 (4.3 TB/s,
// 3.6 us with its first and last steps); they only rank tunings.
struct GpuModel {
  double units;
  double clock_ghz;
  double mads_per_ns;
  double bytes_per_ns = 4300;
  double launch_ns = 3600;
  explicit GpuModel(const opencl::DeviceInfo& device)
      : units(device.compute_units),
        clock_ghz(device.clock_mhz > 0 ? device.clock_mhz * 1e-3 : 1),
        mads_per_ns((device.lanes_per_unit > 0 ? device.lanes_per_unit : 64) * clock_ghz) {}
  // Reading operands and writing c.
  double least_ns(const Task& task) const { return task.least_bytes() / (0.8 * bytes_per_ns); }
};
// Groups that share a unit: of 64K registers, 2048 items and 227 KB of local memory (Hopper). Each
// group takes a KB more than it asks for.
std::int64_t groups_per_unit(std::int64_t items, std::int64_t registers, std::int64_t local_bytes);

inline std::int64_t tiles(std::int64_t length, std::int64_t tile) {
  return (length + tile - 1) / tile;
}

// Tiles of c of bm × bn elements times shares of k.
inline double groups_of(const Gemm& g, std::int64_t bm, std::int64_t bn, std::int64_t splits) {
  return static_cast<double>(g.batch) * static_cast<double>(tiles(g.m, bm)) *
         static_cast<double>(tiles(g.n, bn)) * static_cast<double>(splits);
}
// Whether k is worth splitting: each share deserves some hundred steps, and nothing is won beyond a
// few waves of groups.
inline bool is_worth_splitting(const Task& task, std::int64_t splits, std::int64_t least_steps,
                               double groups, double waves) {
  return splits == 1 || (task.g.reads_ab() && task.g.k / splits >= least_steps &&
                         groups <= waves * task.device.info.compute_units);
}

// Floats of the widest copy (4, 2 or 1) that rows of `length` floats allow.
inline int copy_width(std::int64_t length) { return length % 4 == 0 ? 4 : length % 2 == 0 ? 2 : 1; }

}  // namespace rooflane::gemm
