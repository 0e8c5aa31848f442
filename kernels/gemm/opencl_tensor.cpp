// GEMM on matrix units by mma.sync (maths 3xtf32, f16, bf16, int8): which tiles, and their launch.
// The kernel and its ideas are in gemm_tensor.cl.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "gemm_tensor_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using common::is_power_of_two;
using std::int64_t;

struct Tensor {
  int64_t code_path, wm, wn, mt, nt, stages, packed, regs, raster, splits;
  static constexpr int64_t path = path_tensor;
  static constexpr const char* names[] = {"code_path", "wm",     "wn",   "mt",     "nt",
                                          "stages",    "packed", "regs", "raster", "splits"};

  int64_t warps() const { return wm * wn; }
  // The portable code path's work-items play a whole warp each.
  int64_t items() const { return code_path == 1 ? 32 * warps() : warps(); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return wn * nt * 8; }
  int64_t own_cols(const Gemm& g) const { return g.gate ? bn() / 2 : bn(); }
  double groups(const Gemm& g) const { return groups_of(g, bm(), own_cols(g), splits); }
  Layouts layouts(const Task& task) const {
    return unit_layouts(task, packed * bm(), packed * bn());
  }
  int64_t local_bytes() const {
    return std::max(stages * (bm() + bn()) * unit_row_bytes, bm() * (bn() + 8) * 4);
  }
  // Sums, fragments of two steps (of 3xtf32 both parts, of b those of four columns), and about 60
  // addresses and counters.
  int64_t registers(bool is_3xtf32) const {
    if (regs > 0) return regs;
    return std::min<int64_t>(255,
                             4 * mt * nt + (is_3xtf32 ? 20 * mt + 32 : 2 * (4 * mt + 2 * nt)) + 60);
  }
  std::optional<std::string> defect(const Task& task) const;
  double expected_ns(const Task& task) const;
};

// Device memory beside the operands.
double beside_bytes(const Tensor& t, const Task& task) {
  return task.parts_bytes(t.splits) + t.layouts(task).laid_bytes(task.g, false);
}

// Matrix units that take tf32 take float16, bfloat16 and 8-bit integers too, and come with
// ldmatrix.
bool has_units(const opencl::Features& found) {
  return found.mma_tf32 && found.mma_f16 && found.copy_async;
}

std::optional<std::string> Tensor::defect(const Task& task) const {
  const Gemm& g = task.g;
  const Layouts x = layouts(task);
  const bool is_3xtf32 = task.env.math == math_3xtf32.name;
  const int64_t across = unit_row_bytes / x.bytes;
  return common::unmet_need(
      path,
      {{has_unit_math(task), "math 3xtf32, f16, bf16 or int8"},
       {code_path == 0 || has_units(task.device.features),
        "matrix units with code_path=1, which this device lacks"},
       {is_power_of_two(wm) && is_power_of_two(wn) && is_power_of_two(mt) && is_power_of_two(nt),
        "powers of two for wm, wn, mt, nt"},
       {nt >= (is_3xtf32 ? 4 : 2), "nt of at least 2, under math 3xtf32 of at least 4"},
       {own_cols(g) % 8 == 0, "tiles of at least 8 columns"},
       {stages >= 2, "stages of at least 2"},
       {packed == 0 || is_3xtf32, "math 3xtf32 for packed=1"},
       {(!x.a.wide || bm() >= across) && (!x.b.wide || bn() >= across),
        "tiles of at least 128 bytes along an operand's rows that lie across k"},
       {std::max({g.m, g.b_cols(), g.k, g.batch}) < unit_longest && groups(g) < 2e9,
        "sizes below 2^29"},
       few_parts(task.parts_bytes(splits))},
      {code_path, items(), local_bytes()}, task.device);
}

// Waves of groups, each as long as its tiles take on a unit that all its groups share. A matrix
// unit takes 1.6 clocks for the product of two fragments (an H200, 63 % of its peak, which is what
// mma.sync reaches there), and 3.4 for three of tf32; the fewer fragments a warp holds, the more it
// loads for each. 3xtf32 splits besides, unless operands are packed; its 64×64 a warp spill.
double Tensor::expected_ns(const Task& task) const {
  if (code_path == 0) return common::never_first;
  const Layouts x = layouts(task);
  const bool is_3xtf32 = x.bytes == 4;
  const double product_clocks = is_3xtf32 ? 3.4 : 1.6;
  const GpuModel gpu(task.device.info);
  const auto fragments = static_cast<double>(mt * nt);
  double share = fragments >= 32 ? 0.9 : fragments >= 16 ? 0.75 : fragments >= 8 ? 0.6 : 0.4;
  if (is_3xtf32) {
    share = packed == 1 ? (fragments >= 32 ? 0.66 : 0.7) : fragments >= 32 ? 0.59 : 0.53;
  }
  const auto per_unit =
      static_cast<double>(groups_per_unit(items(), registers(is_3xtf32), local_bytes()));
  const double resident = std::min(per_unit, std::ceil(groups(task.g) / gpu.units));
  // Each of a unit's four parts works for one warp at a time.
  const double busy_warps = std::max(4.0, static_cast<double>(warps()) * resident);
  const double rate = share * std::min(1.0, (busy_warps + 4) / 12);
  const auto steps = static_cast<double>(unit_steps(task, x, splits) * 4 / (1 + packed));
  const double waves = std::ceil(groups(task.g) / (gpu.units * resident));
  const double wave_ns = busy_warps * fragments * steps * product_clocks / rate /
                             (unit_sustained_clock * gpu.clock_ghz) +
                         2500;
  return unit_ns(task, waves * wave_ns, x, splits);
}

struct Shape {
  int64_t wm, wn, mt, nt, stages, packed, regs;
};
// 128×256 keeps the matrix units busy; two groups of 128×128 share a unit; less for small products.
constexpr Shape short_shapes[] = {{2, 4, 4, 8, 4, 0, 0}, {2, 2, 4, 8, 3, 0, 0},
                                  {2, 2, 4, 4, 4, 0, 0}, {2, 2, 2, 4, 5, 0, 0},
                                  {1, 4, 2, 4, 4, 0, 0}, {1, 4, 1, 4, 5, 0, 0}};
// 64×64 a warp: 128 of its items' 255 registers hold sums. On an H200 256×128 by eight warps was
// slower (they all wait at one barrier), and 128×128 by sixteen (spills).
constexpr Shape split_shapes[] = {
    {2, 2, 4, 8, 3, 1, 0}, {2, 2, 4, 4, 3, 1, 168}, {2, 2, 4, 8, 3, 0, 0}, {2, 2, 4, 4, 3, 0, 0},
    {2, 2, 2, 4, 4, 0, 0}, {1, 2, 2, 4, 4, 0, 0},   {1, 1, 2, 4, 4, 0, 0}};

// One work-item plays 32 lanes; 32 KB of local memory, the least that OpenCL allows a device.
constexpr Tensor portable_short[] = {{0, 2, 1, 2, 8, 2, 0, 0, 8, 1}};
constexpr Tensor portable_split[] = {
    {0, 1, 1, 2, 4, 2, 0, 0, 8, 1}, {0, 2, 2, 2, 4, 2, 1, 0, 2, 1}, {0, 1, 1, 2, 4, 2, 0, 0, 8, 2}};

// Every device has the portable code path; it is slow (below 1 GFLOP/s), being there for checks.
std::vector<Guess> guesses(const Task& task) {
  std::vector<Guess> list;
  if (!has_unit_math(task)) return list;
  const bool is_3xtf32 = task.env.math == math_3xtf32.name;
  if (!has_units(task.device.features)) {
    for (const Tensor& t : is_3xtf32 ? std::span<const Tensor>(portable_split) : portable_short) {
      add_guess(list, t, task);
    }
    return list;
  }
  const auto free_bytes = static_cast<double>(opencl::available_bytes(task.device.info));
  for (const Shape& s : is_3xtf32 ? std::span<const Shape>(split_shapes) : short_shapes) {
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 32}) {
      const Tensor t{1, s.wm, s.wn, s.mt, s.nt, s.stages, s.packed, s.regs, 8, splits};
      if (is_worth_splitting(task, splits, is_3xtf32 ? 128 : 256, t.groups(task.g), 4) &&
          (s.packed == 0 || beside_bytes(t, task) + task.least_bytes() <= free_bytes)) {
        add_guess(list, t, task);
      }
    }
  }
  return list;
}

class TensorPlan final : public UnitPlan {
 public:
  TensorPlan(const Task& task, const Tuning& tuning, const Operands& constants)
      : TensorPlan(task, tuning, constants, read_tuning<Tensor>(tuning)) {}

 private:
  TensorPlan(const Task& task, const Tuning& tuning, const Operands& constants, const Tensor& t)
      : UnitPlan(task, tuning, t.layouts(task), gemm_tensor_cl) {
    if (g_.empty()) return;
    prepare(task, constants, t.splits);
    const std::string cap =
        t.code_path == 1 && t.regs > 0 ? fmt::format(" -cl-nv-maxrregcount={}", t.regs) : "";
    opencl::KernelCall call = kernel(source_.c_str(), options_ + cap, "gemm_tensor");
    const auto [a, b, bytes] = layouts_;
    call.set_args(context(), a_, b_, parts_);
    add_sizes(call, g_.m, g_.n, k_, a.ld * bytes, b.ld * bytes);
    call.add_args(context(), cl_long{a.elements() * bytes}, cl_long{b.elements() * bytes});
    add_sizes(call, tiles(g_.m, t.bm()), tiles(g_.n, t.own_cols(g_)), k_share_);
    add_last(call);
    add_step(std::move(call), static_cast<int64_t>(t.groups(g_)), t.items());
    add_up(t.splits);
    path_ = t.code_path == 0 ? "mma emulated"
                             : fmt::format("mma.m16n8k{}.{}", 32 / bytes,
                                           is_3xtf32() ? "tf32" : task.a->short_name);
  }
};

}  // namespace

double tensor_beside_bytes(const Task& task, const Tuning& tuning) {
  return beside_bytes(read_tuning<Tensor>(tuning), task);
}

const Path tensor = path_of<Tensor, TensorPlan>(guesses);

}  // namespace rooflane::gemm
