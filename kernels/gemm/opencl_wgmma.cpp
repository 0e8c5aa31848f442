// GEMM of short operands by wgmma (maths f16, bf16, int8; NVIDIA's Hopper): which tiles, and their
// launch. The kernel and its ideas are in gemm_wgmma.cl and docs/wgmma.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "backends/opencl_ptx.hpp"
#include "core/math.hpp"
#include "gemm_wgmma_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

constexpr int64_t block_rows = 64;  // of a wgmma; also what a row of 128 bytes across k holds
constexpr int64_t map_bytes = 128;
constexpr int64_t box_columns = 32;      // of results that the copy engine stores
constexpr int64_t result_bytes = 32768;  // most that a consumer has in local memory for it

struct Tile {
  int64_t wm, mt, nt, stages, raster, splits, code_path = 1;
  int64_t items() const { return 32 * (wm + 1); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return nt * 8; }
  int64_t own_cols(const Gemm& g) const { return g.gate ? bn() / 2 : bn(); }
  // Tiles of c times shares of k: a group computes one after the other.
  double works(const Gemm& g) const { return groups_of(g, bm(), own_cols(g), splits); }
};
constexpr Field<Tile> fields[] = {{"code_path", &Tile::code_path},
                                  {"wm", &Tile::wm},
                                  {"mt", &Tile::mt},
                                  {"nt", &Tile::nt},
                                  {"stages", &Tile::stages},
                                  {"raster", &Tile::raster},
                                  {"splits", &Tile::splits}};
Tile read(const Tuning& tuning) { return read_tuning<Tile>(fields, tuning); }
Tuning written(const Tile& x) { return tuning_of<Tile>(path_wgmma, fields, x); }

// Whether results go through local memory: the copy engine stores whole boxes of rows that are a
// multiple of 16 bytes.
bool is_staged(const Tile& t, const Problem& problem) {
  const Gemm g(problem);
  const auto row_bytes = static_cast<int64_t>(size_of(problem.dtype("c_type"))) * g.n;
  return t.splits == 1 && row_bytes % 16 == 0 && t.own_cols(g) % box_columns == 0;
}

// Stages, each with two barriers of 8 bytes, and results.
int64_t local_bytes(const Tile& t, const Problem& problem) {
  const Gemm g(problem);
  const int64_t stages = t.stages * ((t.bm() + t.bn()) * unit_row_bytes + 16);
  if (!is_staged(t, problem)) return stages;
  const auto element = static_cast<int64_t>(size_of(problem.dtype("c_type")));
  return stages + t.wm / 4 * std::min(result_bytes, t.mt * block_rows * t.own_cols(g) * element);
}

// Sums that fill more than 128 registers an item spill; a copy takes at most 256 rows, and starts
// at a multiple of 8.
bool is_tile(const Tile& t, const Gemm& g, const UnitLayouts& layouts) {
  return (t.wm == 4 || t.wm == 8) && t.mt <= 2 && t.nt % 2 == 0 && t.mt * t.nt <= 32 &&
         t.stages >= 2 && t.own_cols(g) % (layouts.b.wide ? block_rows : 16) == 0;
}

std::optional<std::string> defect_of(const Tile& t, const Problem& problem,
                                     const DeviceInfo& info) {
  const Gemm g(problem);
  return unmet_need(
      path_wgmma,
      {{is_tile(t, g, UnitLayouts(g, problem.dtype("a_type"))),
        "wm=4 or 8, mt at most 2, nt even and mt·nt at most 32, columns of a tile that are a "
        "multiple of 16 (of 64 where rows of b lie across k; with gate=1 twice that), and stages "
        "of at least 2"},
       {std::max({g.m, g.b_cols(), g.k, g.batch}) < unit_longest && t.works(g) < 2e9,
        "sizes below 2^29"}},
      {1, t.items(), local_bytes(t, problem), unit_parts_bytes(t.splits, g)}, info);
}

// Bytes of the L2 cache that are read for 128 bytes of a row: rows that are no multiple of a line
// touch two lines, and those that are no multiple of a sector five sectors.
double segment_bytes(const UnitLayout& layout) {
  return layout.ld % 128 == 0 ? 128 : layout.ld % 32 == 0 ? 160 : 192;
}

// Waves of works, one group a unit. A wgmma of n columns takes n/2 clocks for 32 bytes of k, if its
// operands arrive: a unit gets 85 bytes a nanosecond from the L2 cache, which narrow tiles wait
// for. The constants are those of an H100 and an H200.
double expected_ns(const Tile& t, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const UnitLayouts layouts(g, problem.dtype("a_type"));
  const GpuModel gpu(info);
  const double clock_ghz = unit_sustained_clock * (info.clock_mhz > 0 ? info.clock_mhz * 1e-3 : 1);
  constexpr double peak_share = 0.93;
  constexpr double l2_bytes_per_ns = 85;
  const auto rows = static_cast<double>(t.bm());
  const auto columns = static_cast<double>(t.bn());
  const double step_ns = std::max(
      rows / block_rows * columns / 2 * 4 / (peak_share * clock_ghz),
      (rows * segment_bytes(layouts.a) + columns * segment_bytes(layouts.b)) / l2_bytes_per_ns);
  const auto steps =
      static_cast<double>(tiles(tiles(g.k * layouts.bytes, unit_row_bytes), t.splits));
  // The first copies, and storing.
  const double tile_ns = is_staged(t, problem) ? 1500 : 3000;
  const double waves = std::ceil(t.works(g) / gpu.units);
  return std::max(waves * (steps * step_ns + tile_ns),
                  unit_bytes(problem) / (0.8 * gpu.bytes_per_ns)) +
         gpu.launch_ns + unit_split_ns(t.splits, g, gpu) + layouts.lay_ns(g, gpu);
}

bool serves(const Problem& problem, const Environment& env) {
  return has_unit_math(problem, env) && env.math != math_3xtf32.name;
}

opencl::Wgmma instruction(const Problem& problem, const UnitLayouts& layouts, const Tile& t) {
  return {.columns = static_cast<int>(t.bn()),
          .a = problem.dtype("a_type")->short_name,
          .a_wide = layouts.a.wide,
          .b_wide = layouts.b.wide};
}

std::string source_of(const Problem& problem, const Tuning& tuning) {
  const Gemm g(problem);
  const UnitLayouts layouts(g, problem.dtype("a_type"));
  return instruction(problem, layouts, read(tuning)).macros() + gemm_wgmma_cl;
}

class WgmmaPlan final : public UnitPlan {
 public:
  WgmmaPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
            const Operands& constants)
      : UnitPlan(problem, tuning, env, {Gemm(problem), problem.dtype("a_type")},
                 source_of(problem, tuning)) {
    if (g_.empty()) return;
    const Tile t = read(tuning);
    options_ += fmt::format(" -DSTAGED={:d}", is_staged(t, problem));
    prepare(constants, t.splits);
    cl_mem maps = workspace(3 * map_bytes);
    describe_.call = kernel(source_.c_str(), options_, "describe");
    describe_.call.set_args(context(), maps, a_, b_, copy_of("c"), as_cl_int(g_.m), as_cl_int(g_.n),
                            as_cl_int(g_.b_cols()), as_cl_int(std::max<int64_t>(g_.k, 1)),
                            as_cl_int(g_.batch), as_cl_int(layouts_.a.ld),
                            as_cl_int(layouts_.b.ld));
    const double groups = std::min<double>(t.works(g_), context().compute_units());
    gemm_ = {kernel(source_.c_str(), options_, "gemm_wgmma"),
             launch_of(static_cast<int64_t>(groups), t.items())};
    gemm_.call.set_args(context(), maps, parts_, as_cl_int(g_.m), as_cl_int(g_.n), as_cl_int(k_),
                        as_cl_int(g_.batch), as_cl_int(tiles(g_.m, t.bm())),
                        as_cl_int(tiles(g_.n, t.own_cols(g_))), as_cl_int(k_share_));
    add_last(gemm_.call);
    path_ = instruction(problem, layouts_, t).name();
  }

 private:
  void multiply() override {
    describe(describe_, {a_, b_, copy_of("c")});
    GemmPlan::multiply();
  }

  Describing describe_;
};

}  // namespace

std::vector<Guess> wgmma_guesses(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  std::vector<Guess> list;
  if (!serves(problem, env) || !opencl::features(info.index).wgmma) return list;
  const Gemm g(problem);
  for (const int64_t wm : {4, 8}) {
    for (const int64_t mt : {1, 2}) {
      for (int64_t nt = 8; nt * mt <= 32; nt += 2) {
        for (const int64_t splits : {1, 2, 3, 4, 6, 8, 16}) {
          Tile t{wm, mt, nt, 8, 8, splits};
          while (t.stages > 2 && local_bytes(t, problem) > local_limit(1, info)) --t.stages;
          // Each share deserves some hundred steps, and nothing is won beyond a few waves.
          const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 256 &&
                                                t.works(g) <= 2.0 * info.compute_units);
          if (is_worth && !defect_of(t, problem, info)) {
            list.push_back({written(t), expected_ns(t, problem, info)});
          }
        }
      }
    }
  }
  return list;
}

std::optional<std::string> wgmma_defect(const Problem& problem, const Tuning& tuning,
                                        const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  if (!serves(problem, env)) {
    return fmt::format("path=7 is of maths f16, bf16 and int8, not of {}", env.math);
  }
  if (const opencl::Features& has = opencl::features(info.index); !has.wgmma) {
    return fmt::format("path=7 needs wgmma, which {} or its driver lacks{}", info.name,
                       has.no_wgmma.empty() ? "" : ": " + has.no_wgmma);
  }
  if (tuning.get("code_path", 1) != 1) return "path=7 needs code_path=1";
  return defect_of(read(tuning), problem, info);
}

std::unique_ptr<Plan> wgmma_plan(const Problem& problem, const Tuning& tuning,
                                 const Environment& env, const Operands& constants) {
  return std::make_unique<WgmmaPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
