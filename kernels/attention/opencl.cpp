// Attention, variant `opencl`: tiles of queries and keys with online softmax, any device. The
// kernels stand in attention.cl; here the tile is chosen, keys are split among groups when there
// are few query rows, and the grid is laid out.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "attention_cl.hpp"
#include "backends/opencl_plan.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"

namespace rooflane::attention {
namespace {

using opencl::DeviceInfo;
using opencl::DeviceKind;
using std::int64_t;

constexpr Tunable tunables[] = {
    {"w", "work-items per group", 1, 1024},
    {"bq", "query rows per group", 1, 256},
    {"bk", "keys per tile", 1, 1024},
    {"v", "floats per vector along head_dim: 1, 2, 4, 8 or 16", 1, 16},
    {"vq", "floats per vector along query rows: 1, 2, 4, 8 or 16", 1, 16},
    {"tk", "keys of a micro-tile of scores", 1, 16},
    {"tq", "vectors of query rows across a micro-tile of scores", 1, 8},
    {"tm", "query rows of a micro-tile of the output", 1, 32},
    {"tv", "vectors of head_dim across a micro-tile of the output", 1, 8},
    {"pad", "unused floats after each row of a tile in local memory", 0, 16},
    {"k_local", "1: keys are copied to local memory; 0: read where they are", 0, 1},
    {"resident", "1: the output's accumulators stay in registers; 0: in private memory", 0, 1},
    {"splits", "groups that share the keys of a row", 1, 1024},
};

int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }

// A tuning with its names; what attention.cl derives from it.
struct Tile {
  int64_t w, bq, bk, v, vq, tk, tq, tm, tv, pad, k_local, resident, splits;

  static Tile from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("w"),       get("bq"),       get("bk"),    get("v"),  get("vq"),
            get("tk"),      get("tq"),       get("tm"),    get("tv"), get("pad"),
            get("k_local"), get("resident"), get("splits")};
  }
  Tuning tuning() const {
    return {{"w", w},          {"bq", bq},   {"bk", bk},           {"v", v},
            {"vq", vq},        {"tk", tk},   {"tq", tq},           {"tm", tm},
            {"tv", tv},        {"pad", pad}, {"k_local", k_local}, {"resident", resident},
            {"splits", splits}};
  }
  // head_dim with the columns that round it up to whole micro-tiles.
  int64_t padded_dim(int64_t head_dim) const { return ceil_div(head_dim, tv * v) * tv * v; }
  double local_bytes(int64_t head_dim) const {
    const int64_t slices = std::max<int64_t>(1, w / (bq / vq));
    return 4.0 * static_cast<double>(head_dim) * static_cast<double>(bq + pad) +
           4.0 * static_cast<double>(bk) *
               static_cast<double>(padded_dim(head_dim) + pad + bq + pad) +
           static_cast<double>(bq * (4 * slices + 20));
  }
  // 64-byte alignment of six arrays may cost that much more.
  static constexpr double alignment_bytes = 6.0 * 64;

  bool fits(const DeviceInfo& info, int64_t head_dim) const {
    const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
    return power(v) && power(vq) && bq % (tq * vq) == 0 && bk % tk == 0 && bq % tm == 0 &&
           pad % std::max(v, vq) == 0 && static_cast<std::size_t>(w) <= info.max_work_group &&
           local_bytes(head_dim) + alignment_bytes <= static_cast<double>(info.local_bytes);
  }
};

// One item per group on a CPU device (barriers would put accumulators in memory), vectors as wide
// as the registers. 48 rows: 8 keys × 3 vectors of rows fill 24 of AVX-512's 32 registers, and so
// do the output's tiles, 24/tv rows × tv vectors; half of that for 16 registers. 64 keys keep
// scores (12 KB) and values (16 KB at head_dim 64) in the L1 cache. Decoding walks in steps of 256.
std::vector<Tile> cpu_tiles(const Sizes& s, const DeviceInfo& info) {
  const int64_t v = std::min(info.vector_floats, 16);
  const int64_t accumulators = v == 16 ? 24 : 12;
  const int64_t rows = s.q_len * s.group();
  const int64_t dim_vectors = ceil_div(s.head_dim, v);
  // The widest micro-tile that rounds head_dim up least.
  int64_t tv = 1;
  for (const int64_t width : {2, 3, 4}) {
    if (ceil_div(dim_vectors, width) * width <= ceil_div(dim_vectors, tv) * tv) tv = width;
  }
  std::vector<Tile> list;
  for (const int64_t bk : {64, 128, 32, 16, 8}) {
    if (rows > 2 * v) {
      list.push_back({1, 48, bk, v, v, accumulators / 3, 3, accumulators / tv, tv, 0, 0, 0, 1});
    }
    if (rows > v) {
      list.push_back(
          {1, 2 * v, bk, v, v, accumulators / 3, 2, std::min<int64_t>(4, v), tv, 0, 0, 0, 1});
    }
    const auto few = static_cast<int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::clamp<int64_t>(rows, 1, v))));
    list.push_back(
        {1, few, few < v ? 4 * bk : bk, v, few, 8, 1, std::min<int64_t>(4, few), tv, 0, 0, 0, 1});
  }
  return list;
}

// Elsewhere 4×4 micro-tiles and 16-byte reads of local memory; blocks as large as local memory and
// the registers (64 accumulators of the output per item at most) allow, smaller ones for long
// head_dim. pad=4 keeps the rows of a tile on different banks.
std::vector<Tile> gpu_tiles(const Sizes& s) {
  const int64_t rows = s.q_len * s.group();
  std::vector<Tile> list;
  for (const int64_t bq : {64, 32, 16, 8, 4}) {
    if (bq > 4 && bq / 2 >= rows) continue;
    for (const int64_t bk : {64, 32, 16, 8}) {
      const int64_t outputs = bq * ceil_div(s.head_dim, 4) * 4;
      const int64_t least = std::max<int64_t>(64, bq * bk / 16);
      const auto w = static_cast<int64_t>(
          std::bit_ceil(static_cast<std::uint64_t>(std::max(least, ceil_div(outputs, 64)))));
      if (w > 256) continue;
      list.push_back({w, bq, bk, 4, 4, std::min<int64_t>(4, bk), 1, 4, 1, 4, 1, 1, 1});
    }
  }
  // The last resort for a long head_dim: few keys, more accumulators.
  list.push_back({64, 4, 8, 4, 4, 4, 1, 4, 1, 4, 1, 0, 1});
  list.push_back({16, 4, 4, 4, 4, 4, 1, 4, 1, 4, 1, 0, 1});
  return list;
}

// Keys are split when there are fewer than two groups for each compute unit; a split has at least
// four tiles, so that merging stays small.
int64_t choose_splits(const Sizes& s, const Tile& tile, int64_t units) {
  const int64_t groups =
      std::max<int64_t>(1, s.batch * s.kv_heads * ceil_div(s.q_len * s.group(), tile.bq));
  const int64_t most = std::max<int64_t>(1, s.kv_len / (4 * tile.bk));
  return groups >= units ? 1 : std::clamp<int64_t>(ceil_div(2 * units, groups), 1, most);
}

std::vector<Tile> tiles_that_fit(const Sizes& s, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const bool is_cpu = info.kind == DeviceKind::cpu;
  std::vector<Tile> list = is_cpu ? cpu_tiles(s, info) : gpu_tiles(s);
  std::erase_if(list, [&](const Tile& tile) { return !tile.fits(info, s.head_dim); });
  const int64_t units = is_cpu && env.threads > 0 ? env.threads : info.compute_units;
  for (Tile& tile : list) tile.splits = choose_splits(s, tile, units);
  return list;
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  std::vector<Tuning> list;
  for (const Tile& tile : tiles_that_fit(Sizes(problem), env)) list.push_back(tile.tuning());
  return list;
}

class OpenclPlan final : public opencl::DevicePlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env) {
    const Sizes s(problem);
    const Tile tile = Tile::from(tuning);
    const int64_t rows = s.q_len * s.group();
    const int64_t heads = s.batch * s.kv_heads;
    const int64_t row_blocks = ceil_div(rows, tile.bq);
    if (heads == 0 || rows == 0) return;
    Tile compiled = tile;  // the number of splits is an argument, not a macro
    compiled.splits = 1;
    const std::string options = fmt::format("{} -DD={} -DDP={}", opencl::defines(compiled.tuning()),
                                            s.head_dim, tile.padded_dim(s.head_dim));
    const int64_t keys_per_split = ceil_div(ceil_div(s.kv_len, tile.splits), tile.bk) * tile.bk;
    cl_mem o = copy_of("o");
    cl_mem parts = o;
    cl_mem state = o;
    if (tile.splits > 1) {
      const auto part_rows = static_cast<std::size_t>(heads * tile.splits * rows);
      parts = workspace(part_rows * static_cast<std::size_t>(s.head_dim) * sizeof(float));
      state = workspace(part_rows * 2 * sizeof(float));
      merge_ = kernel(attention_cl, options, "merge");
      merge_.set_args(context(), parts, state, o, cl_long{s.group()}, cl_long{s.q_len},
                      cl_long{s.kv_len}, cl_long{tile.splits}, cl_int{s.causal});
      merge_size_ = {static_cast<std::size_t>(heads * rows), static_cast<std::size_t>(tile.w)};
    }
    attention_ = kernel(attention_cl, options, "attention");
    attention_.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"), parts, state,
                        cl_long{s.group()}, cl_long{s.q_len}, cl_long{s.kv_len},
                        cl_long{row_blocks}, cl_long{tile.splits}, cl_long{keys_per_split},
                        cl_int{s.causal}, static_cast<cl_float>(s.scale));
    size_ = {static_cast<std::size_t>(heads * row_blocks * tile.splits),
             static_cast<std::size_t>(tile.w)};
  }

 private:
  void enqueue() override {
    launch(attention_, size_);
    launch(merge_, merge_size_);
  }

  opencl::KernelCall attention_, merge_;
  opencl::Launch size_{}, merge_size_{};
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = opencl::unsupported_anywhere(problem, env, 0)) return reason;
  const Sizes s(problem);
  const std::vector<Tile> list = tiles_that_fit(s, env);
  const DeviceInfo& info = opencl::device(env.device);
  if (list.empty()) {
    return fmt::format("head_dim {}: no tile fits the {} bytes of local memory of {}", s.head_dim,
                       info.local_bytes, info.name);
  }
  const double part_bytes = list.front().splits > 1
                                ? 4.0 * static_cast<double>(s.batch * s.heads) *
                                      static_cast<double>(s.q_len * list.front().splits) *
                                      static_cast<double>(s.head_dim + 2)
                                : 0;
  return opencl::unsupported_anywhere(problem, env, part_bytes);
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  if (Tile::from(tuning).fits(info, problem.size("head_dim"))) return std::nullopt;
  return fmt::format(
      "v and vq must be powers of two, bq a multiple of tq·vq and of tm, bk of tk, pad of v and "
      "vq, w at most {} and the tiles at most {} bytes on {}",
      info.max_work_group, info.local_bytes, info.name);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(opencl, problem, env, tuning);
  return std::make_unique<OpenclPlan>(problem, complete_tuning(opencl, problem, env, tuning), env);
}

}  // namespace

const Variant opencl = {.name = "opencl",
                        .kernel = &kernel,
                        .backend = "opencl",
                        .threads = Threads::device,
                        .tunables = tunables,
                        .unsupported = unsupported,
                        .tunings = tunings,
                        .plan = plan,
                        .tuning_defect = tuning_defect,
                        .ladder = opencl_ladder};

}  // namespace rooflane::attention
