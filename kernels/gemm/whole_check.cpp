// A check of a whole output that costs far less than the reference: a Freivalds product, in double.
// See reference.cpp.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"
#include "kernels/common/whole_error.hpp"
#include "kernels/gemm/epilogue.hpp"
#include "kernels/gemm/reference.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

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

// The sum of numbers times x, and their norm.
struct Projection {
  double sum = 0, norm = 0;
};
template <class At>
Projection project(const std::vector<double>& x, const At& at) {
  Projection of;
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double value = at(j);
    of.sum += value * x[j];
    of.norm += value * value;
  }
  of.norm = std::sqrt(of.norm);
  return of;
}

// What a batch's Freivalds product is formed of.
struct Whole {
  const Gemm& g;
  const Operands& operands;
  const Factors* factors;  // null: a and b are not read
  AbsoluteErrors errors;
  const SeededStream& signs;
  BoundFactors factors_of_bound;
  DType type;  // of c

  double rounding() const { return output_roundoff(type); }
  double smallest() const { return type->is_integer() ? 0 : type->smallest; }
};

// Vectors of one batch: x of random signs, y = op(b)·x and the Frobenius norm of b.
struct Product {
  std::vector<double> x, y;
  double norm_b = 0;
  Extent sums;  // of |y|
};

void multiply_b(const Whole& whole, int64_t batch, Product& product) {
  const Gemm& g = whole.g;
  product.x.resize(static_cast<std::size_t>(g.n));
  for (int64_t j = 0; j < g.n; ++j) {
    const auto index = static_cast<std::uint64_t>(batch * g.n + j);
    product.x[j] = whole.signs.value(index) < 0 ? -1 : 1;
  }
  product.norm_b = 0;
  product.sums = {};
  if (!g.reads_ab()) return;
  product.y.assign(static_cast<std::size_t>(g.k), 0.0);
  const Factors& factors = *whole.factors;
  const float* from = factors.b.f32() + batch * factors.b.batch_stride;
  // Along memory: rows of b are its k axis or, transposed, its n axis.
  const auto visit = [&](int64_t p, int64_t j) {
    const double value = factors.b_at(from, p, j);
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
  for (const double value : product.y) product.sums.note(value);
}

// A row's part of the product: its sum, the bound of it that grows with norms, and what does not.
struct RowProduct {
  double expected = 0, scale = 0, absolute = 0;
};

RowProduct multiply_row(const Whole& whole, int64_t batch, int64_t i, const Product& product,
                        RowOfA& row) {
  const Gemm& g = whole.g;
  const MatrixView& a = whole.factors->a;
  row.read(*whole.factors, a.f32() + batch * a.batch_stride + i * a.outer);
  const Projection of = project(product.y, [&](std::size_t p) { return row.values[p]; });
  // For n elements: n times as many for zeros; a row is quantised once for all of them, so that
  // op(b)·x counts.
  const auto n = static_cast<double>(g.n), k = static_cast<double>(g.k);
  const AbsoluteErrors& errors = whole.errors;
  const double absolute = errors.dynamic
                              ? row.doubt([&](int64_t p) { return std::fabs(product.y[p]); }) +
                                    errors.of(0, row.extent, product.sums)
                              : n * errors.of(k, row.extent, product.sums);
  const double alpha = std::fabs(g.alpha);
  return {g.alpha * of.sum, alpha * of.norm * product.norm_b, alpha * absolute};
}

// Rows [first,last) of a batch against the product.
void check_rows(const Whole& whole, int64_t batch, const Product& product, int64_t first,
                int64_t last, WholeError& worst) {
  const Gemm& g = whole.g;
  const WholeOutput c(whole.operands.at("c"));
  constexpr double deviations = 6;
  const Operands& operands = whole.operands;
  RowOfA row;
  for (int64_t i = first; i < last; ++i) {
    double added = 0;  // norms of the operands that are added to the product
    RowProduct of_row;
    if (g.reads_ab()) of_row = multiply_row(whole, batch, i, product, row);
    auto& [expected, scale, absolute] = of_row;
    const auto add = [&](const float* numbers, double factor) {
      const Projection of = project(product.x, [&](std::size_t j) { return numbers[j]; });
      expected += factor * of.sum;
      added += std::fabs(factor) * of.norm;
    };
    if (g.reads_c0()) add(const_matrix(operands.at("c0")).row(batch, i), g.beta);
    if (g.epilogue.has(Epilogue::Op::bias)) add(operands.at("bias").f32(), 1);
    if (g.epilogue.has(Epilogue::Op::add)) {
      add(const_matrix(operands.at("residual")).row(batch, i), 1);
    }
    if (!std::isfinite(expected)) continue;
    const Projection got =
        project(product.x, [&](std::size_t j) { return c.at(batch, i, static_cast<int64_t>(j)); });
    const double rounded =
        whole.rounding() * got.norm + whole.smallest() * std::sqrt(static_cast<double>(g.n));
    const BoundFactors& by = whole.factors_of_bound;
    const double bound = deviations * (by.products * scale + by.start * added + rounded) +
                         absolute + static_cast<double>(g.n) * by.below;
    common::note_error(std::fabs(got.sum - expected), bound,
                       bound + deviations * by.plain * (scale + added), worst);
  }
}

}  // namespace

// Functions of an element leave no sum to compare.
bool whole_check_applies(const Problem& problem) {
  return !problem.flag("gate") && is_linear(Epilogue(problem));
}

// Freivalds (1977): with x of random signs, c·x must equal alpha·op(a)·(op(b)·x) + beta·c0·x, all
// in double, at a cost of n + k operations a row. The errors e_ij of a right output add up with
// random signs, so their sum has standard deviation at most sqrt(sum_j e_ij²); each |e_ij| is below
// its bound, and |A_i||B_j| <= ‖A_i‖·‖B_j‖, hence at most
//   (8 + sqrt(k)) · u · (|alpha| ‖A_i‖ ‖B‖_F + |beta| ‖c0_i‖ + ‖bias‖ + ‖residual_i‖);
// a row fails beyond 6 of these deviations. Rows with an expected product that is not finite are
// skipped: the element-wise comparison and its scan judge those. Rounding c to its own format adds
// that of each element, by the same argument together ‖c_i‖ times its size.
WholeError whole_check(const Problem& problem, const Math& math, const Operands& operands,
                       std::uint64_t seed) {
  const Gemm g(problem);
  if (g.empty()) return {};
  std::optional<Factors> factors;
  if (g.reads_ab()) factors.emplace(problem, g, math, operands, view_of_b(g, operands.at("b")));
  const SeededStream signs(seed, "gemm", "freivalds");
  const Whole whole{g,
                    operands,
                    factors ? &*factors : nullptr,
                    AbsoluteErrors(math),
                    signs,
                    BoundFactors(problem, math),
                    problem.dtype("c_type")};
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

}  // namespace rooflane::gemm
