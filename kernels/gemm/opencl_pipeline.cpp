// GEMM on GPUs through pipelined tiles: which tiles, and their launch. The kernel and its ideas
// are in gemm_pipeline.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "core/math.hpp"
#include "gemm_pipeline_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

struct Pipeline {
  int64_t code_path, wm, wn, wk, lm, tm, tn, bk, stages, raster, rearranged, splits;
  int64_t items() const { return 32 * wm * wn * wk; }
  int64_t bm() const { return wm * lm * tm; }
  int64_t bn() const { return wn * (32 / lm) * tn; }
  bool rearranges_a() const { return rearranged & 1; }
  bool rearranges_b() const { return rearranged & 2; }
  // Whether the pipeline sees rows along k.
  bool a_deep(const Gemm& g) const { return !g.trans_a && !rearranges_a(); }
  bool b_deep(const Gemm& g) const { return g.trans_b && !rearranges_b(); }
  int64_t local_bytes(const Gemm& g) const {
    const int64_t row = bm() + (a_deep(g) ? 4 : 0) + bn() + (b_deep(g) ? 4 : 0);
    return stages * bk * row * static_cast<int64_t>(sizeof(float));
  }
  // Sums that half of the shares of k hand over.
  int64_t handed_bytes() const {
    return wk / 2 * bm() * bn() * static_cast<int64_t>(sizeof(float));
  }
  // Results, operands of about three steps, addresses and counters: what NVIDIA's compiler took.
  int64_t registers() const { return std::min<int64_t>(255, tm * tn + 3 * (tm + tn) + 50); }
};
constexpr Field<Pipeline> fields[] = {{"code_path", &Pipeline::code_path},
                                      {"wm", &Pipeline::wm},
                                      {"wn", &Pipeline::wn},
                                      {"wk", &Pipeline::wk},
                                      {"lm", &Pipeline::lm},
                                      {"tm", &Pipeline::tm},
                                      {"tn", &Pipeline::tn},
                                      {"bk", &Pipeline::bk},
                                      {"stages", &Pipeline::stages},
                                      {"raster", &Pipeline::raster},
                                      {"rearranged", &Pipeline::rearranged, 0},
                                      {"splits", &Pipeline::splits}};
Pipeline read(const Tuning& tuning) { return read_tuning<Pipeline>(fields, tuning); }
Tuning written(const Pipeline& x) { return tuning_of<Pipeline>(path_pipeline, fields, x); }

// The longest step inside the kernel is 256 rows, counted in int.
constexpr int64_t longest_row = (int64_t{1} << 31) / 512;

// An operand as the pipeline finds it: `rows` along m or n, `k` steps, rows or columns ld apart.
struct Layout {
  int64_t rows, k, ld;
  bool deep;
  int64_t elements() const { return deep ? rows * ld : k * ld; }
};
Layout layout(int64_t rows, int64_t k, bool deep, bool rearranges, int64_t tile, int64_t bk) {
  if (!rearranges) return {rows, k, deep ? k : rows, deep};
  const int64_t padded = tiles(rows, tile) * tile;
  return {padded, tiles(k, bk) * bk, padded, false};
}
Layout layout_a(const Pipeline& p, const Gemm& g) {
  return layout(g.m, g.k, !g.trans_a, p.rearranges_a(), p.bm(), p.bk);
}
Layout layout_b(const Pipeline& p, const Gemm& g) {
  return layout(g.n, g.k, g.trans_b, p.rearranges_b(), p.bn(), p.bk);
}

// Whether the group's items cover whole rows of both tiles.
bool copies_fit(const Pipeline& p, const Gemm& g) {
  const Layout a = layout_a(p, g);
  const Layout b = layout_b(p, g);
  return (a.deep || p.bm() / copy_width(a.ld) <= p.items()) &&
         (b.deep || p.bn() / copy_width(b.ld) <= p.items());
}

double rearranged_bytes(const Pipeline& p, const Gemm& g) {
  return 4.0 * static_cast<double>(g.batch) *
         static_cast<double>((p.rearranges_a() ? layout_a(p, g).elements() : 0) +
                             (p.rearranges_b() ? layout_b(p, g).elements() : 0));
}

// Whether operands, their new layouts and partial sums have room beside each other.
bool has_room(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const auto of = [&](int64_t x, int64_t y) {
    return 4.0 * static_cast<double>(g.batch) * static_cast<double>(x) * static_cast<double>(y);
  };
  const double c = of(g.m, g.n);
  const double parts = p.splits > 1
                           ? static_cast<double>(p.splits) *
                                 of(tiles(g.m, p.bm()) * p.bm(), tiles(g.n, p.bn()) * p.bn())
                           : 0;
  const double again = rearranged_bytes(p, g);
  const double all = of(g.m, g.k) + of(g.n, g.k) + 2 * c + parts + again;
  return parts <= most_parts_bytes && again <= most_rearranged_bytes &&
         std::max(parts, again) <= static_cast<double>(info.max_buffer_bytes) &&
         (parts + again == 0 || all <= static_cast<double>(info.global_bytes));
}

std::optional<std::string> defect_of(const Pipeline& p, const Problem& problem,
                                     const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return unmet_need(
      path_pipeline,
      {{!has_formats(problem, env), "float32 alone and no gate=1"},
       {p.code_path == 0 || best_code_path(info) == 1, "code_path=0 without NVIDIA's inline PTX"},
       {power(p.wm) && power(p.wn) && power(p.wk) && power(p.lm) && p.lm <= 32,
        "powers of two for wm, wn, wk and lm"},
       {p.tm % 4 == 0 && p.tn % 4 == 0 && power(p.bm()) && power(p.bn()),
        "multiples of 4 for tm and tn, and tiles with sides that are powers of two"},
       {power(p.bk) && p.bk >= 8 && p.bk / p.wk >= 2, "a power of two for bk, at least 8 and 2·wk"},
       {p.stages >= 2, "stages of at least 2"},
       {p.handed_bytes() <= p.local_bytes(g),
        "tiles as large as the sums that shares of k hand over"},
       {copies_fit(p, g), "a row of a tile of at most one copy for each item of a group"},
       {std::max({g.m, g.n, g.k}) < longest_row && groups_of(g, p.bm(), p.bn(), p.splits) < 2e9,
        "sizes below 2^22"},
       {has_room(p, g, info), "room on the device for transposed operands and partial sums"}},
      {p.code_path, p.items(), p.local_bytes(g), 0}, info);
}

// Groups that share a unit: of 64K registers, 2048 items and the local memory (228 KB on Hopper;
// for others twice what a group may have).
int64_t groups_per_unit(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const int64_t by_registers = 65536 / (p.registers() * p.items());
  const int64_t local = p.local_bytes(g) + 1024;
  const int64_t by_local = std::max<int64_t>(228 * 1024, 2 * local_limit(0, info)) / local;
  return std::clamp<int64_t>(std::min({by_registers, by_local, 2048 / p.items()}), 1, 16);
}

// Waves of groups, each as long as its tiles' share of k takes on a unit that all its groups share.
// The constants are fitted to 1 000 tunings of 22 problems on an H200, large and small ones, all
// transpositions; the tuning chosen was 2 % behind the best of them in the mean.
double expected_ns(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const GpuModel gpu(info);
  const Layout a = layout_a(p, g);
  const Layout b = layout_b(p, g);
  // Share of the peak that 8 warps of a unit reach: with fewer results an item local memory has to
  // deliver more per multiply-add.
  const int64_t results = p.tm * p.tn;
  const double share = results >= 128  ? (p.bk <= 16 ? 0.737 : 0.711)
                       : results >= 64 ? (p.bk <= 8 ? 0.655 : 0.681)
                       : results >= 32 ? 0.588
                                       : 0.429;
  // Copies that transpose take local memory's time too, and narrow ones issue slots: per element
  // copied. The longer a tile's other side is, the fewer those are per multiply-add.
  const auto copy_cost = [](const Layout& side) {
    const double narrow = copy_width(side.ld) == 4 ? 0.0 : side.deep ? 0.022 : 0.055;
    return (side.deep ? 0.05 : 0.0) + narrow;
  };
  const auto bm = static_cast<double>(p.bm());
  const auto bn = static_cast<double>(p.bn());
  const double copies = 128 * (copy_cost(a) / bn + copy_cost(b) / bm);
  const double tile_mads = bm * bn * static_cast<double>(tiles(tiles(g.k, p.bk), p.splits) * p.bk);
  // Warps that share k add up, and results are stored, singly in rows of odd length.
  const double tile_end_ns =
      bm * bn / 4096 *
      (static_cast<double>(p.wk - 1) * 450 +
       (copy_width(g.n) == 4 ? 260 : 1040) * static_cast<double>(results) / 64);
  constexpr double wave_start_ns = 1400;  // the first tiles arrive
  const auto wave_ns = [&](double groups_of_unit) {
    const double warps = groups_of_unit * static_cast<double>(p.wm * p.wn * p.wk);
    const double busy = share * std::pow(std::min(1.0, warps / 8), 0.38) / (1 + copies);
    return groups_of_unit * (tile_mads / (gpu.mads_per_ns * busy) + tile_end_ns) + wave_start_ns;
  };
  const double groups = groups_of(g, p.bm(), p.bn(), p.splits);
  const auto per_unit = static_cast<double>(groups_per_unit(p, g, info));
  const double full_waves = std::floor(groups / (gpu.units * per_unit));
  const double rest = groups - full_waves * gpu.units * per_unit;
  const double compute_ns =
      full_waves * wave_ns(per_unit) + (rest > 0 ? wave_ns(std::ceil(rest / gpu.units)) : 0);
  const auto bytes = [&](int64_t x, int64_t y) {
    return 4.0 * static_cast<double>(g.batch) * static_cast<double>(x) * static_cast<double>(y);
  };
  const double memory_ns =
      (bytes(g.m, g.k) + bytes(g.n, g.k) + bytes(g.m, g.n)) / (0.8 * gpu.bytes_per_ns);
  const double parts_ns =
      p.splits > 1 ? 2 * bytes(g.m, g.n) * static_cast<double>(p.splits) / gpu.bytes_per_ns : 0;
  // Read and written; a constant b was transposed while planning.
  Pipeline run_time = p;
  if (g.prepack) run_time.rearranged &= 1;
  const int launches = 1 + (run_time.rearranges_a() ? 1 : 0) + (run_time.rearranges_b() ? 1 : 0);
  return std::max(compute_ns, memory_ns) + launches * gpu.launch_ns + parts_ns +
         3.5 * rearranged_bytes(run_time, g) / gpu.bytes_per_ns;
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

class PipelinePlan final : public GemmPlan {
 public:
  PipelinePlan(const Problem& problem, const Tuning& tuning, const Environment& env,
               const Operands& constants)
      : GemmPlan(problem, tuning, env) {
    if (g_.empty()) return;
    const Pipeline p = read(tuning);
    const Layout a_layout = layout_a(p, g_);
    const Layout b_layout = layout_b(p, g_);
    const std::string options =
        fmt::format("-DA_DEEP={:d} -DB_DEEP={:d} -DCOPY_A={} -DCOPY_B={}{}{}", a_layout.deep,
                    b_layout.deep, copy_width(a_layout.ld), copy_width(b_layout.ld),
                    opencl::defines(tuning), output_options(problem));
    const int64_t row_tiles = tiles(g_.m, p.bm());
    const int64_t col_tiles = tiles(g_.n, p.bn());
    const int64_t k = !g_.reads_ab() ? 0 : std::min(a_layout.k, b_layout.k);
    const SplitPart first = first_part(p.splits, p.code_path);
    const auto options_of = [&](SplitPart part) {
      return fmt::format("{} -DSPLIT={}", options, static_cast<int>(part));
    };
    const auto laid = [&](Step& step, const char* tensor, const Layout& to, bool rearranges,
                          int64_t rows, bool deep) {
      if (!rearranges) return operand(tensor, constants);
      return rearranged(step, tensor, constants,
                        {g_.k, rows, to.k, to.ld, deep ? 1 : rows, deep ? g_.k : 1, 4},
                        gemm_pipeline_cl, options_of(first));
    };
    cl_mem a = laid(lay_a_, "a", a_layout, p.rearranges_a(), g_.m, !g_.trans_a);
    cl_mem b = laid(lay_b_, "b", b_layout, p.rearranges_b(), g_.n, g_.trans_b);
    cl_mem parts = copy_of("c");
    cl_mem arrivals = parts;
    const int64_t grid = g_.batch * row_tiles * col_tiles;
    if (p.splits > 1) {
      parts =
          workspace(static_cast<std::size_t>(p.splits * grid * p.bm() * p.bn()) * sizeof(float));
      arrivals = zeroed_workspace(static_cast<std::size_t>(grid) * sizeof(cl_uint));
    }
    multiply_and_add(p.splits, p.code_path, grid, p.items(), [&](SplitPart part) {
      opencl::KernelCall call = kernel(gemm_pipeline_cl, options_of(part), "gemm_pipeline");
      call.set_args(context(), a, b, parts, arrivals, as_cl_int(g_.m), as_cl_int(g_.n),
                    as_cl_int(k), as_cl_int(a_layout.ld), as_cl_int(b_layout.ld),
                    cl_long{a_layout.elements()}, cl_long{b_layout.elements()},
                    as_cl_int(a_layout.rows), as_cl_int(b_layout.rows), as_cl_int(row_tiles),
                    as_cl_int(col_tiles), as_cl_int(tiles(tiles(k, p.bk), p.splits) * p.bk));
      add_output(call);
      return call;
    });
    path_ = "fma";
  }
};

}  // namespace

std::vector<Guess> pipeline_guesses(const Problem& problem, const Environment& env) {
  std::vector<Guess> list;
  if (has_formats(problem, env) || env.math != fp32.name) return list;
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  for (const Shape& s : shapes) {
    Pipeline p{best_code_path(info), s.wm, s.wn, s.wk, s.lm, s.tm, s.tn, s.bk, s.stages, 8, 0, 1};
    const int64_t groups = std::max<int64_t>(1, g.batch * tiles(g.m, p.bm()) * tiles(g.n, p.bn()));
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}) {
      // Each share deserves some hundred steps, and nothing is won beyond a few waves.
      const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 128 &&
                                            groups * splits <= 4 * info.compute_units);
      p.splits = splits;
      for (const int64_t rearranged : {0, 1, 2, 3}) {
        p.rearranged = rearranged;
        if (is_worth && !defect_of(p, problem, env)) {
          list.push_back({written(p), expected_ns(p, g, info)});
        }
      }
    }
  }
  if (info.kind == opencl::DeviceKind::cpu && !list.empty()) list = {list.back()};
  return list;
}

std::optional<std::string> pipeline_defect(const Problem& problem, const Tuning& tuning,
                                           const Environment& env) {
  return defect_of(read(tuning), problem, env);
}

std::unique_ptr<Plan> pipeline_plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, const Operands& constants) {
  return std::make_unique<PipelinePlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
