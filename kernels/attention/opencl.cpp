// Attention, variant `opencl`: tiles of queries and keys with online softmax. attention.cl is for
// any device, attention_tiles.cl and attention_decode.cl for those with NVIDIA's code path
// (opencl_tiles.hpp, opencl_decode.hpp), attention_tensor.cl and attention_wgmma.cl for maths
// 3xtf32, f16 and bf16 (opencl_units.hpp). Here a tuning is chosen, keys are split among groups
// when there are few query rows, and the grid is laid out.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <numbers>

#include "attention_cl.hpp"
#include "attention_decode_cl.hpp"
#include "attention_merge_cl.hpp"
#include "attention_tensor_cl.hpp"
#include "attention_tiles_cl.hpp"
#include "attention_wgmma_cl.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/opencl_decode.hpp"
#include "kernels/attention/opencl_tiles.hpp"
#include "kernels/attention/opencl_units.hpp"

namespace rooflane::attention {
namespace {

using std::int64_t;

constexpr Tunable tunables[] = {
    {"path",
     "0: attention.cl, any device; 1: attention_tiles.cl, prefill; 2: attention_decode.cl, decode; "
     "3: attention_tensor.cl, maths 3xtf32, f16 and bf16; 4: attention_wgmma.cl, maths f16 and "
     "bf16",
     0, 4, true},
    {"code_path", "0: portable OpenCL C; 1: NVIDIA's inline PTX", 0, 1},
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
    {"cd", "path 1: columns of a chunk of keys", 1, 1024},
    {"cn", "path 1: rows of a chunk of values", 1, 1024},
    {"unroll", "path 1: steps of the inner loops written out", 1, 32},
    {"stages",
     "paths 1, 2: chunks or steps in local memory; 3: tiles of keys and of values; 4: of either", 1,
     16},
    {"warps", "path 3: warps of a group; 4: those of its consumers", 1, 32},
    {"mt", "path 3: fragments of 16 query rows per warp", 1, 2},
    {"lanes", "path 2: items that share a key", 1, 32},
    {"nb", "path 2: keys per item and step", 1, 16},
    {"fused",
     "path 2: 1: the last group of a head merges its splits (code_path 1); 0: a second kernel", 0,
     1},
};

// A tuning of path 0; what attention.cl derives from it.
struct Tile {
  int64_t code_path, w, bq, bk, v, vq, tk, tq, tm, tv, pad, k_local, resident, splits;
  static constexpr int64_t path = any_device;
  static constexpr const char* names[] = {"code_path", "w",       "bq",       "bk",    "v",
                                          "vq",        "tk",      "tq",       "tm",    "tv",
                                          "pad",       "k_local", "resident", "splits"};

  // v_dim with the columns that round it up to whole micro-tiles.
  int64_t padded_dim(const Sizes& s) const { return ceil_div(s.v_dim, tv * v) * tv * v; }
  int64_t local_bytes(const Sizes& s) const {
    const int64_t slices = std::max<int64_t>(1, w / std::max<int64_t>(1, bq / vq));
    const int64_t key_floats = std::max(s.head_dim, padded_dim(s));  // or of a value
    return 4 * (s.head_dim * (bq + pad) + bk * (key_floats + pad + bq + pad)) +
           bq * (4 * slices + 20);
  }
  // 64-byte alignment of six arrays may cost that much more.
  static constexpr int64_t alignment_bytes = 6 * 64;

  std::optional<std::string> defect(const Sizes& s, const common::Device& device) const {
    return common::unmet_need(
        path,
        {{code_path == 0, "code_path=0"},
         {is_power_of_two(v) && is_power_of_two(vq), "powers of two for v and vq"},
         {bq % (tq * vq) == 0 && bq % tm == 0, "bq a multiple of tq·vq and of tm"},
         {bk % tk == 0, "bk a multiple of tk"},
         {pad % std::max(v, vq) == 0, "pad a multiple of v and vq"}},
        {0, w, local_bytes(s) + alignment_bytes}, device);
  }
};

// One item per group on a CPU device (barriers would put accumulators in memory), vectors as wide
// as the registers. 48 rows: 8 keys × 3 vectors of rows fill 24 of AVX-512's 32 registers, and so
// do the output's tiles, 24/tv rows × tv vectors; half of that for 16 registers. 64 keys keep
// scores (12 KB) and values (16 KB at head_dim 64) in the L1 cache. Decoding walks in steps of 256.
std::vector<Tile> cpu_tiles(const Sizes& s, const common::Device& device) {
  const int64_t v = std::min(device.info.vector_floats, 16);
  const int64_t accumulators = v == 16 ? 24 : 12;
  const int64_t rows = s.q_len * s.group();
  const int64_t dim_vectors = ceil_div(s.v_dim, v);
  // The widest micro-tile that rounds v_dim up least.
  int64_t tv = 1;
  for (const int64_t width : {2, 3, 4}) {
    if (ceil_div(dim_vectors, width) * width <= ceil_div(dim_vectors, tv) * tv) tv = width;
  }
  std::vector<Tile> list;
  for (const int64_t bk : {64, 128, 32, 16, 8}) {
    if (rows > 2 * v) {
      list.push_back({0, 1, 48, bk, v, v, accumulators / 3, 3, accumulators / tv, tv, 0, 0, 0, 1});
    }
    if (rows > v) {
      list.push_back(
          {0, 1, 2 * v, bk, v, v, accumulators / 3, 2, std::min<int64_t>(4, v), tv, 0, 0, 0, 1});
    }
    const auto row_block = static_cast<int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::clamp<int64_t>(rows, 1, v))));
    list.push_back({0, 1, row_block, row_block < v ? 4 * bk : bk, v, row_block, 8, 1,
                    std::min<int64_t>(4, row_block), tv, 0, 0, 0, 1});
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
      const int64_t outputs = bq * ceil_div(s.v_dim, 4) * 4;
      const int64_t least = std::max<int64_t>(64, bq * bk / 16);
      const auto w = static_cast<int64_t>(
          std::bit_ceil(static_cast<std::uint64_t>(std::max(least, ceil_div(outputs, 64)))));
      if (w > 256) continue;
      list.push_back({0, w, bq, bk, 4, 4, std::min<int64_t>(4, bk), 1, 4, 1, 4, 1, 1, 1});
    }
  }
  // The last resort for a long head_dim: few keys, more accumulators.
  list.push_back({0, 64, 4, 8, 4, 4, 4, 1, 4, 1, 4, 1, 0, 1});
  list.push_back({0, 16, 4, 4, 4, 4, 4, 1, 4, 1, 4, 1, 0, 1});
  return list;
}

// Keys are split when there are fewer than two groups for each compute unit; a split has at least
// four tiles, so that merging stays small.
int64_t choose_splits(const Sizes& s, const Tile& tile, int64_t units) {
  const int64_t groups =
      std::max<int64_t>(1, s.batch * s.kv_heads * ceil_div(s.q_len * s.group(), tile.bq));
  const int64_t most = std::max<int64_t>(1, s.keys_seen() / (4 * tile.bk));
  return groups >= units ? 1 : std::clamp<int64_t>(ceil_div(2 * units, groups), 1, most);
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Sizes s(problem);
  const common::Device device(env.device);
  const bool is_cpu = device.is_cpu();
  std::vector<Tuning> list;
  const auto append = [&](std::vector<Guess> guesses) {
    std::ranges::stable_sort(guesses, {}, &Guess::ns);
    for (Guess& guess : guesses) list.push_back(std::move(guess.tuning));
  };
  if (env.math != fp32.name) {
    append(unit_guesses(s, device));
    return list;
  }
  if (plain_floats(s).holds && has_code_path(1, device).holds) {
    list = decode_tunings(s, device);
    append(tiles_guesses(s, device));
  }
  const int64_t units = is_cpu && env.threads > 0 ? env.threads : device.info.compute_units;
  for (Tile& tile : is_cpu ? cpu_tiles(s, device) : gpu_tiles(s)) {
    tile.splits = choose_splits(s, tile, units);
    if (!tile.defect(s, device)) list.push_back(common::tuning_of(tile));
  }
  return list;
}

// f of the tuning as the struct of its path.
template <class F>
auto with_struct(const Tuning& tuning, const F& f) {
  switch (tuning.get("path", any_device)) {
    case prefill:
      return f(common::read_tuning<Tiles>(opencl.tunables, tuning));
    case decode:
      return f(common::read_tuning<Decode>(opencl.tunables, tuning));
    case tensor:
      return f(common::read_tuning<Tensor>(opencl.tunables, tuning));
    case wgmma:
      return f(common::read_tuning<Warpgroups>(opencl.tunables, tuning));
    default:
      return f(common::read_tuning<Tile>(opencl.tunables, tuning));
  }
}

// Rows of a kv head and keys, so that sums of two of them are 32-bit numbers (attention_rows.cl).
constexpr int64_t longest = int64_t{1} << 30;

class OpenclPlan final : public opencl::DevicePlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env), s_(problem), device_(env.device) {
    path_ = "fma";
    if (heads_ == 0 || rows_ == 0) return;
    with_struct(tuning, [&](const auto& t) { prepare(t); });
  }

 private:
  void prepare(const Tile& tile) {
    const int64_t row_blocks = ceil_div(rows_, tile.bq);
    split(tile.splits);
    opencl::KernelCall call = kernel(
        attention_cl,
        fmt::format("-DDV={} -DDP={} {}", s_.v_dim, tile.padded_dim(s_), macros_of(tile, s_)),
        "attention");
    set_operands(call, {copy_of("o"), parts_, state_});
    add_sizes(call, s_.group(), s_.q_len, s_.kv_len, row_blocks, tile.splits,
              keys_per_split(tile.splits, tile.bk, tile.bq), s_.causal);
    add_options(call, 1);
    add_step(std::move(call), heads_ * row_blocks * tile.splits, tile.w);
    merge(tile.splits, tile.w, "e", 0);
  }

  void prepare(const Tiles& tiles) {
    const int64_t row_blocks = ceil_div(rows_, tiles.bq);
    split(tiles.splits);
    opencl::KernelCall call = kernel(attention_tiles_cl, tiles.options(s_), "tiles");
    set_operands(call, {parts_, state_});
    add_sizes(call, s_.group(), s_.q_len, s_.kv_len, heads_, row_blocks, tiles.splits,
              keys_per_split(tiles.splits, tiles.bk, tiles.bq), fold(tiles), s_.causal);
    add_options(call, std::numbers::log2e);
    add_step(std::move(call), heads_ * row_blocks * tiles.splits, tiles.w);
    merge(tiles.splits, std::min<int64_t>(128, tiles.w), "2", tiles.exchanged_columns(s_.head_dim));
  }

  void prepare(const Decode& decode) {
    const bool is_fused = decode.splits > 1 && decode.fused == 1;
    split(decode.splits);
    cl_mem arrived = is_fused ? zeroed_workspace(static_cast<std::size_t>(heads_) * sizeof(cl_int))
                              : copy_of("o");
    opencl::KernelCall call = kernel(attention_decode_cl, decode.options(s_), "decode");
    set_operands(call, {copy_of("o"), parts_, state_, arrived});
    add_sizes(call, s_.group(), s_.q_len, s_.kv_len, decode.splits, s_.causal);
    add_options(call, std::numbers::log2e);
    add_step(std::move(call), heads_ * decode.splits, decode.w);
    if (!is_fused) merge(decode.splits, decode.w, "2", 0);
  }

  void prepare(const Tensor& tiles) {
    const int64_t row_blocks = ceil_div(rows_, tiles.bq());
    opencl::KernelCall call = kernel(attention_tensor_cl, tiles.options(s_), "tensor_tiles");
    set_operands(call, {copy_of("o")});
    add_sizes(call, s_.group(), s_.q_len, s_.kv_len, heads_, row_blocks, s_.causal);
    add_scale(call, std::numbers::log2e);
    add_step(std::move(call), heads_ * row_blocks, tiles.items());
    path_ = tiles.name(s_);
  }

  void prepare(const Warpgroups& groups) {
    const std::string source = groups.macros(s_) + attention_wgmma_cl;
    const int64_t works = groups.works(s_);
    const int64_t heads = s_.batch * s_.heads;
    cl_mem maps = workspace(std::size_t{3} * 128);
    opencl::KernelCall describe = kernel(source.c_str(), groups.options(s_), "describe");
    describe.set_args(context(), maps, copy_of("q"), copy_of("k"), copy_of("v"));
    add_sizes(describe, heads, s_.group(), s_.q_len, s_.kv_len);
    add_description(std::move(describe), {copy_of("q"), copy_of("k"), copy_of("v")});
    opencl::KernelCall call = kernel(source.c_str(), groups.options(s_), "attention_wgmma");
    call.set_args(context(), maps, copy_of("q"), copy_of("k"), copy_of("v"), copy_of("o"));
    add_sizes(call, heads, s_.group(), s_.q_len, s_.kv_len, works, s_.causal);
    add_scale(call, std::numbers::log2e);
    add_step(std::move(call), std::min<int64_t>(works, device_.info.compute_units), groups.items());
    path_ = groups.scores(s_).name();
  }

  // The first arguments of a kernel: q, k and v, then these.
  void set_operands(opencl::KernelCall& call, std::initializer_list<cl_mem> others) {
    call.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"));
    for (cl_mem memory : others) call.add_args(context(), memory);
  }
  // `unit`: of the kernel's scores.
  void add_scale(opencl::KernelCall& call, double unit) {
    call.add_args(context(), static_cast<cl_float>(s_.scale * unit));
  }
  // The scale, and the arguments OPTIONS of attention_rows.cl. Where there is no mask, or no
  // lengths, q is passed instead and is not read as such.
  void add_options(opencl::KernelCall& call, double unit) {
    add_scale(call, unit);
    call.add_args(context(), copy_of(s_.mask ? "mask" : "q"),
                  copy_of(s_.lengths ? "lengths" : "q"));
    add_sizes(call, s_.kv_heads, std::min(s_.window, longest));
    call.add_args(context(), static_cast<cl_float>(s_.softcap * unit));
  }

  // Where the kernel writes: rows of o, or with splits unnormalised ones with their states.
  void split(int64_t splits) {
    parts_ = state_ = copy_of("o");
    if (splits == 1) return;
    const auto part_rows = static_cast<std::size_t>(heads_ * splits * rows_);
    parts_ = workspace(part_rows * static_cast<std::size_t>(s_.v_dim) * sizeof(float));
    state_ = workspace(part_rows * 2 * sizeof(float));
  }
  // The step that puts splits together. `base`: of the scores.
  void merge(int64_t splits, int64_t w, const char* base, int64_t exchanged) {
    if (splits == 1) return;
    opencl::KernelCall call =
        kernel(attention_merge_cl,
               fmt::format("-DV=1 -DVW=1 -DD={} -DW={} -DBASE_{}=1 -DEXCHANGED={}{}", s_.v_dim, w,
                           base, exchanged, element_macro(s_)),
               "merge");
    call.set_args(context(), parts_, state_, copy_of("o"));
    add_sizes(call, s_.group(), s_.q_len, splits);
    add_step(std::move(call), heads_ * rows_, w);
  }

  // Compute units, if all groups run at once; otherwise as many as there are groups.
  int64_t fold(const Tiles& tiles) const {
    const int64_t units = device_.info.compute_units;
    const int64_t groups = heads_ * ceil_div(rows_, tiles.bq);
    const bool at_once = groups <= units * tiles.resident(device_, s_.head_dim);
    return tiles.splits == 1 && at_once ? units : std::max<int64_t>(groups, 1);
  }
  // Each split's share of the keys that a block of rows sees together.
  int64_t keys_per_split(int64_t splits, int64_t multiple, int64_t block_rows) const {
    const int64_t keys = s_.most_keys((block_rows + s_.group() - 2) / s_.group() + 1);
    return ceil_div(ceil_div(keys, splits), multiple) * multiple;
  }

  const Sizes s_;
  const common::Device device_;
  const int64_t rows_ = s_.q_len * s_.group();
  const int64_t heads_ = s_.batch * s_.kv_heads;
  cl_mem parts_ = nullptr, state_ = nullptr;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = opencl::unsupported_anywhere(problem, env, 0)) return reason;
  if (env.math != fp32.name) {
    const Math& math = *find_math(kernel, env.math);
    if (const auto reason = option_refusal(problem, math.operands)) {
      return fmt::format("math {}: {}", env.math, *reason);
    }
  }
  const Sizes s(problem);
  if (s.kv_type != s.type) {
    return fmt::format("type={},kv_type={}: computed are operands of one format",
                       s.type->short_name, s.kv_type->short_name);
  }
  for (const auto& [name, length] :
       {std::pair("q_len · heads/kv_heads", s.q_len * s.group()), std::pair("kv_len", s.kv_len)}) {
    if (length > longest) return fmt::format("{} is {}, more than {}", name, length, longest);
  }
  const std::vector<Tuning> list = tunings(problem, env);
  const opencl::DeviceInfo& info = opencl::device(env.device);
  if (list.empty()) {
    return fmt::format("head_dim {}, v_dim {}: no tile fits the {} bytes of local memory of {}",
                       s.head_dim, s.v_dim, info.local_bytes, info.name);
  }
  const int64_t splits = list.front().get("splits", 1);
  const double part_bytes = splits > 1 ? 4.0 * static_cast<double>(s.batch * s.heads) *
                                             static_cast<double>(s.q_len * splits) *
                                             static_cast<double>(s.v_dim + 2)
                                       : 0;
  return opencl::unsupported_anywhere(problem, env, part_bytes);
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  const common::Device device(env.device);
  const Sizes s(problem);
  const int64_t path = tuning.get("path", any_device);
  if ((path == tensor || path == wgmma) != (env.math != fp32.name)) {
    return fmt::format("path={} is not of math {}", path, env.math);
  }
  return with_struct(tuning, [&](const auto& t) { return t.defect(s, device); });
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(opencl, problem, env, tuning);
  return std::make_unique<OpenclPlan>(problem, complete_tuning(opencl, problem, env, tuning), env);
}

}  // namespace

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
                        .maths = kernel_maths,
                        .dtypes = floats_with_lengths};

}  // namespace rooflane::attention
