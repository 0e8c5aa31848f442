// The attention kernel's record: parameters, tensors, cost, error bound and the double-precision
// reference. The maths is in attention.hpp.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/attention.hpp"

namespace rooflane::attention {
namespace {

double heads_of(const Problem& problem) { return problem.value("heads"); }
double default_scale(const Problem& problem) { return 1 / std::sqrt(problem.value("head_dim")); }

constexpr ParamSpec params[] = {
    {.name = "batch", .kind = ParamKind::size, .required = true},
    {.name = "heads", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "kv_heads", .kind = ParamKind::size, .least = 1, .default_from = heads_of},
    {.name = "q_len", .kind = ParamKind::size, .required = true},
    {.name = "kv_len", .kind = ParamKind::size, .required = true},
    {.name = "head_dim", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "causal", .kind = ParamKind::flag, .default_value = 0, .always_printed = true},
    {.name = "scale", .kind = ParamKind::real, .default_from = default_scale},
};

std::vector<TensorSpec> tensors(const Problem&) {
  const std::vector<Axis> queries = {{"batch"}, {"heads"}, {"q_len"}, {"head_dim"}};
  const std::vector<Axis> keys = {{"batch"}, {"kv_heads"}, {"kv_len"}, {"head_dim"}};
  return {{.name = "q", .role = Role::input, .axes = queries},
          {.name = "k", .role = Role::input, .axes = keys},
          {.name = "v", .role = Role::input, .axes = keys},
          {.name = "o", .role = Role::output, .axes = queries, .like = "q"}};
}

void check(const Problem& problem) {
  const std::int64_t heads = problem.size("heads");
  const std::int64_t kv_heads = problem.size("kv_heads");
  if (heads % kv_heads != 0) {
    throw argument_error(
        fmt::format("heads={} must be a multiple of kv_heads={}", heads, kv_heads));
  }
}

// Visible pairs of one head. Causal: the last min(q_len, kv_len) queries see something, each one
// key more than the one before, the last all kv_len.
double visible_pairs(const Sizes& s) {
  const auto q_len = static_cast<double>(s.q_len), kv_len = static_cast<double>(s.kv_len);
  if (!s.causal) return q_len * kv_len;
  const double seeing = std::min(q_len, kv_len);
  return seeing * (kv_len - (seeing - 1) / 2);
}

// The flops are those of q·kᵀ and of the sums over v, all multiply-adds. Softmax comes on top: per
// visible pair an exp, and unfused the scaling, the maximum, the difference to it and the sum.
Cost cost(const Problem& problem) {
  const Sizes s(problem);
  const auto batch = static_cast<double>(s.batch), head_dim = static_cast<double>(s.head_dim);
  const double pairs = batch * static_cast<double>(s.heads) * visible_pairs(s);
  const double flops = 4 * head_dim * pairs;
  return {.flops = flops,
          .exps = pairs,
          .bytes = traffic_bytes(problem),
          .fma_flops = flops,
          .unfused_flops = 4 * pairs};
}

// One row of o. `weight` has room for kv_len values.
// Bound: a float32 sum of n products errs by about √n·u of the sum of magnitudes, so
//   |err| <= ((8+√kv_len)·u + 2δ)·Σ_j w_j|v_j|,  δ = 4u + (8+√head_dim)·u·max_j
//   scale·Σ_d|q_d||k_jd|
// with δ the relative error of a weight: 4u for exp itself, the rest for the error of its argument.
// Plain sums over the keys may lose (8+√kv_len)·u more.
// Added is 2⁻¹²⁶·Σ_j|v_j|: weights below float32's normal range may be flushed to zero.
void reference_row(const Sizes& s, const Bound& in, std::int64_t row,
                   const std::vector<std::int64_t>& cols, std::vector<double>& weight, double u,
                   const ReferenceOut& out) {
  const std::int64_t i = row % s.q_len;
  const std::int64_t head = row / s.q_len % s.heads;
  const std::int64_t batch = row / s.q_len / s.heads;
  const float* q = in.q.matrix(batch, head) + i * in.q.row_stride;
  const float* k = in.k.matrix(batch, head / s.group());
  const float* v = in.v.matrix(batch, head / s.group());
  const std::int64_t visible = s.visible(i);
  if (visible == 0) {
    for (double* values : {out.value, out.bound, out.plain_bound}) {
      std::fill_n(values, cols.size(), 0.0);
    }
    return;
  }

  double largest = -std::numeric_limits<double>::infinity();
  double magnitude = 0;  // max_j scale·Σ|q||k_j| over finite scores: -inf weighs zero exactly
  bool any_nan = false;
  for (std::int64_t j = 0; j < visible; ++j) {
    double score = 0, absolute = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      const double product = static_cast<double>(q[d]) * k[j * in.k.row_stride + d];
      score += product;
      absolute += std::abs(product);
    }
    score *= s.scale;
    absolute *= std::abs(s.scale);
    weight[j] = score;
    any_nan = any_nan || std::isnan(score);
    largest = std::max(largest, score);
    if (std::isfinite(absolute)) magnitude = std::max(magnitude, absolute);
  }
  if (any_nan) largest = std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (std::int64_t j = 0; j < visible; ++j) {
    const double w = std::exp(weight[j] - largest);
    // A weight that float32 cannot hold is zero, which tells where the value is infinite.
    weight[j] = w < 0x1p-150 ? 0 : w;
    sum += weight[j];
  }

  const double delta = 4 * u + (8 + std::sqrt(static_cast<double>(s.head_dim))) * u * magnitude;
  const double relative = (8 + std::sqrt(static_cast<double>(s.kv_len))) * u + 2 * delta;
  for (std::size_t c = 0; c < cols.size(); ++c) {
    double total = 0, absolute = 0, values = 0;
    for (std::int64_t j = 0; j < visible; ++j) {
      const double element = v[j * in.v.row_stride + cols[c]];
      total += weight[j] * element;
      absolute += weight[j] * std::abs(element);
      values += std::abs(element);
    }
    out.value[c] = total / sum;
    out.bound[c] = relative * absolute / sum + 0x1p-126 * values;
    out.plain_bound[c] =
        out.bound[c] + plain_sum_error(static_cast<double>(s.kv_len), u) * absolute / sum;
  }
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Sizes s(problem);
  Bound in;
  in.q = Heads(inputs.at("q"));
  in.k = Heads(inputs.at("k"));
  in.v = Heads(inputs.at("v"));
  const int threads = machine().physical_cores;
  std::vector<std::vector<double>> weights(threads, std::vector<double>(s.kv_len));
  const std::size_t cols = region.cols.size();
  parallel_for(nullptr, threads, static_cast<std::int64_t>(region.rows.size()),
               [&](std::int64_t i, int thread) {
                 const auto at = static_cast<std::ptrdiff_t>(i * cols);
                 reference_row(s, in, region.rows[i], region.cols, weights[thread],
                               math.sums->unit_roundoff,
                               {out.value + at, out.bound + at, out.plain_bound + at});
               });
}

}  // namespace

const Kernel kernel = {
    .name = "attention",
    .summary = "o = softmax(scale * q * k^T) * v per head",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .maths = fp32_and_3xtf32,
};

}  // namespace rooflane::attention
