// GEMM, variant `opencl`: the choice among its paths (opencl_paths.hpp), and the path for any
// device: tiles in local memory. Its kernels stand in gemm.cl; here the tile is chosen, b is packed
// when it is constant, and the grid is laid out.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "backends/opencl_features.hpp"
#include "core/error.hpp"
#include "gemm_cl.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/opencl_paths.hpp"
#include "kernels/gemm/operands_refusal.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using opencl::DeviceKind;
using std::int64_t;

constexpr Tunable tunables[] = {
    {"path",
     "0: tiles, any device; 1: pipelined tiles; 2: m or n of at most 32; 3: the one of math "
     "3xtf32; "
     "4: number formats and gate=1; 5: matrix units for them; 6: few rows against weights; 7: "
     "wgmma",
     0, 7, true},
    {"code_path", "0: portable OpenCL C; 1: NVIDIA's inline PTX", 0, 1},
    {"v", "floats per vector along n: 1, 2, 4, 8 or 16", 1, 16},
    {"tm", "rows of a micro-tile; of an item's results", 1, 32},
    {"tv", "vectors across a micro-tile", 1, 8},
    {"mt", "micro-tiles per work-item along m; fragments per warp", 1, 32},
    {"nt", "micro-tiles per work-item along n; fragments per warp", 1, 32},
    {"wx", "work-items of a group along n", 1, 64},
    {"wy", "work-items of a group along m", 1, 64},
    {"bk", "step along k held in local memory", 1, 1024},
    {"pad", "unused floats after each row of a tile in local memory", 0, 16},
    {"resident", "1: all accumulators of a work-item in registers; 0: one micro-tile at a time", 0,
     1},
    {"wm", "warps of a group along m", 1, 32},
    {"wn", "warps of a group along n", 1, 32},
    {"wk", "warps of a group that share the k of a tile", 1, 16},
    {"lm", "items of a warp along m", 1, 32},
    {"tn", "columns of an item's results", 1, 32},
    {"stages", "tiles in local memory: one is used, the others arrive", 2, 8},
    {"chunk", "fragments along k that are summed before float32 additions", 1, 4},
    {"packed", "1: operands are split and laid out as fragments once", 0, 1},
    {"most_registers", "that the compiler may give an item; 0: as it likes", 0, 255},
    {"raster", "row tiles of a band", 1, 64},
    {"turn", "1: a is laid out anew first; 2: b; 3: both", 0, 3},
    {"regs", "code_path 1: most registers of an item; 0: the compiler decides", 0, 255},
    {"splits", "groups that share the k of a tile", 1, 64},
    {"rows", "rows of the long operand per warp", 1, 8},
    {"warps", "warps of a group", 1, 32},
    {"kc", "steps of k of the short operand in local memory", 32, 1024},
    {"unroll", "reads of the long operand that an item has under way", 1, 16},
};

struct Tile {
  int64_t bm, bn, bk, items;
  explicit Tile(const Tuning& t)
      : bm(t.get("mt", 1) * t.get("wy", 1) * t.get("tm", 1)),
        bn(t.get("nt", 1) * t.get("wx", 1) * t.get("tv", 1) * t.get("v", 1)),
        bk(t.get("bk", 1)),
        items(t.get("wx", 1) * t.get("wy", 1)) {}
  std::size_t local_bytes(const Tuning& t) const {
    return static_cast<std::size_t>(bk * (bm + bn + 2 * t.get("pad", 0))) * sizeof(float);
  }
};

bool is_power_of_two(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

// Whether gemm.cl can be built with this tile for this device.
bool fits(const Tuning& t, const DeviceInfo& info) {
  const Tile tile(t);
  return is_power_of_two(t.get("v", 1)) && is_power_of_two(tile.items) &&
         is_power_of_two(t.get("bk", 1)) && t.get("pad", 0) % t.get("v", 1) == 0 &&
         static_cast<std::size_t>(tile.items) <= info.max_work_group &&
         tile.local_bytes(t) <= info.local_bytes;
}

Tuning make_tuning(int64_t v, int64_t tm, int64_t tv, int64_t mt, int64_t nt, int64_t wx,
                   int64_t wy, int64_t bk, int64_t pad, int64_t resident) {
  return {{"path", path_tiles}, {"code_path", 0}, {"v", v},     {"tm", tm},
          {"tv", tv},           {"mt", mt},       {"nt", nt},   {"wx", wx},
          {"wy", wy},           {"bk", bk},       {"pad", pad}, {"resident", resident}};
}

// A CPU device runs one item per group: the loops over items that barriers force would put the
// accumulators in memory. The micro-tile fills the registers (24 of AVX-512's 32 with 8×3, 12 of
// AVX2's 16 with 6×2); bk=128 keeps a micro-tile's strip of b (24 KB) in the L1 cache.
std::vector<Tuning> cpu_tunings(const Gemm& g, const DeviceInfo& info) {
  const int64_t v = std::min(info.vector_floats, 16);
  const int64_t full_tm = v == 16 ? 8 : 6;
  const int64_t full_tv = v == 16 ? 3 : 2;
  const int64_t tm = g.m == 1 ? 1 : g.m <= 4 ? 4 : full_tm;
  const int64_t tv = g.n <= v ? 1 : full_tv;
  const int64_t mt = g.m <= tm ? 1 : 8;
  const int64_t nt = g.n <= tv * v ? 1 : 4;
  std::vector<Tuning> list;
  for (const int64_t bk : {128, 256, 64}) {
    list.push_back(make_tuning(v, tm, tv, mt, nt, 1, 1, bk, 0, 0));
    list.push_back(make_tuning(v, tm, tv, std::min<int64_t>(mt, 4), nt, 1, 1, bk, 0, 0));
    list.push_back(make_tuning(v, tm, tv, mt, std::min<int64_t>(nt, 2), 1, 1, bk, 0, 0));
  }
  return list;
}

// Elsewhere 8×8 results per item in four quadrants, 16×16 items: each value from local memory is
// used eight times. Fewer results per item when the grid would not give every unit two groups.
std::vector<Tuning> gpu_tunings(const Gemm& g, const DeviceInfo& info) {
  const int64_t groups = g.batch * tiles(g.m, 128) * tiles(g.n, 128);
  const bool is_large = groups >= int64_t{2} * info.compute_units;
  const int64_t side = info.max_work_group >= 256 ? 16 : info.max_work_group >= 64 ? 8 : 4;
  std::vector<Tuning> list;
  for (const int64_t micro : {is_large ? 2 : 1, is_large ? 1 : 2}) {
    for (const int64_t bk : {16, 8, 32}) {
      for (const int64_t width : {side, side / 2}) {
        list.push_back(make_tuning(4, 4, 1, micro, micro, width, width, bk, 4, 1));
      }
    }
  }
  return list;
}

std::vector<Tuning> tile_tunings(const Gemm& g, const DeviceInfo& info) {
  std::vector<Tuning> list =
      info.kind == DeviceKind::cpu ? cpu_tunings(g, info) : gpu_tunings(g, info);
  std::erase_if(list, [&](const Tuning& t) { return !fits(t, info); });
  // Fits every device that OpenCL allows: 16 items, 5 KB of local memory.
  if (list.empty()) list.push_back(make_tuning(4, 4, 1, 1, 1, 4, 4, 16, 4, 1));
  return list;
}

// On NVIDIA's devices the paths 5 to 7, where they serve, come first; path 4 is behind them on
// every device.
std::vector<Tuning> formats_tunings(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  std::vector<Guess> guesses = mma_guesses(problem, env);
  for (const auto& more : {weights_guesses(problem, env), wgmma_guesses(problem, env)}) {
    guesses.insert(guesses.end(), more.begin(), more.end());
  }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& x, const Guess& y) { return x.ns < y.ns; });
  constexpr std::size_t most_guesses = 8;
  if (guesses.size() > most_guesses) guesses.resize(most_guesses);
  std::vector<Tuning> list = formats_tunings(Gemm(problem), info);
  std::vector<Tuning> others;
  for (const Guess& guess : guesses) others.push_back(guess.tuning);
  const bool are_first = best_code_path(info) == 1;
  list.insert(are_first ? list.begin() : list.end(), others.begin(), others.end());
  return list;
}

// GPUs: the paths' best guesses, fastest first, and the tiles that any device takes behind them.
// CPU devices: tiles; one tuning of each other path stands last, so that every path runs on any
// device.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  if (has_formats(problem, env)) return formats_tunings(problem, env);
  if (env.math == math_3xtf32.name) return tensor_tunings(g, info);
  std::vector<Guess> guesses = pipeline_guesses(g, info);
  const std::vector<Guess> skinny = skinny_guesses(g, info);
  if (info.kind == DeviceKind::cpu) {
    std::vector<Tuning> list = tile_tunings(g, info);
    if (!guesses.empty()) list.push_back(guesses.back().tuning);
    if (!skinny.empty()) list.push_back(skinny.front().tuning);
    return list;
  }
  guesses.insert(guesses.end(), skinny.begin(), skinny.end());
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& x, const Guess& y) { return x.ns < y.ns; });
  constexpr std::size_t most_guesses = 12;
  if (guesses.size() > most_guesses) guesses.resize(most_guesses);
  std::vector<Tuning> list;
  for (const Guess& guess : guesses) list.push_back(guess.tuning);
  list.push_back(tile_tunings(g, info).front());
  return list;
}

class TilePlan final : public opencl::DevicePlan {
 public:
  TilePlan(const Problem& problem, const Tuning& tuning, const Environment& env,
           const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem), tile_(tuning) {
    if (g_.empty()) return;
    const std::string options =
        fmt::format("{} -DTRANS_A={:d} -DTRANS_B={:d} -DPACKED={:d}{}", opencl::defines(tuning),
                    g_.trans_a, g_.trans_b, g_.prepack, epilogue_options(problem));
    const int64_t row_tiles = tiles(g_.m, tile_.bm);
    const int64_t column_tiles = tiles(g_.n, tile_.bn);
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    cl_mem c = copy_of("c");
    // Arguments that the kernel does not read still want a buffer.
    cl_mem b = k == 0 ? c : g_.prepack ? pack(options, constants.at("b")) : copy_of("b");
    cl_mem c0 = g_.reads_c0() ? copy_of("c0") : c;
    gemm_ = kernel(gemm_cl, options, "gemm");
    gemm_.set_args(context(), k == 0 ? c : copy_of("a"), b, c0, c, cl_long{g_.m}, cl_long{g_.n},
                   cl_long{k}, cl_long{row_tiles}, cl_long{column_tiles}, cl_float{g_.alpha},
                   cl_float{g_.beta});
    add_epilogue_args(
        gemm_, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
    size_ = {static_cast<std::size_t>(g_.batch * row_tiles * column_tiles),
             static_cast<std::size_t>(tile_.items)};
  }

 private:
  void enqueue() override { launch(gemm_, size_); }

  cl_mem pack(const std::string& options, const View& b) {
    const int64_t panels = tiles(g_.n, tile_.bn);
    const opencl::DeviceBuffer plain(context(),
                                     static_cast<std::size_t>(b.elements()) * sizeof(float));
    write_now(plain.get(), b);
    cl_mem panel_memory =
        packed(static_cast<std::size_t>(g_.batch * panels * g_.k * tile_.bn) * sizeof(float));
    opencl::KernelCall pack_b = kernel(gemm_cl, options, "pack_b");
    pack_b.set_args(context(), plain.get(), panel_memory, cl_long{g_.n}, cl_long{g_.k},
                    cl_long{panels});
    launch(pack_b, {static_cast<std::size_t>(g_.batch * panels * tiles(g_.k, tile_.bk)),
                    static_cast<std::size_t>(tile_.items)});
    wait_now();
    return panel_memory;
  }

  const Gemm g_;
  const Tile tile_;
  opencl::KernelCall gemm_;
  opencl::Launch size_{};
};

std::optional<std::string> tiles_unsupported(const Problem& problem, const Environment& env) {
  const Gemm g(problem);
  // Packed panels are at most one tile wider than b.
  const double packed_bytes = g.prepack
                                  ? 4.0 * static_cast<double>(g.batch) * static_cast<double>(g.k) *
                                        (static_cast<double>(g.n) + 256)
                                  : 0;
  return opencl::unsupported_anywhere(problem, env, packed_bytes);
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (env.math == math_3xtf32.name && has_formats(problem, env)) {
    return fmt::format("math {}: of float32 alone and without gate=1", env.math);
  }
  if (auto reason = unrounded_operands(problem, env)) return reason;
  if (has_formats(problem, env)) return formats_unsupported(problem, env);
  return env.math == math_3xtf32.name ? tensor_unsupported(problem, env)
                                      : tiles_unsupported(problem, env);
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const std::int64_t path = tuning.get("path", path_tiles);
  if ((path == path_tensor) != (env.math == math_3xtf32.name)) {
    return fmt::format("path={} is not of math {}", path, env.math);
  }
  if (path < path_formats && has_formats(problem, env)) {
    return fmt::format("path={} takes float32 alone and no gate=1", path);
  }
  if (path == path_formats) return formats_defect(tuning, info);
  if (path == path_mma) return mma_defect(problem, tuning, env);
  if (path == path_weights) return weights_defect(problem, tuning, env);
  if (path == path_wgmma) return wgmma_defect(problem, tuning, env);
  if (path == path_tensor) return tensor_defect(Gemm(problem), tuning, info);
  if (path == path_pipeline) return pipeline_defect(Gemm(problem), tuning, info);
  if (path == path_skinny) return skinny_defect(Gemm(problem), tuning, info);
  if (fits(tuning, info)) return std::nullopt;
  return fmt::format(
      "v, bk and wx·wy must be powers of two, pad a multiple of v, wx·wy at most {} and the tiles "
      "at most {} bytes on {}",
      info.max_work_group, info.local_bytes, info.name);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands& constants) {
  require_tuning(opencl, problem, env, tuning);
  const Tuning complete = complete_tuning(opencl, problem, env, tuning);
  switch (complete.get("path", path_tiles)) {
    case path_pipeline:
      return pipeline_plan(problem, complete, env, constants);
    case path_skinny:
      return skinny_plan(problem, complete, env, constants);
    case path_tensor:
      return tensor_plan(problem, complete, env, constants);
    case path_formats:
      return formats_plan(problem, complete, env, constants);
    case path_mma:
      return mma_plan(problem, complete, env, constants);
    case path_weights:
      return weights_plan(problem, complete, env, constants);
    case path_wgmma:
      return wgmma_plan(problem, complete, env, constants);
    default:
      return std::make_unique<TilePlan>(problem, complete, env, constants);
  }
}

}  // namespace

// gemm_epilogue.cl has these numbers as cases, counted from 1, and their count + 1 as base.
using Op = Epilogue::Op;
static_assert(Epilogue::most + 1 == 9);
static_assert(static_cast<int>(Op::bias) == 0 && static_cast<int>(Op::relu) == 1 &&
              static_cast<int>(Op::leaky_relu) == 2 && static_cast<int>(Op::gelu) == 3 &&
              static_cast<int>(Op::gelu_tanh) == 4 && static_cast<int>(Op::silu) == 5 &&
              static_cast<int>(Op::add) == 6 && static_cast<int>(Op::clamp) == 7);

std::string epilogue_options(const Problem& problem) {
  const Epilogue epilogue(problem);
  if (epilogue.empty()) return {};
  return fmt::format(
      " -DCHAIN={} -DHAS_BIAS={:d} -DHAS_ADD={:d} -DSLOPE={:a}f -DLOW={:a}f "
      "-DHIGH={:a}f",
      static_cast<std::int64_t>(problem.value("epilogue")), epilogue.has(Op::bias),
      epilogue.has(Op::add), epilogue.slope, epilogue.low, epilogue.high);
}

std::int64_t best_code_path(const DeviceInfo& info) {
  return opencl::features(info.index).nvidia_code_path() ? 1 : 0;
}

// int8-dynamic wants each row's largest element before its products.
constexpr const Math* maths[] = {&fp32, &math_3xtf32, &math_bf16, &math_f16, &math_int8};

const Variant opencl = {.name = "opencl",
                        .kernel = &kernel,
                        .backend = &opencl::backend,
                        .threads = Threads::device,
                        .tunables = tunables,
                        .unsupported = unsupported,
                        .tunings = tunings,
                        .plan = plan,
                        .tuning_defect = tuning_defect,
                        .ladder = opencl_ladder,
                        .maths = maths,
                        .dtypes = all_types};

}  // namespace rooflane::gemm
