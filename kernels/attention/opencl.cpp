// Attention, variant `opencl`: tiles of queries and keys with online softmax. attention.cl is for
// any device, attention_tiles.cl and attention_decode.cl for those with NVIDIA's code path,
// attention_tensor.cl for maths 3xtf32, f16 and bf16, attention_wgmma.cl for the latter two on
// Hopper's matrix units (their tunings: opencl_decode.hpp, opencl_tiles.hpp, opencl_tensor.hpp,
// opencl_wgmma.hpp); here the tile is chosen, keys are split among groups when
// there are few query rows, and the grid is laid out.
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
#include "backends/opencl_features.hpp"
#include "backends/opencl_plan.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/opencl_decode.hpp"
#include "kernels/attention/opencl_tensor.hpp"
#include "kernels/attention/opencl_tiles.hpp"
#include "kernels/attention/opencl_wgmma.hpp"

namespace rooflane::attention {
namespace {

using opencl::DeviceInfo;
using opencl::DeviceKind;
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

// A tuning of path 0 with its names; what attention.cl derives from it.
struct Tile {
  int64_t w, bq, bk, v, vq, tk, tq, tm, tv, pad, k_local, resident, splits;

  static Tile from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("w"),       get("bq"),       get("bk"),    get("v"),  get("vq"),
            get("tk"),      get("tq"),       get("tm"),    get("tv"), get("pad"),
            get("k_local"), get("resident"), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", any_device},
            {"code_path", 0},
            {"w", w},
            {"bq", bq},
            {"bk", bk},
            {"v", v},
            {"vq", vq},
            {"tk", tk},
            {"tq", tq},
            {"tm", tm},
            {"tv", tv},
            {"pad", pad},
            {"k_local", k_local},
            {"resident", resident},
            {"splits", splits}};
  }
  // v_dim with the columns that round it up to whole micro-tiles.
  int64_t padded_dim(const Sizes& s) const { return ceil_div(s.v_dim, tv * v) * tv * v; }
  double local_bytes(const Sizes& s) const {
    const int64_t slices = std::max<int64_t>(1, w / (bq / vq));
    const int64_t key_floats = std::max(s.head_dim, padded_dim(s));  // or of a value
    return 4.0 * static_cast<double>(s.head_dim) * static_cast<double>(bq + pad) +
           4.0 * static_cast<double>(bk) * static_cast<double>(key_floats + pad + bq + pad) +
           static_cast<double>(bq * (4 * slices + 20));
  }
  // 64-byte alignment of six arrays may cost that much more.
  static constexpr double alignment_bytes = 6.0 * 64;

  bool fits(const DeviceInfo& info, const Sizes& s) const {
    const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
    return power(v) && power(vq) && bq % (tq * vq) == 0 && bk % tk == 0 && bq % tm == 0 &&
           pad % std::max(v, vq) == 0 && static_cast<std::size_t>(w) <= info.max_work_group &&
           local_bytes(s) + alignment_bytes <= static_cast<double>(info.local_bytes);
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
  const int64_t dim_vectors = ceil_div(s.v_dim, v);
  // The widest micro-tile that rounds v_dim up least.
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
    const auto row_block = static_cast<int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::clamp<int64_t>(rows, 1, v))));
    list.push_back({1, row_block, row_block < v ? 4 * bk : bk, v, row_block, 8, 1,
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
  const int64_t most = std::max<int64_t>(1, s.keys_seen() / (4 * tile.bk));
  return groups >= units ? 1 : std::clamp<int64_t>(ceil_div(2 * units, groups), 1, most);
}

std::vector<Tile> tiles_that_fit(const Sizes& s, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const bool is_cpu = info.kind == DeviceKind::cpu;
  std::vector<Tile> list = is_cpu ? cpu_tiles(s, info) : gpu_tiles(s);
  std::erase_if(list, [&](const Tile& tile) { return !tile.fits(info, s); });
  const int64_t units = is_cpu && env.threads > 0 ? env.threads : info.compute_units;
  for (Tile& tile : list) tile.splits = choose_splits(s, tile, units);
  return list;
}

// What a group of the given code path may use. The NVIDIA code path's arrays are as large as the
// probe found, the portable one's as the device says.
Room room_of(const DeviceInfo& info, int64_t code_path) {
  const std::size_t local =
      code_path == 1 ? opencl::features(info.index).static_local_bytes : info.local_bytes;
  return {static_cast<int64_t>(local), static_cast<int64_t>(info.max_work_group),
          info.compute_units};
}

bool has_nvidia_code_path(const DeviceInfo& info) {
  return info.kind == DeviceKind::gpu && opencl::features(info.index).nvidia_code_path();
}

bool has_wgmma(const DeviceInfo& info) { return opencl::features(info.index).wgmma; }

bool has_tensor_code_path(const DeviceInfo& info) {
  const opencl::Features& found = opencl::features(info.index);
  return found.mma_tf32 && found.mma_f16 && found.nvidia_code_path();
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Sizes s(problem);
  const DeviceInfo& info = opencl::device(env.device);
  std::vector<Tuning> list;
  if (env.math != fp32.name) {
    const std::int64_t code_path = has_tensor_code_path(info) ? 1 : 0;
    std::vector<Timed> timed =
        tensor_tiles(s, room_of(info, code_path), room_of(info, 0), code_path);
    if (has_wgmma(info) && !wgmma_refusal(s)) {
      for (Timed& groups : warpgroups(s, room_of(info, 1))) timed.push_back(std::move(groups));
    }
    std::ranges::stable_sort(timed, {}, &Timed::first);
    for (Timed& tuning : timed) list.push_back(std::move(tuning.second));
    return list;
  }
  if (has_nvidia_code_path(info) && s.v_dim == s.head_dim && s.type == &float32) {
    const Room room = room_of(info, 1);
    for (const Decode& decode : nvidia_decode(s, room)) list.push_back(decode.tuning());
    for (const Tiles& tiles : nvidia_tiles(s, room)) list.push_back(tiles.tuning());
  }
  for (const Tile& tile : tiles_that_fit(s, env)) list.push_back(tile.tuning());
  return list;
}

// Rows of a kv head and keys, so that sums of two of them are 32-bit numbers (attention_rows.cl).
constexpr int64_t longest = int64_t{1} << 30;

class OpenclPlan final : public opencl::DevicePlan {
 public:
  PlanFacts facts() const override {
    PlanFacts facts = DevicePlan::facts();
    facts.path = path_;
    return facts;
  }
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env), s_(problem), info_(opencl::device(env.device)) {
    if (heads_ == 0 || rows_ == 0) return;
    switch (tuning.get("path", any_device)) {
      case prefill:
        prepare(Tiles::from(tuning));
        break;
      case decode:
        prepare(Decode::from(tuning));
        break;
      case tensor:
        prepare(Tensor::from(tuning));
        break;
      case wgmma:
        prepare(Warpgroups::from(tuning));
        break;
      default:
        prepare(Tile::from(tuning));
        break;
    }
  }

 private:
  void prepare(const Tile& tile) {
    Tile compiled = tile;  // the number of splits is an argument, not a macro
    compiled.splits = 1;
    const std::string options = fmt::format(
        "{} -DD={} -DDV={} -DDP={}{}{}", opencl::defines(compiled.tuning()), s_.head_dim, s_.v_dim,
        tile.padded_dim(s_), option_macros(s_), element_macro(s_));
    const int64_t row_blocks = ceil_div(rows_, tile.bq);
    split(tile.splits);
    if (tile.splits > 1) prepare_merge(tile.splits, tile.w, "e", 0);
    attention_ = kernel(attention_cl, options, "attention");
    attention_.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"), copy_of("o"), parts_,
                        state_, number(s_.group()), number(s_.q_len), number(s_.kv_len),
                        number(row_blocks), number(tile.splits),
                        number(keys_per_split(tile.splits, tile.bk, tile.bq)), cl_int{s_.causal},
                        static_cast<cl_float>(s_.scale), mask_or_q(), lengths_or_q(),
                        number(s_.kv_heads), window(), cap(1));
    size_ = launch_of(heads_ * row_blocks * tile.splits, tile.w);
  }

  void prepare(const Tiles& tiles) {
    const int64_t row_blocks = ceil_div(rows_, tiles.bq);
    split(tiles.splits);
    if (tiles.splits > 1) {
      prepare_merge(tiles.splits, std::min<int64_t>(128, tiles.w), "2",
                    tiles.exchanged_columns(s_.head_dim));
    }
    attention_ = kernel(attention_tiles_cl, tiles.options(s_), "tiles");
    attention_.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"), parts_, state_,
                        number(s_.group()), number(s_.q_len), number(s_.kv_len), number(heads_),
                        number(row_blocks), number(tiles.splits),
                        number(keys_per_split(tiles.splits, tiles.bk, tiles.bq)),
                        number(fold(tiles)), cl_int{s_.causal}, scale_to_base2(), mask_or_q(),
                        lengths_or_q(), number(s_.kv_heads), window(), cap(std::numbers::log2e));
    size_ = launch_of(heads_ * row_blocks * tiles.splits, tiles.w);
  }

  void prepare(const Decode& decode) {
    split(decode.splits);
    cl_mem arrived = copy_of("o");
    if (decode.splits > 1 && decode.fused == 1) {
      arrived = zeroed_workspace(static_cast<std::size_t>(heads_) * sizeof(cl_int));
    } else if (decode.splits > 1) {
      prepare_merge(decode.splits, decode.w, "2", 0);
    }
    attention_ = kernel(attention_decode_cl, decode.options(s_), "decode");
    attention_.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"), copy_of("o"), parts_,
                        state_, arrived, number(s_.group()), number(s_.q_len), number(s_.kv_len),
                        number(decode.splits), cl_int{s_.causal}, scale_to_base2(), mask_or_q(),
                        lengths_or_q(), number(s_.kv_heads), window(), cap(std::numbers::log2e));
    size_ = launch_of(heads_ * decode.splits, decode.w);
  }

  void prepare(const Tensor& tiles) {
    const int64_t row_blocks = ceil_div(rows_, tiles.bq());
    attention_ = kernel(attention_tensor_cl, tiles.options(s_), "tensor_tiles");
    attention_.set_args(context(), copy_of("q"), copy_of("k"), copy_of("v"), copy_of("o"),
                        number(s_.group()), number(s_.q_len), number(s_.kv_len), number(heads_),
                        number(row_blocks), cl_int{s_.causal}, scale_to_base2());
    size_ = launch_of(heads_ * row_blocks, tiles.items());
    path_ = tiles.name(s_);
  }

  void prepare(const Warpgroups& groups) {
    const std::string source = groups.macros(s_) + attention_wgmma_cl;
    const int64_t works = groups.works(s_);
    const cl_int heads = number(s_.batch * s_.heads);
    cl_mem maps = workspace(std::size_t{3} * 128);
    describe_.call = kernel(source.c_str(), groups.options(s_), "describe");
    describe_.call.set_args(context(), maps, copy_of("q"), copy_of("k"), copy_of("v"), heads,
                            number(s_.group()), number(s_.q_len), number(s_.kv_len));
    attention_ = kernel(source.c_str(), groups.options(s_), "attention_wgmma");
    attention_.set_args(context(), maps, copy_of("q"), copy_of("k"), copy_of("v"), copy_of("o"),
                        heads, number(s_.group()), number(s_.q_len), number(s_.kv_len),
                        number(works), cl_int{s_.causal}, scale_to_base2());
    size_ = launch_of(std::min<int64_t>(works, info_.compute_units), groups.items());
    path_ = groups.scores(s_).name();
  }

  // The arguments OPTIONS of attention_rows.cl. Where there is no mask, or no lengths, q is
  // passed instead and is not read as such. The cap is in units of the kernel's scores.
  cl_mem mask_or_q() const { return copy_of(s_.mask ? "mask" : "q"); }
  cl_mem lengths_or_q() const { return copy_of(s_.lengths ? "lengths" : "q"); }
  cl_int window() const { return number(std::min(s_.window, longest)); }
  cl_float cap(double unit) const { return static_cast<cl_float>(s_.softcap * unit); }

  // Where the kernel writes: rows of o, or with splits unnormalised ones with their states.
  void split(int64_t splits) {
    parts_ = state_ = copy_of("o");
    if (splits == 1) return;
    const auto part_rows = static_cast<std::size_t>(heads_ * splits * rows_);
    parts_ = workspace(part_rows * static_cast<std::size_t>(s_.v_dim) * sizeof(float));
    state_ = workspace(part_rows * 2 * sizeof(float));
  }

  void prepare_merge(int64_t splits, int64_t w, const char* base, int64_t exchanged) {
    merge_ = kernel(attention_merge_cl,
                    fmt::format("-DV=1 -DVW=1 -DD={} -DW={} -DBASE_{}=1 -DEXCHANGED={}{}", s_.v_dim,
                                w, base, exchanged, element_macro(s_)),
                    "merge");
    merge_.set_args(context(), parts_, state_, copy_of("o"), number(s_.group()), number(s_.q_len),
                    number(splits));
    merge_size_ = launch_of(heads_ * rows_, w);
  }

  // Compute units, if all groups run at once; otherwise as many as there are groups.
  int64_t fold(const Tiles& tiles) const {
    const Room room = room_of(info_, tiles.code_path);
    const int64_t groups = heads_ * ceil_div(rows_, tiles.bq);
    const bool at_once = groups <= room.units * tiles.at_a_time(room, s_.head_dim);
    return tiles.splits == 1 && at_once ? room.units : std::max<int64_t>(groups, 1);
  }
  // Each split's share of the keys that a block of rows sees together.
  int64_t keys_per_split(int64_t splits, int64_t multiple, int64_t block_rows) const {
    const int64_t keys = s_.most_keys((block_rows + s_.group() - 2) / s_.group() + 1);
    return ceil_div(ceil_div(keys, splits), multiple) * multiple;
  }
  cl_float scale_to_base2() const { return static_cast<cl_float>(s_.scale * std::numbers::log2e); }
  static cl_int number(int64_t x) { return static_cast<cl_int>(x); }
  static opencl::Launch launch_of(int64_t groups, int64_t items) {
    return {static_cast<std::size_t>(groups), static_cast<std::size_t>(items)};
  }

  void enqueue() override {
    if (describe_.call.get() != nullptr) {
      describe(describe_, {copy_of("q"), copy_of("k"), copy_of("v")});
    }
    launch(attention_, size_);
    launch(merge_, merge_size_);
  }

  const Sizes s_;
  const DeviceInfo& info_;
  const int64_t rows_ = s_.q_len * s_.group();
  const int64_t heads_ = s_.batch * s_.kv_heads;
  cl_mem parts_ = nullptr, state_ = nullptr;
  Describing describe_;
  opencl::KernelCall attention_, merge_;
  std::string path_ = "fma";
  opencl::Launch size_{}, merge_size_{};
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
  const DeviceInfo& info = opencl::device(env.device);
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

std::optional<std::string> wgmma_defect(const Sizes& s, const Tuning& tuning,
                                        const DeviceInfo& info) {
  if (!has_wgmma(info)) {
    const std::string& why = opencl::features(info.index).no_wgmma;
    return fmt::format("path=4 needs wgmma, which {} or its driver lacks{}", info.name,
                       why.empty() ? "" : ": " + why);
  }
  if (auto reason = wgmma_refusal(s)) return reason;
  if (tuning.get("code_path", 1) != 1) return "path=4 needs code_path=1";
  const Room room = room_of(info, 1);
  if (Warpgroups::from(tuning).fits(room, s)) return std::nullopt;
  return fmt::format(
      "path=4 needs warps=4, 8 or 12, bk a multiple of 16 up to 256, stages of at least 2, tiles "
      "of at most {} bytes, and 3·bk/4 + head_dim/2 + 30 registers: 240, or 160 with warps=12",
      room.local_bytes);
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Sizes s(problem);
  const int64_t path = tuning.get("path", any_device);
  const int64_t code_path = tuning.get("code_path", 0);
  if ((path == tensor || path == wgmma) != (env.math != fp32.name)) {
    return fmt::format("path={} is not of math {}", path, env.math);
  }
  if (path == wgmma) return wgmma_defect(s, tuning, info);
  if (path == tensor) {
    if (code_path == 1 && !has_tensor_code_path(info)) {
      return fmt::format(
          "math {} needs matrix units that take tf32 and f16 for code_path=1, which {} lacks",
          env.math, info.name);
    }
    const Room room = room_of(info, code_path);
    if (Tensor::from(tuning).fits(room, s)) return std::nullopt;
    return fmt::format(
        "mt must be 1 or 2, bk a multiple of 32, warps a power of two, the items of a group at "
        "most {} and the tiles at "
        "most {} bytes on {}",
        room.group_items, room.local_bytes, info.name);
  }
  if (path != any_device && s.type != &float32) {
    return fmt::format("path={} takes float32, not type={}", path, s.type->short_name);
  }
  if (path != any_device && s.v_dim != s.head_dim) {
    return fmt::format("path={} needs a v_dim of head_dim, {}", path, s.head_dim);
  }
  if (code_path == 1 && path == any_device) return "path 0 has code_path 0 only";
  if (code_path == 1 && !has_nvidia_code_path(info)) {
    return fmt::format("code_path 1 needs inline PTX, shuffles and cp.async, which {} lacks",
                       info.name);
  }
  const Room room = room_of(info, code_path);
  if (path == prefill) {
    if (Tiles::from(tuning).fits(room, s.head_dim)) return std::nullopt;
    return fmt::format(
        "tm must be a multiple of 4, bq/tm and w·tm/bq powers of two, the latter 4 to 32, bk a "
        "multiple of cn, of 4·w·tm/bq and from 32 on of 32, unroll of 4, cd and cn of unroll, cd "
        "of 8, bk·bq at least head_dim, w at most {} and the tiles at most {} bytes on {}",
        room.group_items, room.local_bytes, info.name);
  }
  if (path == decode) {
    if (s.q_len * s.group() > most_decode_rows) {
      return fmt::format("path 2 takes at most {} rows: q_len · heads/kv_heads", most_decode_rows);
    }
    if (code_path == 0 && tuning.get("fused", 0) == 1) return "fused=1 needs code_path 1";
    if (Decode::from(tuning).fits(room, s.head_dim, s.q_len * s.group())) return std::nullopt;
    return fmt::format(
        "lanes must be a power of two up to 32 that divides w, stages at least 2, w at most {} and "
        "the "
        "stages at most "
        "{} bytes on {}",
        room.group_items, room.local_bytes, info.name);
  }
  if (Tile::from(tuning).fits(info, s)) return std::nullopt;
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
