// The gemm record and its double-precision reference: plain sums in double, and a Freivalds product
// over a whole output. Not a variant and never timed. Next: scalar.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/kernel.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/gemm/gemm.hpp"

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
};

constexpr const Math* maths[] = {&fp32,     &math_3xtf32, &math_bf16,
                                 &math_f16, &math_int8,   &math_int8_dynamic};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const Axis batch{"batch", Axis::Form::droppable};
  const auto matrix_axes = [&](bool swapped, const char* rows, const char* cols) {
    return swapped ? std::vector<Axis>{batch, {cols}, {rows}}
                   : std::vector<Axis>{batch, {rows}, {cols}};
  };
  std::vector<TensorSpec> list;
  list.push_back({.name = "a",
                  .role = Role::input,
                  .axes = matrix_axes(problem.flag("trans_a"), "m", "k"),
                  .dtype = problem.dtype("a_type")});
  list.push_back({.name = "b",
                  .role = problem.flag("prepack") ? Role::constant : Role::input,
                  .axes = matrix_axes(problem.flag("trans_b"), "k", "n"),
                  .dtype = problem.dtype("b_type")});
  if (problem.dtype("b_type") == &int8_per_channel) {
    list.push_back({.name = "b_scale",
                    .role = problem.flag("prepack") ? Role::constant : Role::input,
                    .axes = {{"n"}},
                    .seed_scale = 1.0 / 127});
  }
  if (problem.value("beta") != 0) {
    list.push_back({.name = "c0",
                    .role = Role::input,
                    .axes = matrix_axes(false, "m", "n"),
                    .dtype = problem.dtype("c_type")});
  }
  list.push_back({.name = "c",
                  .role = Role::output,
                  .axes = matrix_axes(false, "m", "n"),
                  .dtype = problem.dtype("c_type"),
                  .like = "a"});
  return list;
}

// The longest sums of products that no int32 overflows: those of the largest magnitudes.
int64_t longest_integer_sum(DType a) {
  const double product = std::max(a->largest, -a->least) * 128;
  return static_cast<int64_t>(int32.largest / product);
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
  const int64_t most = longest_integer_sum(a);
  if (problem.size("k") > most) {
    fail(fmt::format("k={}: sums of {} times s8 fit in s32 up to k={}", problem.size("k"),
                     a->short_name, most));
  }
}

void check(const Problem& problem) {
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type");
  const DType c = problem.dtype("c_type");
  const bool integers = a->is_integer() || b == &int8;
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
  if (&math == &math_int8_dynamic && b != &int8_per_channel) return needs("b_type=s8c");
  if (&math == &math_3xtf32 && (a != &float32 || b != &float32)) {
    return needs("a_type=f32 and b_type=f32");
  }
  return std::nullopt;
}

// Every flop is half of a multiply-add; alpha and beta, O(m·n), are left out of all counts.
Cost cost(const Problem& problem) {
  const double m = static_cast<double>(problem.size("m"));
  const double n = static_cast<double>(problem.size("n"));
  const double k = static_cast<double>(problem.size("k"));
  const double batch = static_cast<double>(problem.size("batch"));
  const double flops = 2 * batch * m * n * k;
  return {.flops = flops, .exps = 0, .bytes = traffic_bytes(problem), .fma_flops = flops};
}

// What the element's error bound holds of the sum of magnitudes: rounding of operands to what the
// math multiplies, and of the sum.
double bound_factor(const Problem& problem, const Math& math) {
  double factor = 0;
  for (const char* const type : {"a_type", "b_type"}) {
    if (problem.dtype(type) != math.operands) factor += math.operand_roundoff;
  }
  return factor +
         (8 + std::sqrt(static_cast<double>(problem.size("k")))) * math.sums->unit_roundoff;
}

// Magnitudes of a row of op(a), or of a column of op(b).
struct Extent {
  double sum = 0, largest = 0;
  void note(double value) {
    const double magnitude = std::fabs(value);
    sum += magnitude;
    if (!(magnitude <= largest)) largest = magnitude;  // NaN stays
  }
};

// Errors that are not relative to products: what counts as zero, and steps of quantised rows.
struct AbsoluteErrors {
  explicit AbsoluteErrors(const Math& math)
      : flushed(math.flushed), step(&math == &math_int8_dynamic ? half_a_step : 0) {}
  bool any() const { return flushed > 0 || step > 0; }
  double of(double k, const Extent& row, const Extent& column) const {
    const double small = flushed > 0 ? flushed * (2 * k + row.sum + column.sum) : 0;
    return small + (step > 0 ? (step * row.largest + smallest_row) * column.sum : 0);
  }
  // Of the row's largest element; quotients may fall on the other side of a tie.
  static constexpr double half_a_step = (0.5 + 0x1p-10) / 127;
  // Rows below may be taken for zeros: the inverse of their step is beyond float32.
  static constexpr double smallest_row = 0x1p-119;
  double flushed, step;
};

// The operands of a reference, as float32 but for scales.
struct Factors {
  Factors(const Gemm& gemm, const Math& with, const Operands& inputs)
      : g(gemm), errors(with), a(side_a(gemm, inputs.at("a"))), b(side_b(gemm, inputs.at("b"))) {
    if (inputs.has("b_scale")) scale = inputs.at("b_scale").f32();
  }
  double b_at(const float* from, int64_t p, int64_t j) const {
    const double value = from[p * b.inner + j * b.outer];
    return scale != nullptr ? value * scale[j] : value;
  }
  const Gemm& g;
  AbsoluteErrors errors;
  Side a, b;
  const float* scale = nullptr;
};

// Sums for up to 4 rows of op(a) against 64 gathered columns: two rows of accumulators in L1 each.
constexpr int64_t col_block = 64;
constexpr int64_t row_block = 4;

// The chosen columns of op(b), [k,width], gathered once for all rows of a task.
struct Columns {
  Columns(const Factors& f, const Region& region, int64_t batch, int64_t j0, int64_t j1)
      : width(j1 - j0),
        values(static_cast<std::size_t>(f.g.k * width)),
        extents(static_cast<std::size_t>(width)) {
    const float* from = f.b.data + batch * f.b.batch_stride;
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

// One task: rows[r0,r1) (all of one batch) × cols[j0,j1). `out.plain_bound` collects what does not
// depend on the magnitude of products.
void reference_block(const Factors& f, const Region& region, int64_t r0, int64_t r1, int64_t j0,
                     int64_t j1, const ReferenceOut& out) {
  const Gemm& g = f.g;
  const int64_t batch = region.rows[r0] / g.m;
  const int64_t total_cols = static_cast<int64_t>(region.cols.size());
  const Columns columns(f, region, batch, j0, j1);
  const int64_t width = columns.width;
  double sum[row_block][col_block];
  double magnitude[row_block][col_block];
  for (int64_t r = r0; r < r1; r += row_block) {
    const int64_t rows = std::min(row_block, r1 - r);
    Extent extents[row_block];
    for (int64_t i = 0; i < rows; ++i) {
      std::fill_n(sum[i], width, 0.0);
      std::fill_n(magnitude[i], width, 0.0);
    }
    for (int64_t p = 0; p < g.k; ++p) {
      const double* column = &columns.values[p * width];
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = region.rows[r + i] % g.m;
        const double x = f.a.data[batch * f.a.batch_stride + row * f.a.outer + p * f.a.inner];
        extents[i].note(x);
        for (int64_t j = 0; j < width; ++j) {
          const double product = x * column[j];
          sum[i][j] += product;
          magnitude[i][j] += std::fabs(product);
        }
      }
    }
    const double alpha = std::fabs(g.alpha);
    for (int64_t i = 0; i < rows; ++i) {
      const bool spoiled = f.errors.step > 0 && !std::isfinite(extents[i].largest);
      for (int64_t j = 0; j < width; ++j) {
        const int64_t at = (r + i) * total_cols + j0 + j;
        out.value[at] += g.alpha * (spoiled ? std::nan("") : sum[i][j]);
        out.bound[at] += alpha * magnitude[i][j];
        if (!f.errors.any()) continue;
        const auto k = static_cast<double>(g.k);
        out.plain_bound[at] += alpha * f.errors.of(k, extents[i], columns.extents[j]);
      }
    }
  }
}

// value = alpha·op(a)·op(b) + beta·c0 and its bounds, in double, for region.rows × region.cols;
// rows count over batch·m. Memory: 64 gathered columns per thread.
void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const auto [value, bound, plain_bound] = out;
  const Gemm g(problem);
  const int64_t rows = static_cast<int64_t>(region.rows.size());
  const int64_t cols = static_cast<int64_t>(region.cols.size());
  if (rows == 0 || cols == 0) return;

  for (int64_t r = 0; r < rows; ++r) {
    const float* c0 = nullptr;
    if (g.reads_c0()) {
      c0 = const_matrix(inputs.at("c0")).row(region.rows[r] / g.m, region.rows[r] % g.m);
    }
    for (int64_t j = 0; j < cols; ++j) {
      const double start = c0 != nullptr ? double{g.beta} * c0[region.cols[j]] : 0.0;
      value[r * cols + j] = start;
      bound[r * cols + j] = std::fabs(start);
      plain_bound[r * cols + j] = 0;
    }
  }

  if (g.reads_ab()) {
    const Factors factors(g, math, inputs);
    // Runs of rows of one batch, at most 512 rows: gathering costs 1/512 of the sums.
    struct Run {
      int64_t first, last;
    };
    std::vector<Run> runs;
    for (int64_t r = 0; r < rows; ++r) {
      const bool joins = !runs.empty() && r - runs.back().first < 512 &&
                         region.rows[runs.back().first] / g.m == region.rows[r] / g.m;
      if (joins) {
        runs.back().last = r + 1;
      } else {
        runs.push_back({r, r + 1});
      }
    }
    const int64_t col_tasks = (cols + col_block - 1) / col_block;
    parallel_for(nullptr, machine().physical_cores, static_cast<int64_t>(runs.size()) * col_tasks,
                 [&](int64_t task, int) {
                   const Run run = runs[task / col_tasks];
                   const int64_t j0 = task % col_tasks * col_block;
                   reference_block(factors, region, run.first, run.last, j0,
                                   std::min(cols, j0 + col_block), out);
                 });
  }
  const double factor = bound_factor(problem, math);
  const double plain = factor + plain_sum_error(static_cast<double>(g.k), math.sums->unit_roundoff);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const double absolute = plain_bound[i];
    plain_bound[i] = bound[i] * plain + absolute;
    bound[i] = bound[i] * factor + absolute;
  }
}

// Integers are exact, and so are their sums in double.
class WholeOutput {
 public:
  explicit WholeOutput(const View& view) : view_(view) {}
  double at(int64_t batch, int64_t i, int64_t j) const {
    const int64_t place = batch * view_.strides[0] + i * view_.strides[1] + j;
    if (view_.dtype == &int32) return view_.as<std::int32_t>()[place];
    return view_.f32()[place];
  }

 private:
  const View& view_;
};

// Freivalds (1977): with x of random signs, c·x must equal alpha·op(a)·(op(b)·x) + beta·c0·x, all
// in double, at a cost of n + k operations a row. The errors e_ij of a right output add up with
// random signs, so their sum has standard deviation at most sqrt(sum_j e_ij²); each |e_ij| is below
// its bound, and |A_i||B_j| <= ‖A_i‖·‖B_j‖, hence at most
//   (8 + sqrt(k)) · u · (|alpha| ‖A_i‖ ‖B‖_F + |beta| ‖c0_i‖);
// a row fails beyond 6 of these deviations. Rows whose expected product is not finite are skipped:
// the element-wise comparison and its scan judge those. Rounding c to its own format adds that of
// each element, by the same argument together ‖c_i‖ times its size.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const Gemm g(problem);
  if (g.empty()) return {};
  const Operands& inputs = operands;
  const WholeOutput c(operands.at("c"));
  constexpr double deviations = 6;
  const double factor = bound_factor(problem, math);
  const double plain = factor + plain_sum_error(static_cast<double>(g.k), math.sums->unit_roundoff);
  const DType type = problem.dtype("c_type");
  const double rounding = output_roundoff(type);
  const double smallest = type->is_integer() ? 0 : type->smallest;
  const AbsoluteErrors errors(math);
  std::vector<double> x(static_cast<std::size_t>(g.n));
  std::vector<double> y(static_cast<std::size_t>(g.k));
  std::vector<WholeError> worst_of_chunk;
  WholeError worst;
  const SeededStream signs(seed, "gemm", "freivalds");
  for (int64_t batch = 0; batch < g.batch; ++batch) {
    for (int64_t j = 0; j < g.n; ++j) {
      const auto index = static_cast<std::uint64_t>(batch * g.n + j);
      x[j] = signs.value(index) < 0 ? -1 : 1;
    }
    double norm_b = 0;
    Extent sums;  // of |op(b)·x|
    if (g.reads_ab()) {
      const Factors factors(g, math, inputs);
      const float* from = factors.b.data + batch * factors.b.batch_stride;
      std::fill(y.begin(), y.end(), 0.0);
      // Along memory: rows of b are its k axis or, transposed, its n axis.
      const auto visit = [&](int64_t p, int64_t j) {
        const double value = factors.b_at(from, p, j);
        y[p] += value * x[j];
        norm_b += value * value;
      };
      if (g.trans_b) {
        for (int64_t j = 0; j < g.n; ++j)
          for (int64_t p = 0; p < g.k; ++p) visit(p, j);
      } else {
        for (int64_t p = 0; p < g.k; ++p)
          for (int64_t j = 0; j < g.n; ++j) visit(p, j);
      }
      norm_b = std::sqrt(norm_b);
      for (const double value : y) sums.note(value);
    }
    constexpr int64_t chunk = 64;
    const int64_t chunks = (g.m + chunk - 1) / chunk;
    worst_of_chunk.assign(static_cast<std::size_t>(chunks), {});
    parallel_for(nullptr, machine().physical_cores, chunks, [&](int64_t task, int) {
      for (int64_t i = task * chunk; i < std::min(g.m, (task + 1) * chunk); ++i) {
        double expected = 0;
        double scale = 0;
        double absolute = 0;
        if (g.reads_ab()) {
          const Side a = side_a(g, inputs.at("a"));
          const float* from = a.data + batch * a.batch_stride + i * a.outer;
          double product = 0;
          double norm_a = 0;
          Extent row;
          for (int64_t p = 0; p < g.k; ++p) {
            const double value = from[p * a.inner];
            product += value * y[p];
            norm_a += value * value;
            row.note(value);
          }
          // Rows of n elements: of zeros n times as many, of steps what x leaves of op(b).
          const auto n = static_cast<double>(g.n);
          absolute = std::fabs(g.alpha) *
                     (errors.step > 0 ? errors.of(0, row, sums)
                                      : n * errors.of(static_cast<double>(g.k), row, sums));
          expected = g.alpha * product;
          scale = std::fabs(g.alpha) * std::sqrt(norm_a) * norm_b;
        }
        if (g.reads_c0()) {
          const float* c0 = const_matrix(inputs.at("c0")).row(batch, i);
          double sum = 0;
          double norm = 0;
          for (int64_t j = 0; j < g.n; ++j) {
            sum += c0[j] * x[j];
            norm += double{c0[j]} * c0[j];
          }
          expected += g.beta * sum;
          scale += std::fabs(g.beta) * std::sqrt(norm);
        }
        if (!std::isfinite(expected)) continue;
        double got = 0;
        double norm_c = 0;
        for (int64_t j = 0; j < g.n; ++j) {
          const double value = c.at(batch, i, j);
          got += value * x[j];
          norm_c += value * value;
        }
        const double error = std::fabs(got - expected);
        const double rounded =
            rounding * std::sqrt(norm_c) + smallest * std::sqrt(static_cast<double>(g.n));
        common::note_error(error, deviations * (factor * scale + rounded) + absolute,
                           deviations * (plain * scale + rounded) + absolute, worst_of_chunk[task]);
      }
    });
    for (const WholeError& chunk_worst : worst_of_chunk) {
      worst.over_bound = std::max(worst.over_bound, chunk_worst.over_bound);
      worst.over_plain_bound = std::max(worst.over_plain_bound, chunk_worst.over_plain_bound);
    }
  }
  return worst;
}

}  // namespace

const Kernel kernel = {.name = "gemm",
                       .summary = "c = alpha·op(a)·op(b) + beta·c0",
                       .params = params,
                       .tensors = tensors,
                       .cost = cost,
                       .check = check,
                       .reference = reference,
                       .maths = maths,
                       .math_defect = defect_of_math,
                       .columns_are_cheap = true,
                       .whole_check = whole_check};

}  // namespace rooflane::gemm
