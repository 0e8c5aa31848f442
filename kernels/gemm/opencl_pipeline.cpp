// GEMM on GPUs through pipelined tiles: which tiles, and their launch. The kernel and its ideas
// stand in gemm_pipeline.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "gemm_parts_cl.hpp"
#include "gemm_pipeline_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

struct Pipeline {
  int64_t road, wm, wn, lm, tm, tn, bk, stages, raster, splits;

  static Pipeline from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("road"), get("wm"), get("wn"),     get("lm"),     get("tm"),
            get("tn"),   get("bk"), get("stages"), get("raster"), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_pipeline},
            {"road", road},
            {"wm", wm},
            {"wn", wn},
            {"lm", lm},
            {"tm", tm},
            {"tn", tn},
            {"bk", bk},

            {"stages", stages},
            {"raster", raster},
            {"splits", splits}};
  }
  int64_t items() const { return 32 * wm * wn; }
  int64_t bm() const { return wm * lm * tm; }
  int64_t bn() const { return wn * (32 / lm) * tn; }
  int64_t local_bytes(bool trans_a, bool trans_b) const {
    const int64_t row = bm() + (trans_a ? 0 : 4) + bn() + (trans_b ? 4 : 0);
    return stages * bk * row * static_cast<int64_t>(sizeof(float));
  }
  // Results, operands of two steps, and about 40 addresses and counters.
  int64_t registers() const { return std::min<int64_t>(255, tm * tn + 2 * (tm + tn) + 40); }
};

// The longest step inside the kernel is 256 rows, counted in int.
constexpr int64_t longest_row = (int64_t{1} << 31) / 512;

int width_a(const Gemm& g) { return copy_width(g.trans_a ? g.m : g.k); }
int width_b(const Gemm& g) { return copy_width(g.trans_b ? g.k : g.n); }

// Whether the group's items cover whole rows of both tiles.
bool copies_fit(const Pipeline& p, const Gemm& g) {
  return (!g.trans_a || p.bm() / width_a(g) <= p.items()) &&
         (g.trans_b || p.bn() / width_b(g) <= p.items());
}

bool fits(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return power(p.wm) && power(p.wn) && power(p.lm) && p.lm <= 32 && p.tm % 4 == 0 &&
         p.tn % 4 == 0 && power(p.bm()) && power(p.bn()) && power(p.bk) && p.bk >= 8 &&
         p.stages >= 2 && copies_fit(p, g) &&
         static_cast<std::size_t>(p.items()) <= info.max_work_group &&
         p.local_bytes(g.trans_a, g.trans_b) <= local_limit(p.road, info) &&
         (p.road == 0 || opencl::features(info.index).nvidia_road()) &&
         std::max({g.m, g.n, g.k}) < longest_row &&
         4.0 * static_cast<double>(p.splits) * static_cast<double>(g.batch * g.m) *
                 static_cast<double>(g.n) <=
             (p.splits > 1 ? most_parts_bytes : INFINITY);
}

// Groups that share a unit: of 64K registers, 2048 items and the local memory (228 KB on Hopper;
// for others twice what a group may have).
int64_t groups_per_unit(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const int64_t by_registers = 65536 / (p.registers() * p.items());
  const int64_t local = p.local_bytes(g.trans_a, g.trans_b) + 1024;
  const int64_t by_local = std::max<int64_t>(228 * 1024, 2 * local_limit(0, info)) / local;
  return std::clamp<int64_t>(std::min({by_registers, by_local, 2048 / p.items()}), 1, 16);
}

// Waves of groups, each as long as its tile's share of k takes on a unit that all its groups share.
double expected_ns(const Pipeline& p, const Gemm& g, const DeviceInfo& info) {
  const GpuModel gpu(info);
  const double per_unit = static_cast<double>(groups_per_unit(p, g, info));
  const double groups =
      static_cast<double>(g.batch * tiles(g.m, p.bm()) * tiles(g.n, p.bn()) * p.splits);
  const double steps = static_cast<double>(tiles(tiles(g.k, p.bk), p.splits) * p.bk);
  // Share of the peak that a unit with 8 warps or more reached on an H200: 0.72 with 8×16 results
  // an item, 0.66 with 8×8, 0.55 with 8×4, as local memory has to deliver more per multiply-add.
  const double from_local =
      4.0 * static_cast<double>(p.tm + p.tn) / static_cast<double>(p.tm * p.tn);
  const double resident = std::min(per_unit, std::max(1.0, groups / gpu.units));
  const double warps = static_cast<double>(p.wm * p.wn) * resident;
  const double busy = std::min(1.0, warps / 8) * 0.8 / (1 + 0.2 * from_local * from_local);
  const double group_ns =
      static_cast<double>(p.bm() * p.bn()) * steps / (gpu.mads_per_ns * std::max(busy, 0.05));
  const double latency_ns = 1000 + steps * 2.0;
  const double in_flight = std::ceil(groups / gpu.units);
  const double parts_bytes =
      p.splits > 1 ? 8.0 * static_cast<double>(g.batch * g.m * g.n) * static_cast<double>(p.splits)
                   : 0;
  return std::max(in_flight * group_ns, latency_ns) + gpu.launch_ns * (p.splits > 1 ? 2.5 : 1) +
         parts_bytes / gpu.bytes_per_ns;
}

struct Shape {
  int64_t wm, wn, lm, tm, tn, bk, stages;
};
// Tiles from 32×32 to 256×128; the last is small enough for devices with 32 KB of local memory.
constexpr Shape shapes[] = {
    {2, 4, 8, 8, 16, 16, 3}, {4, 2, 8, 8, 16, 16, 3}, {2, 2, 8, 8, 16, 16, 3},
    {4, 2, 4, 8, 8, 16, 3},  {1, 4, 8, 8, 8, 16, 4},  {1, 2, 8, 8, 8, 16, 4},
    {2, 2, 4, 8, 4, 16, 4},  {1, 4, 8, 4, 8, 16, 4},  {1, 4, 4, 4, 4, 16, 4},
    {1, 1, 8, 4, 8, 16, 4},  {1, 1, 4, 4, 4, 16, 2},
};

class PipelinePlan final : public opencl::DevicePlan {
 public:
  PipelinePlan(const Problem& problem, const Tuning& tuning, const Environment& env,
               const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem) {
    if (g_.empty()) return;
    const Pipeline p = Pipeline::from(tuning);
    const std::string options = fmt::format(
        "-DROAD={} -DWM={} -DWN={} -DLM={} -DTM={} -DTN={} -DBK={} -DSTAGES={} -DRASTER={} "
        "-DTRANS_A={:d} -DTRANS_B={:d} -DCOPY_A={} -DCOPY_B={} -DCOPY_C={} -DV=4",
        p.road, p.wm, p.wn, p.lm, p.tm, p.tn, p.bk, p.stages, p.raster, g_.trans_a, g_.trans_b,
        width_a(g_), width_b(g_), copy_width(g_.n));
    const int64_t row_tiles = tiles(g_.m, p.bm());
    const int64_t col_tiles = tiles(g_.n, p.bn());
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    const int64_t k_share = tiles(tiles(k, p.bk), p.splits) * p.bk;
    cl_mem c = copy_of("c");
    cl_mem b = copy_of("b");
    if (g_.prepack && k > 0) {
      const View& constant = constants.at("b");
      b = packed(static_cast<std::size_t>(constant.elements()) * sizeof(float));
      write_now(b, constant);
    }
    cl_mem c0 = g_.reads_c0() ? copy_of("c0") : c;
    cl_mem parts = c;
    if (p.splits > 1) {
      parts =
          workspace(static_cast<std::size_t>(p.splits * g_.batch * g_.m * g_.n) * sizeof(float));
      parts_ = PartSums(context(), g_, parts, c0, c, p.splits);
    }
    gemm_ = kernel(gemm_pipeline_cl, options, "gemm_pipeline");
    gemm_.set_args(context(), k == 0 ? c : copy_of("a"), k == 0 ? c : b, c0, c, parts,
                   static_cast<cl_int>(g_.m), static_cast<cl_int>(g_.n), static_cast<cl_int>(k),
                   static_cast<cl_int>(row_tiles), static_cast<cl_int>(col_tiles),
                   static_cast<cl_int>(p.splits), static_cast<cl_int>(k_share), cl_float{g_.alpha},
                   cl_float{g_.beta});
    size_ = {static_cast<std::size_t>(g_.batch * row_tiles * col_tiles * p.splits),
             static_cast<std::size_t>(p.items())};
  }

 private:
  void enqueue() override {
    launch(gemm_, size_);
    launch(parts_.adder(), parts_.size());
  }

  const Gemm g_;
  opencl::KernelCall gemm_;
  opencl::Launch size_{};
  PartSums parts_;
};

}  // namespace

int64_t local_limit(int64_t road, const DeviceInfo& info) {
  return static_cast<int64_t>(road == 1 ? opencl::features(info.index).static_local_bytes
                                        : info.local_bytes);
}

PartSums::PartSums(opencl::Context& context, const Gemm& g, cl_mem parts, cl_mem c0, cl_mem c,
                   int64_t splits)
    : adder_(context, context.program(gemm_parts_cl, "-DV=4"), "add_parts") {
  const int64_t elements = g.batch * g.m * g.n;
  adder_.set_args(context, parts, c0, c, cl_long{elements}, static_cast<cl_int>(splits),
                  cl_float{g.alpha}, cl_float{g.beta});
  constexpr int64_t items = 128;
  size_ = {static_cast<std::size_t>(tiles(elements, items)), static_cast<std::size_t>(items)};
}

std::vector<Guess> pipeline_guesses(const Gemm& g, const DeviceInfo& info) {
  std::vector<Guess> list;
  const GpuModel gpu(info);
  for (const Shape& s : shapes) {
    Pipeline p{best_road(info), s.wm, s.wn, s.lm, s.tm, s.tn, s.bk, s.stages, 8, 1};
    const int64_t groups = std::max<int64_t>(1, g.batch * tiles(g.m, p.bm()) * tiles(g.n, p.bn()));
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}) {
      // Each share deserves some hundred steps, and nothing is won beyond a few waves.
      const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 128 &&
                                            groups * splits <= 4 * info.compute_units);
      p.splits = splits;
      if (is_worth && fits(p, g, info)) list.push_back({p.tuning(), expected_ns(p, g, info)});
    }
  }
  return list;
}

std::optional<std::string> pipeline_defect(const Gemm& g, const Tuning& tuning,
                                           const DeviceInfo& info) {
  const Pipeline p = Pipeline::from(tuning);
  if (p.road == 1 && !opencl::features(info.index).nvidia_road()) {
    return fmt::format("road=1 needs NVIDIA's inline PTX, which {} does not run", info.name);
  }
  if (fits(p, g, info)) return std::nullopt;
  return fmt::format(
      "wm, wn, lm and bk must be powers of two, tm and tn multiples of 4, a row of the "
      "tile ({}×{}) at most one copy for each of the {} items of a group, the tiles' {} bytes at "
      "most {} on {}, "
      "sizes below {}, and the partial sums of splits at most {:.0f} bytes",
      p.bm(), p.bn(), p.items(), p.local_bytes(g.trans_a, g.trans_b), local_limit(p.road, info),
      info.name, longest_row, most_parts_bytes);
}

std::unique_ptr<Plan> pipeline_plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, const Operands& constants) {
  return std::make_unique<PipelinePlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
