// GEMM of short operands by wgmma (maths f16, bf16, int8; NVIDIA's Hopper): which tiles, and their
// launch. The kernel and its ideas are in gemm_wgmma.cl and docs/wgmma.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/opencl_ptx.hpp"
#include "gemm_wgmma_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t block_rows = 64;  // of a wgmma; also what a row of 128 bytes across k holds
constexpr int64_t map_bytes = 128;
constexpr int64_t box_columns = 32;      // of results that the copy engine stores
constexpr int64_t result_bytes = 32768;  // most that a consumer has in local memory for it

struct Tile {
  int64_t code_path, wm, mt, nt, stages, raster, splits;
  static constexpr int64_t path = path_wgmma;
  static constexpr const char* names[] = {"code_path", "wm",     "mt",    "nt",
                                          "stages",    "raster", "splits"};

  int64_t items() const { return 32 * (wm + 1); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return nt * 8; }
  int64_t own_cols(const Gemm& g) const { return g.gate ? bn() / 2 : bn(); }
  // Tiles of c times shares of k: a group computes one after the other.
  double works(const Gemm& g) const { return groups_of(g, bm(), own_cols(g), splits); }
  // Whether results go through local memory: the copy engine stores whole boxes of rows that are a
  // multiple of 16 bytes.
  bool is_staged(const Task& task) const {
    return splits == 1 && static_cast<int64_t>(size_of(task.c)) * task.g.n % 16 == 0 &&
           own_cols(task.g) % box_columns == 0;
  }
  // Stages, each with two barriers of 8 bytes, and results.
  int64_t local_bytes(const Task& task) const {
    const auto tile_bytes =
        static_cast<int64_t>(size_of(task.c)) * mt * block_rows * own_cols(task.g);
    return stages * ((bm() + bn()) * unit_row_bytes + 16) +
           (is_staged(task) ? wm / 4 * std::min(result_bytes, tile_bytes) : 0);
  }
  std::optional<std::string> defect(const Task& task) const;
  double expected_ns(const Task& task) const;
};

// Why no tuning can serve the problem.
std::optional<std::string> refusal(const Task& task) {
  if (!has_unit_math(task) || task.env.math == math_3xtf32.name) {
    return fmt::format("path=7 is of maths f16, bf16 and int8, not of {}", task.env.math);
  }
  if (const opencl::Features& has = task.device.features; !has.wgmma) {
    return fmt::format("path=7 needs wgmma, which {} or its driver lacks{}", task.device.info.name,
                       has.no_wgmma.empty() ? "" : ": " + has.no_wgmma);
  }
  return std::nullopt;
}

std::optional<std::string> Tile::defect(const Task& task) const {
  if (auto reason = refusal(task)) return reason;
  const Gemm& g = task.g;
  return common::unmet_need(
      path,
      {{code_path == 1, "code_path=1"},
       // Sums that fill more than 128 registers an item spill; a copy takes at most 256 rows, and
       // starts at a multiple of 8.
       {(wm == 4 || wm == 8) && mt <= 2 && nt % 2 == 0 && mt * nt <= 32 && stages >= 2 &&
            own_cols(g) % (unit_layouts(task).b.wide ? block_rows : 16) == 0,
        "wm=4 or 8, mt at most 2, nt even and mt·nt at most 32, columns of a tile that are a "
        "multiple of 16 (of 64 where rows of b lie across k; with gate=1 twice that), and stages "
        "of at least 2"},
       {std::max({g.m, g.b_cols(), g.k, g.batch}) < unit_longest && works(g) < 2e9,
        "sizes below 2^29"},
       few_parts(task.parts_bytes(splits))},
      {1, items(), local_bytes(task)}, task.device);
}

// Bytes of the L2 cache that are read for 128 bytes of a row: rows that are no multiple of a line
// touch two lines, and those that are no multiple of a sector five sectors.
double segment_bytes(const Layout& layout, int64_t bytes) {
  return layout.ld * bytes % 128 == 0 ? 128 : layout.ld * bytes % 32 == 0 ? 160 : 192;
}

// Waves of works, one group a unit. A wgmma of n columns takes n/2 clocks for 32 bytes of k, if its
// operands arrive: a unit gets 85 bytes a nanosecond from the L2 cache, which narrow tiles wait
// for. The constants are those of an H100 and an H200.
double Tile::expected_ns(const Task& task) const {
  const Layouts x = unit_layouts(task);
  const GpuModel gpu(task.device.info);
  constexpr double peak_share = 0.93;
  constexpr double l2_bytes_per_ns = 85;
  const auto rows = static_cast<double>(bm());
  const auto columns = static_cast<double>(bn());
  const double step_ns = std::max(
      rows / block_rows * columns / 2 * 4 / (peak_share * unit_sustained_clock * gpu.clock_ghz),
      (rows * segment_bytes(x.a, x.bytes) + columns * segment_bytes(x.b, x.bytes)) /
          l2_bytes_per_ns);
  // The first copies, and storing.
  const double tile_ns = is_staged(task) ? 1500 : 3000;
  const double waves = std::ceil(works(task.g) / gpu.units);
  const auto steps = static_cast<double>(unit_steps(task, x, splits));
  return unit_ns(task, waves * (steps * step_ns + tile_ns), x, splits);
}

std::vector<Guess> guesses(const Task& task) {
  std::vector<Guess> list;
  if (refusal(task)) return list;
  for (const int64_t wm : {4, 8}) {
    for (const int64_t mt : {1, 2}) {
      for (int64_t nt = 8; nt * mt <= 32; nt += 2) {
        for (const int64_t splits : {1, 2, 3, 4, 6, 8, 16}) {
          Tile t{1, wm, mt, nt, 8, 8, splits};
          if (!is_worth_splitting(task, splits, 256, t.works(task.g), 2)) continue;
          while (t.stages > 2 && t.local_bytes(task) > task.device.local_limit(1)) {
            --t.stages;
          }
          add_guess(list, t, task);
        }
      }
    }
  }
  return list;
}

opencl::Wgmma instruction(const Task& task, const Tuning& tuning) {
  const Layouts x = unit_layouts(task);
  return {.columns = static_cast<int>(read_tuning<Tile>(tuning).bn()),
          .a = task.a->short_name,
          .a_wide = x.a.wide,
          .b_wide = x.b.wide};
}

class WgmmaPlan final : public UnitPlan {
 public:
  WgmmaPlan(const Task& task, const Tuning& tuning, const Operands& constants)
      : UnitPlan(task, tuning, unit_layouts(task),
                 instruction(task, tuning).macros() + gemm_wgmma_cl) {
    if (g_.empty()) return;
    const auto t = read_tuning<Tile>(tuning);
    options_ += fmt::format(" -DSTAGED={:d}", t.is_staged(task));
    prepare(task, constants, t.splits);
    cl_mem maps = workspace(3 * map_bytes);
    opencl::KernelCall describe = kernel(source_.c_str(), options_, "describe");
    describe.set_args(context(), maps, a_, b_, copy_of("c"));
    add_sizes(describe, g_.m, g_.n, g_.b_cols(), std::max<int64_t>(g_.k, 1), g_.batch,
              layouts_.a.ld * layouts_.bytes, layouts_.b.ld * layouts_.bytes);
    add_description(std::move(describe), {a_, b_, copy_of("c")});
    opencl::KernelCall call = kernel(source_.c_str(), options_, "gemm_wgmma");
    call.set_args(context(), maps, parts_);
    add_sizes(call, g_.m, g_.n, k_, g_.batch, tiles(g_.m, t.bm()), tiles(g_.n, t.own_cols(g_)),
              k_share_);
    add_last(call);
    const double groups = std::min<double>(t.works(g_), context().compute_units());
    add_step(std::move(call), static_cast<int64_t>(groups), t.items());
    add_up(t.splits);
    path_ = instruction(task, tuning).name();
  }
};

}  // namespace

const Path wgmma = path_of<Tile, WgmmaPlan>(guesses);

}  // namespace rooflane::gemm
