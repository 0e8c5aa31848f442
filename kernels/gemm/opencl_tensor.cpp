// GEMM on matrix units by mma.sync (maths 3xtf32, f16, bf16, int8): which tiles, and their launch.
// The kernel and its ideas are in gemm_tensor.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "backends/opencl_features.hpp"
#include "core/math.hpp"
#include "gemm_tensor_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

struct Tensor {
  int64_t code_path, wm, wn, mt, nt, stages, packed, regs, raster, splits;
  int64_t warps() const { return wm * wn; }
  // The portable code path's work-items play a whole warp each.
  int64_t items() const { return code_path == 1 ? 32 * warps() : warps(); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return wn * nt * 8; }
  int64_t own_cols(const Gemm& g) const { return g.gate ? bn() / 2 : bn(); }
  double groups(const Gemm& g) const { return groups_of(g, bm(), own_cols(g), splits); }
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
};
constexpr Field<Tensor> fields[] = {{"code_path", &Tensor::code_path},
                                    {"wm", &Tensor::wm},
                                    {"wn", &Tensor::wn},
                                    {"mt", &Tensor::mt},
                                    {"nt", &Tensor::nt},
                                    {"stages", &Tensor::stages},
                                    {"packed", &Tensor::packed, 0},
                                    {"regs", &Tensor::regs, 0},
                                    {"raster", &Tensor::raster},
                                    {"splits", &Tensor::splits}};
Tensor read(const Tuning& tuning) { return read_tuning<Tensor>(fields, tuning); }
Tuning written(const Tensor& x) { return tuning_of<Tensor>(path_tensor, fields, x); }

UnitLayouts layouts_of(const Tensor& t, const Problem& problem) {
  return {Gemm(problem), problem.dtype("a_type"), t.packed * t.bm(), t.packed * t.bn()};
}

// Device memory beside the operands.
double beside_bytes(const Tensor& t, const Problem& problem) {
  const Gemm g(problem);
  return unit_parts_bytes(t.splits, g) + layouts_of(t, problem).laid_bytes(g, false);
}

// Matrix units that take tf32 take float16, bfloat16 and 8-bit integers too, and come with
// ldmatrix.
bool has_units(const DeviceInfo& info) {
  const opencl::Features& found = opencl::features(info.index);
  return found.mma_tf32 && found.mma_f16 && found.copy_async;
}

std::optional<std::string> defect_of(const Tensor& t, const Problem& problem,
                                     const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  const UnitLayouts layouts = layouts_of(t, problem);
  const bool is_3xtf32 = env.math == math_3xtf32.name;
  const int64_t across = unit_row_bytes / layouts.bytes;
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return unmet_need(
      path_tensor,
      {{has_unit_math(problem, env), "math 3xtf32, f16, bf16 or int8"},
       {t.code_path == 0 || has_units(info),
        "matrix units with code_path=1, which this device lacks"},
       {power(t.wm) && power(t.wn) && power(t.mt) && power(t.nt),
        "powers of two for wm, wn, mt, nt"},
       {t.nt >= (is_3xtf32 ? 4 : 2), "nt of at least 2, under math 3xtf32 of at least 4"},
       {t.own_cols(g) % 8 == 0, "tiles of at least 8 columns"},
       {t.stages >= 2, "stages of at least 2"},
       {t.packed == 0 || is_3xtf32, "math 3xtf32 for packed=1"},
       {(!layouts.a.wide || t.bm() >= across) && (!layouts.b.wide || t.bn() >= across),
        "tiles of at least 128 bytes along an operand's rows that lie across k"},
       {std::max({g.m, g.b_cols(), g.k, g.batch}) < unit_longest && t.groups(g) < 2e9,
        "sizes below 2^29"}},
      {t.code_path, t.items(), t.local_bytes(), unit_parts_bytes(t.splits, g)}, info);
}

// Waves of groups, each as long as its tiles take on a unit that all its groups share. A matrix
// unit takes 1.6 clocks for the product of two fragments (an H200, 63 % of its peak, which is what
// mma.sync reaches there), and 3.4 for three of tf32; the fewer fragments a warp holds, the more it
// loads for each. 3xtf32 splits besides, unless operands are packed; its 64×64 a warp spill.
double expected_ns(const Tensor& t, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const UnitLayouts layouts = layouts_of(t, problem);
  const bool is_3xtf32 = layouts.bytes == 4;
  const double product_clocks = is_3xtf32 ? 3.4 : 1.6;
  const double clock_ghz = unit_sustained_clock * (info.clock_mhz > 0 ? info.clock_mhz * 1e-3 : 1);
  const GpuModel gpu(info);
  const auto fragments = static_cast<double>(t.mt * t.nt);
  double share = fragments >= 32 ? 0.9 : fragments >= 16 ? 0.75 : fragments >= 8 ? 0.6 : 0.4;
  if (is_3xtf32) {
    share = t.packed == 1 ? (fragments >= 32 ? 0.66 : 0.7) : fragments >= 32 ? 0.59 : 0.53;
  }
  const auto per_unit = static_cast<double>(
      std::clamp<int64_t>(std::min({65536 / (t.registers(is_3xtf32) * t.items()),
                                    227 * 1024 / (t.local_bytes() + 1024)}),
                          1, 16));
  const double groups = t.groups(g);
  const double resident = std::min(per_unit, std::ceil(groups / gpu.units));
  // Each of a unit's four parts works for one warp at a time.
  const double warps = std::max(4.0, static_cast<double>(t.warps()) * resident);
  const double rate = share * std::min(1.0, (warps + 4) / 12);
  const auto steps = static_cast<double>(
      tiles(tiles(g.k * layouts.packed_bytes, unit_row_bytes), t.splits) * 4 / (1 + t.packed));
  const double waves = std::ceil(groups / (gpu.units * resident));
  const double wave_ns = warps * fragments * steps * product_clocks / rate / clock_ghz + 2500;
  return std::max(waves * wave_ns, unit_bytes(problem) / (0.8 * gpu.bytes_per_ns)) + gpu.launch_ns +
         unit_split_ns(t.splits, g, gpu) + layouts.lay_ns(g, gpu);
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

class TensorPlan final : public UnitPlan {
 public:
  TensorPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
             const Operands& constants)
      : UnitPlan(problem, tuning, env, layouts_of(read(tuning), problem), gemm_tensor_cl) {
    if (g_.empty()) return;
    const Tensor t = read(tuning);
    prepare(constants, t.splits);
    const std::string cap =
        t.code_path == 1 && t.regs > 0 ? fmt::format(" -cl-nv-maxrregcount={}", t.regs) : "";
    gemm_ = {kernel(source_.c_str(), options_ + cap, "gemm_tensor"),
             launch_of(static_cast<int64_t>(t.groups(g_)), t.items())};
    gemm_.call.set_args(context(), a_, b_, parts_, as_cl_int(g_.m), as_cl_int(g_.n), as_cl_int(k_),
                        as_cl_int(layouts_.a.ld), as_cl_int(layouts_.b.ld),
                        cl_long{layouts_.a.matrix_bytes(g_.k)},
                        cl_long{layouts_.b.matrix_bytes(g_.k)}, as_cl_int(tiles(g_.m, t.bm())),
                        as_cl_int(tiles(g_.n, t.own_cols(g_))), as_cl_int(k_share_));
    add_last(gemm_.call);
    path_ = t.code_path == 0
                ? "mma emulated"
                : fmt::format("mma.m16n8k{}.{}", 32 / layouts_.bytes,
                              is_3xtf32() ? "tf32" : problem.dtype("a_type")->short_name);
  }
};

}  // namespace

std::vector<Guess> tensor_guesses(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  std::vector<Guess> list;
  if (!has_unit_math(problem, env)) return list;
  const bool is_3xtf32 = env.math == math_3xtf32.name;
  const auto portable = is_3xtf32 ? std::span<const Tensor>(portable_split) : portable_short;
  if (!has_units(info)) {
    for (const Tensor& t : portable) {
      if (!defect_of(t, problem, env)) {
        list.push_back({written(t), never_first + static_cast<double>(list.size())});
      }
    }
    return list;
  }
  const auto free_bytes = static_cast<double>(opencl::available_bytes(info));
  const auto shapes = is_3xtf32 ? std::span<const Shape>(split_shapes) : short_shapes;
  for (const Shape& s : shapes) {
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 32}) {
      const Tensor t{1, s.wm, s.wn, s.mt, s.nt, s.stages, s.packed, s.regs, 8, splits};
      // Each share deserves some hundred steps, and nothing is won beyond a few waves.
      const bool is_worth =
          splits == 1 || (g.reads_ab() && g.k / splits >= (is_3xtf32 ? 128 : 256) &&
                          t.groups(g) <= 4.0 * info.compute_units);
      if (is_worth && !defect_of(t, problem, env) &&
          (s.packed == 0 || beside_bytes(t, problem) + unit_bytes(problem) <= free_bytes)) {
        list.push_back({written(t), expected_ns(t, problem, info)});
      }
    }
  }
  return list;
}

std::optional<std::string> tensor_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  return defect_of(read(tuning), problem, env);
}

double tensor_beside_bytes(const Problem& problem, const Tuning& tuning) {
  return beside_bytes(read(tuning), problem);
}

std::unique_ptr<Plan> tensor_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands& constants) {
  return std::make_unique<TensorPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
