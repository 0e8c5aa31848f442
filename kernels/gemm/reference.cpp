// The gemm record and its double-precision reference: plain sums in double, and a Freivalds product
// over a whole output. Not a variant and never timed. Next: scalar.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/kernel.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/gemm/epilogue_reference.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

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
    {.name = "a_type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "b_type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "c_type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "epilogue", .kind = ParamKind::chain, .words = Epilogue::names},
    {.name = "slope", .kind = ParamKind::real, .default_value = 0.01},
    {.name = "low", .kind = ParamKind::real},
    {.name = "high", .kind = ParamKind::real, .default_value = 6},
    {.name = "gate", .kind = ParamKind::flag},
};

std::vector<TensorSpec> tensors(const Problem& problem) {
  const Axis batch{"batch", Axis::Form::droppable};
  const auto matrix_axes = [&](bool swapped, const char* rows, const char* cols) {
    return swapped ? std::vector<Axis>{batch, {cols}, {rows}}
                   : std::vector<Axis>{batch, {rows}, {cols}};
  };
  const Epilogue epilogue(problem);
  std::vector<TensorSpec> list;
  list.push_back({.name = "a",
                  .role = Role::input,
                  .axes = matrix_axes(problem.flag("trans_a"), "m", "k"),
                  .dtype = problem.dtype("a_type")});
  list.push_back({.name = "b",
                  .role = problem.flag("prepack") ? Role::constant : Role::input,
                  .axes = matrix_axes(problem.flag("trans_b"), "k", "n"),
                  .dtype = problem.dtype("b_type")});
  if (problem.flag("gate")) list.back().axes[problem.flag("trans_b") ? 1 : 2].times = 2;
  if (problem.value("beta") != 0) {
    list.push_back({.name = "c0",
                    .role = Role::input,
                    .axes = matrix_axes(false, "m", "n"),
                    .dtype = problem.dtype("c_type")});
  }
  if (epilogue.has(Epilogue::Op::bias)) {
    list.push_back({.name = "bias", .role = Role::input, .axes = {{"n"}}});
  }
  if (epilogue.has(Epilogue::Op::add)) {
    list.push_back({.name = "residual",
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

// Sums for up to 4 rows of op(a) against 64 gathered columns: two rows of accumulators in L1 each.
constexpr int64_t col_block = 64;
constexpr int64_t row_block = 4;

// One task: rows[r0,r1) (all of one batch) × cols[j0,j1).
void reference_block(const Gemm& g, const Side& a, const Side& b, const Region& region, int64_t r0,
                     int64_t r1, int64_t j0, int64_t j1, double* value, double* bound) {
  const int64_t batch = region.rows[r0] / g.m;
  const int64_t total_cols = static_cast<int64_t>(region.cols.size());
  const int64_t width = j1 - j0;
  // The chosen columns of op(b), [k,width], gathered once for all rows of the task.
  std::vector<double> columns(static_cast<std::size_t>(g.k * width));
  const float* from = b.data + batch * b.batch_stride;
  for (int64_t p = 0; p < g.k; ++p) {
    for (int64_t j = 0; j < width; ++j) {
      columns[p * width + j] = from[p * b.inner + region.cols[j0 + j] * b.outer];
    }
  }
  double sum[row_block][col_block];
  double magnitude[row_block][col_block];
  for (int64_t r = r0; r < r1; r += row_block) {
    const int64_t rows = std::min(row_block, r1 - r);
    for (int64_t i = 0; i < rows; ++i) {
      std::fill_n(sum[i], width, 0.0);
      std::fill_n(magnitude[i], width, 0.0);
    }
    for (int64_t p = 0; p < g.k; ++p) {
      const double* column = &columns[p * width];
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = region.rows[r + i] % g.m;
        const double x = a.data[batch * a.batch_stride + row * a.outer + p * a.inner];
        for (int64_t j = 0; j < width; ++j) {
          const double product = x * column[j];
          sum[i][j] += product;
          magnitude[i][j] += std::fabs(product);
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const int64_t at = (r + i) * total_cols + j0 + j;
        value[at] += g.alpha * sum[i][j];
        bound[at] += std::fabs(g.alpha) * magnitude[i][j];
      }
    }
  }
}

// What the element's error bound holds of the sum of magnitudes: rounding of both operands to what
// the math multiplies, and of the sum.
double bound_factor(const Gemm& g, const Math& math) {
  return 2 * math.operand_roundoff +
         (8 + std::sqrt(static_cast<double>(g.k))) * math.sums->unit_roundoff;
}

// value = alpha·op(a)·op(b) + beta·c0 and its bounds, in double, for region.rows × region.cols;
// rows count over batch·m. Memory: 64 gathered columns per thread.
void linear_part(const Gemm& g, const Math& math, const Operands& inputs, const Side& b,
                 const Region& region, const ReferenceOut& out) {
  double* const value = out.value;
  double* const bound = out.bound;
  const int64_t rows = static_cast<int64_t>(region.rows.size());
  const int64_t cols = static_cast<int64_t>(region.cols.size());
  for (int64_t r = 0; r < rows; ++r) {
    const float* c0 = nullptr;
    if (g.reads_c0()) {
      c0 = const_matrix(inputs.at("c0")).row(region.rows[r] / g.m, region.rows[r] % g.m);
    }
    for (int64_t j = 0; j < cols; ++j) {
      const double start = c0 != nullptr ? double{g.beta} * c0[region.cols[j]] : 0.0;
      value[r * cols + j] = start;
      bound[r * cols + j] = std::fabs(start);
    }
  }

  if (g.reads_ab()) {
    const Side a = side_a(g, inputs.at("a"));
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
                   reference_block(g, a, b, region, run.first, run.last, j0,
                                   std::min(cols, j0 + col_block), value, bound);
                 });
  }
  const double factor = bound_factor(g, math);
  const double plain = factor + plain_sum_error(static_cast<double>(g.k), math.sums->unit_roundoff);
  for (int64_t i = 0; i < rows * cols; ++i) {
    out.plain_bound[i] = bound[i] * plain;
    bound[i] *= factor;
  }
}

// c and its bounds for a region: of the linear part, through the epilogue.
void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Gemm g(problem);
  const std::size_t cols = region.cols.size(), count = region.rows.size() * cols;
  if (count == 0) return;
  const View& b = inputs.at("b");
  linear_part(g, math, inputs, side_b(g, b), region, out);
  const double u = math.sums->unit_roundoff;
  const auto store = [&](std::size_t at, const common::Expected& c) {
    out.value[at] = c.value, out.bound[at] = c.bound, out.plain_bound[at] = c.plain_bound;
  };
  const auto linear = [&](std::size_t at) {
    return common::Expected{out.value[at], out.bound[at], out.plain_bound[at]};
  };
  if (g.gate) {
    std::vector<double> value(count), bound(count), plain(count);
    linear_part(g, math, inputs, side_b(g, half_of_b(b, g.trans_b, 1)), region,
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

// What the epilogue of a linear chain adds to an element of c.
class LinearEpilogue {
 public:
  LinearEpilogue(const Gemm& g, const Operands& inputs) {
    if (g.epilogue.has(Epilogue::Op::bias)) bias_ = inputs.at("bias").f32();
    if (g.epilogue.has(Epilogue::Op::add)) residual_ = const_matrix(inputs.at("residual"));
  }
  bool empty() const { return bias_ == nullptr && residual_.data == nullptr; }
  // Of a row of c the sum over signs, and the norms together.
  void add(int64_t batch, int64_t i, const std::vector<double>& signs, double& sum,
           double& norms) const {
    for (const float* row :
         {bias_, residual_.data != nullptr ? residual_.row(batch, i) : nullptr}) {
      if (row == nullptr) continue;
      double squares = 0;
      for (std::size_t j = 0; j < signs.size(); ++j) {
        sum += row[j] * signs[j];
        squares += double{row[j]} * row[j];
      }
      norms += std::sqrt(squares);
    }
  }

 private:
  const float* bias_ = nullptr;
  Matrix<const float> residual_;
};

// Functions of an element leave no sum to compare.
bool whole_check_applies(const Problem& problem) {
  return !problem.flag("gate") && is_linear(Epilogue(problem));
}

// What a batch's Freivalds product is formed of.
struct Whole {
  const Gemm& g;
  const Operands& operands;
  const SeededStream& signs;
  double factor, plain;  // of the errors' bounds
  DType type;            // of c
  LinearEpilogue epilogue;

  double rounding() const { return output_roundoff(type); }
};

// Vectors of one batch: x of random signs, y = op(b)·x and the Frobenius norm of b.
struct Product {
  std::vector<double> x, y;
  double norm_b = 0;
};

void multiply_b(const Whole& whole, int64_t batch, Product& product) {
  const Gemm& g = whole.g;
  product.x.resize(static_cast<std::size_t>(g.n));
  for (int64_t j = 0; j < g.n; ++j) {
    const auto index = static_cast<std::uint64_t>(batch * g.n + j);
    product.x[j] = whole.signs.value(index) < 0 ? -1 : 1;
  }
  product.norm_b = 0;
  if (!g.reads_ab()) return;
  product.y.assign(static_cast<std::size_t>(g.k), 0.0);
  const Side b = side_b(g, whole.operands.at("b"));
  const float* from = b.data + batch * b.batch_stride;
  // Along memory: rows of b are its k axis or, transposed, its n axis.
  const auto visit = [&](int64_t p, int64_t j) {
    const double value = from[p * b.inner + j * b.outer];
    product.y[p] += value * product.x[j];
    product.norm_b += value * value;
  };
  if (g.trans_b) {
    for (int64_t j = 0; j < g.n; ++j)
      for (int64_t p = 0; p < g.k; ++p) visit(p, j);
  } else {
    for (int64_t p = 0; p < g.k; ++p)
      for (int64_t j = 0; j < g.n; ++j) visit(p, j);
  }
  product.norm_b = std::sqrt(product.norm_b);
}

// Rows [first,last) of a batch against the product.
void check_rows(const Whole& whole, int64_t batch, const Product& product, int64_t first,
                int64_t last, WholeError& worst) {
  const Gemm& g = whole.g;
  constexpr double deviations = 6;
  for (int64_t i = first; i < last; ++i) {
    double expected = 0;
    double scale = 0;
    if (g.reads_ab()) {
      const Side a = side_a(g, whole.operands.at("a"));
      const float* from = a.data + batch * a.batch_stride + i * a.outer;
      double sum = 0;
      double norm_a = 0;
      for (int64_t p = 0; p < g.k; ++p) {
        const double value = from[p * a.inner];
        sum += value * product.y[p];
        norm_a += value * value;
      }
      expected = g.alpha * sum;
      scale = std::fabs(g.alpha) * std::sqrt(norm_a) * product.norm_b;
    }
    if (g.reads_c0()) {
      const float* c0 = const_matrix(whole.operands.at("c0")).row(batch, i);
      double sum = 0;
      double norm = 0;
      for (int64_t j = 0; j < g.n; ++j) {
        sum += c0[j] * product.x[j];
        norm += double{c0[j]} * c0[j];
      }
      expected += g.beta * sum;
      scale += std::fabs(g.beta) * std::sqrt(norm);
    }
    if (!whole.epilogue.empty()) whole.epilogue.add(batch, i, product.x, expected, scale);
    if (!std::isfinite(expected)) continue;
    const float* c = const_matrix(whole.operands.at("c")).row(batch, i);
    double got = 0;
    double norm_c = 0;
    for (int64_t j = 0; j < g.n; ++j) {
      const double value = c[j];
      got += value * product.x[j];
      norm_c += value * value;
    }
    const double rounded = whole.rounding() * std::sqrt(norm_c) +
                           whole.type->smallest * std::sqrt(static_cast<double>(g.n));
    common::note_error(std::fabs(got - expected), deviations * (whole.factor * scale + rounded),
                       deviations * (whole.plain * scale + rounded), worst);
  }
}

// Freivalds (1977): with x of random signs, c·x must equal alpha·op(a)·(op(b)·x) + beta·c0·x, all
// in double, at a cost of n + k operations a row. The errors e_ij of a right output add up with
// random signs, so their sum has standard deviation at most sqrt(sum_j e_ij²); each |e_ij| is below
// its bound, and |A_i||B_j| <= ‖A_i‖·‖B_j‖, hence at most
//   (8 + sqrt(k)) · u · (|alpha| ‖A_i‖ ‖B‖_F + |beta| ‖c0_i‖ + ‖bias‖ + ‖residual_i‖);
// a row fails beyond 6 of these deviations. Rows whose expected product is not finite are skipped:
// the element-wise comparison and its scan judge those. Rounding c to its own format adds that of
// each element, by the same argument together ‖c_i‖ times its size.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const Gemm g(problem);
  if (g.empty()) return {};
  const double factor = bound_factor(g, math);
  const SeededStream signs(seed, "gemm", "freivalds");
  const Whole whole{g,
                    operands,
                    signs,
                    factor,
                    factor + plain_sum_error(static_cast<double>(g.k), math.sums->unit_roundoff),
                    problem.dtype("c_type"),
                    LinearEpilogue(g, operands)};
  const int threads = machine().physical_cores;
  std::vector<WholeError> worst_of(static_cast<std::size_t>(threads));
  std::vector<Product> products(static_cast<std::size_t>(threads));
  constexpr int64_t chunk = 64;  // rows: handing them out costs far less than their sums
  if (g.m <= chunk) {
    // Many small products: whole batches are handed out, since a region of threads for each would
    // take longer than its product.
    const int64_t batches = std::max<int64_t>(1, chunk / g.m);
    parallel_for(nullptr, threads, (g.batch + batches - 1) / batches,
                 [&](int64_t task, int thread) {
                   const int64_t end = std::min(g.batch, (task + 1) * batches);
                   for (int64_t batch = task * batches; batch < end; ++batch) {
                     multiply_b(whole, batch, products[thread]);
                     check_rows(whole, batch, products[thread], 0, g.m, worst_of[thread]);
                   }
                 });
  } else {
    for (int64_t batch = 0; batch < g.batch; ++batch) {
      multiply_b(whole, batch, products[0]);
      parallel_for(nullptr, threads, (g.m + chunk - 1) / chunk, [&](int64_t task, int thread) {
        check_rows(whole, batch, products[0], task * chunk, std::min(g.m, (task + 1) * chunk),
                   worst_of[thread]);
      });
    }
  }
  WholeError worst;
  for (const WholeError& each : worst_of) {
    worst.over_bound = std::max(worst.over_bound, each.over_bound);
    worst.over_plain_bound = std::max(worst.over_plain_bound, each.over_plain_bound);
  }
  return worst;
}

}  // namespace

const Kernel kernel = {
    .name = "gemm",
    .summary = "c = alpha·op(a)·op(b) + beta·c0, with epilogue= and gate= what follows it",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check_epilogue,
    .reference = reference,
    .maths = fp32_and_3xtf32,
    .columns_are_cheap = true,
    .whole_check = whole_check,
    .whole_check_applies = whole_check_applies};

}  // namespace rooflane::gemm
