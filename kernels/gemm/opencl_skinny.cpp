// GEMM on GPUs where m or n is short: the long operand is read once, at memory speed. float32 up to
// 32 rows, stored weights of other formats up to 8 rows of a. The kernel and its ideas:
// gemm_skinny.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "core/math.hpp"
#include "gemm_skinny_cl.hpp"
#include "kernels/gemm/opencl_plans.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

constexpr int64_t lanes = 32, piece = 16;  // items of a warp; bytes of a copy of stored weights
constexpr int64_t stored_rows = 16;        // of stored weights that a group computes at a time
// What groups of an H100 share.
constexpr int64_t local_of_unit = 227 * 1024;

// The problem as rows of x times rows of w: op(a) is x where m is the short side, otherwise op(b)
// is. Stored weights are always w.
struct Roles {
  DType stored = nullptr;  // the format of b where it is decoded in registers
  bool a_is_w;
  int64_t few, many;
  bool w_deep;  // w's rows along k
  bool x_deep;
  int width = 4;  // floats of a vector of w
  // For stored weights: steps of k in a chunk, words of its row in memory and in local memory, and
  // columns that x becomes for each of its rows, of how many words a step (gemm_stored_rows.cl).
  int64_t chunk = 0, chunk_words = 0, row_words = 0, parts = 0, x_words = 0;

  explicit Roles(const Problem& problem) {
    const Gemm g(problem);
    const DType type = problem.dtype("b_type");
    if (type != &float32) stored = type;
    a_is_w = stored == nullptr && g.n < g.m;
    few = a_is_w ? g.n : g.m;
    many = a_is_w ? g.m : g.n;
    w_deep = a_is_w ? !g.trans_a : g.trans_b;
    x_deep = a_is_w ? g.trans_b : !g.trans_a;
    if (stored == nullptr) {
      width = copy_width(w_deep ? g.k : many);
    } else {
      chunk = type->block > 1 ? 256 : size_of(type) == 1 ? 128 : 64;
      chunk_words = static_cast<int64_t>(type->bytes(chunk)) / 4;
      row_words = chunk_words + (type == &q4_0 || type == &q8_0 ? 0 : size_of(type) == 2 ? 8 : 4);
      const bool by_units = type != &q4_1;
      const DType of_x = problem.dtype("a_type");
      parts = !by_units ? 4 : of_x == &float32 ? 3 : of_x == &float16 ? 2 : 1;
      x_words = by_units ? few * parts * 8 : few * 16;
    }
  }
  int64_t most_few() const { return stored == nullptr ? 32 : 8; }
  // `few`, or the next number that the kernel is compiled for.
  int64_t compiled_few() const {
    return stored != nullptr ? few
                             : static_cast<int64_t>(std::bit_ceil(
                                   static_cast<std::uint64_t>(std::max<int64_t>(few, 1))));
  }
};

struct Skinny {
  int64_t code_path, rows, warps, splits;
  int64_t kc, unroll;  // of float32
  int64_t stages;      // of stored weights

  // Stored weights have one item a warp on code path 0.
  int64_t items(const Roles& r) const {
    return r.stored != nullptr && code_path == 0 ? warps : lanes * warps;
  }
  // Rows of w of a group at a time, and columns of c.
  int64_t block_rows(const Roles& r) const {
    return r.stored != nullptr ? stored_rows : r.w_deep ? warps * rows : lanes * r.width;
  }
  int64_t block(const Gemm& g, const Roles& r) const { return block_rows(r) / (g.gate ? 2 : 1); }
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
    const int64_t x = 2 * r.compiled_few() * (kc + (r.w_deep ? 4 : 0));
    // The portable code path adds AT_A_TIME of a warp's results at a time over its lanes.
    const int64_t at_a_time = std::min<int64_t>(
        lanes,
        static_cast<int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows * r.compiled_few()))));
    const int64_t scratch = !r.w_deep        ? items(r) * 4 * r.width
                            : code_path == 0 ? items(r) * at_a_time
                                             : 0;
    return 4 * (x + scratch) + order;
  }
  // Groups that a unit holds at a time: of stored weights 16 warps, which is all that their
  // registers allow.
  int64_t per_unit(const Gemm& g, const Roles& r) const {
    const int64_t by_local = local_of_unit / (local_bytes(g, r) + 1024);
    return std::max<int64_t>(1, std::min(by_local, (r.stored != nullptr ? 16 : 64) / warps));
  }
  // Groups of a share of k: one a block, or of stored weights at most as many as the device holds
  // at a time, each with the same number of blocks.
  int64_t groups(const Gemm& g, const Roles& r, const DeviceInfo& info) const {
    const int64_t blocks = tiles(r.many, block(g, r));
    if (r.stored == nullptr) return blocks;
    const int64_t resident = std::max<int64_t>(1, info.compute_units * per_unit(g, r) / splits);
    return tiles(std::max<int64_t>(blocks, 1), std::max<int64_t>(tiles(blocks, resident), 1));
  }
  double parts_bytes(const Gemm& g, const Roles& r) const {
    return splits == 1 ? 0
                       : 4.0 * static_cast<double>(splits * g.batch) *
                             static_cast<double>(tiles(r.many, block(g, r)) * block_rows(r)) *
                             static_cast<double>(r.compiled_few());
  }
};
// float32 has all but the first, stored weights the first four.
constexpr Field<Skinny> fields[] = {{"stages", &Skinny::stages}, {"code_path", &Skinny::code_path},
                                    {"warps", &Skinny::warps},   {"splits", &Skinny::splits},
                                    {"rows", &Skinny::rows},     {"kc", &Skinny::kc},
                                    {"unroll", &Skinny::unroll}};
Skinny read(const Tuning& tuning) { return read_tuning<Skinny>(fields, tuning); }
Tuning written(const Skinny& s, const Roles& r) {
  const std::span all(fields);
  return tuning_of<Skinny>(path_skinny, r.stored == nullptr ? all.subspan(1) : all.first(4), s);
}

// Whether the kernel takes the problem at all.
bool is_served(const Problem& problem, const Environment& env, const Roles& r) {
  const Gemm g(problem);
  if (r.few > r.most_few() || env.math == math_int8.name || env.math == math_3xtf32.name ||
      std::max({g.m, g.b_cols(), g.k}) >= (int64_t{1} << 30)) {
    return false;
  }
  if (r.stored == nullptr) return !has_formats(problem, env) && r.many >= r.width;
  const bool of_weights = r.stored == &float16 || r.stored == &bfloat16 || is_quantised(r.stored);
  return of_weights && !problem.dtype("a_type")->is_integer() && g.batch == 1 && g.trans_b &&
         r.stored->bytes(g.k) % piece == 0 && std::max(g.b_cols(), g.k) < (int64_t{1} << 27);
}

std::optional<std::string> defect_of(const Skinny& s, const Problem& problem,
                                     const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  const Roles r(problem);
  const bool decodes = r.stored != nullptr;
  return unmet_need(
      path_skinny,
      {{is_served(problem, env, r),
        "one side of at most 32 in float32, or at most 8 rows of float a, batch=1, and b of f16, "
        "bf16, q8_0, q4_0, q4_1 or s8c with trans_b=1 and rows of a multiple of 16 bytes"},
       // Devices with cp.async have bf16 matrix units too.
       {s.code_path == 0 || best_code_path(info) == 1, "code_path=0 without NVIDIA's inline PTX"},
       {!decodes || s.stages >= 2, "stages of at least 2"},
       {decodes || (std::has_single_bit(static_cast<std::uint64_t>(s.kc)) &&
                    s.kc >= lanes * r.width && s.kc % s.warps == 0),
        "kc that is a power of two, at least 128 and a multiple of warps"},
       {decodes || s.rows * r.compiled_few() <= 128, "rows times the short side of at most 128"}},
      {s.code_path, s.items(r), s.local_bytes(g, r), s.parts_bytes(g, r)}, info);
}

// Reading w at memory speed, and x from local memory for each vector of w. What else decides on an
// H200 is how near a tuning is to the best ones there: 2.5 groups a unit while x is a few rows,
// then 2; many rows of w at once; short steps of k for few rows of x, long ones for many, which
// meet fewer barriers.
double expected_ns_of_floats(const Skinny& s, const Gemm& g, const Roles& r,
                             const DeviceInfo& info) {
  const GpuModel gpu(info);
  const auto groups = static_cast<double>(g.batch * tiles(r.many, s.block(g, r)) * s.splits);
  const auto few = static_cast<double>(r.compiled_few());
  const double w_bytes =
      4.0 * static_cast<double>(g.batch) * static_cast<double>(r.many) * static_cast<double>(g.k);
  const double other_bytes =
      4.0 * static_cast<double>(g.batch) * static_cast<double>(r.few) *
      (static_cast<double>(g.k) +
       static_cast<double>(r.many) * static_cast<double>(s.splits > 1 ? 2 * s.splits : 1));
  // 128 bytes a clock of each unit; half of that was reached.
  const double local_bytes_per_ns = gpu.units * gpu.mads_per_ns / 2;
  const double reads_of_x = w_bytes * few / static_cast<double>(r.w_deep ? s.rows : 4);
  const bool is_few = few <= 4;
  const auto away = [](double value, double best) { return std::abs(std::log2(value / best)); };
  const double best_groups = gpu.units * (is_few ? 2.5 : 2);
  const double best_kc = !r.w_deep ? 256 : few <= 1 ? 128 : is_few ? 256 : 1024;
  const double groups_count = groups < best_groups ? 0.3 : s.splits > 1 ? 0.1 : 0.0;
  const double slower = 1 + groups_count * away(groups, best_groups) +
                        0.03 * away(static_cast<double>(s.kc), best_kc) +
                        (r.w_deep ? 0.06 * away(static_cast<double>(s.rows), 4) : 0);
  // A group starts and ends in 3 us.
  const auto at_a_time = static_cast<double>(s.per_unit(g, r));
  const double waves = std::max(1.0, groups / (gpu.units * at_a_time));
  return (w_bytes / gpu.bytes_per_ns + reads_of_x / local_bytes_per_ns) * slower +
         3000 * (waves - 1) + other_bytes / gpu.bytes_per_ns;
}

// Reading b at memory speed, or its decoding, at two thirds of the peak: instructions an element
// counted in the machine code. Units with fewer than 12 warps read slower, and each column that x
// becomes costs 1 or 2 %.
double expected_ns_of_stored(const Skinny& s, const Gemm& g, const Roles& r,
                             const DeviceInfo& info) {
  const GpuModel gpu(info);
  const double elements = static_cast<double>(g.b_cols()) * static_cast<double>(g.k);
  const double bytes =
      elements * 4 * static_cast<double>(r.chunk_words) / static_cast<double>(r.chunk);
  const auto few = static_cast<double>(r.few);
  const double instructions =
      elements * (r.parts < 4 ? 2.9 + 0.04 * few * static_cast<double>(r.parts) : 2.5 + 1.2 * few);
  const double warps = static_cast<double>(s.groups(g, r, info) * s.splits * s.warps) / gpu.units;
  // Warps without a chunk where a share of k has fewer.
  const auto chunks = static_cast<double>(s.k_share(g, r) / r.chunk);
  const double idle =
      std::ceil(chunks / static_cast<double>(s.warps)) * static_cast<double>(s.warps) / chunks;
  const double slower = 1 + 0.2 * std::max(0.0, std::log2(12 / warps)) + 0.3 * (idle - 1) +
                        0.03 * static_cast<double>(s.splits - 1) +
                        0.015 * few * static_cast<double>(r.parts);
  return slower *
         std::max(bytes / gpu.bytes_per_ns, instructions / (gpu.units * gpu.mads_per_ns * 0.65));
}

Guess guess(const Skinny& s, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const Roles r(problem);
  const double ns = r.stored == nullptr ? expected_ns_of_floats(s, g, r, info)
                                        : expected_ns_of_stored(s, g, r, info);
  return {written(s, r), ns + GpuModel(info).launch_ns * (s.splits > 1 ? 1.4 : 1)};
}

class SkinnyPlan final : public GemmPlan {
 public:
  SkinnyPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
             const Operands& constants)
      : GemmPlan(problem, tuning, env) {
    if (g_.empty()) return;
    const Skinny s = read(tuning);
    const Roles r(problem);
    const std::string options = fmt::format(
        "-DCODE_PATH={} -DROWS={:d} -DCOLUMNS={:d} -DSTORED={:d} -DX_DEEP={:d} -DXW={} -DFEW={} "
        "-DR={} -DWARPS={} -DKC={} -DUNROLL={} -DSTAGES={} -DVW={} -DA_IS_W={:d} -DA_TYPE={} "
        "-DTYPE={}{}",
        s.code_path, r.stored == nullptr && r.w_deep, !r.w_deep, r.stored != nullptr, r.x_deep,
        copy_width(g_.k), r.compiled_few(),
        r.stored != nullptr ? stored_rows
        : r.w_deep          ? s.rows
                            : r.width,
        s.warps, r.stored == nullptr ? s.kc : s.k_share(g_, r), s.unroll, s.stages, r.width,
        r.a_is_w, number_of(problem.dtype("a_type")), number_of(&bfloat16),
        output_options(problem));
    const int64_t groups = s.groups(g_, r, context().info());
    cl_mem a = operand("a", constants);
    cl_mem b = operand("b", constants);
    cl_mem scale = r.stored == &int8_per_channel ? operand("b_scale", constants) : b;
    cl_mem parts = b;
    cl_mem arrivals = b;
    if (s.splits > 1) {
      parts = workspace(static_cast<std::size_t>(s.parts_bytes(g_, r)));
      arrivals = zeroed_workspace(static_cast<std::size_t>(g_.batch * groups) * sizeof(cl_uint));
    }
    multiply_and_add(s.splits, s.code_path, g_.batch * groups, s.items(r), [&](SplitPart part) {
      opencl::KernelCall call =
          kernel(gemm_skinny_cl, fmt::format("{} -DSPLIT={}", options, static_cast<int>(part)),
                 "gemm_skinny");
      call.set_args(context(), r.a_is_w ? a : b, r.a_is_w ? b : a, scale, parts, arrivals,
                    as_cl_int(r.many), as_cl_int(r.few), as_cl_int(g_.reads_ab() ? g_.k : 0),
                    as_cl_int(r.a_is_w ? 1 : g_.n), as_cl_int(r.a_is_w ? g_.n : 1),
                    as_cl_int(tiles(r.many, s.block(g_, r))), as_cl_int(groups),
                    as_cl_int(s.splits), as_cl_int(s.k_share(g_, r)));
      add_output(call);
      return call;
    });
    path_ = r.stored != nullptr && r.parts < 4 && s.code_path == 1 ? "mma.m16n8k16.bf16" : "fma";
  }
};

std::vector<Skinny> candidates_of_floats(const Gemm& g, const Roles& r, int64_t code_path) {
  std::vector<Skinny> list;
  for (const int64_t rows : {2, 4, 1}) {
    if (!r.w_deep && rows > 1) continue;
    for (const int64_t kc : {256, 512, 1024, 128}) {
      for (const int64_t splits : {1, 2, 4, 8, 16, 32, 64}) {
        const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= kc);
        const int64_t unroll = r.w_deep ? std::min<int64_t>(4, kc / (lanes * r.width)) : 8;
        if (is_worth) {
          list.push_back({code_path, rows, 8, splits, kc, std::max<int64_t>(unroll, 1), 0});
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
        const bool is_worth = splits == 1 || g.k / splits >= 512;
        if (is_worth) list.push_back({code_path, 0, warps, splits, 0, 0, stages});
      }
    }
  }
  return list;
}

}  // namespace

std::vector<Guess> skinny_guesses(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  const Roles r(problem);
  const int64_t code_path = best_code_path(info);
  std::vector<Guess> list;
  if (!is_served(problem, env, r)) return list;
  for (const Skinny& s : r.stored == nullptr ? candidates_of_floats(g, r, code_path)
                                             : candidates_of_stored(g, r, code_path)) {
    if (!defect_of(s, problem, env)) list.push_back(guess(s, problem, info));
  }
  // Elsewhere one is enough for checks.
  if (list.size() > 1 &&
      (r.stored != nullptr ? code_path == 0 : info.kind == opencl::DeviceKind::cpu)) {
    list = {r.stored != nullptr ? list.back() : list.front()};
  }
  return list;
}

std::optional<std::string> skinny_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  return defect_of(read(tuning), problem, env);
}

std::unique_ptr<Plan> skinny_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands& constants) {
  return std::make_unique<SkinnyPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
