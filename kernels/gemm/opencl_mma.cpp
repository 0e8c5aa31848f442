// GEMM of short operands on matrix units (maths f16, bf16, int8): which tiles, and their launch.
// The kernel and its ideas are in gemm_mma.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "gemm_mma_cl.hpp"
#include "kernels/gemm/opencl_units.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

struct Mma {
  int64_t code_path, wm, wn, mt, nt, stages, raster, splits;

  static Mma from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("code_path"), get("wm"),     get("wn"),     get("mt"),
            get("nt"),        get("stages"), get("raster"), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_mma}, {"code_path", code_path},
            {"wm", wm},         {"wn", wn},
            {"mt", mt},         {"nt", nt},
            {"stages", stages}, {"raster", raster},
            {"splits", splits}};
  }
  int64_t warps() const { return wm * wn; }
  // The portable code path's work-items play a whole warp each.
  int64_t items() const { return code_path == 1 ? 32 * warps() : warps(); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return wn * nt * 8; }
  int64_t own_cols(const Gemm& g) const { return g.gate ? bn() / 2 : bn(); }
  int64_t local_bytes() const {
    return std::max(stages * (bm() + bn()) * unit_row_bytes, bm() * (bn() + 8) * 4);
  }
  // Sums, fragments of two steps, and about 60 addresses and counters.
  int64_t registers() const {
    return std::min<int64_t>(255, 4 * mt * nt + 2 * (4 * mt + 2 * nt) + 60);
  }
};

double groups_of(const Mma& t, const Gemm& g) {
  return static_cast<double>(g.batch) * static_cast<double>(tiles(g.m, t.bm())) *
         static_cast<double>(tiles(g.n, t.own_cols(g))) * static_cast<double>(t.splits);
}

// Matrix units that take tf32 take float16, bfloat16 and 8-bit integers too, and come with
// ldmatrix.
bool has_units(const DeviceInfo& info) {
  const opencl::Features& found = opencl::features(info.index);
  return found.mma_tf32 && found.mma_f16 && found.copy_async;
}

bool fits(const Mma& t, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const UnitLayouts layouts(g, problem.dtype("a_type"));
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return (t.code_path == 0 || has_units(info)) && power(t.wm) && power(t.wn) && power(t.mt) &&
         power(t.nt) && t.nt >= 2 && t.stages >= 2 && (!layouts.a.wide || t.bm() >= 64) &&
         (!layouts.b.wide || t.bn() >= 64) && t.own_cols(g) % 8 == 0 &&
         static_cast<std::size_t>(t.items()) <= info.max_work_group &&
         t.local_bytes() <= local_limit(t.code_path, info) &&
         std::max({g.m, g.b_cols(), g.k, g.batch}) < unit_longest && groups_of(t, g) < 2e9 &&
         unit_parts_bytes(t.splits, g) <= most_parts_bytes;
}

// Waves of groups, each as long as its tiles take on a unit that all its groups share. A matrix
// unit takes 1.6 clocks for a product of fragments (an H200, 63 % of its peak, which is what
// mma.sync reaches there); the fewer fragments a warp holds, the more it loads for each.
double expected_ns(const Mma& t, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const UnitLayouts layouts(g, problem.dtype("a_type"));
  constexpr double product_clocks = 1.6;
  const double clock_ghz = unit_sustained_clock * (info.clock_mhz > 0 ? info.clock_mhz * 1e-3 : 1);
  const GpuModel gpu(info);
  const auto fragments = static_cast<double>(t.mt * t.nt);
  const double share = fragments >= 32 ? 0.9 : fragments >= 16 ? 0.75 : fragments >= 8 ? 0.6 : 0.4;
  const auto per_unit = static_cast<double>(std::clamp<int64_t>(
      std::min({65536 / (t.registers() * t.items()), 227 * 1024 / (t.local_bytes() + 1024)}), 1,
      16));
  const double groups = groups_of(t, g);
  const double resident = std::min(per_unit, std::ceil(groups / gpu.units));
  const double warps = static_cast<double>(t.warps()) * resident;
  const double rate = share * std::min(1.0, (warps + 4) / 12);
  const auto steps =
      static_cast<double>(tiles(tiles(g.k * layouts.bytes, unit_row_bytes), t.splits) * 4);
  const double waves = std::ceil(groups / (gpu.units * resident));
  const double wave_ns = resident * static_cast<double>(t.warps()) * fragments * steps *
                             product_clocks / rate / clock_ghz +
                         2500;
  const double bytes = unit_bytes(g, layouts, problem);
  const double split_ns =
      t.splits > 1 ? gpu.launch_ns + 2 * unit_parts_bytes(t.splits, g) / gpu.bytes_per_ns : 0;
  return std::max(waves * wave_ns, bytes / (0.8 * gpu.bytes_per_ns)) + gpu.launch_ns + split_ns;
}

struct Shape {
  int64_t wm, wn, mt, nt, stages;
};
// 128×256 keeps the matrix units busy; two groups of 128×128 share a unit; less for small products.
constexpr Shape shapes[] = {{2, 4, 4, 8, 4}, {2, 2, 4, 8, 3}, {2, 2, 4, 4, 4},
                            {2, 2, 2, 4, 5}, {1, 4, 2, 4, 4}, {1, 4, 1, 4, 5}};

// One work-item plays 32 lanes; 32 KB of local memory, the least that OpenCL allows a device.
constexpr Mma portable = {0, 2, 1, 2, 8, 2, 8, 1};

class MmaPlan final : public UnitPlan {
 public:
  MmaPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
          const Operands& constants)
      : UnitPlan(problem, tuning, env, gemm_mma_cl) {
    if (g_.empty()) return;
    const Mma t = Mma::from(tuning);
    prepare(constants, t.splits);
    gemm_ = kernel(source_.c_str(), options_, "gemm_mma");
    gemm_.set_args(context(), a_, b_, parts_, as_cl_int(g_.m), as_cl_int(g_.n), as_cl_int(k_),
                   as_cl_int(layouts_.a.ld), as_cl_int(layouts_.b.ld),
                   cl_long{layouts_.a.matrix_bytes(g_.m, g_.k)},
                   cl_long{layouts_.b.matrix_bytes(g_.b_cols(), g_.k)},
                   as_cl_int(tiles(g_.m, t.bm())), as_cl_int(tiles(g_.n, t.own_cols(g_))),
                   as_cl_int(k_share_));
    add_output(gemm_);
    size_ = {static_cast<std::size_t>(groups_of(t, g_)), static_cast<std::size_t>(t.items())};
  }

  PlanFacts facts() const override {
    PlanFacts facts = DevicePlan::facts();
    const DType type = problem().dtype("a_type");
    facts.path = tuning().get("code_path", 0) == 0
                     ? "mma emulated"
                     : fmt::format("mma.m16n8k{}.{}", 32 / layouts_.bytes, type->short_name);
    return facts;
  }

 private:
  void multiply() override { launch(gemm_, size_); }

  opencl::KernelCall gemm_;
  opencl::Launch size_{};
};

}  // namespace

std::vector<Guess> mma_guesses(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  std::vector<Guess> list;
  if (!has_unit_math(problem, env)) return list;
  if (!has_units(info)) {
    if (fits(portable, problem, info)) list.push_back({portable.tuning(), 0});
    return list;
  }
  for (const Shape& s : shapes) {
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 16, 32}) {
      const Mma t{1, s.wm, s.wn, s.mt, s.nt, s.stages, 8, splits};
      // Each share deserves some hundred steps, and nothing is won beyond a few waves.
      const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 256 &&
                                            groups_of(t, g) <= 4.0 * info.compute_units);
      if (is_worth && fits(t, problem, info)) {
        list.push_back({t.tuning(), expected_ns(t, problem, info)});
      }
    }
  }
  return list;
}

std::optional<std::string> mma_defect(const Problem& problem, const Tuning& tuning,
                                      const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Mma t = Mma::from(tuning);
  if (!has_unit_math(problem, env)) {
    return fmt::format("path=5 is of maths f16, bf16 and int8, not of {}", env.math);
  }
  if (t.code_path == 1 && !has_units(info)) {
    return fmt::format("code_path=1 under path=5 needs matrix units, which {} lacks", info.name);
  }
  if (fits(t, problem, info)) return std::nullopt;
  return fmt::format(
      "path=5 needs powers of two for wm, wn, mt and nt, nt at least 2, stages at least 2, tiles "
      "of at least 64 along an operand's rows that lie across k, a group's {} items at most {}, "
      "its {} bytes of local memory at most {} on {}, sizes below {}, and partial sums of at most "
      "{:.0f} bytes",
      t.items(), info.max_work_group, t.local_bytes(), local_limit(t.code_path, info), info.name,
      unit_longest, most_parts_bytes);
}

std::unique_ptr<Plan> mma_plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                               const Operands& constants) {
  return std::make_unique<MmaPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
