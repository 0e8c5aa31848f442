// GEMM, variant `opencl`: the choice among its paths (opencl_paths.hpp), and the path for any
// device and number format: tiles in local memory (gemm.cl). Here the tile is chosen and the grid
// is laid out.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "gemm_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"
#include "kernels/gemm/operands_refusal.hpp"

namespace rooflane::gemm {
namespace {

using common::is_power_of_two;
using opencl::DeviceInfo;
using std::int64_t;

constexpr Tunable tunables[] = {
    {"path",
     "0: tiles, any device and number format; 1: pipelined tiles; 2: m or n of at most 32, with "
     "stored weights m of at most 8; 3: matrix units; 7: wgmma",
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
    {"packed", "math 3xtf32, 1: operands are split once, when they are rearranged", 0, 1},
    {"raster", "row tiles of a band", 1, 64},
    {"rearranged", "1: a is rearranged first; 2: b; 3: both", 0, 3},
    {"regs", "code_path 1: most registers of an item; 0: the compiler decides", 0, 255},
    {"splits", "groups that share the k of a tile", 1, 64},
    {"rows", "rows of the long operand per warp", 1, 8},
    {"warps", "warps of a group", 1, 32},
    {"kc", "steps of k of the short operand in local memory", 32, 1024},
    {"unroll", "reads of the long operand that an item has under way", 1, 16},
};

struct Tile {
  int64_t code_path, v, tm, tv, mt, nt, wx, wy, bk, pad, resident;
  static constexpr int64_t path = path_tiles;
  static constexpr const char* names[] = {"code_path", "v",  "tm", "tv",  "mt",      "nt",
                                          "wx",        "wy", "bk", "pad", "resident"};
  int64_t bm() const { return mt * wy * tm; }
  int64_t bn() const { return nt * wx * tv * v; }
  int64_t items() const { return wx * wy; }

  // Why gemm.cl cannot be built with this tile for this device.
  std::optional<std::string> defect(const Task& task) const {
    // With gate=1 a group has two tiles of b.
    const int64_t local_bytes = 4 * bk * (bm() + bn() * (task.g.gate ? 2 : 1) + 2 * pad);
    return common::unmet_need(
        path,
        {{code_path == 0, "code_path=0"},
         {is_power_of_two(v) && is_power_of_two(items()) && is_power_of_two(bk),
          "powers of two for v, bk and wx·wy"},
         {pad % v == 0, "pad that is a multiple of v"}},
        {0, items(), local_bytes}, task.device);
  }
};

// A CPU device runs one item per group: the loops over items that barriers force would put the
// accumulators in memory. The micro-tile fills the registers (24 of AVX-512's 32 with 8×3, 12 of
// AVX2's 16 with 6×2); bk=128 keeps a B micro-panel (24 KB) in the L1 cache.
std::vector<Tile> cpu_tiles(const Gemm& g, const DeviceInfo& info) {
  const int64_t v = std::min(info.vector_floats, 16);
  const int64_t full_tm = v == 16 ? 8 : 6;
  const int64_t full_tv = v == 16 ? 3 : 2;
  const int64_t tm = g.m == 1 ? 1 : g.m <= 4 ? 4 : full_tm;
  const int64_t tv = g.n <= v ? 1 : full_tv;
  const int64_t mt = g.m <= tm ? 1 : 8;
  const int64_t nt = g.n <= tv * v ? 1 : 4;
  std::vector<Tile> list;
  for (const int64_t bk : {128, 256, 64}) {
    list.push_back({0, v, tm, tv, mt, nt, 1, 1, bk, 0, 0});
    list.push_back({0, v, tm, tv, std::min<int64_t>(mt, 4), nt, 1, 1, bk, 0, 0});
    list.push_back({0, v, tm, tv, mt, std::min<int64_t>(nt, 2), 1, 1, bk, 0, 0});
  }
  return list;
}

// Elsewhere 8×8 results per item in four quadrants, 16×16 items: each value from local memory is
// used eight times. Fewer results per item when the grid would leave units without a group.
std::vector<Tile> gpu_tiles(const Gemm& g, const DeviceInfo& info) {
  const int64_t groups = g.batch * tiles(g.m, 128) * tiles(g.n, 128);
  const bool is_large = groups >= info.compute_units / 2;
  const int64_t side = info.max_work_group >= 256 ? 16 : info.max_work_group >= 64 ? 8 : 4;
  std::vector<Tile> list;
  for (const int64_t micro : {is_large ? 2 : 1, is_large ? 1 : 2}) {
    for (const int64_t bk : {16, 8, 32}) {
      for (const int64_t width : {side, side / 2}) {
        list.push_back({0, 4, 4, 1, micro, micro, width, width, bk, 4, 1});
      }
    }
  }
  return list;
}

std::vector<Tuning> tile_tunings(const Task& task) {
  std::vector<Tuning> list;
  const bool is_cpu = task.device.is_cpu();
  for (const Tile& t :
       is_cpu ? cpu_tiles(task.g, task.device.info) : gpu_tiles(task.g, task.device.info)) {
    if (!t.defect(task)) list.push_back(common::tuning_of(t));
  }
  // Fits every device that OpenCL allows: 16 items, 4 KB of local memory.
  if (list.empty()) list.push_back(common::tuning_of(Tile{0, 4, 4, 1, 1, 1, 4, 4, 16, 4, 1}));
  return list;
}

class TilePlan final : public GemmPlan {
 public:
  TilePlan(const Task& task, const Tuning& tuning, const Operands& constants)
      : GemmPlan(task, tuning) {
    if (g_.empty()) return;
    const auto t = read_tuning<Tile>(tuning);
    const int64_t row_tiles = tiles(g_.m, t.bm());
    const int64_t col_tiles = tiles(g_.n, t.bn());
    opencl::KernelCall call = kernel(
        gemm_cl,
        fmt::format("-DA_TYPE={} -DTRANS_A={:d} -DTRANS_B={:d}{}{}", number_of(task.a), g_.trans_a,
                    g_.trans_b, opencl::defines(tuning), output_options(task, t.v)),
        "gemm");
    call.set_args(context(), operand("a", constants), operand("b", constants),
                  operand(task.b == &int8_per_channel ? "b_scale" : "b", constants));
    add_sizes(call, g_.m, g_.n, g_.reads_ab() ? g_.k : 0, row_tiles, col_tiles);
    add_output(call);
    add_step(std::move(call), g_.batch * row_tiles * col_tiles, t.items());
    path_ = task.c == &int32 ? "integer multiply-add" : "fma";
  }
};

constexpr Path tile_path = path_of<Tile, TilePlan>(nullptr);
// 4, 5 and 6 were paths of earlier versions: stored tunings still name them.
constexpr std::array<const Path*, 8> paths = {&tile_path, &pipeline, &skinny, &tensor,
                                              nullptr,    nullptr,   nullptr, &wgmma};

// Every path's best guesses, fastest first, and the tiles that any device takes: behind them on
// GPUs (of number formats on NVIDIA's: the paths were made for that code path), before them on CPU
// devices.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Task task(problem, env);
  std::vector<Guess> guesses;
  for (const Path* path : paths) {
    if (path == nullptr || path->guesses == nullptr) continue;
    const std::vector<Guess> more = path->guesses(task);
    guesses.insert(guesses.end(), more.begin(), more.end());
  }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& x, const Guess& y) { return x.ns < y.ns; });
  constexpr std::size_t most_guesses = 12;
  if (guesses.size() > most_guesses) guesses.resize(most_guesses);
  std::vector<Tuning> list;
  for (const Guess& guess : guesses) list.push_back(guess.tuning);
  if (env.math == math_3xtf32.name) return list;
  std::vector<Tuning> tiles = tile_tunings(task);
  const bool are_behind =
      task.has_formats() ? task.device.best_code_path() == 1 : !task.device.is_cpu();
  // One is enough behind those that were made for GPUs.
  if (are_behind) tiles.resize(1);
  list.insert(are_behind ? list.end() : list.begin(), tiles.begin(), tiles.end());
  return list;
}

// Sizes and places in a matrix are counted in int, a tile's side beyond an edge included.
constexpr int64_t longest = (int64_t{1} << 31) - 1024;

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  const bool is_3xtf32 = env.math == math_3xtf32.name;
  if (auto reason = opencl::unsupported_anywhere(problem, env, 0)) return reason;
  const Task task(problem, env);
  if (is_3xtf32 && task.has_formats()) {
    return fmt::format("math {}: of float32 alone and without gate=1", env.math);
  }
  if (auto reason = unrounded_operands(problem, env)) return reason;
  const Gemm& g = task.g;
  if (std::max({g.m, g.b_cols(), g.k, g.batch}) >= longest) {
    return fmt::format("sizes must stay below {}", longest);
  }
  // b once more when it is constant, or rearranged for matrix units.
  const bool is_copied = g.prepack || task.has_formats();
  const double b_bytes = is_copied ? static_cast<double>(g.batch) *
                                         static_cast<double>(task.b->bytes(g.k * g.b_cols()))
                                   : 0;
  auto reason = opencl::unsupported_anywhere(problem, env, b_bytes);
  if (reason || !is_3xtf32) return reason;
  const std::vector<Tuning> list = tunings(problem, env);
  if (list.empty()) return fmt::format("math {}: the matrices are too large", env.math);
  return opencl::unsupported_anywhere(problem, env,
                                      b_bytes + tensor_beside_bytes(task, list.front()));
}

// The path that a tuning names; null: none.
const Path* path_of(const Tuning& tuning) {
  const auto number = static_cast<std::size_t>(tuning.get("path", path_tiles));
  return number < paths.size() ? paths[number] : nullptr;
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  const int64_t number = tuning.get("path", path_tiles);
  if (env.math == math_3xtf32.name && number != path_tensor) {
    return fmt::format("path={} is not of math {}", number, env.math);
  }
  const Path* path = path_of(tuning);
  if (path == nullptr) return fmt::format("there is no path={}", number);
  return path->defect(Task(problem, env), tuning);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands& constants) {
  require_tuning(opencl, problem, env, tuning);
  const Tuning complete = complete_tuning(opencl, problem, env, tuning);
  return path_of(complete)->plan(Task(problem, env), complete, constants);
}

}  // namespace

// gemm_epilogue.cl has these numbers, counted from 1, and their count + 1 as base.
using Op = Epilogue::Op;
static_assert(Epilogue::most + 1 == 9);
static_assert(static_cast<int>(Op::bias) == 0 && static_cast<int>(Op::relu) == 1 &&
              static_cast<int>(Op::leaky_relu) == 2 && static_cast<int>(Op::gelu) == 3 &&
              static_cast<int>(Op::gelu_tanh) == 4 && static_cast<int>(Op::silu) == 5 &&
              static_cast<int>(Op::add) == 6 && static_cast<int>(Op::clamp) == 7);

int number_of(DType type) {
  constexpr std::array<DType, 10> numbers = {
      &float32, &float16, &bfloat16, &int8, &uint8, &int32, &q8_0, &q4_0, &q4_1, &int8_per_channel};
  return static_cast<int>(std::find(numbers.begin(), numbers.end(), type) - numbers.begin());
}

std::string output_options(const Task& task, std::int64_t v) {
  const Epilogue& epilogue = task.g.epilogue;
  return fmt::format(
      " -DV={} -DB_TYPE={} -DC_TYPE={} -DGATE={:d} -DC_VECTORS={:d} -DCHAIN={} -DHAS_BIAS={:d} "
      "-DHAS_ADD={:d} -DSLOPE={:a}f -DLOW={:a}f -DHIGH={:a}f",
      v, number_of(task.b), number_of(task.c), task.g.gate, task.g.n % v == 0,
      static_cast<std::int64_t>(task.problem.value("epilogue")), epilogue.has(Op::bias),
      epilogue.has(Op::add), epilogue.slope, epilogue.low, epilogue.high);
}

int64_t groups_per_unit(int64_t items, int64_t registers, int64_t local_bytes) {
  return std::clamp<int64_t>(
      std::min({65536 / (registers * items), 2048 / items, 227 * 1024 / (local_bytes + 1024)}), 1,
      16);
}

// int8-dynamic needs each row's largest element before its products.
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
