// See opencl_units.hpp.
#include "kernels/gemm/opencl_units.hpp"

#include <fmt/format.h>

#include "core/math.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t piece = 16;  // bytes of a copy

// `period`: rows that are apart begin at multiples of it (with gate=1 of n).
UnitLayout layout(int64_t rows, int64_t period, int64_t k, bool deep, int64_t bytes) {
  const auto whole = [&](int64_t count) { return count * bytes % piece == 0; };
  if (deep && whole(k)) return {false, false, k * bytes};
  if (!deep && bytes == 2 && whole(rows) && whole(period)) return {true, false, rows * bytes};
  return {false, true, tiles(k * bytes, piece) * piece};
}

}  // namespace

UnitLayouts::UnitLayouts(const Gemm& g, DType type)
    : bytes(static_cast<int64_t>(size_of(type))),
      a(layout(g.m, g.m, g.k, !g.trans_a, bytes)),
      b(layout(g.b_cols(), g.n, g.k, g.trans_b, bytes)) {}

bool has_unit_math(const Problem& problem, const Environment& env) {
  return env.math == math_f16.name || env.math == math_bf16.name ||
         (env.math == math_int8.name && problem.dtype("c_type") == &int32);
}

double unit_parts_bytes(int64_t splits, const Gemm& g) {
  return splits == 1 ? 0
                     : 4.0 * static_cast<double>(splits) * static_cast<double>(g.batch) *
                           static_cast<double>(g.m) * static_cast<double>(g.b_cols());
}

double unit_bytes(const Gemm& g, const UnitLayouts& layouts, const Problem& problem) {
  const auto area = [&](int64_t x, int64_t y) {
    return static_cast<double>(g.batch) * static_cast<double>(x) * static_cast<double>(y);
  };
  return static_cast<double>(layouts.bytes) * (area(g.m, g.k) + area(g.k, g.b_cols())) +
         static_cast<double>(size_of(problem.dtype("c_type"))) * area(g.m, g.n);
}

UnitPlan::UnitPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
                   std::string source)
    : DevicePlan(problem, tuning, env),
      g_(problem),
      layouts_(g_, problem.dtype("a_type")),
      source_(std::move(source)),
      options_(fmt::format("-DTYPE={} -DA_WIDE={:d} -DB_WIDE={:d}{}{}",
                           number_of(problem.dtype("a_type")), layouts_.a.wide, layouts_.b.wide,
                           opencl::defines(tuning), output_options(problem))) {}

void UnitPlan::prepare(const Operands& constants, int64_t splits) {
  k_ = g_.reads_ab() ? g_.k : 0;
  const int64_t bk = unit_row_bytes / layouts_.bytes;
  k_share_ = tiles(tiles(k_, bk), splits) * bk;
  cl_mem c = copy_of("c");
  // Arguments that the kernel does not read still need a buffer.
  a_ = k_ == 0 ? c : operand(lay_a_, copy_of("a"), layouts_.a, g_.m, !g_.trans_a, false);
  b_ = k_ == 0 ? c : operand_b(constants);
  parts_ = c;
  if (splits == 1) return;
  parts_ = workspace(static_cast<std::size_t>(unit_parts_bytes(splits, g_)));
  add_ = kernel(source_.c_str(), options_, "add_parts");
  add_.set_args(context(), parts_, as_cl_int(g_.batch), as_cl_int(g_.m), as_cl_int(g_.n));
  add_output(add_);
  constexpr int64_t items = 128;
  add_size_ = {static_cast<std::size_t>(tiles(g_.batch * g_.m * g_.n, items)),
               static_cast<std::size_t>(items)};
}

void UnitPlan::add_output(opencl::KernelCall& call) {
  add_output_args(
      call, context(), g_, [this](const char* tensor) { return copy_of(tensor); }, copy_of("c"));
}

// The operand as tiles are copied from it; prepares the kernel that lays it out where needed.
cl_mem UnitPlan::operand(Lay& lay, cl_mem from, const UnitLayout& to, int64_t rows, bool deep,
                         bool is_constant) {
  if (!to.laid) return from;
  const auto bytes = static_cast<std::size_t>(g_.batch * rows * to.ld);
  cl_mem memory = is_constant ? packed(bytes) : workspace(bytes);
  lay.call = kernel(source_.c_str(), options_, "rearrange");
  const int64_t ld = to.ld / layouts_.bytes;
  lay.call.set_args(context(), from, memory, as_cl_int(rows), as_cl_int(g_.k), as_cl_int(ld),
                    as_cl_int(deep ? g_.k : 1), as_cl_int(deep ? 1 : rows),
                    as_cl_int(tiles(rows, 64)), as_cl_int(tiles(ld, 64)));
  lay.size = {static_cast<std::size_t>(g_.batch * tiles(rows, 64) * tiles(ld, 64)), 256};
  return memory;
}

cl_mem UnitPlan::operand_b(const Operands& constants) {
  if (!g_.prepack) return operand(lay_b_, copy_of("b"), layouts_.b, g_.b_cols(), g_.trans_b, false);
  if (!layouts_.b.laid) return copy_of("b", constants);
  const View& view = constants.at("b");
  const opencl::DeviceBuffer plain(context(), view.dtype->bytes(view.elements()));
  write_now(plain.get(), view);
  Lay once;
  cl_mem memory = operand(once, plain.get(), layouts_.b, g_.b_cols(), g_.trans_b, true);
  launch(once.call, once.size);
  wait_now();
  return memory;
}

void UnitPlan::enqueue() {
  launch(lay_a_.call, lay_a_.size);
  launch(lay_b_.call, lay_b_.size);
  multiply();
  launch(add_, add_size_);
}

}  // namespace rooflane::gemm
