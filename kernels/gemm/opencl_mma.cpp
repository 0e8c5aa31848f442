// GEMM of short operands on matrix units (maths f16, bf16, int8): which tiles, and their launch.
// The kernel and its ideas stand in gemm_mma.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "core/math.hpp"
#include "gemm_mma_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

constexpr int64_t row_bytes = 128;  // of k in a tile
constexpr int64_t piece = 16;       // bytes of a copy

struct Mma {
  int64_t code_path, wm, wn, mt, nt, stages, raster, splits;

  static Mma from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("code_path"), get("wm"),     get("wn"),     get("mt"),
            get("nt"),        get("stages"), get("raster"), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_mma}, {"code_path", code_path},
            {"wm", wm},         {"wn", wn},
            {"mt", mt},         {"nt", nt},
            {"stages", stages}, {"raster", raster},
            {"splits", splits}};
  }
  int64_t warps() const { return wm * wn; }
  // The portable code path's work-items play a whole warp each.
  int64_t items() const { return code_path == 1 ? 32 * warps() : warps(); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return wn * nt * 8; }
  int64_t own_cols(const Gemm& g) const { return g.gate ? bn() / 2 : bn(); }
  int64_t local_bytes() const {
    return std::max(stages * (bm() + bn()) * row_bytes, bm() * (bn() + 8) * 4);
  }
  // Sums, fragments of two steps, and about 60 addresses and counters.
  int64_t registers() const {
    return std::min<int64_t>(255, 4 * mt * nt + 2 * (4 * mt + 2 * nt) + 60);
  }
};

// How tiles of an operand are read: a row of `ld` bytes holds k, or with `wide` rows of op(a) or
// columns of op(b) side by side. laid: `lay` makes the former of it first.
struct Layout {
  bool wide, laid;
  int64_t ld;
  int64_t matrix_bytes(int64_t rows, int64_t k) const { return (wide ? k : rows) * ld; }
};

// `period`: rows that stand apart begin at multiples of it (with gate=1 of n).
Layout layout(int64_t rows, int64_t period, int64_t k, bool deep, int64_t bytes) {
  const auto whole = [&](int64_t count) { return count * bytes % piece == 0; };
  if (deep && whole(k)) return {false, false, k * bytes};
  if (!deep && bytes == 2 && whole(rows) && whole(period)) return {true, false, rows * bytes};
  return {false, true, tiles(k * bytes, piece) * piece};
}

// Sizes and bytes of a row are counted in int, a tile's side beyond an edge included.
constexpr int64_t longest = (int64_t{1} << 29);

struct Sides {
  int64_t bytes;
  Layout a, b;
  explicit Sides(const Gemm& g, DType type)
      : bytes(static_cast<int64_t>(size_of(type))),
        a(layout(g.m, g.m, g.k, !g.trans_a, bytes)),
        b(layout(g.b_cols(), g.n, g.k, g.trans_b, bytes)) {}
};

double groups_of(const Mma& t, const Gemm& g) {
  return static_cast<double>(g.batch) * static_cast<double>(tiles(g.m, t.bm())) *
         static_cast<double>(tiles(g.n, t.own_cols(g))) * static_cast<double>(t.splits);
}

double parts_bytes(const Mma& t, const Gemm& g) {
  return t.splits == 1 ? 0
                       : 4.0 * static_cast<double>(t.splits) * static_cast<double>(g.batch) *
                             static_cast<double>(g.m) * static_cast<double>(g.b_cols());
}

bool is_of_math(const Problem& problem, const Environment& env) {
  return env.math == math_f16.name || env.math == math_bf16.name ||
         (env.math == math_int8.name && problem.dtype("c_type") == &int32);
}

// Matrix units that take tf32 take float16, bfloat16 and 8-bit integers too, and come with
// ldmatrix.
bool has_units(const DeviceInfo& info) {
  const opencl::Features& found = opencl::features(info.index);
  return found.mma_tf32 && found.mma_f16 && found.copy_async;
}

bool fits(const Mma& t, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const Sides sides(g, problem.dtype("a_type"));
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return (t.code_path == 0 || has_units(info)) && power(t.wm) && power(t.wn) && power(t.mt) &&
         power(t.nt) && t.nt >= 2 && t.stages >= 2 && (!sides.a.wide || t.bm() >= 64) &&
         (!sides.b.wide || t.bn() >= 64) && t.own_cols(g) % 8 == 0 &&
         static_cast<std::size_t>(t.items()) <= info.max_work_group &&
         t.local_bytes() <= local_limit(t.code_path, info) &&
         std::max({g.m, g.b_cols(), g.k, g.batch}) < longest && groups_of(t, g) < 2e9 &&
         parts_bytes(t, g) <= most_parts_bytes;
}

// Waves of groups, each as long as its tiles take on a unit that all its groups share. A matrix
// unit takes 1.6 clocks for a product of fragments (an H200, 63 % of its peak, which is what
// mma.sync reaches there); the fewer fragments a warp holds, the more it loads for each.
double expected_ns(const Mma& t, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const Sides sides(g, problem.dtype("a_type"));
  constexpr double product_clocks = 1.6;
  const double clock_ghz = info.clock_mhz > 0 ? info.clock_mhz * 1e-3 : 1;
  const GpuModel gpu(info);
  const auto fragments = static_cast<double>(t.mt * t.nt);
  const double share = fragments >= 32 ? 0.9 : fragments >= 16 ? 0.75 : fragments >= 8 ? 0.6 : 0.4;
  const auto per_unit = static_cast<double>(std::clamp<int64_t>(
      std::min({65536 / (t.registers() * t.items()), 227 * 1024 / (t.local_bytes() + 1024)}), 1,
      16));
  const double groups = groups_of(t, g);
  const double resident = std::min(per_unit, std::ceil(groups / gpu.units));
  const double warps = static_cast<double>(t.warps()) * resident;
  const double rate = share * std::min(1.0, (warps + 4) / 12);
  const auto steps = static_cast<double>(tiles(tiles(g.k * sides.bytes, row_bytes), t.splits) * 4);
  const double waves = std::ceil(groups / (gpu.units * resident));
  const double wave_ns = resident * static_cast<double>(t.warps()) * fragments * steps *
                             product_clocks / rate / clock_ghz +
                         2500;
  const auto area = [&](int64_t x, int64_t y) {
    return static_cast<double>(g.batch) * static_cast<double>(x) * static_cast<double>(y);
  };
  const double bytes = static_cast<double>(sides.bytes) * (area(g.m, g.k) + area(g.k, g.b_cols())) +
                       static_cast<double>(size_of(problem.dtype("c_type"))) * area(g.m, g.n);
  const double split_ns =
      t.splits > 1 ? gpu.launch_ns + 2 * parts_bytes(t, g) / gpu.bytes_per_ns : 0;
  return std::max(waves * wave_ns, bytes / (0.8 * gpu.bytes_per_ns)) + gpu.launch_ns + split_ns;
}

struct Shape {
  int64_t wm, wn, mt, nt, stages;
};
// 128×256 keeps the matrix units busy; two groups of 128×128 share a unit; less for small products.
constexpr Shape shapes[] = {{2, 4, 4, 8, 4}, {2, 2, 4, 8, 3}, {2, 2, 4, 4, 4},
                            {2, 2, 2, 4, 5}, {1, 4, 2, 4, 4}, {1, 4, 1, 4, 5}};

// One work-item plays 32 lanes; 32 KB of local memory, the least that OpenCL allows a device.
constexpr Mma portable = {0, 2, 1, 2, 8, 2, 8, 1};

class MmaPlan final : public opencl::DevicePlan {
 public:
  MmaPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
          const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem), sides_(g_, problem.dtype("a_type")) {
    if (g_.empty()) return;
    const Mma t = Mma::from(tuning);
    options_ =
        fmt::format("-DTYPE={} -DA_WIDE={:d} -DB_WIDE={:d}{}{}", number_of(problem.dtype("a_type")),
                    sides_.a.wide, sides_.b.wide, opencl::defines(tuning), output_options(problem));
    const int64_t row_tiles = tiles(g_.m, t.bm());
    const int64_t col_tiles = tiles(g_.n, t.own_cols(g_));
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    const int64_t bk = row_bytes / sides_.bytes;
    cl_mem c = copy_of("c");
    // Arguments that the kernel does not read still want a buffer.
    cl_mem a = k == 0 ? c : operand(a_, copy_of("a"), sides_.a, g_.m, !g_.trans_a, false);
    cl_mem b = k == 0 ? c : operand_b(constants);
    cl_mem parts = c;
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    const auto finish = [&](opencl::KernelCall& call) {
      add_output_args(
          call, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
    };
    if (t.splits > 1) {
      parts = workspace(static_cast<std::size_t>(parts_bytes(t, g_)));
      add_ = kernel(gemm_mma_cl, options_, "add_parts");
      add_.set_args(context(), parts, as_int(g_.batch), as_int(g_.m), as_int(g_.n));
      finish(add_);
      constexpr int64_t items = 128;
      add_size_ = {static_cast<std::size_t>(tiles(g_.batch * g_.m * g_.n, items)),
                   static_cast<std::size_t>(items)};
    }
    gemm_ = kernel(gemm_mma_cl, options_, "gemm_mma");
    gemm_.set_args(context(), a, b, parts, as_int(g_.m), as_int(g_.n), as_int(k),
                   as_int(sides_.a.ld), as_int(sides_.b.ld),
                   cl_long{sides_.a.matrix_bytes(g_.m, g_.k)},
                   cl_long{sides_.b.matrix_bytes(g_.b_cols(), g_.k)}, as_int(row_tiles),
                   as_int(col_tiles), as_int(tiles(tiles(k, bk), t.splits) * bk));
    finish(gemm_);
    size_ = {static_cast<std::size_t>(groups_of(t, g_)), static_cast<std::size_t>(t.items())};
  }

  PlanFacts facts() const override {
    PlanFacts facts = DevicePlan::facts();
    const DType type = problem().dtype("a_type");
    facts.path = tuning().get("code_path", 0) == 0
                     ? "mma emulated"
                     : fmt::format("mma.m16n8k{}.{}", 32 / sides_.bytes, type->short_name);
    return facts;
  }

 private:
  struct Lay {
    opencl::KernelCall call;
    opencl::Launch size{0, 1};
  };

  // The operand as tiles are copied from it; prepares the kernel that lays it out where needed.
  cl_mem operand(Lay& lay, cl_mem from, const Layout& to, int64_t rows, bool deep,
                 bool is_constant) {
    if (!to.laid) return from;
    const auto bytes = static_cast<std::size_t>(g_.batch * rows * to.ld);
    cl_mem memory = is_constant ? packed(bytes) : workspace(bytes);
    lay.call = kernel(gemm_mma_cl, options_, "lay");
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    const int64_t ld = to.ld / sides_.bytes;
    lay.call.set_args(context(), from, memory, as_int(rows), as_int(g_.k), as_int(ld),
                      as_int(deep ? g_.k : 1), as_int(deep ? 1 : rows), as_int(tiles(rows, 64)),
                      as_int(tiles(ld, 64)));
    lay.size = {static_cast<std::size_t>(g_.batch * tiles(rows, 64) * tiles(ld, 64)), 256};
    return memory;
  }

  cl_mem operand_b(const Operands& constants) {
    if (!g_.prepack) return operand(b_, copy_of("b"), sides_.b, g_.b_cols(), g_.trans_b, false);
    if (!sides_.b.laid) return copy_of("b", constants);
    const View& view = constants.at("b");
    const opencl::DeviceBuffer plain(context(), view.dtype->bytes(view.elements()));
    write_now(plain.get(), view);
    Lay once;
    cl_mem memory = operand(once, plain.get(), sides_.b, g_.b_cols(), g_.trans_b, true);
    launch(once.call, once.size);
    wait_now();
    return memory;
  }

  void enqueue() override {
    launch(a_.call, a_.size);
    launch(b_.call, b_.size);
    launch(gemm_, size_);
    launch(add_, add_size_);
  }

  const Gemm g_;
  const Sides sides_;
  std::string options_;
  Lay a_, b_;
  opencl::KernelCall gemm_, add_;
  opencl::Launch size_{}, add_size_{0, 1};
};

}  // namespace

std::vector<Guess> mma_guesses(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Gemm g(problem);
  std::vector<Guess> list;
  if (!is_of_math(problem, env)) return list;
  if (!has_units(info)) {
    if (fits(portable, problem, info)) list.push_back({portable.tuning(), 0});
    return list;
  }
  for (const Shape& s : shapes) {
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 16, 32}) {
      const Mma t{1, s.wm, s.wn, s.mt, s.nt, s.stages, 8, splits};
      // Each share deserves some hundred steps, and nothing is won beyond a few waves.
      const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 256 &&
                                            groups_of(t, g) <= 4.0 * info.compute_units);
      if (is_worth && fits(t, problem, info)) {
        list.push_back({t.tuning(), expected_ns(t, problem, info)});
      }
    }
  }
  return list;
}

std::optional<std::string> mma_defect(const Problem& problem, const Tuning& tuning,
                                      const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Mma t = Mma::from(tuning);
  if (!is_of_math(problem, env)) {
    return fmt::format("path=5 is of maths f16, bf16 and int8, not of {}", env.math);
  }
  if (t.code_path == 1 && !has_units(info)) {
    return fmt::format("code_path=1 under path=5 needs matrix units, which {} lacks", info.name);
  }
  if (fits(t, problem, info)) return std::nullopt;
  return fmt::format(
      "path=5 wants powers of two for wm, wn, mt and nt, nt at least 2, stages at least 2, tiles "
      "of "
      "at least 64 along an operand's rows that lie across k, a group's {} items at most {}, its "
      "{} "
      "bytes of local memory at most {} on {}, sizes below {}, and partial sums of at most {:.0f} "
      "bytes",
      t.items(), info.max_work_group, t.local_bytes(), local_limit(t.code_path, info), info.name,
      longest, most_parts_bytes);
}

std::unique_ptr<Plan> mma_plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                               const Operands& constants) {
  return std::make_unique<MmaPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
