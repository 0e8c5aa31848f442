// The gemm record and its double-precision reference: plain sums in double, and a Freivalds product
// over a whole output. Not a variant and never timed. Next: scalar.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/kernel.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/gemm/epilogue_reference.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/reference.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr DType a_types[] = {&float32, &float16, &bfloat16, &int8, &uint8};
constexpr DType b_types[] = {&float32, &float16, &bfloat16, &int8,
                             &q8_0,    &q4_0,    &q4_1,     &int8_per_channel};
constexpr DType c_types[] = {&float32, &float16, &bfloat16, &int32};

constexpr ParamSpec params[] = {
    {.name = "m", .kind = ParamKind::size, .required = true},
    {.name = "n", .kind = ParamKind::size, .required = true},
    {.name = "k", .kind = ParamKind::size, .required = true},
    {.name = "batch", .kind = ParamKind::size, .default_value = 1},
    {.name = "trans_a", .kind = ParamKind::flag},
    {.name = "trans_b", .kind = ParamKind::flag},
    {.name = "alpha", .kind = ParamKind::real, .default_value = 1},
    {.name = "beta", .kind = ParamKind::real},
    {.name = "prepack", .kind = ParamKind::flag},
    {.name = "a_type", .kind = ParamKind::choice, .dtypes = a_types},
    {.name = "b_type", .kind = ParamKind::choice, .dtypes = b_types},
    {.name = "c_type", .kind = ParamKind::choice, .dtypes = c_types},
    {.name = "epilogue", .kind = ParamKind::chain, .words = Epilogue::names},
    {.name = "slope", .kind = ParamKind::real, .default_value = 0.01},
    {.name = "low", .kind = ParamKind::real},
    {.name = "high", .kind = ParamKind::real, .default_value = 6},
    {.name = "gate", .kind = ParamKind::flag},
};

constexpr const Math* maths[] = {
    &fp32,      &math_3xtf32,       &math_bf16,       &math_f16,
    &math_int8, &math_int8_dynamic, &math_int8_block, &math_int8_tensor};

// So that alpha times a sum of k products stays within c's format, though all have one sign; with
// gate=1 the product of two such sums does. What an epilogue adds stays far below.
int reach_of(const Problem& problem) {
  const auto binades = [](double factor) {
    return factor > 1 ? static_cast<int>(std::ceil(std::log2(factor))) : 0;
  };
  const bool gate = problem.flag("gate");
  const int of_sum = std::ilogb(problem.dtype("c_type")->largest) / (gate ? 2 : 1);
  // Tensors are also asked for to find k.
  const double k = problem.has("k") ? static_cast<double>(problem.size("k")) : 1;
  const int of_factors = binades(k) + binades(std::fabs(problem.value("alpha")));
  return std::clamp((of_sum - of_factors) / 2, 0, gate ? 20 : 48);
}

std::vector<TensorSpec> tensors(const Problem& problem) {
  const Epilogue epilogue(problem);
  const Role role_of_b = problem.flag("prepack") ? Role::constant : Role::input;
  const DType c_type = problem.dtype("c_type");
  std::vector<TensorSpec> list;
  const auto add = [&](const char* name, Role role, const char* rows, const char* cols, DType type,
                       bool transposed = false) {
    if (transposed) std::swap(rows, cols);
    list.push_back({.name = name,
                    .role = role,
                    .axes = {{"batch", Axis::Form::droppable}, {rows}, {cols}},
                    .dtype = type,
                    .reach = reach_of(problem)});
  };
  add("a", Role::input, "m", "k", problem.dtype("a_type"), problem.flag("trans_a"));
  add("b", role_of_b, "k", "n", problem.dtype("b_type"), problem.flag("trans_b"));
  if (problem.flag("gate")) list.back().axes[problem.flag("trans_b") ? 1 : 2].times = 2;
  if (problem.dtype("b_type") == &int8_per_channel) {
    list.push_back({.name = "b_scale",
                    .role = role_of_b,
                    .axes = {{"n"}},
                    .seed_scale = 1.0 / 127,
                    .reach = 0});
  }
  if (problem.value("beta") != 0) add("c0", Role::input, "m", "n", c_type);
  if (epilogue.has(Epilogue::Op::bias)) {
    list.push_back({.name = "bias", .role = Role::input, .axes = {{"n"}}, .reach = 0});
  }
  if (epilogue.has(Epilogue::Op::add)) add("residual", Role::input, "m", "n", c_type);
  add("c", Role::output, "m", "n", c_type);
  list.back().like = "a";
  return list;
}

// The longest sums of products that no int32 overflows: those of the largest magnitudes.
int64_t longest_integer_sum(double largest_of_a) {
  return static_cast<int64_t>(int32.largest / (largest_of_a * -int8.least));
}

void check_integers(const Problem& problem, DType a, DType b) {
  const auto fail = [](const std::string& text) { throw argument_error(text); };
  if (a->is_integer() && b != &int8) {
    fail(fmt::format("a_type={}: b_type={}, allowed with it is s8", a->short_name, b->short_name));
  }
  if (b == &int8 && !a->is_integer()) {
    fail(
        fmt::format("b_type=s8: a_type={}, allowed with it are s8, u8; integers that stand for "
                    "real numbers are b_type=s8c",
                    a->short_name));
  }
  if (problem.value("alpha") != 1) {
    fail(fmt::format("alpha={}: integers need alpha=1", problem.value("alpha")));
  }
  if (problem.value("beta") != 0) {
    fail(fmt::format("beta={}: integers need beta=0", problem.value("beta")));
  }
  const int64_t most = longest_integer_sum(std::max(a->largest, -a->least));
  if (problem.size("k") > most) {
    fail(fmt::format("k={}: sums of {} times s8 fit in s32 up to k={}", problem.size("k"),
                     a->short_name, most));
  }
}

// Where what follows the product has a meaning.
void check_following(const Problem& problem, bool integers, DType b) {
  check_epilogue(problem);
  const std::string epilogue = epilogue_text(problem);
  if (epilogue.empty()) return;
  if (integers) throw argument_error(epilogue + ": integers have none, c is their exact product");
  if (problem.flag("gate") && b == &int8_per_channel) {
    throw argument_error("gate=1 with b_type=s8c: b_scale has a value for each of n columns alone");
  }
}

void check(const Problem& problem) {
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type");
  const DType c = problem.dtype("c_type");
  const bool integers = a->is_integer() || b == &int8;
  check_following(problem, integers, b);
  if (integers) check_integers(problem, a, b);
  if (integers != (c == &int32)) {
    throw argument_error(fmt::format("c_type={}: allowed with a_type={},b_type={} {}",
                                     c->short_name, a->short_name, b->short_name,
                                     integers ? "is s32" : "are f32, f16, bf16"));
  }
  if (b->block == 1) return;
  if (!problem.flag("trans_b")) {
    throw argument_error(fmt::format(
        "trans_b=0: b_type={} stores blocks along k and needs trans_b=1", b->short_name));
  }
  if (problem.size("k") % b->block != 0) {
    throw argument_error(fmt::format("k={}: b_type={} needs a multiple of {}", problem.size("k"),
                                     b->short_name, b->block));
  }
}

std::optional<std::string> defect_of_math(const Problem& problem, const Math& math) {
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type");
  const bool integers = a->is_integer();
  const auto needs = [&](const char* what) {
    return fmt::format("math {} needs {}, not a_type={},b_type={}", math.name, what, a->short_name,
                       b->short_name);
  };
  if (&math == &math_int8) {
    return integers ? std::nullopt : std::optional(needs("a_type=s8 or u8 and b_type=s8"));
  }
  if (integers) return needs("float operands");
  if (&math == &math_int8_dynamic && !is_quantised(b)) {
    return needs("b_type=s8c, q8_0, q4_0 or q4_1");
  }
  if (&math == &math_int8_block && b->block == 1) return needs("b_type=q8_0, q4_0 or q4_1");
  const bool of_tensor = &math == &math_int8_tensor;
  if (of_tensor && b != &int8_per_channel) return needs("b_type=s8c");
  if (of_tensor || (&math == &math_int8_dynamic && b == &int8_per_channel)) {
    // Rows become integers of magnitude 127 at most, whole tensors bytes.
    const int64_t most = longest_integer_sum(of_tensor ? uint8.largest : 127);
    if (problem.size("k") > most) {
      return fmt::format("math {}: k={}, its sums of integers fit in s32 up to k={}", math.name,
                         problem.size("k"), most);
    }
  }
  if (&math == &math_3xtf32 && (a != &float32 || b != &float32)) {
    return needs("a_type=f32 and b_type=f32");
  }
  return std::nullopt;
}

// Every flop is half of a multiply-add; alpha, beta and the epilogue's sums and products, O(m·n),
// are left out of all counts.
Cost cost(const Problem& problem) {
  const double m = static_cast<double>(problem.size("m"));
  const double n = static_cast<double>(problem.size("n"));
  const double k = static_cast<double>(problem.size("k"));
  const double batch = static_cast<double>(problem.size("batch"));
  const bool gate = problem.flag("gate");
  const double flops = 2 * batch * m * n * k * (gate ? 2 : 1);
  return {.flops = flops,
          .exps = batch * m * n * (gate ? 1 : exps_of(Epilogue(problem))),
          .bytes = traffic_bytes(problem),
          .fma_flops = flops};
}

}  // namespace

BoundFactors::BoundFactors(const Problem& problem, const Math& math) {
  const auto k = static_cast<double>(problem.size("k"));
  start = (8 + std::sqrt(k)) * math.sums->unit_roundoff;
  plain = plain_sum_error(k, math.sums->unit_roundoff);
  products = start;
  // Half of the smallest number for each product and each sum, times alpha, and for each of c's.
  below = math.sums->is_integer()
              ? 0
              : (std::fabs(problem.value("alpha")) * k + 2) * math.sums->smallest;
  for (const char* const type : {"a_type", "b_type"}) {
    if (problem.dtype(type) != math.operands) products += math.operand_roundoff;
  }
  // llama.cpp multiplies q4_1's minimum by a block's sum that it has rounded to float16.
  if (&math == &math_int8_block && problem.dtype("b_type") == &q4_1) {
    products += float16.unit_roundoff;
  }
}

namespace {

// Sums for up to 4 rows of op(a) against 64 gathered columns: two rows of accumulators in L1 each.
constexpr int64_t col_block = 64;
constexpr int64_t row_block = 4;

// The chosen columns of op(b), [k,width], gathered once for all rows of a task.
struct Columns {
  Columns(const Factors& f, const Region& region, int64_t batch, int64_t j0, int64_t j1)
      : width(j1 - j0),
        values(static_cast<std::size_t>(f.g.k * width)),
        extents(static_cast<std::size_t>(width)) {
    const float* from = f.b.f32() + batch * f.b.batch_stride;
    for (int64_t p = 0; p < f.g.k; ++p) {
      for (int64_t j = 0; j < width; ++j) {
        const double value = f.b_at(from, p, region.cols[j0 + j]);
        values[p * width + j] = value;
        extents[j].note(value);
      }
    }
  }
  int64_t width;
  std::vector<double> values;
  std::vector<Extent> extents;
};

// Sums for some rows of op(a) against a block of columns.
struct BlockSums {
  RowOfA rows[row_block];
  double sum[row_block][col_block];
  double magnitude[row_block][col_block];

  // Rows [r, r+count) of the region, all of one batch.
  void multiply(const Factors& f, const Region& region, int64_t r, int64_t count,
                const Columns& columns) {
    const int64_t batch = region.rows[r] / f.g.m;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = region.rows[r + i] % f.g.m;
      rows[i].read(f, f.a.f32() + batch * f.a.batch_stride + row * f.a.outer);
      std::fill_n(sum[i], columns.width, 0.0);
      std::fill_n(magnitude[i], columns.width, 0.0);
    }
    for (int64_t p = 0; p < f.g.k; ++p) {
      const double* column = &columns.values[p * columns.width];
      for (int64_t i = 0; i < count; ++i) {
        const double x = rows[i].values[p];
        for (int64_t j = 0; j < columns.width; ++j) {
          const double product = x * column[j];
          sum[i][j] += product;
          magnitude[i][j] += std::fabs(product);
        }
      }
    }
  }
};

// One task: rows[r0,r1) (all of one batch) × cols[j0,j1). `out.plain_bound` collects what does not
// depend on the magnitude of products.
void reference_block(const Factors& f, const Region& region, int64_t r0, int64_t r1, int64_t j0,
                     int64_t j1, const ReferenceOut& out) {
  const Gemm& g = f.g;
  const int64_t total_cols = static_cast<int64_t>(region.cols.size());
  const Columns columns(f, region, region.rows[r0] / g.m, j0, j1);
  const double alpha = std::fabs(g.alpha);
  BlockSums sums;
  for (int64_t r = r0; r < r1; r += row_block) {
    const int64_t rows = std::min(row_block, r1 - r);
    sums.multiply(f, region, r, rows, columns);
    for (int64_t i = 0; i < rows; ++i) {
      const RowOfA& row = sums.rows[i];
      for (int64_t j = 0; j < columns.width; ++j) {
        const int64_t at = (r + i) * total_cols + j0 + j;
        out.value[at] += g.alpha * sums.sum[i][j];
        out.bound[at] += alpha * sums.magnitude[i][j];
        if (!f.errors.any()) continue;
        const double doubt =
            row.doubt([&](int64_t p) { return std::fabs(columns.values[p * columns.width + j]); });
        out.plain_bound[at] +=
            alpha * (doubt + f.errors.of(static_cast<double>(g.k), row.extent, columns.extents[j]));
      }
    }
  }
}

// value = alpha·op(a)·op(b), the sums of its magnitudes in `bound`, and in `plain_bound` errors
// that do not depend on those. Memory: 64 gathered columns per thread.
void products_part(const Factors& factors, const Region& region, const ReferenceOut& out) {
  const Gemm& g = factors.g;
  const int64_t rows = static_cast<int64_t>(region.rows.size());
  const int64_t cols = static_cast<int64_t>(region.cols.size());
  constexpr int64_t together = 512;  // rows: gathering columns costs 1/512 of the sums
  const int64_t col_tasks = (cols + col_block - 1) / col_block;
  parallel_for(nullptr, machine().physical_cores, (rows + together - 1) / together * col_tasks,
               [&](int64_t task, int) {
                 const int64_t j0 = task % col_tasks * col_block;
                 const int64_t last = std::min(rows, (task / col_tasks + 1) * together);
                 int64_t first = task / col_tasks * together;
                 for (int64_t r = first + 1; first < last; ++r) {
                   if (r < last && region.rows[r] / g.m == region.rows[first] / g.m) continue;
                   reference_block(factors, region, first, r, j0, std::min(cols, j0 + col_block),
                                   out);
                   first = r;
                 }
               });
}

// value = alpha·op(a)·op(b) + beta·c0 and its bounds, in double, for region.rows × region.cols;
// rows count over batch·m.
void linear_part(const Problem& problem, const Gemm& g, const Math& math, const Operands& inputs,
                 const MatrixView& b, const Region& region, const ReferenceOut& out) {
  const std::size_t rows = region.rows.size(), cols = region.cols.size();
  for (double* const zeros : {out.value, out.bound, out.plain_bound}) {
    std::fill_n(zeros, rows * cols, 0.0);
  }
  if (g.reads_ab()) products_part(Factors(problem, g, math, inputs, b), region, out);
  const BoundFactors factors(problem, math);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* c0 = nullptr;
    if (g.reads_c0()) {
      c0 = const_matrix(inputs.at("c0")).row(region.rows[r] / g.m, region.rows[r] % g.m);
    }
    for (std::size_t j = 0; j < cols; ++j) {
      const std::size_t at = r * cols + j;
      const double start = c0 != nullptr ? double{g.beta} * c0[region.cols[j]] : 0.0;
      const double products = out.bound[at], magnitudes = products + std::fabs(start);
      out.value[at] += start;
      out.bound[at] = products * factors.products + std::fabs(start) * factors.start +
                      out.plain_bound[at] + factors.below;
      out.plain_bound[at] = out.bound[at] + magnitudes * factors.plain;
    }
  }
}

// Products of float16 numbers need operands in their range.
std::optional<std::string> defect_of_distribution(const Problem& problem, const Math& math,
                                                  const Distribution& distribution) {
  if (&math != &math_f16) return std::nullopt;
  const std::string_view name = distribution.name;
  if (name != "wide" && name != "constant" && name != "denormals") return std::nullopt;
  for (const char* const type : {"a_type", "b_type"}) {
    const DType stored = problem.dtype(type);
    if (stored != &float32 && stored != &bfloat16) continue;
    return fmt::format("math f16 rounds {}={} to float16, which holds 2^-14 to 2^16", type,
                       stored->short_name);
  }
  return std::nullopt;
}

// c and its bounds for a region: of the linear part, through the epilogue.
void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Gemm g(problem);
  const std::size_t cols = region.cols.size(), count = region.rows.size() * cols;
  if (count == 0) return;
  const View& b = inputs.at("b");
  linear_part(problem, g, math, inputs, view_of_b(g, b), region, out);
  const double u = math.sums->unit_roundoff;
  const auto store = [&](std::size_t at, const common::Expected& c) {
    out.value[at] = c.value, out.bound[at] = c.bound, out.plain_bound[at] = c.plain_bound;
  };
  const auto linear = [&](std::size_t at) {
    return common::Expected{out.value[at], out.bound[at], out.plain_bound[at]};
  };
  if (g.gate) {
    std::vector<double> value(count), bound(count), plain(count);
    linear_part(problem, g, math, inputs, view_of_b(g, half_of_b(b, g.trans_b, 1)), region,
                {value.data(), bound.data(), plain.data()});
    for (std::size_t at = 0; at < count; ++at) {
      store(at, gated(linear(at), {value[at], bound[at], plain[at]}, u));
    }
    return;
  }
  if (g.epilogue.empty()) return;
  const float* bias = g.epilogue.has(Epilogue::Op::bias) ? inputs.at("bias").f32() : nullptr;
  for (std::size_t at = 0; at < count; ++at) {
    const int64_t row = region.rows[at / cols], col = region.cols[at % cols];
    EpilogueOperands operands;
    if (bias != nullptr) operands.bias = bias[col];
    if (g.epilogue.has(Epilogue::Op::add)) {
      operands.residual = const_matrix(inputs.at("residual")).row(row / g.m, row % g.m)[col];
    }
    store(at, with_epilogue(g.epilogue, operands, linear(at), u));
  }
}

}  // namespace

const Kernel kernel = {
    .name = "gemm",
    .summary = "c = alpha·op(a)·op(b) + beta·c0, with epilogue= and gate= what follows it",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .maths = maths,
    .distribution_defect = defect_of_distribution,
    .math_defect = defect_of_math,
    .columns_are_cheap = true,
    .whole_check = whole_check,
    .whole_check_applies = whole_check_applies};

}  // namespace rooflane::gemm
