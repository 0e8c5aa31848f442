// See opencl_plans.hpp.
#include "kernels/gemm/opencl_plans.hpp"

#include <fmt/format.h>

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t piece = 16;  // bytes of a copy

// `period`: rows that are apart begin at multiples of it (with gate=1 of n). block > 0: both parts
// of 16 steps of k at a time, whole tiles.
Layout unit_layout(int64_t rows, int64_t period, int64_t k, bool deep, int64_t bytes,
                   int64_t block) {
  const auto whole = [&](int64_t count) { return count * bytes % piece == 0; };
  if (block > 0) return {false, true, tiles(rows, block) * block, k, tiles(k, 16) * 32, block};
  if (deep && whole(k)) return {false, false, rows, k, k};
  if (!deep && bytes > 1 && whole(rows) && whole(period)) return {true, false, rows, k, rows};
  return {false, true, rows, k, tiles(k * bytes, piece) * piece / bytes};
}

}  // namespace

double Layouts::laid_bytes(const Gemm& g, bool of_run) const {
  const int64_t elements =
      (a.laid ? a.elements() : 0) + (b.laid && !(of_run && g.prepack) ? b.elements() : 0);
  return static_cast<double>(bytes) * static_cast<double>(g.batch) * static_cast<double>(elements);
}

double Layouts::lay_ns(const Gemm& g, const GpuModel& gpu, double moved) const {
  const int launches = (a.laid ? 1 : 0) + (b.laid && !g.prepack ? 1 : 0);
  return launches * gpu.launch_ns + moved * laid_bytes(g, true) / gpu.bytes_per_ns;
}

Layouts unit_layouts(const Task& task, int64_t pack_a, int64_t pack_b) {
  const Gemm& g = task.g;
  const auto bytes = static_cast<int64_t>(size_of(task.a));
  return {unit_layout(g.m, g.m, g.k, !g.trans_a, bytes, pack_a),
          unit_layout(g.b_cols(), g.n, g.k, g.trans_b, bytes, pack_b), bytes};
}

bool has_unit_math(const Task& task) {
  const std::string_view math = task.env.math;
  return math == math_3xtf32.name || math == math_f16.name || math == math_bf16.name ||
         (math == math_int8.name && task.c == &int32);
}

double unit_ns(const Task& task, double compute_ns, const Layouts& layouts, int64_t splits) {
  const GpuModel gpu(task.device.info);
  const double split_ns =
      splits > 1 ? gpu.launch_ns + 2 * task.parts_bytes(splits) / gpu.bytes_per_ns : 0;
  return std::max(compute_ns, gpu.least_ns(task)) + gpu.launch_ns + split_ns +
         layouts.lay_ns(task.g, gpu, 2);
}

GemmPlan::GemmPlan(const Task& task, const Tuning& tuning)
    : DevicePlan(task.problem, tuning, task.env), g_(task.g) {}

cl_mem GemmPlan::operand(const char* tensor, const Operands& constants) {
  return g_.reads_ab() ? copy_of(tensor, constants) : copy_of("c");
}

void GemmPlan::add_output(opencl::KernelCall& call) {
  cl_mem c = copy_of("c");
  call.add_args(context(), g_.reads_c0() ? copy_of("c0") : c, c, cl_float{g_.alpha},
                cl_float{g_.beta}, g_.epilogue.has(Epilogue::Op::bias) ? copy_of("bias") : c,
                g_.epilogue.has(Epilogue::Op::add) ? copy_of("residual") : c);
}

cl_mem GemmPlan::laid_out(const char* tensor, const Operands& constants, const Layout& layout,
                          int64_t bytes, const char* source, const std::string& options) {
  if (!layout.laid || !g_.reads_ab()) return operand(tensor, constants);
  const bool is_b = std::string_view(tensor) == "b";
  const bool is_constant = is_b && g_.prepack;
  const auto memory_bytes = static_cast<std::size_t>(g_.batch * layout.elements() * bytes);
  cl_mem memory = is_constant ? packed(memory_bytes) : workspace(memory_bytes);
  opencl::DeviceBuffer plain;
  if (is_constant) {
    const View& view = constants.at(tensor);
    plain = opencl::DeviceBuffer(context(), view.dtype->bytes(view.elements()));
    write_now(plain.get(), view);
  }
  // Element (y, x) of a matrix of the batch is at y·outer + x·inner; ys and xs of them exist.
  const int64_t rows = is_b ? g_.b_cols() : g_.m;
  const bool is_deep = is_b ? g_.trans_b : !g_.trans_a;
  const int64_t of_row = is_deep ? g_.k : 1;
  const int64_t of_k = is_deep ? 1 : rows;
  const int64_t ys_to = layout.wide ? layout.k : layout.rows;
  constexpr int64_t side = 64;
  const int64_t y_tiles = tiles(ys_to, side);
  const int64_t x_tiles = tiles(layout.ld / (layout.block > 0 ? 2 : 1), side);
  opencl::KernelCall call = kernel(source, options, "rearrange");
  call.set_args(context(), is_constant ? plain.get() : copy_of(tensor), memory);
  add_sizes(call, layout.wide ? g_.k : rows, layout.wide ? rows : g_.k, ys_to, layout.ld,
            layout.block, layout.wide ? of_k : of_row, layout.wide ? of_row : of_k, y_tiles,
            x_tiles);
  const int64_t groups = g_.batch * y_tiles * x_tiles;
  constexpr int64_t items = 256;
  if (is_constant) {
    launch(call, {static_cast<std::size_t>(groups), items});
    wait_now();
  } else {
    add_step(std::move(call), groups, items);
  }
  return memory;
}

UnitPlan::UnitPlan(const Task& task, const Tuning& tuning, const Layouts& layouts,
                   std::string source)
    : GemmPlan(task, tuning),
      layouts_(layouts),
      source_(std::move(source)),
      options_(
          fmt::format("-DTYPE={} -DTRANS_A={:d} -DTRANS_B={:d} -DA_WIDE={:d} -DB_WIDE={:d}{}{}",
                      number_of(task.a), g_.trans_a, g_.trans_b, layouts_.a.wide, layouts_.b.wide,
                      opencl::defines(tuning), output_options(task))) {}

void UnitPlan::prepare(const Task& task, const Operands& constants, int64_t splits) {
  k_ = g_.reads_ab() ? g_.k : 0;
  const int64_t bk = unit_row_bytes / layouts_.step_bytes();
  k_share_ = tiles(tiles(k_, bk), splits) * bk;
  a_ = laid_out("a", constants, layouts_.a, layouts_.bytes, source_.c_str(), options_);
  b_ = laid_out("b", constants, layouts_.b, layouts_.bytes, source_.c_str(), options_);
  if (is_3xtf32()) {
    strict_a_ = operand("a", constants);
    strict_b_ = operand("b", constants);
  }
  parts_ =
      splits == 1 ? copy_of("c") : workspace(static_cast<std::size_t>(task.parts_bytes(splits)));
}

void UnitPlan::add_up(int64_t splits) {
  if (splits == 1) return;
  opencl::KernelCall call = kernel(source_.c_str(), options_, "add_parts");
  call.set_args(context(), parts_);
  add_sizes(call, g_.batch, g_.m, g_.n, k_);
  add_last(call);
  constexpr int64_t items = 128;
  add_step(std::move(call), tiles(g_.batch * g_.m * g_.n, items), items);
}

void UnitPlan::add_last(opencl::KernelCall& call) {
  if (is_3xtf32()) call.add_args(context(), strict_a_, strict_b_);
  add_output(call);
}

}  // namespace rooflane::gemm
