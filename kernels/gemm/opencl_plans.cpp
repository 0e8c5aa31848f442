// See opencl_plans.hpp.
#include "kernels/gemm/opencl_plans.hpp"

#include <fmt/format.h>

#include "core/math.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t piece = 16;  // bytes of a copy

// `period`: rows that are apart begin at multiples of it (with gate=1 of n).
UnitLayout layout(int64_t rows, int64_t period, int64_t k, bool deep, int64_t bytes) {
  const auto whole = [&](int64_t count) { return count * bytes % piece == 0; };
  if (deep && whole(k)) return {false, false, k * bytes, rows};
  if (!deep && bytes > 1 && whole(rows) && whole(period)) return {true, false, rows * bytes, rows};
  return {false, true, tiles(k * bytes, piece) * piece, rows};
}

// Both parts of 16 steps of k at a time, whole tiles.
UnitLayout packed_layout(int64_t rows, int64_t block, int64_t k) {
  return {false, true, tiles(k, 16) * unit_row_bytes, tiles(rows, block) * block};
}

}  // namespace

UnitLayouts::UnitLayouts(const Gemm& g, DType type, int64_t pack_a, int64_t pack_b)
    : bytes(static_cast<int64_t>(size_of(type))),
      packed_bytes(pack_a > 0 ? 2 * bytes : bytes),
      a(pack_a > 0 ? packed_layout(g.m, pack_a, g.k) : layout(g.m, g.m, g.k, !g.trans_a, bytes)),
      b(pack_b > 0 ? packed_layout(g.n, pack_b, g.k)
                   : layout(g.b_cols(), g.n, g.k, g.trans_b, bytes)),
      block_a(pack_a),
      block_b(pack_b) {}

double UnitLayouts::laid_bytes(const Gemm& g, bool of_run) const {
  const auto laid = [&](const UnitLayout& layout) {
    return layout.laid
               ? static_cast<double>(g.batch) * static_cast<double>(layout.matrix_bytes(g.k))
               : 0;
  };
  return laid(a) + (of_run && g.prepack ? 0 : laid(b));
}

double UnitLayouts::lay_ns(const Gemm& g, const GpuModel& gpu) const {
  const int launches = (a.laid ? 1 : 0) + (b.laid && !g.prepack ? 1 : 0);
  // Read, and both parts of packed operands written.
  return launches * gpu.launch_ns + 2 * laid_bytes(g, true) / gpu.bytes_per_ns;
}

bool has_unit_math(const Problem& problem, const Environment& env) {
  return env.math == math_3xtf32.name || env.math == math_f16.name || env.math == math_bf16.name ||
         (env.math == math_int8.name && problem.dtype("c_type") == &int32);
}

double unit_parts_bytes(int64_t splits, const Gemm& g) {
  return splits == 1 ? 0
                     : 4.0 * static_cast<double>(splits) * static_cast<double>(g.batch) *
                           static_cast<double>(g.m) * static_cast<double>(g.b_cols());
}

double unit_bytes(const Problem& problem) {
  const Gemm g(problem);
  const auto bytes = [&](const char* type, int64_t x, int64_t y) {
    return static_cast<double>(size_of(problem.dtype(type))) * static_cast<double>(g.batch) *
           static_cast<double>(x) * static_cast<double>(y);
  };
  return bytes("a_type", g.m, g.k) + bytes("b_type", g.k, g.b_cols()) + bytes("c_type", g.m, g.n);
}

GemmPlan::GemmPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
    : DevicePlan(problem, tuning, env), g_(problem) {}

PlanFacts GemmPlan::facts() const {
  PlanFacts facts = DevicePlan::facts();
  facts.path = path_;
  return facts;
}

cl_mem GemmPlan::operand(const char* tensor, const Operands& constants) {
  return g_.reads_ab() && g_.k > 0 ? copy_of(tensor, constants) : copy_of("c");
}

void GemmPlan::add_output(opencl::KernelCall& call) {
  cl_mem c = copy_of("c");
  call.add_args(context(), g_.reads_c0() ? copy_of("c0") : c, c, cl_float{g_.alpha},
                cl_float{g_.beta}, g_.epilogue.has(Epilogue::Op::bias) ? copy_of("bias") : c,
                g_.epilogue.has(Epilogue::Op::add) ? copy_of("residual") : c);
}

cl_mem GemmPlan::rearranged(Step& step, const char* tensor, const Operands& constants,
                            const Rearranging& what, const char* source,
                            const std::string& options) {
  if (!g_.reads_ab() || g_.k == 0) return copy_of("c");
  const bool is_constant = g_.prepack && std::string_view(tensor) == "b";
  const auto bytes = static_cast<std::size_t>(g_.batch * what.ys_to * what.ld * what.bytes);
  cl_mem memory = is_constant ? packed(bytes) : workspace(bytes);
  opencl::DeviceBuffer plain;
  if (is_constant) {
    const View& view = constants.at(tensor);
    plain = opencl::DeviceBuffer(context(), view.dtype->bytes(view.elements()));
    write_now(plain.get(), view);
  }
  constexpr int64_t side = 64;
  constexpr int64_t items = 256;
  const int64_t y_tiles = tiles(what.ys_to, side);
  const int64_t x_tiles = tiles(what.ld / (what.block > 0 ? 2 : 1), side);
  Step prepared = {kernel(source, options, "rearrange"),
                   launch_of(g_.batch * y_tiles * x_tiles, items)};
  prepared.call.set_args(context(), is_constant ? plain.get() : copy_of(tensor), memory,
                         as_cl_int(what.ys), as_cl_int(what.xs), as_cl_int(what.ys_to),
                         as_cl_int(what.ld), as_cl_int(what.block), as_cl_int(what.outer),
                         as_cl_int(what.inner), as_cl_int(y_tiles), as_cl_int(x_tiles));
  if (is_constant) {
    launch(prepared.call, prepared.size);
    wait_now();
  } else {
    step = std::move(prepared);
  }
  return memory;
}

void GemmPlan::enqueue() {
  launch(lay_a_.call, lay_a_.size);
  launch(lay_b_.call, lay_b_.size);
  multiply();
  launch(add_.call, add_.size);
}

UnitPlan::UnitPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
                   const UnitLayouts& layouts, std::string source)
    : GemmPlan(problem, tuning, env),
      layouts_(layouts),
      source_(std::move(source)),
      options_(
          fmt::format("-DTYPE={} -DTRANS_A={:d} -DTRANS_B={:d} -DA_WIDE={:d} -DB_WIDE={:d}{}{}",
                      number_of(problem.dtype("a_type")), g_.trans_a, g_.trans_b, layouts_.a.wide,
                      layouts_.b.wide, opencl::defines(tuning), output_options(problem))) {}

void UnitPlan::prepare(const Operands& constants, int64_t splits) {
  k_ = g_.reads_ab() ? g_.k : 0;
  const int64_t bk = unit_row_bytes / layouts_.packed_bytes;
  k_share_ = tiles(tiles(k_, bk), splits) * bk;
  const auto laid = [&](Step& step, const char* tensor, const UnitLayout& to, int64_t rows,
                        bool deep, int64_t block) {
    if (!to.laid) return operand(tensor, constants);
    const int64_t bytes = layouts_.bytes;
    return rearranged(
        step, tensor, constants,
        {rows, g_.k, to.rows, to.ld / bytes, deep ? g_.k : 1, deep ? 1 : rows, bytes, block},
        source_.c_str(), options_);
  };
  a_ = laid(lay_a_, "a", layouts_.a, g_.m, !g_.trans_a, layouts_.block_a);
  b_ = laid(lay_b_, "b", layouts_.b, g_.b_cols(), g_.trans_b, layouts_.block_b);
  if (is_3xtf32()) {
    strict_a_ = operand("a", constants);
    strict_b_ = operand("b", constants);
  }
  parts_ = copy_of("c");
  if (splits == 1) return;
  parts_ = workspace(static_cast<std::size_t>(unit_parts_bytes(splits, g_)));
  constexpr int64_t items = 128;
  add_ = {kernel(source_.c_str(), options_, "add_parts"),
          launch_of(tiles(g_.batch * g_.m * g_.n, items), items)};
  add_.call.set_args(context(), parts_, as_cl_int(g_.batch), as_cl_int(g_.m), as_cl_int(g_.n),
                     as_cl_int(k_));
  add_last(add_.call);
}

void UnitPlan::add_last(opencl::KernelCall& call) {
  if (is_3xtf32()) call.add_args(context(), strict_a_, strict_b_);
  add_output(call);
}

}  // namespace rooflane::gemm
