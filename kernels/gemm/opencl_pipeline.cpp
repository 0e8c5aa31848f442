// GEMM on GPUs through pipelined tiles: which tiles, and their launch. The kernel and its ideas
// are in gemm_pipeline.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "gemm_pipeline_cl.hpp"
#include "gemm_transpose_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

struct Pipeline {
  int64_t code_path, wm, wn, wk, lm, tm, tn, bk, stages, raster, turn, regs, splits;

  static Pipeline from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("code_path"), get("wm"),        get("wn"),    get("wk"),     get("lm"),
            get("tm"),        get("tn"),        get("bk"),    get("stages"), get("raster"),
            t.get("turn", 0), t.get("regs", 0), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_pipeline},
            {"code_path", code_path},
            {"wm", wm},
            {"wn", wn},
            {"wk", wk},
            {"lm", lm},
            {"tm", tm},
            {"tn", tn},
            {"bk", bk},
            {"stages", stages},
            {"raster", raster},
            {"turn", turn},
            {"regs", regs},
            {"splits", splits}};
  }
  int64_t items() const { return 32 * wm * wn * wk; }
  int64_t bm() const { return wm * lm * tm; }
  int64_t bn() const { return wn * (32 / lm) * tn; }
  bool turns_a() const { return turn & 1; }
  bool turns_b() const { return turn & 2; }
  // Whether the pipeline sees rows along k.
  bool a_deep(const Gemm& g) const { return !g.trans_a && !turns_a(); }
  bool b_deep(const Gemm& g) const { return g.trans_b && !turns_b(); }
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

// The longest step inside the kernel is 256 rows, counted in int.
constexpr int64_t longest_row = (int64_t{1} << 31) / 512;

// An operand as the pipeline finds it: `rows` along m or n, `k` steps, rows or columns ld apart.
struct Layout {
  int64_t rows, k, ld;
  bool deep;
  int64_t elements() const { return deep ? rows * ld : k * ld; }
};
Layout layout(int64_t rows, int64_t k, bool deep, bool turns, int64_t tile, int64_t bk) {
  if (!turns) return {rows, k, deep ? k : rows, deep};
  const int64_t padded = tiles(rows, tile) * tile;
  return {padded, tiles(k, bk) * bk, padded, false};
}
Layout layout_a(const Pipeline& p, const Gemm& g) {
  return layout(g.m, g.k, !g.trans_a, p.turns_a(), p.bm(), p.bk);
}
Layout layout_b(const Pipeline& p, const Gemm& g) {
  return layout(g.n, g.k, g.trans_b, p.turns_b(), p.bn(), p.bk);
}

// Whether the group's items cover whole rows of both tiles.
bool copies_fit(const Pipeline& p, const Gemm& g) {
  const Layout a = layout_a(p, g);
  const Layout b = layout_b(p, g);
  return (a.deep || p.bm() / copy_width(a.ld) <= p.items()) &&
         (b.deep || p.bn() / copy_width(b.ld) <= p.items());
}

double turned_bytes(const Pipeline& p, const Gemm& g) {
  return 4.0 * static_cast<double>(g.batch) *
         static_cast<double>((p.turns_a() ? layout_a(p, g).elements() : 0) +
                             (p.turns_b() ? layout_b(p, g).elements() : 0));
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
  const double turned = turned_bytes(p, g);
  const double all = of(g.m, g.k) + of(g.n, g.k) + 2 * c + parts + turned;
  return parts <= most_parts_bytes && turned <= most_turned_bytes &&
         std::max(parts, turned) <= static_cast<double>(info.max_buffer_bytes) &&
         (parts + turned == 0 || all <= static_cast<double>(info.global_bytes));
}

bool fits(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return power(p.wm) && power(p.wn) && power(p.lm) && p.lm <= 32 && p.tm % 4 == 0 &&
         p.tn % 4 == 0 && power(p.bm()) && power(p.bn()) && power(p.wk) && power(p.bk) &&
         p.bk >= 8 && p.bk / p.wk >= 2 && p.handed_bytes() <= p.local_bytes(g) && p.stages >= 2 &&
         copies_fit(p, g) && static_cast<std::size_t>(p.items()) <= info.max_work_group &&
         p.local_bytes(g) <= local_limit(p.code_path, info) &&
         (p.code_path == 0 || opencl::features(info.index).nvidia_code_path()) &&
         std::max({g.m, g.n, g.k}) < longest_row && has_room(p, g, info);
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
    return (side.deep ? 0.073 : 0.0) + (copy_width(side.ld) == 4 ? 0.0 : 0.022);
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
  const auto groups =
      static_cast<double>(g.batch * tiles(g.m, p.bm()) * tiles(g.n, p.bn()) * p.splits);
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
  if (g.prepack) run_time.turn &= 1;
  const int launches = 1 + (run_time.turns_a() ? 1 : 0) + (run_time.turns_b() ? 1 : 0);
  return std::max(compute_ns, memory_ns) + launches * gpu.launch_ns + parts_ns +
         3 * turned_bytes(run_time, g) / gpu.bytes_per_ns;
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

class PipelinePlan final : public opencl::DevicePlan {
 public:
  PipelinePlan(const Problem& problem, const Tuning& tuning, const Environment& env,
               const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem) {
    if (g_.empty()) return;
    const Pipeline p = Pipeline::from(tuning);
    const Layout a_layout = layout_a(p, g_);
    const Layout b_layout = layout_b(p, g_);
    const std::string options = fmt::format(
        "-DCODE_PATH={} -DWM={} -DWN={} -DWK={} -DLM={} -DTM={} -DTN={} -DBK={} -DSTAGES={} "
        "-DRASTER={} "
        "-DA_DEEP={:d} -DB_DEEP={:d} -DCOPY_A={} -DCOPY_B={} -DCOPY_C={} -DV=4{}",
        p.code_path, p.wm, p.wn, p.wk, p.lm, p.tm, p.tn, p.bk, p.stages, p.raster, a_layout.deep,
        b_layout.deep, copy_width(a_layout.ld), copy_width(b_layout.ld), copy_width(g_.n),
        epilogue_options(problem));
    const int64_t row_tiles = tiles(g_.m, p.bm());
    const int64_t col_tiles = tiles(g_.n, p.bn());
    const bool reads_ab = g_.reads_ab();
    const int64_t k = !reads_ab ? 0 : std::min(a_layout.k, b_layout.k);
    const int64_t k_share = tiles(tiles(k, p.bk), p.splits) * p.bk;
    cl_mem c = copy_of("c");
    // Arguments that the kernel does not read still need a buffer.
    cl_mem a = reads_ab ? copy_of("a") : c;
    cl_mem b = reads_ab && !g_.prepack ? copy_of("b") : c;
    opencl::DeviceBuffer plain_b;
    if (g_.prepack && reads_ab) {
      const View& constant = constants.at("b");
      const auto bytes = static_cast<std::size_t>(constant.elements()) * sizeof(float);
      plain_b = opencl::DeviceBuffer(context(), p.turns_b() ? bytes : 0);
      b = p.turns_b() ? plain_b.get() : packed(bytes);
      write_now(b, constant);
    }
    if (reads_ab && p.turns_a()) {
      a = turned(a_, a, a_layout, g_.m, !g_.trans_a, false);
    }
    if (reads_ab && p.turns_b()) {
      b = turned(b_, b, b_layout, g_.n, g_.trans_b, g_.prepack);
      if (g_.prepack) {
        launch(b_.kernel, b_.size);
        wait_now();
        b_ = {};
      }
    }
    cl_mem c0 = g_.reads_c0() ? copy_of("c0") : c;
    cl_mem parts = c;
    cl_mem arrivals = c;
    if (p.splits > 1) {
      const int64_t grid = g_.batch * row_tiles * col_tiles;
      parts =
          workspace(static_cast<std::size_t>(p.splits * grid * p.bm() * p.bn()) * sizeof(float));
      arrivals = zeroed_workspace(static_cast<std::size_t>(grid) * sizeof(cl_uint));
    }
    const std::string cap =
        p.regs > 0 && p.code_path == 1 ? fmt::format(" -cl-nv-maxrregcount={}", p.regs) : "";
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    const auto ready = [&](SplitPart part) {
      opencl::KernelCall call = kernel(
          gemm_pipeline_cl, fmt::format("{}{} -DSPLIT={}", options, cap, static_cast<int>(part)),
          "gemm_pipeline");
      call.set_args(context(), a, b, c0, c, parts, arrivals, as_int(g_.m), as_int(g_.n), as_int(k),
                    as_int(a_layout.ld), as_int(b_layout.ld), cl_long{a_layout.elements()},
                    cl_long{b_layout.elements()}, as_int(a_layout.rows), as_int(b_layout.rows),
                    as_int(row_tiles), as_int(col_tiles), as_int(p.splits), as_int(k_share),
                    cl_float{g_.alpha}, cl_float{g_.beta});
      add_epilogue_args(
          call, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
      return call;
    };
    const int64_t groups = g_.batch * row_tiles * col_tiles;
    const auto items = static_cast<std::size_t>(p.items());
    gemm_ = ready(first_part(p.splits, p.code_path));
    size_ = {static_cast<std::size_t>(groups * p.splits), items};
    if (first_part(p.splits, p.code_path) == SplitPart::write) {
      adder_ = ready(SplitPart::add);
      adder_size_ = {static_cast<std::size_t>(groups), items};
    }
  }

 private:
  struct Turn {
    opencl::KernelCall kernel;
    opencl::Launch size{0, 1};
  };
  // Prepares the kernel that transposes an operand of `rows`, and returns the memory it fills.
  cl_mem turned(Turn& turn, cl_mem from, const Layout& to, int64_t rows, bool deep,
                bool is_constant) {
    const auto bytes = static_cast<std::size_t>(g_.batch * to.elements()) * sizeof(float);
    cl_mem memory = is_constant ? packed(bytes) : workspace(bytes);
    turn.kernel =
        kernel(gemm_transpose_cl, fmt::format("-DTRANSPOSED={:d} -DV=4", deep), "lay_out");
    turn.kernel.set_args(context(), from, memory, static_cast<cl_int>(rows),
                         static_cast<cl_int>(g_.k), static_cast<cl_int>(to.ld),
                         static_cast<cl_int>(to.k));
    turn.size = {static_cast<std::size_t>(g_.batch * tiles(to.ld, 32) * tiles(to.k, 32)), 256};
    return memory;
  }

  void enqueue() override {
    launch(a_.kernel, a_.size);
    launch(b_.kernel, b_.size);
    launch(gemm_, size_);
    launch(adder_, adder_size_);
  }

  const Gemm g_;
  Turn a_, b_;
  opencl::KernelCall gemm_, adder_;
  opencl::Launch size_{}, adder_size_{0, 1};
};

}  // namespace

std::vector<Guess> pipeline_guesses(const Gemm& g, const DeviceInfo& info) {
  std::vector<Guess> list;
  const GpuModel gpu(info);
  for (const Shape& s : shapes) {
    Pipeline p{
        best_code_path(info), s.wm, s.wn, s.wk, s.lm, s.tm, s.tn, s.bk, s.stages, 8, 0, 0, 1};
    const int64_t groups = std::max<int64_t>(1, g.batch * tiles(g.m, p.bm()) * tiles(g.n, p.bn()));
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}) {
      // Each share deserves some hundred steps, and nothing is won beyond a few waves.
      const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 128 &&
                                            groups * splits <= 4 * info.compute_units);
      p.splits = splits;
      for (const int64_t turn : {0, 1, 2, 3}) {
        p.turn = turn;
        if (is_worth && fits(p, g, info)) list.push_back({p.tuning(), expected_ns(p, g, info)});
      }
    }
  }
  return list;
}

std::optional<std::string> pipeline_defect(const Gemm& g, const Tuning& tuning,
                                           const DeviceInfo& info) {
  const Pipeline p = Pipeline::from(tuning);
  if (p.code_path == 1 && !opencl::features(info.index).nvidia_code_path()) {
    return fmt::format("code_path=1 needs NVIDIA's inline PTX, which {} does not run", info.name);
  }
  if (fits(p, g, info)) return std::nullopt;
  return fmt::format(
      "wm, wn, wk, lm and bk must be powers of two, bk at least 2·wk, tm and tn multiples of 4, a "
      "row of the tile ({}×{}) at most one copy for each of the {} items of a group, the tiles' {} "
      "bytes at most {} on {} and no less than the {} that shares of k hand over, sizes below {}, "
      "the partial sums of splits at most {:.0f} bytes and the operands turned at most {:.0f}",
      p.bm(), p.bn(), p.items(), p.local_bytes(g), local_limit(p.code_path, info), info.name,
      p.handed_bytes(), longest_row, most_parts_bytes, most_turned_bytes);
}

std::unique_ptr<Plan> pipeline_plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, const Operands& constants) {
  return std::make_unique<PipelinePlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
