// GEMM on matrix units by splitting (math 3xtf32): which tiles, and their launch. The kernel and
// its ideas are in gemm_tensor.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/opencl_features.hpp"
#include "gemm_tensor_cl.hpp"
#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {
namespace {

using opencl::DeviceInfo;
using std::int64_t;

struct Tensor {
  int64_t code_path, wm, wn, mt, nt, bk, chunk, stages, packed, most_registers, raster, splits;

  static Tensor from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {get("code_path"),   get("wm"),
            get("wn"),          get("mt"),
            get("nt"),          get("bk"),
            get("chunk"),       get("stages"),
            t.get("packed", 0), t.get("most_registers", 0),
            get("raster"),      get("splits")};
  }
  Tuning tuning() const {
    return {{"path", path_tensor},
            {"code_path", code_path},
            {"wm", wm},
            {"wn", wn},
            {"mt", mt},
            {"nt", nt},
            {"bk", bk},
            {"chunk", chunk},
            {"stages", stages},
            {"packed", packed},
            {"most_registers", most_registers},
            {"raster", raster},
            {"splits", splits}};
  }
  int64_t warps() const { return wm * wn; }
  // The portable code path's work-items play a whole warp each.
  int64_t items() const { return code_path == 1 ? 32 * warps() : warps(); }
  int64_t bm() const { return wm * mt * 16; }
  int64_t bn() const { return wn * nt * 8; }
  int64_t local_bytes() const {
    return stages * (1 + packed) * (bm() + bn()) * bk * static_cast<int64_t>(sizeof(float));
  }
  // Sums, the big and small parts of CHUNK fragments of a and of four of b, a fragment per row of
  // fragments, and about 40 addresses and counters.
  int64_t registers() const {
    return std::min<int64_t>(255, 4 * mt * nt + chunk * (8 * mt + 16) + 4 * mt + 40);
  }
};

// Sizes are counted in int, a tile's side beyond an edge included.
constexpr int64_t longest = (int64_t{1} << 31) - 1024;

double groups_of(const Tensor& t, const Gemm& g) {
  return static_cast<double>(g.batch) * static_cast<double>(tiles(g.m, t.bm())) *
         static_cast<double>(tiles(g.n, t.bn())) * static_cast<double>(t.splits);
}

double parts_bytes(const Tensor& t, const Gemm& g) {
  return t.splits == 1 ? 0
                       : 4.0 * static_cast<double>(t.splits) * static_cast<double>(g.batch) *
                             static_cast<double>(g.m) * static_cast<double>(g.n);
}

// Floats of an operand's parts: `rows` along m or n, tiles and steps of k filled up.
int64_t packed_floats(const Tensor& t, const Gemm& g, int64_t rows, int64_t tile) {
  return 2 * g.batch * tiles(rows, tile) * tile * tiles(g.k, t.bk) * t.bk;
}

// Device memory beside the operands.
double beside_bytes(const Tensor& t, const Gemm& g) {
  if (t.packed == 0) return parts_bytes(t, g);
  return parts_bytes(t, g) + 4.0 * static_cast<double>(packed_floats(t, g, g.m, t.bm())) +
         4.0 * static_cast<double>(packed_floats(t, g, g.n, t.bn()));
}

double operand_bytes(const Gemm& g) {
  const double batch = static_cast<double>(g.batch);
  const auto area = [&](int64_t x, int64_t y) {
    return 4 * batch * static_cast<double>(x) * static_cast<double>(y);
  };
  return area(g.m, g.k) + area(g.k, g.n) + area(g.m, g.n) * (g.reads_c0() ? 2 : 1);
}

bool has_tensor_code_path(const DeviceInfo& info) {
  const opencl::Features& found = opencl::features(info.index);
  return found.mma_tf32 && found.copy_async;
}

int64_t local_limit(const Tensor& t, const DeviceInfo& info) {
  return static_cast<int64_t>(t.code_path == 1 ? opencl::features(info.index).static_local_bytes
                                               : info.local_bytes);
}

bool fits(const Tensor& t, const Gemm& g, const DeviceInfo& info) {
  const auto power = [](int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); };
  return (t.code_path == 0 || has_tensor_code_path(info)) && power(t.wm) && power(t.wn) &&
         power(t.mt) && t.mt >= 2 && power(t.nt) && t.nt >= 4 && power(t.bk) && t.bk >= 8 &&
         t.bk <= 32 && power(t.chunk) && 8 * t.chunk <= t.bk && t.stages >= 2 && t.bm() % 32 == 0 &&
         t.bn() % 32 == 0 && static_cast<std::size_t>(t.items()) <= info.max_work_group &&
         t.local_bytes() <= local_limit(t, info) && parts_bytes(t, g) <= most_parts_bytes &&
         groups_of(t, g) < longest &&
         (t.packed == 0 ||
          packed_floats(t, g, std::max(g.m, g.n), std::max(t.bm(), t.bn())) / 16 < longest);
}

// Waves of groups, each as long as its tiles take on a unit that all its groups share. A matrix
// unit takes 6.05 clocks for a product of fragments (measured on an H200, 107 TFLOP/s of three
// products). What else a warp does is told apart by what its tile is worth there: shares of that
// rate measured at 4096³, operands packed or not.
double expected_ns(const Tensor& t, const Gemm& g, const DeviceInfo& info) {
  constexpr double product_clocks = 6.05;
  const double clock_ghz = info.clock_mhz > 0 ? info.clock_mhz * 1e-3 : 1;
  const double units = info.compute_units;
  const int64_t fragments = t.mt * t.nt;
  const double share = t.packed == 1     ? (fragments >= 32 ? 0.72 : 0.7)
                       : fragments >= 32 ? 0.59
                                         : 0.53;
  const int64_t registers = t.most_registers > 0 ? t.most_registers : t.registers();
  const int64_t by_registers = 65536 / (registers * t.items());
  const int64_t by_local = 228 * 1024 / (t.local_bytes() + 1024);
  const auto per_unit = static_cast<double>(
      std::clamp<int64_t>(std::min({by_registers, by_local, 2048 / t.items()}), 1, 16));
  const double groups = groups_of(t, g);
  const double resident = std::min(per_unit, std::ceil(groups / units));
  // A quarter of a unit reaches its share with two warps, half of it with one.
  const double warps = static_cast<double>(t.warps()) * resident / 4;
  const double rate = share * std::min(1.0, (warps + 1) / 3);
  const double steps = static_cast<double>(tiles(tiles(g.k, t.bk), t.splits) * t.bk) / 8;
  const double step_clocks =
      3 * static_cast<double>(fragments) * product_clocks * std::max(1.0, warps);
  // Copies of single floats wait for their addresses.
  const bool is_narrow = t.packed == 0 && (copy_width(g.trans_a ? g.m : g.k) == 1 ||
                                           copy_width(g.trans_b ? g.k : g.n) == 1);
  const double waves = std::ceil(groups / (units * resident));
  const double start_ns = 2000;  // first copies and the last stores of a group
  const double launch_ns = 4500;
  const double bytes_per_ns = 3500;  // an H200's memory
  const int launches = 1 + (t.splits > 1 ? 1 : 0) + (t.packed == 1 ? (g.prepack ? 1 : 2) : 0);
  const double packing_bytes =
      t.packed == 0 ? 0
                    : 1.5 * 4 *
                          static_cast<double>(packed_floats(t, g, g.m, t.bm()) +
                                              (g.prepack ? 0 : packed_floats(t, g, g.n, t.bn())));
  return waves * (steps * step_clocks * (is_narrow ? 1.7 : 1) / rate / clock_ghz + start_ns) +
         launch_ns * launches + (2 * parts_bytes(t, g) + packing_bytes) / bytes_per_ns;
}

struct Shape {
  int64_t wm, wn, mt, nt, bk, chunk, stages, packed, most_registers;
};
// Tiles from 32×32 to 128×128. 64×64 a warp: 128 of its items' 255 registers hold sums. The first
// four at 4096³ on an H200, TFLOP/s: 70, 69, 63, 54. There 256×128 by eight warps reached 58 to 66
// (they all wait at one barrier), 128×128 by sixteen 45 (spills), and chunk 1 instead of 2 mostly 4
// to 15 less (twice the additions).
constexpr Shape shapes[] = {
    {2, 2, 4, 8, 16, 2, 3, 1, 0}, {2, 2, 4, 4, 16, 2, 3, 1, 168}, {2, 2, 4, 8, 16, 2, 5, 0, 0},
    {2, 2, 4, 4, 32, 2, 3, 0, 0}, {2, 2, 2, 4, 32, 2, 4, 0, 0},   {1, 2, 2, 4, 32, 2, 4, 0, 0},
    {1, 1, 2, 4, 32, 2, 4, 0, 0},
};

Tensor shaped(const Shape& s, int64_t splits) {
  return {1, s.wm,  s.wn, s.mt, s.nt, s.bk, s.chunk, s.stages, s.packed, s.most_registers,
          8, splits};
}

// Small tiles: a work-item plays 32 lanes, and edges cost as much as what is inside. 16 KB of local
// memory, the least that OpenCL allows a device, hold two of these.
constexpr Tensor portable[] = {
    {0, 1, 1, 2, 4, 16, 2, 2, 0, 0, 8, 1},
    {0, 2, 2, 2, 4, 8, 1, 2, 1, 0, 2, 1},
    {0, 1, 1, 2, 4, 16, 2, 2, 0, 0, 8, 2},
};

class TensorPlan final : public opencl::DevicePlan {
 public:
  TensorPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
             const Operands& constants)
      : DevicePlan(problem, tuning, env), g_(problem) {
    if (g_.empty()) return;
    const Tensor t = Tensor::from(tuning);
    const std::string options =
        fmt::format("{} -DTRANS_A={:d} -DTRANS_B={:d} -DCOPY_A={} -DCOPY_B={} -DCOPY_C={} -DV=4",
                    opencl::defines(t.tuning()), g_.trans_a, g_.trans_b,
                    copy_width(g_.trans_a ? g_.m : g_.k), copy_width(g_.trans_b ? g_.k : g_.n),
                    copy_width(g_.n)) +
        epilogue_options(problem) +
        (t.code_path == 1 && t.most_registers > 0
             ? fmt::format(" -cl-nv-maxrregcount={}", t.most_registers)
             : "");
    const int64_t row_tiles = tiles(g_.m, t.bm());
    const int64_t col_tiles = tiles(g_.n, t.bn());
    const int64_t k = g_.reads_ab() ? g_.k : 0;
    const int64_t k_share = tiles(tiles(k, t.bk), t.splits) * t.bk;
    // Arguments that the kernel does not read still need a buffer.
    cl_mem c = copy_of("c");
    cl_mem a = k == 0 ? c : copy_of("a");
    cl_mem b = k == 0 ? c : g_.prepack ? constant(constants.at("b")) : copy_of("b");
    cl_mem c0 = g_.reads_c0() ? copy_of("c0") : c;
    cl_mem parts = c;
    cl_mem packed_a = c;
    cl_mem packed_b = c;
    if (t.packed == 1 && k > 0) {
      const int64_t a_floats = packed_floats(t, g_, g_.m, t.bm());
      const int64_t b_floats = packed_floats(t, g_, g_.n, t.bn());
      packed_a = workspace(static_cast<std::size_t>(a_floats) * sizeof(float));
      packed_b = g_.prepack ? packed(static_cast<std::size_t>(b_floats) * sizeof(float))
                            : workspace(static_cast<std::size_t>(b_floats) * sizeof(float));
      pack_a_ = Packing(*this, options, "pack_a", a, packed_a, g_.m, a_floats);
      pack_b_ = Packing(*this, options, "pack_b", b, packed_b, g_.n, b_floats);
      if (g_.prepack) {
        launch(pack_b_.call, pack_b_.size);
        wait_now();
        pack_b_.size.groups = 0;
      }
    }
    const auto as_int = [](int64_t x) { return static_cast<cl_int>(x); };
    const auto add_epilogue = [&](opencl::KernelCall& call) {
      add_epilogue_args(
          call, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, c);
    };
    if (t.splits > 1) {
      parts = workspace(static_cast<std::size_t>(parts_bytes(t, g_)));
      add_ = kernel(gemm_tensor_cl, options, "add_scaled_parts");
      add_.set_args(context(), a, b, c0, c, parts, as_int(g_.batch), as_int(g_.m), as_int(g_.n),
                    as_int(k), cl_float{g_.alpha}, cl_float{g_.beta});
      add_epilogue(add_);
      constexpr int64_t items = 128;
      add_size_ = {static_cast<std::size_t>(tiles(g_.batch * g_.m * g_.n, items)),
                   static_cast<std::size_t>(items)};
    }
    gemm_ = kernel(gemm_tensor_cl, options, "gemm_tensor");
    gemm_.set_args(context(), a, b, c0, c, parts, packed_a, packed_b, as_int(g_.m), as_int(g_.n),
                   as_int(k), as_int(row_tiles), as_int(col_tiles), as_int(k_share),
                   cl_float{g_.alpha}, cl_float{g_.beta});
    add_epilogue(gemm_);
    size_ = {static_cast<std::size_t>(g_.batch * row_tiles * col_tiles * t.splits),
             static_cast<std::size_t>(t.items())};
  }

 private:
  // The kernel that splits an operand and lays it out, eight floats an item.
  struct Packing {
    opencl::KernelCall call;
    opencl::Launch size{0, 1};
    Packing() = default;
    Packing(TensorPlan& plan, const std::string& options, const char* name, cl_mem from, cl_mem to,
            int64_t rows, int64_t floats)
        : call(plan.kernel(gemm_tensor_cl, options, name)) {
      constexpr int64_t items = 128;
      const Gemm& g = plan.g_;
      call.set_args(plan.context(), from, to, static_cast<cl_int>(g.batch),
                    static_cast<cl_int>(rows), static_cast<cl_int>(g.m), static_cast<cl_int>(g.n),
                    static_cast<cl_int>(g.k));
      size = {static_cast<std::size_t>(tiles(floats / 16, items)), static_cast<std::size_t>(items)};
    }
  };

  void enqueue() override {
    launch(pack_a_.call, pack_a_.size);
    launch(pack_b_.call, pack_b_.size);
    launch(gemm_, size_);
    launch(add_, add_size_);
  }

  // b as it is, which strict elements are computed from.
  cl_mem constant(const View& b) {
    cl_mem memory = packed(static_cast<std::size_t>(b.elements()) * sizeof(float));
    write_now(memory, b);
    return memory;
  }

  const Gemm g_;
  Packing pack_a_, pack_b_;
  opencl::KernelCall gemm_;
  opencl::Launch size_{};
  opencl::KernelCall add_;
  opencl::Launch add_size_{0, 1};
};

}  // namespace

std::optional<std::string> tensor_unsupported(const Problem& problem, const Environment& env) {
  const Gemm g(problem);
  const double b_bytes = g.prepack ? 4.0 * static_cast<double>(g.batch) * static_cast<double>(g.k) *
                                         static_cast<double>(g.n)
                                   : 0;
  if (auto reason = opencl::unsupported_anywhere(problem, env, b_bytes)) return reason;
  if (std::max({g.m, g.n, g.k, g.batch}) >= longest) {
    return fmt::format("math {}: sizes must stay below {}", math_3xtf32.name, longest);
  }
  const Tensor first = Tensor::from(tensor_tunings(g, opencl::device(env.device)).front());
  return opencl::unsupported_anywhere(problem, env, b_bytes + beside_bytes(first, g));
}

std::vector<Tuning> tensor_tunings(const Gemm& g, const DeviceInfo& info) {
  std::vector<Guess> guesses;
  if (has_tensor_code_path(info)) {
    const auto free_bytes = static_cast<double>(opencl::available_bytes(info));
    for (const Shape& s : shapes) {
      for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 32}) {
        const Tensor t = shaped(s, splits);
        // Each share deserves some hundred steps, and nothing is won beyond a few waves.
        if (t.packed == 1 && beside_bytes(t, g) + operand_bytes(g) > free_bytes) continue;
        const bool is_worth = splits == 1 || (g.reads_ab() && g.k / splits >= 128 &&
                                              groups_of(t, g) <= 4.0 * info.compute_units);
        if (is_worth && fits(t, g, info)) guesses.push_back({t.tuning(), expected_ns(t, g, info)});
      }
    }
    std::stable_sort(guesses.begin(), guesses.end(),
                     [](const Guess& x, const Guess& y) { return x.ns < y.ns; });
    constexpr std::size_t most_guesses = 10;
    if (guesses.size() > most_guesses) guesses.resize(most_guesses);
    // The smallest last, for devices that have less room than an H200.
    guesses.push_back({shaped(shapes[std::size(shapes) - 1], 1).tuning(), 0});
  }
  std::vector<Tuning> list;
  for (const Guess& guess : guesses) list.push_back(guess.tuning);
  for (const Tensor& t : portable) {
    const bool first = list.empty();
    if (first || (!has_tensor_code_path(info) && fits(t, g, info))) list.push_back(t.tuning());
  }
  return list;
}

std::optional<std::string> tensor_defect(const Gemm& g, const Tuning& tuning,
                                         const DeviceInfo& info) {
  const Tensor t = Tensor::from(tuning);
  if (t.code_path == 1 && !has_tensor_code_path(info)) {
    return fmt::format(
        "code_path=1 under math {} needs matrix units that take tf32, which {} lacks",
        math_3xtf32.name, info.name);
  }
  if (fits(t, g, info)) return std::nullopt;
  return fmt::format(
      "wm, wn, mt, nt, bk and chunk must be powers of two, mt at least 2, nt at least 4, bk 8 to "
      "32 and at least 8·chunk, stages at least 2, a group's {} items at most {}, the tiles' {} "
      "bytes at most {} on {}, and the partial sums of splits at most {:.0f} bytes",
      t.items(), info.max_work_group, t.local_bytes(), local_limit(t, info), info.name,
      most_parts_bytes);
}

std::unique_ptr<Plan> tensor_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands& constants) {
  return std::make_unique<TensorPlan>(problem, tuning, env, constants);
}

}  // namespace rooflane::gemm
