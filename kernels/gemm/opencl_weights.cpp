// GEMM of a few rows against weights that a GPU reads once (gemm_weights.cl): how rows and k are
// shared among groups, and their launch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "core/math.hpp"
#include "gemm_weights_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

constexpr int64_t most_rows_of_a = 8;
constexpr int64_t lanes = 32, piece = 16;  // items of a warp; bytes of a copy
// Two groups of a unit of an H200 (227 KB) beside each other.
constexpr int64_t half_of_local = 113 * 1024;

// UNIT and UNIT_WORDS of gemm_weights.cl: elements and bytes that a lane decodes at a time.
struct Unit {
  int64_t elements, bytes;
  explicit Unit(DType type)
      : elements(type == &q4_1        ? 32
                 : is_blocks(type)    ? 64
                 : size_of(type) == 1 ? 16
                                      : 8),
        bytes(static_cast<int64_t>(type->bytes(elements))) {}
  static bool is_blocks(DType type) { return type->block > 1; }
  int64_t chunk() const { return lanes * elements; }
  int64_t chunk_bytes() const { return lanes * bytes; }
};

struct Weights {
  int64_t code_path, rows, warps, stages, splits;

  static Weights from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("code_path"), get("rows"), get("warps"), get("stages"), get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_weights}, {"code_path", code_path}, {"rows", rows},
            {"warps", warps},       {"stages", stages},       {"splits", splits}};
  }
  int64_t items() const { return lanes * warps; }
  // Columns of c of a group at a time.
  int64_t own_cols(const Gemm& g) const { return warps * rows / (g.gate ? 2 : 1); }
};

int64_t k_share(const Weights& w, const Gemm& g, const Unit& unit) {
  return std::max<int64_t>(1, tiles(tiles(g.k, unit.chunk()), w.splits)) * unit.chunk();
}

int64_t local_bytes(const Weights& w, const Gemm& g, const Unit& unit) {
  return 4 * g.m * k_share(w, g, unit) + w.warps * w.stages * w.rows * unit.chunk_bytes() +
         4 * w.items();
}

// Groups of a share of k: as many as the device holds at a time, each with several blocks of
// columns.
int64_t groups_of(const Weights& w, const Gemm& g, const Unit& unit, const DeviceInfo& info) {
  const int64_t per_unit = std::clamp<int64_t>(
      std::min(227 * 1024 / (local_bytes(w, g, unit) + 1024), 32 / w.warps), 1, 8);
  const int64_t resident = std::max<int64_t>(1, info.compute_units * per_unit / w.splits);
  return std::clamp<int64_t>(tiles(g.n, w.own_cols(g)), 1, resident);
}

// Why the kernel does not take the problem at all.
bool is_served(const Problem& problem, const Environment& env) {
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type");
  const Gemm g(problem);
  const bool of_weights = b == &float16 || b == &bfloat16 || is_quantised(b);
  return of_weights && !a->is_integer() && g.batch == 1 && g.m <= most_rows_of_a && g.trans_b &&
         env.math != math_int8.name && b->bytes(g.k) % piece == 0 &&
         std::max(g.b_cols(), g.k) < (int64_t{1} << 27);
}

double parts_bytes(const Weights& w, const Gemm& g) {
  return w.splits == 1 ? 0
                       : 4.0 * static_cast<double>(w.splits) * static_cast<double>(g.m) *
                             static_cast<double>(g.b_cols());
}

bool fits(const Weights& w, const Problem& problem, const Environment& env,
          const DeviceInfo& info) {
  const Gemm g(problem);
  return is_served(problem, env) && (w.code_path == 0 || best_code_path(info) == 1) &&
         w.stages >= 2 && (!g.gate || w.rows % 2 == 0) &&
         static_cast<std::size_t>(w.items()) <= info.max_work_group &&
         local_bytes(w, g, Unit(problem.dtype("b_type"))) <= local_limit(w.code_path, info) &&
         parts_bytes(w, g) <= most_parts_bytes;
}

// Reading b at memory speed, or its decoding and products where rows of a are many: 3 operations an
// element and one a product, of which half of the peak is reached. Units without a group, or with
// one alone, read slower.
double expected_ns(const Weights& w, const Problem& problem, const DeviceInfo& info) {
  const Gemm g(problem);
  const GpuModel gpu(info);
  const Unit unit(problem.dtype("b_type"));
  const double elements = static_cast<double>(g.b_cols()) * static_cast<double>(g.k);
  const double bytes =
      elements * static_cast<double>(unit.bytes) / static_cast<double>(unit.elements);
  const double operations = elements * static_cast<double>(3 + g.m);
  const double busy = static_cast<double>(groups_of(w, g, unit, info) * w.splits) / gpu.units;
  const double slower = 1 + 0.5 * std::max(0.0, std::log2(2 / busy)) + (w.rows < 4 ? 0.1 : 0.0) +
                        (local_bytes(w, g, unit) > half_of_local ? 0.2 : 0.0);
  return slower *
             std::max(bytes / gpu.bytes_per_ns, operations / (gpu.units * gpu.mads_per_ns * 0.5)) +
         gpu.launch_ns * (w.splits > 1 ? 1.7 : 1);
}

class WeightsPlan final : public opencl::DevicePlan {
 public:
  WeightsPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
              const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem) {
    if (g_.empty()) return;
    const Weights w = Weights::from(tuning);
    const DType type = problem.dtype("b_type");
    const Unit unit(type);
    const std::string options = fmt::format(
        "-DCODE_PATH={} -DR={} -DWARPS={} -DSTAGES={} -DSPLITS={} -DFEW={} -DKS={} -DA_TYPE={}{}",
        w.code_path, w.rows, w.warps, w.stages, w.splits, g_.m, k_share(w, g_, unit),
        number_of(problem.dtype("a_type")), output_options(problem));
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    const int64_t blocks = tiles(g_.n, w.own_cols(g_));
    const int64_t groups = groups_of(w, g_, unit, context().info());
    cl_mem c = copy_of("c");
    // Arguments that the kernel does not read still want a buffer.
    cl_mem a = k == 0 ? c : copy_of("a");
    cl_mem b = k == 0 ? c : copy_of("b", constants);
    cl_mem scale = k == 0 || type != &int8_per_channel ? c : copy_of("b_scale", constants);
    cl_mem parts = c;
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    const auto finish = [&](opencl::KernelCall& call) {
      add_output_args(
          call, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
    };
    if (w.splits > 1) {
      parts = workspace(static_cast<std::size_t>(parts_bytes(w, g_)));
      add_ = kernel(gemm_weights_cl, options, "add_weight_parts");
      add_.set_args(context(), parts, as_int(g_.n));
      finish(add_);
      constexpr int64_t items = 128;
      add_size_ = {static_cast<std::size_t>(tiles(g_.m * g_.n, items)),
                   static_cast<std::size_t>(items)};
    }
    gemm_ = kernel(gemm_weights_cl, options, "gemm_weights");
    gemm_.set_args(context(), a, b, scale, parts, as_int(g_.n), as_int(k),
                   as_int(g_.trans_a ? 1 : g_.k), as_int(g_.trans_a ? g_.m : 1),
                   as_int(static_cast<int64_t>(type->bytes(g_.k))), as_int(blocks), as_int(groups));
    finish(gemm_);
    size_ = {static_cast<std::size_t>(groups * w.splits), static_cast<std::size_t>(w.items())};
  }

  PlanFacts facts() const override {
    PlanFacts facts = DevicePlan::facts();
    facts.path = "fma";
    return facts;
  }

 private:
  void enqueue() override {
    launch(gemm_, size_);
    launch(add_, add_size_);
  }

  const Gemm g_;
  opencl::KernelCall gemm_, add_;
  opencl::Launch size_{}, add_size_{0, 1};
};

}  // namespace

std::vector<Guess> weights_guesses(const Problem& problem, const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  std::vector<Guess> list;
  if (!is_served(problem, env)) return list;
  const int64_t code_path = best_code_path(info);
  // Blocks are longer than what others have of a row at a time.
  const bool long_units = Unit::is_blocks(problem.dtype("b_type"));
  for (const int64_t rows : {4, 2}) {
    for (const int64_t warps : {8, 4, 2}) {
      for (const int64_t splits : {1, 2, 3, 4, 6, 8, 16}) {
        const Weights w{code_path, rows, warps, long_units ? 2 : 4, splits};
        const bool is_worth = splits == 1 || problem.size("k") / splits >= 512;
        if (is_worth && fits(w, problem, env, info)) {
          list.push_back({w.tuning(), expected_ns(w, problem, info)});
        }
      }
    }
  }
  // Elsewhere one is enough to check the kernel.
  if (code_path == 0 && list.size() > 1) list.erase(list.begin(), list.end() - 1);
  return list;
}

std::optional<std::string> weights_defect(const Problem& problem, const Tuning& tuning,
                                          const Environment& env) {
  const DeviceInfo& info = opencl::device(env.device);
  const Weights w = Weights::from(tuning);
  if (fits(w, problem, env, info)) return std::nullopt;
  return fmt::format(
      "path=6 wants at most {} rows of float a and batch=1, b of f16, bf16, q8_0, q4_0, q4_1 or "
      "s8c "
      "with trans_b=1 and rows of a multiple of {} bytes, stages at least 2, with gate=1 an even "
      "number of rows, at most {} items and {} bytes of local memory on {}, and partial sums of at "
      "most {:.0f} bytes",
      most_rows_of_a, piece, info.max_work_group, local_limit(w.code_path, info), info.name,
      most_parts_bytes);
}

std::unique_ptr<Plan> weights_plan(const Problem& problem, const Tuning& tuning,
                                   const Environment& env, const Operands& constants) {
  return std::make_unique<WeightsPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
