// GEMM on GPUs where m or n is short: the long operand is read once, at memory speed. float32 up to
// 32 rows, stored weights of other formats up to 8 rows of a. The kernel and its ideas:
// gemm_skinny.cl.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gemm_skinny_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t lanes = 32, piece = 16;  // items of a warp; bytes of a copy of stored weights
constexpr int64_t stored_rows = 16;        // of stored weights that a group computes at a time

int64_t power_from(int64_t x) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<int64_t>(x, 1))));
}

// The problem as rows of x times rows of w: op(a) is x where m is the short side, otherwise op(b)
// is. Stored weights are always w.
struct Roles {
  DType stored = nullptr;  // the format of b where it is decoded in registers
  bool a_is_w;
  int64_t few, many;
  bool w_deep;  // w's rows along k
  bool x_deep;
  int width = 4;         // floats of a vector of w
  int64_t compiled_few;  // `few`, or the next number that the kernel is compiled for
  // For stored weights: steps of k in a chunk, words of its row in memory and in local memory, and
  // columns that x becomes for each of its rows, of how many words a step (gemm_stored_rows.cl).
  int64_t chunk = 0, chunk_words = 0, row_words = 0, parts = 0, x_words = 0;

  explicit Roles(const Task& task) {
    const Gemm& g = task.g;
    const DType type = task.b;
    if (type != &float32) stored = type;
    a_is_w = stored == nullptr && g.n < g.m;
    few = a_is_w ? g.n : g.m;
    many = a_is_w ? g.m : g.n;
    w_deep = a_is_w ? !g.trans_a : g.trans_b;
    x_deep = a_is_w ? g.trans_b : !g.trans_a;
    compiled_few = stored != nullptr ? few : power_from(few);
    if (stored == nullptr) {
      width = copy_width(w_deep ? g.k : many);
    } else {
      chunk = type->block > 1 ? 256 : size_of(type) == 1 ? 128 : 64;
      chunk_words = static_cast<int64_t>(type->bytes(chunk)) / 4;
      row_words = chunk_words + (type == &q4_0 || type == &q8_0 ? 0 : size_of(type) == 2 ? 8 : 4);
      const bool by_units = type != &q4_1;
      parts = !by_units ? 4 : task.a == &float32 ? 3 : task.a == &float16 ? 2 : 1;
      x_words = by_units ? few * parts * 8 : few * 16;
    }
  }
};

// float32 has all members but the first, stored weights the first four.
struct Skinny {
  int64_t stages, code_path, warps, splits, rows, kc, unroll;
  static constexpr int64_t path = path_skinny;
  static constexpr const char* names[] = {"stages", "code_path", "warps", "splits",
                                          "rows",   "kc",        "unroll"};

  // Stored weights have one item a warp on code path 0.
  int64_t items(const Roles& r) const {
    return r.stored != nullptr && code_path == 0 ? warps : lanes * warps;
  }
  // Rows of w of a group at a time, and columns of c.
  int64_t block_rows(const Roles& r) const {
    return r.stored != nullptr ? stored_rows : r.w_deep ? warps * rows : lanes * r.width;
  }
  int64_t block(const Gemm& g, const Roles& r) const { return block_rows(r) / (g.gate ? 2 : 1); }
  int64_t blocks(const Gemm& g, const Roles& r) const { return tiles(r.many, block(g, r)); }
  int64_t k_share(const Gemm& g, const Roles& r) const {
    const int64_t step = r.stored == nullptr ? kc : r.chunk;
    return std::max<int64_t>(1, tiles(tiles(g.k, step), splits)) * step;
  }
  int64_t local_bytes(const Gemm& g, const Roles& r) const {
    // `order` of the kernel, as much as alignment makes of it; NVIDIA's compiler adds so much for
    // stored weights anyway.
    const int64_t order = splits > 1 || r.stored != nullptr ? 16 : 0;
    if (r.stored != nullptr) {
      const int64_t x = k_share(g, r) / 16 * r.x_words;
      return 4 * (x + warps * stored_rows * (stages * r.row_words + 2 * r.few * r.parts)) + order;
    }
    const int64_t x = 2 * r.compiled_few * (kc + (r.w_deep ? 4 : 0));
    // The portable code path adds AT_A_TIME of a warp's results at a time over its lanes.
    const int64_t at_a_time = std::min(lanes, power_from(rows * r.compiled_few));
    const int64_t scratch = !r.w_deep        ? items(r) * 4 * r.width
                            : code_path == 0 ? items(r) * at_a_time
                                             : 0;
    return 4 * (x + scratch) + order;
  }
  // Groups that a unit holds at a time: of stored weights 16 warps, with 128 registers an item.
  int64_t per_unit(const Gemm& g, const Roles& r) const {
    return groups_per_unit(lanes * warps, r.stored != nullptr ? 128 : 32, local_bytes(g, r));
  }
  // Groups of a share of k: one a block, or of stored weights at most as many as the device holds
  // at a time, each with the same number of blocks.
  int64_t groups(const Task& task, const Roles& r) const {
    const int64_t all = blocks(task.g, r);
    if (r.stored == nullptr) return all;
    const int64_t resident =
        std::max<int64_t>(1, task.device.info.compute_units * per_unit(task.g, r) / splits);
    return tiles(std::max<int64_t>(all, 1), std::max<int64_t>(tiles(all, resident), 1));
  }
  double parts_bytes(const Task& task, const Roles& r) const {
    return splits == 1 ? 0
                       : static_cast<double>(splits) *
                             task.bytes(blocks(task.g, r) * block_rows(r), r.compiled_few);
  }
  std::optional<std::string> defect(const Task& task) const;
  double ns_of_floats(const Task& task, const Roles& r) const;
  double ns_of_stored(const Task& task, const Roles& r) const;
};

// Whether the kernel takes the problem at all.
bool is_served(const Task& task, const Roles& r) {
  const Gemm& g = task.g;
  if (r.few > (r.stored == nullptr ? 32 : 8) || task.env.math == math_int8.name ||
      task.env.math == math_3xtf32.name || std::max({g.m, g.b_cols(), g.k}) >= (int64_t{1} << 30)) {
    return false;
  }
  if (r.stored == nullptr) return !task.has_formats() && r.many >= r.width;
  const bool of_weights = r.stored == &float16 || r.stored == &bfloat16 || is_quantised(r.stored);
  return of_weights && !task.a->is_integer() && g.batch == 1 && g.trans_b &&
         r.stored->bytes(g.k) % piece == 0 && std::max(g.b_cols(), g.k) < (int64_t{1} << 27);
}

std::optional<std::string> Skinny::defect(const Task& task) const {
  const Roles r(task);
  const bool decodes = r.stored != nullptr;
  return common::unmet_need(
      path,
      {{is_served(task, r),
        "one side of at most 32 in float32, or at most 8 rows of float a, batch=1, and b of f16, "
        "bf16, q8_0, q4_0, q4_1 or s8c with trans_b=1 and rows of a multiple of 16 bytes"},
       // Devices with cp.async have bf16 matrix units too.
       {code_path == 0 || task.device.best_code_path() == 1,
        "code_path=0 without NVIDIA's inline PTX"},
       {!decodes || stages >= 2, "stages of at least 2"},
       {decodes || (common::is_power_of_two(kc) && kc >= lanes * r.width && kc % warps == 0),
        "kc that is a power of two, at least 128 and a multiple of warps"},
       {decodes || rows * r.compiled_few <= 128, "rows times the short side of at most 128"},
       few_parts(parts_bytes(task, r))},
      {code_path, items(r), local_bytes(task.g, r)}, task.device);
}

// Reading w at memory speed, and x from local memory for each vector of w. What else decides on an
// H200 is how near a tuning is to the best ones there: 2.5 groups a unit while x is a few rows,
// then 2; many rows of w at once; short steps of k for few rows of x, long ones for many, which
// meet fewer barriers.
double Skinny::ns_of_floats(const Task& task, const Roles& r) const {
  const GpuModel gpu(task.device.info);
  const auto all_groups = static_cast<double>(task.g.batch * blocks(task.g, r) * splits);
  const auto few = static_cast<double>(r.compiled_few);
  const double w_bytes = task.bytes(r.many, task.g.k);
  const double other_bytes =
      task.bytes(r.few, task.g.k) +
      task.bytes(r.few, r.many) * (splits > 1 ? 2 * static_cast<double>(splits) : 1);
  // 128 bytes a clock of each unit; half of that was reached.
  const double local_bytes_per_ns = gpu.units * gpu.mads_per_ns / 2;
  const double reads_of_x = w_bytes * few / static_cast<double>(r.w_deep ? rows : 4);
  const bool is_few = few <= 4;
  const auto away = [](double value, double best) { return std::abs(std::log2(value / best)); };
  const double best_groups = gpu.units * (is_few ? 2.5 : 2);
  const double best_kc = !r.w_deep ? 256 : few <= 1 ? 128 : is_few ? 256 : 1024;
  const double groups_count = all_groups < best_groups ? 0.3 : splits > 1 ? 0.1 : 0.0;
  const double slower = 1 + groups_count * away(all_groups, best_groups) +
                        0.03 * away(static_cast<double>(kc), best_kc) +
                        (r.w_deep ? 0.06 * away(static_cast<double>(rows), 4) : 0);
  // A group starts and ends in 3 us.
  const auto at_a_time = static_cast<double>(per_unit(task.g, r));
  const double waves = std::max(1.0, all_groups / (gpu.units * at_a_time));
  return (w_bytes / gpu.bytes_per_ns + reads_of_x / local_bytes_per_ns) * slower +
         3000 * (waves - 1) + other_bytes / gpu.bytes_per_ns;
}

// Reading b at memory speed, or its decoding, at two thirds of the peak: instructions an element
// counted in the machine code. Units with fewer than 12 warps read slower, and each column that x
// becomes costs 1 or 2 %.
double Skinny::ns_of_stored(const Task& task, const Roles& r) const {
  const GpuModel gpu(task.device.info);
  const double elements = static_cast<double>(task.g.b_cols()) * static_cast<double>(task.g.k);
  const double bytes =
      elements * 4 * static_cast<double>(r.chunk_words) / static_cast<double>(r.chunk);
  const auto few = static_cast<double>(r.few);
  const double instructions =
      elements * (r.parts < 4 ? 2.9 + 0.04 * few * static_cast<double>(r.parts) : 2.5 + 1.2 * few);
  const double all_warps = static_cast<double>(groups(task, r) * splits * warps) / gpu.units;
  // Warps without a chunk where a share of k has fewer.
  const auto chunks = static_cast<double>(k_share(task.g, r) / r.chunk);
  const double idle =
      std::ceil(chunks / static_cast<double>(warps)) * static_cast<double>(warps) / chunks;
  const double slower = 1 + 0.2 * std::max(0.0, std::log2(12 / all_warps)) + 0.3 * (idle - 1) +
                        0.03 * static_cast<double>(splits - 1) +
                        0.015 * few * static_cast<double>(r.parts);
  return slower *
         std::max(bytes / gpu.bytes_per_ns, instructions / (gpu.units * gpu.mads_per_ns * 0.65));
}

std::vector<Skinny> candidates_of_floats(const Gemm& g, const Roles& r, int64_t code_path) {
  std::vector<Skinny> list;
  for (const int64_t rows : {2, 4, 1}) {
    if (!r.w_deep && rows > 1) continue;
    for (const int64_t kc : {256, 512, 1024, 128}) {
      for (const int64_t splits : {1, 2, 4, 8, 16, 32, 64}) {
        const int64_t unroll = r.w_deep ? std::min<int64_t>(4, kc / (lanes * r.width)) : 8;
        if (splits == 1 || (g.reads_ab() && g.k / splits >= kc)) {
          list.push_back({0, code_path, 8, splits, rows, kc, std::max<int64_t>(unroll, 1)});
        }
      }
    }
  }
  return list;
}

std::vector<Skinny> candidates_of_stored(const Gemm& g, const Roles& r, int64_t code_path) {
  std::vector<Skinny> list;
  // The first of equals is the best one on an H200.
  const bool in_blocks = r.stored->block > 1;
  for (const int64_t warps : {in_blocks ? 4 : 8, in_blocks ? 8 : 4, 2}) {
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 16}) {
      for (const int64_t stages : {in_blocks ? 4 : 3, in_blocks ? 3 : 4, 2}) {
        if (splits == 1 || g.k / splits >= 512) {
          list.push_back({stages, code_path, warps, splits, 0, 0, 0});
        }
      }
    }
  }
  return list;
}

std::vector<Guess> guesses(const Task& task) {
  const Roles r(task);
  const int64_t code_path = task.device.best_code_path();
  const bool decodes = r.stored != nullptr;
  std::vector<Guess> list;
  if (!is_served(task, r)) return list;
  for (const Skinny& s : decodes ? candidates_of_stored(task.g, r, code_path)
                                 : candidates_of_floats(task.g, r, code_path)) {
    if (s.defect(task)) continue;
    list.push_back({decodes ? common::tuning_of(s, 0, 4) : common::tuning_of(s, 1),
                    (decodes ? s.ns_of_stored(task, r) : s.ns_of_floats(task, r)) +
                        GpuModel(task.device.info).launch_ns * (s.splits > 1 ? 1.4 : 1)});
  }
  // Elsewhere one is enough for checks.
  if (list.size() > 1 && (decodes ? code_path == 0 : task.device.is_cpu())) {
    list = {decodes ? list.back() : list.front()};
  }
  return list;
}

class SkinnyPlan final : public GemmPlan {
 public:
  SkinnyPlan(const Task& task, const Tuning& tuning, const Operands& constants)
      : GemmPlan(task, tuning) {
    if (g_.empty()) return;
    const auto s = read_tuning<Skinny>(tuning);
    const Roles r(task);
    const bool decodes = r.stored != nullptr;
    const std::string options = fmt::format(
        "-DCODE_PATH={} -DROWS={:d} -DCOLUMNS={:d} -DSTORED={:d} -DX_DEEP={:d} -DXW={} -DFEW={} "
        "-DR={} -DWARPS={} -DKC={} -DUNROLL={} -DSTAGES={} -DVW={} -DA_IS_W={:d} -DA_TYPE={} "
        "-DTYPE={} -DCHUNK={} -DCHUNK_WORDS={} -DROW_LD={} -DPARTS={} -DX_STEP={}{}",
        s.code_path, !decodes && r.w_deep, !r.w_deep, decodes, r.x_deep, copy_width(g_.k),
        r.compiled_few,
        decodes    ? stored_rows
        : r.w_deep ? s.rows
                   : r.width,
        s.warps, decodes ? s.k_share(g_, r) : s.kc, s.unroll, s.stages, r.width, r.a_is_w,
        number_of(task.a), number_of(&bfloat16), r.chunk, r.chunk_words, r.row_words, r.parts,
        r.x_words, output_options(task));
    const int64_t groups = s.groups(task, r);
    a_ = operand("a", constants);
    b_ = operand("b", constants);
    cl_mem scale = r.stored == &int8_per_channel ? operand("b_scale", constants) : b_;
    cl_mem parts = b_, arrivals = b_;
    if (s.splits > 1) {
      parts = workspace(static_cast<std::size_t>(s.parts_bytes(task, r)));
      arrivals = zeroed_workspace(static_cast<std::size_t>(g_.batch * groups) * sizeof(cl_uint));
    }
    for (const int split : split_launches(s.splits, s.code_path)) {
      opencl::KernelCall call =
          kernel(gemm_skinny_cl, fmt::format("{} -DSPLIT={}", options, split), "gemm_skinny");
      call.set_args(context(), r.a_is_w ? a_ : b_, r.a_is_w ? b_ : a_, scale, parts, arrivals);
      add_sizes(call, r.many, r.few, g_.reads_ab() ? g_.k : 0, r.a_is_w ? 1 : g_.n,
                r.a_is_w ? g_.n : 1, s.blocks(g_, r), groups, s.splits, s.k_share(g_, r));
      add_output(call);
      add_step(std::move(call), g_.batch * groups * (split == 2 ? 1 : s.splits), s.items(r));
    }
    path_ = decodes && r.parts < 4 && s.code_path == 1 ? "mma.m16n8k16.bf16" : "fma";
  }
};

}  // namespace

const Path skinny = path_of<Skinny, SkinnyPlan>(guesses);

}  // namespace rooflane::gemm
