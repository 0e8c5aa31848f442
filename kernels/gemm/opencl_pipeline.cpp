// GEMM on GPUs through pipelined tiles: which tiles, and their launch. The kernel and its ideas
// are in gemm_pipeline.cl.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gemm_pipeline_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using common::is_power_of_two;
using std::int64_t;

struct Pipeline {
  int64_t code_path, wm, wn, wk, lm, tm, tn, bk, stages, raster, rearranged, splits;
  static constexpr int64_t path = path_pipeline;
  static constexpr const char* names[] = {"code_path", "wm",     "wn",         "wk",
                                          "lm",        "tm",     "tn",         "bk",
                                          "stages",    "raster", "rearranged", "splits"};

  int64_t items() const { return 32 * wm * wn * wk; }
  int64_t bm() const { return wm * lm * tm; }
  int64_t bn() const { return wn * (32 / lm) * tn; }
  double groups(const Gemm& g) const { return groups_of(g, bm(), bn(), splits); }
  // An operand that is rearranged becomes rows of whole tiles.
  Layout layout(int64_t rows, int64_t k, bool deep, bool rearranges, int64_t tile) const {
    if (!rearranges) return {!deep, false, rows, k, deep ? k : rows};
    const int64_t padded = tiles(rows, tile) * tile;
    return {true, true, padded, tiles(k, bk) * bk, padded};
  }
  Layouts layouts(const Gemm& g) const {
    return {layout(g.m, g.k, !g.trans_a, rearranged & 1, bm()),
            layout(g.n, g.k, g.trans_b, rearranged & 2, bn()), 4};
  }
  // A tile of rows along k is transposed by its copies, into rows that are 4 floats longer.
  int64_t local_bytes(const Layouts& x) const {
    return 4 * stages * bk * (bm() + (x.a.wide ? 0 : 4) + bn() + (x.b.wide ? 0 : 4));
  }
  // Sums that half of the shares of k hand over.
  int64_t handed_bytes() const { return 4 * (wk / 2) * bm() * bn(); }
  double parts_bytes(const Task& task) const {
    return splits == 1 ? 0
                       : static_cast<double>(splits) *
                             task.bytes(tiles(task.g.m, bm()) * bm(), tiles(task.g.n, bn()) * bn());
  }
  // Results, operands of about three steps, addresses and counters: what NVIDIA's compiler took.
  int64_t registers() const { return std::min<int64_t>(255, tm * tn + 3 * (tm + tn) + 50); }

  std::optional<std::string> defect(const Task& task) const;
  double expected_ns(const Task& task) const;
};

// Whether the group's items cover whole rows of both tiles.
bool copies_fit(const Pipeline& p, const Layouts& x) {
  return (!x.a.wide || p.bm() / copy_width(x.a.ld) <= p.items()) &&
         (!x.b.wide || p.bn() / copy_width(x.b.ld) <= p.items());
}

// Whether operands, their new layouts and partial sums have room beside each other.
bool has_room(double parts, double laid, const Task& task) {
  constexpr double most_laid_bytes = 1LL << 32;  // 2 GB in a product of 16384³
  const double all = task.least_bytes() + task.bytes(task.g.m, task.g.n) + parts + laid;
  return laid <= most_laid_bytes &&
         std::max(parts, laid) <= static_cast<double>(task.device.info.max_buffer_bytes) &&
         (parts + laid == 0 || all <= static_cast<double>(task.device.info.global_bytes));
}

std::optional<std::string> Pipeline::defect(const Task& task) const {
  // The longest step inside the kernel is 256 rows, counted in int.
  constexpr int64_t longest_row = (int64_t{1} << 31) / 512;
  const Gemm& g = task.g;
  const Layouts x = layouts(g);
  return common::unmet_need(
      path,
      {{!task.has_formats(), "float32 alone and no gate=1"},
       {code_path == 0 || task.device.best_code_path() == 1,
        "code_path=0 without NVIDIA's inline PTX"},
       {is_power_of_two(wm) && is_power_of_two(wn) && is_power_of_two(wk) && is_power_of_two(lm) &&
            lm <= 32,
        "powers of two for wm, wn, wk and lm"},
       {tm % 4 == 0 && tn % 4 == 0 && is_power_of_two(bm()) && is_power_of_two(bn()),
        "multiples of 4 for tm and tn, and tiles with sides that are powers of two"},
       {is_power_of_two(bk) && bk >= 8 && bk / wk >= 2,
        "a power of two for bk, at least 8 and 2·wk"},
       {stages >= 2, "stages of at least 2"},
       {handed_bytes() <= local_bytes(x), "tiles as large as the sums that shares of k hand over"},
       {copies_fit(*this, x), "a row of a tile of at most one copy for each item of a group"},
       {std::max({g.m, g.n, g.k}) < longest_row && groups(g) < 2e9, "sizes below 2^22"},
       few_parts(parts_bytes(task)),
       {has_room(parts_bytes(task), x.laid_bytes(g, false), task),
        "room on the device for transposed operands and partial sums"}},
      {code_path, items(), local_bytes(x)}, task.device);
}

// Waves of groups, each as long as its tiles' share of k takes on a unit that all its groups share.
// The constants are fitted to 1 000 tunings of 22 problems on an H200, large and small ones, all
// transpositions; the tuning chosen was 2 % behind the best of them in the mean.
double Pipeline::expected_ns(const Task& task) const {
  const Gemm& g = task.g;
  const GpuModel gpu(task.device.info);
  const Layouts x = layouts(g);
  // Share of the peak that 8 warps of a unit reach: with fewer results an item local memory has to
  // deliver more per multiply-add.
  const int64_t results = tm * tn;
  const double share = results >= 128  ? (bk <= 16 ? 0.737 : 0.711)
                       : results >= 64 ? (bk <= 8 ? 0.655 : 0.681)
                       : results >= 32 ? 0.588
                                       : 0.429;
  // Copies that transpose take local memory's time too, and narrow ones issue slots: per element
  // copied. The longer a tile's other side is, the fewer those are per multiply-add.
  const auto copy_cost = [](const Layout& side) {
    const double narrow = copy_width(side.ld) == 4 ? 0.0 : side.wide ? 0.055 : 0.022;
    return (side.wide ? 0.0 : 0.05) + narrow;
  };
  const auto rows = static_cast<double>(bm());
  const auto columns = static_cast<double>(bn());
  const double copies = 128 * (copy_cost(x.a) / columns + copy_cost(x.b) / rows);
  const double tile_mads = rows * columns * static_cast<double>(tiles(tiles(g.k, bk), splits) * bk);
  // Warps that share k add up, and results are stored, singly in rows of odd length.
  const double tile_end_ns =
      rows * columns / 4096 *
      (static_cast<double>(wk - 1) * 450 +
       (copy_width(g.n) == 4 ? 260 : 1040) * static_cast<double>(results) / 64);
  constexpr double wave_start_ns = 1400;  // the first tiles arrive
  const auto wave_ns = [&](double groups_of_unit) {
    const double warps = groups_of_unit * static_cast<double>(wm * wn * wk);
    const double busy = share * std::pow(std::min(1.0, warps / 8), 0.38) / (1 + copies);
    return groups_of_unit * (tile_mads / (gpu.mads_per_ns * busy) + tile_end_ns) + wave_start_ns;
  };
  const auto at_a_time =
      gpu.units * static_cast<double>(groups_per_unit(items(), registers(), local_bytes(x)));
  const double full_waves = std::floor(groups(g) / at_a_time);
  const double rest = groups(g) - full_waves * at_a_time;
  const double compute_ns = full_waves * wave_ns(at_a_time / gpu.units) +
                            (rest > 0 ? wave_ns(std::ceil(rest / gpu.units)) : 0);
  // Added in the same launch.
  const double parts_ns = 2 * task.parts_bytes(splits) / gpu.bytes_per_ns;
  return std::max(compute_ns, gpu.least_ns(task)) + gpu.launch_ns + parts_ns +
         x.lay_ns(g, gpu, 3.5);
}

struct Shape {
  int64_t wm, wn, wk, lm, tm, tn, bk, stages;
};
// Tiles from 256×128 down to 16×32: each was within 3 % of the best for some problem on an H200,
// but for the last, which fits devices with 32 KB of local memory. Shallow steps shorten the
// unrolled loop: a short kernel fetches its instructions first; deep ones meet fewer barriers.
// Warps that share k serve grids that are smaller than the device.
constexpr Shape shapes[] = {
    {2, 4, 1, 4, 16, 8, 32, 2}, {2, 4, 1, 4, 16, 8, 16, 3}, {2, 4, 1, 4, 16, 8, 8, 5},
    {4, 2, 1, 4, 16, 8, 16, 3}, {2, 2, 1, 4, 16, 8, 16, 3}, {2, 2, 1, 8, 8, 16, 16, 3},
    {2, 2, 2, 4, 16, 8, 32, 2}, {4, 2, 1, 4, 8, 8, 16, 3},  {1, 4, 1, 8, 8, 8, 16, 4},
    {1, 4, 1, 8, 8, 8, 8, 6},   {1, 2, 1, 8, 8, 8, 16, 4},  {1, 2, 1, 8, 8, 8, 8, 6},
    {2, 2, 2, 8, 8, 8, 32, 3},  {1, 4, 2, 8, 8, 8, 32, 3},  {1, 2, 2, 8, 8, 8, 32, 3},
    {1, 1, 4, 8, 8, 8, 32, 3},  {1, 1, 8, 8, 8, 8, 64, 2},  {2, 2, 1, 4, 8, 4, 16, 4},
    {2, 2, 1, 4, 8, 4, 8, 6},   {1, 4, 1, 8, 4, 8, 32, 4},  {1, 1, 4, 4, 8, 4, 32, 4},
    {1, 1, 8, 4, 8, 4, 64, 3},  {1, 4, 1, 4, 4, 4, 16, 4},  {1, 1, 1, 4, 4, 4, 16, 2},
};

std::vector<Guess> guesses(const Task& task) {
  std::vector<Guess> list;
  if (task.has_formats() || task.env.math != fp32.name) return list;
  for (const Shape& s : shapes) {
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}) {
      Pipeline p{task.device.best_code_path(),
                 s.wm,
                 s.wn,
                 s.wk,
                 s.lm,
                 s.tm,
                 s.tn,
                 s.bk,
                 s.stages,
                 8,
                 0,
                 splits};
      if (!is_worth_splitting(task, splits, 128, p.groups(task.g), 4)) continue;
      for (p.rearranged = 0; p.rearranged <= 3; ++p.rearranged) add_guess(list, p, task);
    }
  }
  // One is enough for checks.
  if (task.device.is_cpu() && !list.empty()) list = {list.back()};
  return list;
}

class PipelinePlan final : public GemmPlan {
 public:
  PipelinePlan(const Task& task, const Tuning& tuning, const Operands& constants)
      : GemmPlan(task, tuning) {
    if (g_.empty()) return;
    const auto p = read_tuning<Pipeline>(tuning);
    const auto [a, b, bytes] = p.layouts(g_);
    const std::vector<int> launches = split_launches(p.splits, p.code_path);
    const auto options_of = [&, &a = a, &b = b](int split) {
      return fmt::format("-DA_DEEP={:d} -DB_DEEP={:d} -DCOPY_A={} -DCOPY_B={} -DSPLIT={}{}{}",
                         !a.wide, !b.wide, copy_width(a.ld), copy_width(b.ld), split,
                         opencl::defines(tuning), output_options(task));
    };
    const std::string first = options_of(launches.front());
    a_ = laid_out("a", constants, a, bytes, gemm_pipeline_cl, first);
    b_ = laid_out("b", constants, b, bytes, gemm_pipeline_cl, first);
    const int64_t row_tiles = tiles(g_.m, p.bm());
    const int64_t col_tiles = tiles(g_.n, p.bn());
    const int64_t grid = g_.batch * row_tiles * col_tiles;
    const int64_t k = !g_.reads_ab() ? 0 : std::min(a.k, b.k);
    cl_mem parts = copy_of("c"), arrivals = parts;
    if (p.splits > 1) {
      parts = workspace(static_cast<std::size_t>(p.parts_bytes(task)));
      arrivals = zeroed_workspace(static_cast<std::size_t>(grid) * sizeof(cl_uint));
    }
    for (const int split : launches) {
      opencl::KernelCall call = kernel(gemm_pipeline_cl, options_of(split), "gemm_pipeline");
      call.set_args(context(), a_, b_, parts, arrivals);
      add_sizes(call, g_.m, g_.n, k, a.ld, b.ld);
      call.add_args(context(), cl_long{a.elements()}, cl_long{b.elements()});
      add_sizes(call, a.rows, b.rows, row_tiles, col_tiles, tiles(tiles(k, p.bk), p.splits) * p.bk);
      add_output(call);
      add_step(std::move(call), split == 2 ? grid : grid * p.splits, p.items());
    }
    path_ = "fma";
  }
};

}  // namespace

const Path pipeline = path_of<Pipeline, PipelinePlan>(guesses);

}  // namespace rooflane::gemm
