// GEMM on GPUs where m or n is at most 32: the long operand streams once at memory speed. The
// kernel and its ideas stand in gemm_skinny.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "gemm_skinny_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

constexpr int64_t most_few = 32;

// The problem as rows of x times rows of w: op(a) is x where m is the short side, otherwise op(b)
// is.
struct Roles {
  bool a_is_w;
  int64_t few, many;
  bool w_deep;  // w's rows along k
  bool x_deep;
  int width;  // floats of a vector of w

  explicit Roles(const Gemm& g)
      : a_is_w(g.n < g.m), few(std::min(g.m, g.n)), many(std::max(g.m, g.n)) {
    const bool a_deep = !g.trans_a;
    w_deep = a_is_w ? a_deep : g.trans_b;
    x_deep = a_is_w ? g.trans_b : a_deep;
    width = copy_width(w_deep ? g.k : many);
  }
  // `few`, or the next number that the kernel is compiled for.
  int64_t compiled_few() const {
    return static_cast<int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::max<int64_t>(few, 1))));
  }
};

struct Skinny {
  int64_t code_path, rows, warps, kc, unroll, splits;

  static Skinny from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("code_path"), get("rows"), get("warps"), get("kc"), get("unroll"), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_skinny},
            {"code_path", code_path},
            {"rows", rows},
            {"warps", warps},
            {"kc", kc},
            {"unroll", unroll},
            {"splits", splits}};
  }
  // Rows or columns of w that a group owns.
  int64_t block(const Roles& r) const { return r.w_deep ? warps * rows : 32 * r.width; }
  int64_t local_bytes(const Roles& r) const {
    const int64_t x = r.compiled_few() * (kc + (r.w_deep ? 4 : 0));
    return (2 * x + 32 * warps * 4 * r.width) * static_cast<int64_t>(sizeof(float));
  }
};

bool fits(const Skinny& s, const Gemm& g, const DeviceInfo& info) {
  const Roles r(g);
  return r.few <= most_few && r.many >= r.width &&
         std::has_single_bit(static_cast<std::uint64_t>(s.kc)) && s.kc >= 32 * r.width &&
         s.kc % s.warps == 0 && s.rows * r.compiled_few() <= 128 &&
         static_cast<std::size_t>(32 * s.warps) <= info.max_work_group &&
         s.local_bytes(r) <= local_limit(s.code_path, info) &&
         (s.code_path == 0 || opencl::features(info.index).nvidia_code_path()) &&
         std::max({g.m, g.n, g.k}) < (int64_t{1} << 30) &&
         8.0 * static_cast<double>(s.splits) *
                 static_cast<double>(g.batch * r.many * r.compiled_few()) <=
             most_parts_bytes;
}

// Reading w at memory speed, and x from local memory for each vector of w. What else decides on an
// H200 is how near a tuning is to the best ones there: 2.5 groups a unit while x is a few rows,
// then 2; many rows of w at once; short steps of k for few rows of x, long ones for many, which
// meet fewer barriers.
double expected_ns(const Skinny& s, const Gemm& g, const DeviceInfo& info) {
  const GpuModel gpu(info);
  const Roles r(g);
  const auto groups = static_cast<double>(g.batch * tiles(r.many, s.block(r)) * s.splits);
  const auto few = static_cast<double>(r.compiled_few());
  const double w_bytes =
      4.0 * static_cast<double>(g.batch) * static_cast<double>(r.many) * static_cast<double>(g.k);
  const double other_bytes =
      4.0 * static_cast<double>(g.batch) * static_cast<double>(r.few) *
      (static_cast<double>(g.k) +
       static_cast<double>(r.many) * static_cast<double>(s.splits > 1 ? 2 * s.splits : 1));
  // 128 bytes a clock of each unit, half of which were reached.
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
  // Groups at a time of a unit, each of which starts and ends in 3 us.
  const auto at_a_time = static_cast<double>(
      std::clamp<int64_t>(228 * 1024 / (s.local_bytes(r) + 1024), 1, 64 / s.warps));
  const double waves = std::max(1.0, groups / (gpu.units * at_a_time));
  return (w_bytes / gpu.bytes_per_ns + reads_of_x / local_bytes_per_ns) * slower +
         3000 * (waves - 1) + other_bytes / gpu.bytes_per_ns +
         gpu.launch_ns * (s.splits > 1 ? 1.4 : 1);
}

class SkinnyPlan final : public opencl::DevicePlan {
 public:
  SkinnyPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
             const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem) {
    if (g_.empty()) return;
    const Skinny s = Skinny::from(tuning);
    const Roles r(g_);
    const std::string options = fmt::format(
        "-DCODE_PATH={} -DW_DEEP={:d} -DX_DEEP={:d} -DXW={} -DFEW={} -DR={} -DWARPS={} -DKC={} "
        "-DUNROLL={} -DVW={} -DA_IS_W={:d} -DV=4{}",
        s.code_path, r.w_deep, r.x_deep, copy_width(g_.k), r.compiled_few(), s.rows, s.warps, s.kc,
        s.unroll, r.width, r.a_is_w, epilogue_options(problem));
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    const int64_t k_share = tiles(tiles(k, s.kc), s.splits) * s.kc;
    const int64_t blocks = tiles(r.many, s.block(r));
    cl_mem c = copy_of("c");
    cl_mem a = k == 0 ? c : copy_of("a");
    cl_mem b = k == 0 ? c : copy_of("b");
    if (g_.prepack && k > 0) {
      const View& constant = constants.at("b");
      b = packed(static_cast<std::size_t>(constant.elements()) * sizeof(float));
      write_now(b, constant);
    }
    cl_mem c0 = g_.reads_c0() ? copy_of("c0") : c;
    cl_mem parts = c;
    cl_mem arrivals = c;
    if (s.splits > 1) {
      const int64_t per_group = r.compiled_few() * s.block(r);
      parts = workspace(static_cast<std::size_t>(g_.batch * blocks * s.splits * per_group) *
                        sizeof(float));
      arrivals = zeroed_workspace(static_cast<std::size_t>(g_.batch * blocks) * sizeof(cl_uint));
    }
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    const auto ready = [&](SplitPart part) {
      opencl::KernelCall call =
          kernel(gemm_skinny_cl, fmt::format("{} -DSPLIT={}", options, static_cast<int>(part)),
                 "gemm_skinny");
      call.set_args(context(), r.a_is_w ? a : b, r.a_is_w ? b : a, c0, c, parts, arrivals,
                    as_int(r.many), as_int(r.few), as_int(k), as_int(r.a_is_w ? 1 : g_.n),
                    as_int(r.a_is_w ? g_.n : 1), as_int(blocks), as_int(s.splits), as_int(k_share),
                    cl_float{g_.alpha}, cl_float{g_.beta});
      add_epilogue_args(
          call, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
      return call;
    };
    const auto items = static_cast<std::size_t>(32 * s.warps);
    gemm_ = ready(first_part(s.splits, s.code_path));
    size_ = {static_cast<std::size_t>(g_.batch * blocks * s.splits), items};
    if (first_part(s.splits, s.code_path) == SplitPart::write) {
      adder_ = ready(SplitPart::add);
      adder_size_ = {static_cast<std::size_t>(g_.batch * blocks), items};
    }
  }

 private:
  void enqueue() override {
    launch(gemm_, size_);
    launch(adder_, adder_size_);
  }

  const Gemm g_;
  opencl::KernelCall gemm_, adder_;
  opencl::Launch size_{}, adder_size_{0, 1};
};

}  // namespace

std::vector<Guess> skinny_guesses(const Gemm& g, const DeviceInfo& info) {
  const Roles r(g);
  std::vector<Guess> list;
  if (r.few > most_few) return list;
  for (const int64_t rows : {2, 4, 1}) {
    if (!r.w_deep && rows > 1) continue;
    for (const int64_t kc : {256, 512, 1024, 128}) {
      for (const int64_t splits : {1, 2, 4, 8, 16, 32, 64}) {
        const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= kc);
        const int64_t unroll = r.w_deep ? std::min<int64_t>(4, kc / (32 * r.width)) : 8;
        const Skinny s{best_code_path(info), rows, 8, kc, std::max<int64_t>(unroll, 1), splits};
        if (is_worth && fits(s, g, info)) list.push_back({s.tuning(), expected_ns(s, g, info)});
      }
    }
  }
  return list;
}

std::optional<std::string> skinny_defect(const Gemm& g, const Tuning& tuning,
                                         const DeviceInfo& info) {
  if (fits(Skinny::from(tuning), g, info)) return std::nullopt;
  return fmt::format(
      "path=2 wants m or n of at most {}, kc a power of two of at least 128 and a multiple of "
      "warps, rows times the short side at most 128, at most {} bytes of local memory on {}, and "
      "partial sums of splits of at most {:.0f} bytes",
      most_few, info.local_bytes, info.name, most_parts_bytes);
}

std::unique_ptr<Plan> skinny_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands& constants) {
  return std::make_unique<SkinnyPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
