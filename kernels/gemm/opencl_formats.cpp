// GEMM of any number formats on any device (gemm_formats.cl): which tile, and its launch. Also what
// all paths that take formats share: when they serve, and what gemm_output.cl is told.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/math.hpp"
#include "gemm_formats_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using opencl::DeviceKind;
using std::int64_t;

struct Tile {
  int64_t tm, tv, mt, nt, wx, wy, bk;

  static Tile from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("tm"), get("tv"), get("mt"), get("nt"), get("wx"), get("wy"), get("bk")};
  }
  Tuning tuning() const {
    return {{"path", path_formats},
            {"tm", tm},
            {"tv", tv},
            {"mt", mt},
            {"nt", nt},
            {"wx", wx},
            {"wy", wy},
            {"bk", bk}};
  }
  int64_t bm() const { return mt * wy * tm; }
  int64_t bn() const { return nt * wx * tv * 4; }
  // With gate=1, which has two tiles of b.
  int64_t most_local_bytes() const {
    return bk * (bm() + 4 + 2 * bn()) * static_cast<int64_t>(sizeof(float));
  }
};

bool fits(const Tile& t, const DeviceInfo& info) {
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return power(t.wx * t.wy) && power(t.bk) &&
         static_cast<std::size_t>(t.wx * t.wy) <= info.max_work_group &&
         t.most_local_bytes() <= static_cast<int64_t>(info.local_bytes);
}

// Sizes and places in a matrix are counted in int, a tile's side beyond an edge included.
constexpr int64_t longest = (int64_t{1} << 31) - 1024;

class FormatsPlan final : public opencl::DevicePlan {
 public:
  FormatsPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
              const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem) {
    if (g_.empty()) return;
    const Tile t = Tile::from(tuning);
    const bool scaled = problem.dtype("b_type") == &int8_per_channel;
    const int64_t row_tiles = tiles(g_.m, t.bm());
    const int64_t col_tiles = tiles(g_.n, t.bn());
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    cl_mem c = copy_of("c");
    // Arguments that the kernel does not read still want a buffer.
    cl_mem a = k == 0 ? c : copy_of("a");
    cl_mem b = k == 0 ? c : copy_of("b", constants);
    cl_mem scale = k == 0 || !scaled ? c : copy_of("b_scale", constants);
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    gemm_ = kernel(gemm_formats_cl,
                   fmt::format("-DA_TYPE={}{}{}", number_of(problem.dtype("a_type")),
                               opencl::defines(tuning), output_options(problem)),
                   "gemm_formats");
    gemm_.set_args(context(), a, b, scale, as_int(g_.m), as_int(g_.n), as_int(k),
                   as_int(g_.trans_a ? 1 : g_.k), as_int(g_.trans_a ? g_.m : 1),
                   as_int(g_.trans_b ? g_.k : 1), as_int(g_.trans_b ? 1 : g_.b_cols()),
                   cl_long{g_.m * g_.k},
                   static_cast<cl_long>(problem.dtype("b_type")->bytes(g_.k * g_.b_cols()) /
                                        element_bytes(problem.dtype("b_type"))),
                   as_int(row_tiles), as_int(col_tiles));
    add_output_args(
        gemm_, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
    size_ = {static_cast<std::size_t>(g_.batch * row_tiles * col_tiles),
             static_cast<std::size_t>(t.wx * t.wy)};
  }

  PlanFacts facts() const override {
    PlanFacts facts = DevicePlan::facts();
    facts.path = problem().dtype("c_type") == &int32 ? "integer multiply-add" : "fma";
    return facts;
  }

 private:
  // Blocks are addressed by bytes.
  static std::size_t element_bytes(DType type) { return type->block == 1 ? size_of(type) : 1; }

  void enqueue() override { launch(gemm_, size_); }

  const Gemm g_;
  opencl::KernelCall gemm_;
  opencl::Launch size_{};
};

}  // namespace

bool has_formats(const Problem& problem, const Environment& env) {
  if (env.math != fp32.name && env.math != math_3xtf32.name) return true;
  return problem.flag("gate") || problem.dtype("a_type") != &float32 ||
         problem.dtype("b_type") != &float32 || problem.dtype("c_type") != &float32;
}

int number_of(DType type) {
  constexpr std::array<DType, 10> numbers = {
      &float32, &float16, &bfloat16, &int8, &uint8, &int32, &q8_0, &q4_0, &q4_1, &int8_per_channel};
  return static_cast<int>(std::find(numbers.begin(), numbers.end(), type) - numbers.begin());
}

std::string output_options(const Problem& problem) {
  return fmt::format(" -DV=4 -DB_TYPE={} -DC_TYPE={} -DGATE={:d} -DC_VECTORS={:d}{}",
                     number_of(problem.dtype("b_type")), number_of(problem.dtype("c_type")),
                     problem.flag("gate"), problem.size("n") % 4 == 0, epilogue_options(problem));
}

std::optional<std::string> formats_unsupported(const Problem& problem, const Environment& env) {
  const Gemm g(problem);
  if (std::max({g.m, g.b_cols(), g.k, g.batch}) >= longest) {
    return fmt::format("number formats and gate=1: sizes must stay below {}", longest);
  }
  // b once more when it is constant, or laid out anew by path 5.
  const double b_bytes = static_cast<double>(problem.dtype("b_type")->block_bytes) /
                         static_cast<double>(problem.dtype("b_type")->block) *
                         static_cast<double>(g.batch) * static_cast<double>(g.k) *
                         static_cast<double>(g.b_cols());
  return opencl::unsupported_anywhere(problem, env, b_bytes);
}

// A CPU device runs one item per group, whose 16 vectors of sums fill its registers; elsewhere 64
// sums an item use each value from local memory eight times, or 16 where the grid would leave units
// without a group.
std::vector<Tuning> formats_tunings(const Gemm& g, const DeviceInfo& info) {
  std::vector<Tuning> list;
  if (info.kind == DeviceKind::cpu) {
    list.push_back(Tile{8, 2, g.m <= 8 ? 1 : 4, 4, 1, 1, 32}.tuning());
  } else {
    const Tile large{8, 2, 1, 1, 16, 16, 16}, small{4, 1, 1, 1, 16, 16, 16};
    const bool is_large =
        g.batch * tiles(g.m, large.bm()) * tiles(g.n, large.bn()) >= info.compute_units / 2;
    for (const Tile& t :
         {is_large ? large : small, is_large ? small : large, Tile{4, 1, 1, 1, 8, 8, 32}}) {
      if (fits(t, info)) list.push_back(t.tuning());
    }
  }
  // Fits every device that OpenCL allows.
  list.push_back(Tile{4, 1, 1, 1, 4, 4, 16}.tuning());
  return list;
}

std::optional<std::string> formats_defect(const Tuning& tuning, const DeviceInfo& info) {
  const Tile t = Tile::from(tuning);
  if (fits(t, info)) return std::nullopt;
  return fmt::format(
      "path=4 wants powers of two for bk and wx·wy, at most {} items and {} bytes of local memory "
      "on {}, not {} and {}",
      info.max_work_group, info.local_bytes, info.name, t.wx * t.wy, t.most_local_bytes());
}

std::unique_ptr<Plan> formats_plan(const Problem& problem, const Tuning& tuning,
                                   const Environment& env, const Operands& constants) {
  return std::make_unique<FormatsPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
