// The attention kernel's record: parameters, tensors, cost, error bound and the double-precision
// reference. The maths is in attention.hpp.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>
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
double head_dim_of(const Problem& problem) { return problem.value("head_dim"); }
// The same format: kv_types begins with float_types.
double type_of(const Problem& problem) { return problem.value("type"); }

constexpr ParamSpec params[] = {
    {.name = "batch", .kind = ParamKind::size, .required = true},
    {.name = "heads", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "kv_heads", .kind = ParamKind::size, .least = 1, .default_from = heads_of},
    {.name = "q_len", .kind = ParamKind::size, .required = true},
    {.name = "kv_len", .kind = ParamKind::size, .required = true},
    {.name = "head_dim", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "causal", .kind = ParamKind::flag, .default_value = 0, .always_printed = true},
    {.name = "scale", .kind = ParamKind::real, .default_from = default_scale},
    {.name = "v_dim", .kind = ParamKind::size, .least = 1, .default_from = head_dim_of},
    {.name = "window", .kind = ParamKind::size},
    {.name = "softcap", .kind = ParamKind::real},
    {.name = "mask", .kind = ParamKind::flag},
    {.name = "lengths", .kind = ParamKind::flag},
    {.name = "type", .kind = ParamKind::choice, .dtypes = float_types},
    {.name = "kv_type", .kind = ParamKind::choice, .default_from = type_of, .dtypes = kv_types},
};

std::optional<std::string> defect_of_math(const Problem& problem, const Math& math) {
  const Sizes s(problem);
  if (&math != &math_3xtf32 || (s.type == &float32 && s.kv_type == &float32)) return std::nullopt;
  return fmt::format("math 3xtf32 needs type=f32 and kv_type=f32, not type={},kv_type={}",
                     s.type->short_name, s.kv_type->short_name);
}

std::vector<TensorSpec> tensors(const Problem& problem) {
  const auto rows = [](const char* heads, const char* length, const char* width) {
    return std::vector<Axis>{{"batch"}, {heads}, {length}, {width}};
  };
  // Scores, and sums over all keys, are float32 numbers.
  constexpr int of_score = 40, of_sum = 31;
  std::vector<TensorSpec> list = {{.name = "q",
                                   .role = Role::input,
                                   .axes = rows("heads", "q_len", "head_dim"),
                                   .dtype = problem.dtype("type"),
                                   .reach = of_score},
                                  {.name = "k",
                                   .role = Role::input,
                                   .axes = rows("kv_heads", "kv_len", "head_dim"),
                                   .dtype = problem.dtype("kv_type"),
                                   .reach = of_score},
                                  {.name = "v",
                                   .role = Role::input,
                                   .axes = rows("kv_heads", "kv_len", "v_dim"),
                                   .dtype = problem.dtype("kv_type"),
                                   .reach = reach_below(&float32, of_sum)}};
  if (problem.flag("mask")) {
    list.push_back({.name = "mask",
                    .role = Role::input,
                    .axes = {{"q_len"}, {"kv_len"}},
                    .reach = reach_below(&float32, 1)});
  }
  if (problem.flag("lengths")) {
    list.push_back({.name = "lengths",
                    .role = Role::input,
                    .axes = {{"batch"}},
                    .dtype = &int32,
                    .domain = {.kind = IntegerDomain::Kind::counts, .size = "kv_len"}});
  }
  list.push_back({.name = "o",
                  .role = Role::output,
                  .axes = rows("heads", "q_len", "v_dim"),
                  .dtype = problem.dtype("type"),
                  .like = "q"});
  return list;
}

void check(const Problem& problem) {
  const std::int64_t heads = problem.size("heads");
  const std::int64_t kv_heads = problem.size("kv_heads");
  if (heads % kv_heads != 0) {
    throw argument_error(
        fmt::format("heads={} must be a multiple of kv_heads={}", heads, kv_heads));
  }
  // 1/C is a normal float32, too.
  const double softcap = problem.value("softcap");
  if (softcap != 0 && !(softcap >= 1e-30 && softcap <= 1e30)) {
    throw argument_error(fmt::format("softcap={}: allowed is 0 or 1e-30 to 1e30", softcap));
  }
  const DType stored = problem.dtype("kv_type");
  for (const char* const width : {"head_dim", "v_dim"}) {
    if (problem.size(width) % stored->block == 0) continue;
    throw argument_error(fmt::format("{}={}: kv_type={} needs a multiple of {}", width,
                                     problem.size(width), stored->short_name, stored->block));
  }
}

// Visible pairs of one head. Causal: the last min(q_len, kv_len) queries see something, each one
// key more than the one before, the last all kv_len; a window cuts all that see more down to it.
double visible_pairs(const Sizes& s) {
  const auto q_len = static_cast<double>(s.q_len), kv_len = static_cast<double>(s.kv_len);
  const double most = s.window == 0 ? kv_len : std::min(kv_len, static_cast<double>(s.window));
  if (!s.causal) return q_len * most;
  const double seeing = std::min(q_len, kv_len);
  const double least = kv_len - seeing + 1;  // keys before the first query that sees any
  const double growing = std::clamp(most - least + 1, 0.0, seeing);
  return growing * (least + (growing - 1) / 2) + (seeing - growing) * most;
}

// Bytes that no query sees of k and v, and of the mask.
double unseen_bytes(const Sizes& s) {
  if (s.window == 0 && !s.mask) return 0;
  const double keys =
      static_cast<double>(s.batch * s.kv_heads) * static_cast<double>(s.kv_len - s.keys_seen());
  const double pairs =
      static_cast<double>(s.q_len) * static_cast<double>(s.kv_len) - visible_pairs(s);
  const auto of_key = static_cast<double>(s.kv_type->bytes(s.head_dim + s.v_dim));
  return keys * of_key + (s.mask ? pairs * sizeof(float) : 0);
}

// The cost with full caches, because lengths from a seed are full (core/domain.hpp).
// The flops are those of q·kᵀ and of the sums over v, all multiply-adds. Softmax comes on top: per
// visible pair an exp, and unfused the scaling, the maximum, the difference to it and the sum; the
// mask's sum; the softcap's tanh, a quotient of two polynomials (common/tanh-inl.h).
Cost cost(const Problem& problem) {
  const Sizes s(problem);
  const auto batch = static_cast<double>(s.batch);
  const double pairs = batch * static_cast<double>(s.heads) * visible_pairs(s);
  const double flops = 2 * static_cast<double>(s.head_dim + s.v_dim) * pairs;
  return {.flops = flops,
          .exps = pairs,
          .bytes = traffic_bytes(problem) - unseen_bytes(s),
          .fma_flops = flops + (s.softcap != 0 ? 16 : 0) * pairs,
          .unfused_flops = (4.0 + (s.mask ? 1 : 0) + (s.softcap != 0 ? 7 : 0)) * pairs};
}

// A value per key of one row.
struct Scratch {
  std::vector<double> weight, score_error;
};

// What a math rounds; see the bound below.
struct Rounding {
  Rounding(const Sizes& s, const Math& math) : u(math.sums->unit_roundoff) {
    if (math.operand_roundoff == 0) return;
    const double r = math.operand_roundoff;
    of_product = (s.type != math.operands ? r : 0) + (s.kv_type != math.operands ? r : 0);
    of_value = r + (s.kv_type != math.operands ? r : 0);
    of_small_weight = std::max(math.operands->smallest / 2, math.flushed);
  }
  double u;
  double of_product = 0, of_value = 0, of_small_weight = 0;
};

// One row of o.
// Bound: a float32 sum of n products errs by about √n·u of the sum of magnitudes, so
//   |err| <= ((8+√kv_len)·u + 2δ)·Σ_j w_j|v_j|,  δ = 4u + (8+√head_dim)·u·max_j
//   scale·Σ_d|q_d||k_jd|
// with δ the relative error of a weight: 4u for exp itself, the rest for the error of its argument.
// Plain sums over the keys may lose (8+√kv_len)·u more.
// A softcap flattens what errors its argument has and adds, of the capped score c_j, 13u·|c_j|: two
// roundings of the argument, 5 ULP of tanh, which OpenCL allows, and the product. A mask makes
// scores s_j of any size: the roundings of the sum that forms one and of its difference to the
// maximum are 2u·|s_j|. Both change a key's own weight by e_j, which adds Σ_j w_j·e_j·|v_j|, and as
// much of the sum of weights. Added is 2⁻¹²⁶·Σ_j|v_j|: weights below float32's normal range may be
// flushed to zero. Where a score may err by a quarter and more, weights are any that sum to 1: the
// error is at most 2·max_j|v_j|.
// Math f16 and bf16, r = 2⁻¹¹ and 2⁻⁸: a weight is rounded before it meets v, which adds
// r·w_j|v_j|. Below the format's normal range rounding errs by half of its smallest number, or a
// weight counts as zero (math.hpp), which adds that much of |v_j| where the largest weight is 1.
// The sum of weights is that of unrounded ones. Each of q and k that has another format adds r to
// the relative error of products, and v adds r to that of the sum.
void reference_row(const Sizes& sizes, const Inputs& in, std::int64_t row,
                   const std::vector<std::int64_t>& cols, Scratch& scratch,
                   const Rounding& rounding, const ReferenceOut& out) {
  const double u = rounding.u;
  const std::int64_t i = row % sizes.q_len;
  const std::int64_t head = row / sizes.q_len % sizes.heads;
  const std::int64_t batch = row / sizes.q_len / sizes.heads;
  const Sizes s = in.sizes_of(sizes, batch);
  const float* q = in.q.matrix(batch, head) + i * in.q.row_stride;
  const float* k = in.k.matrix(batch, head / s.group());
  const float* v = in.v.matrix(batch, head / s.group());
  const std::int64_t begin = s.first_key(i), end = s.end_key(i);
  if (end == 0) {
    for (double* values : {out.value, out.bound, out.plain_bound}) {
      std::fill_n(values, cols.size(), 0.0);
    }
    return;
  }

  std::vector<double>&weight = scratch.weight, &score_error = scratch.score_error;
  double largest = -std::numeric_limits<double>::infinity();
  double magnitude = 0;  // max_j scale·Σ|q||k_j| over finite scores: -inf weighs zero exactly
  bool any_nan = false;
  for (std::int64_t j = begin; j < end; ++j) {
    double score = 0, absolute = 0;
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      const double product = static_cast<double>(q[d]) * k[j * in.k.row_stride + d];
      score += product;
      absolute += std::abs(product);
    }
    score *= s.scale;
    absolute *= std::abs(s.scale);
    score_error[j] = 0;
    if (s.softcap != 0) {
      score = s.softcap * std::tanh(score / s.softcap);
      score_error[j] = 13 * u * std::abs(score);
    }
    if (s.mask) {
      score += in.mask.row(i)[j];
      if (std::isfinite(score)) score_error[j] += 2 * u * std::abs(score);
    }
    weight[j] = score;
    any_nan = any_nan || std::isnan(score);
    largest = std::max(largest, score);
    if (std::isfinite(absolute) && std::isfinite(score)) magnitude = std::max(magnitude, absolute);
  }
  if (any_nan) largest = std::numeric_limits<double>::quiet_NaN();
  double sum = 0, sum_error = 0, largest_error = 0;
  for (std::int64_t j = begin; j < end; ++j) {
    const double w = std::exp(weight[j] - largest);
    // A weight below the range of float32 is zero, which matters if the value is infinite.
    weight[j] = w < 0x1p-150 ? 0 : w;
    sum += weight[j];
    sum_error += weight[j] * score_error[j];
    largest_error = std::max(largest_error, score_error[j]);
  }

  const double of_product =
      (8 + std::sqrt(static_cast<double>(s.head_dim))) * u + rounding.of_product;
  const double delta = 4 * u + of_product * magnitude;
  const double relative = (8 + std::sqrt(static_cast<double>(s.kv_len))) * u + 2 * delta +
                          sum_error / sum + rounding.of_value;
  const bool is_any_weight = largest_error + delta > 0.25;
  for (std::size_t c = 0; c < cols.size(); ++c) {
    double total = 0, absolute = 0, own_error = 0, values = 0, most = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      const double element = v[j * in.v.row_stride + cols[c]];
      total += weight[j] * element;
      absolute += weight[j] * std::abs(element);
      own_error += weight[j] * score_error[j] * std::abs(element);
      values += std::abs(element);
      most = std::max(most, std::abs(element));
    }
    out.value[c] = total / sum;
    out.bound[c] = (relative * absolute + own_error + rounding.of_small_weight * values) / sum +
                   0x1p-126 * values;
    if (is_any_weight) out.bound[c] += 2 * most;
    out.plain_bound[c] =
        out.bound[c] + plain_sum_error(static_cast<double>(s.kv_len), u) * absolute / sum;
  }
}

void reference(const Problem& problem, const Math& math, const Operands& inputs, std::string_view,
               const Region& region, const ReferenceOut& out) {
  const Sizes s(problem);
  const Inputs in(inputs, s);
  const int threads = machine().physical_cores;
  const Rounding rounding(s, math);
  const std::vector<double> per_key(static_cast<std::size_t>(s.kv_len));
  std::vector<Scratch> scratch(threads, {per_key, per_key});
  const std::size_t cols = region.cols.size();
  parallel_for(nullptr, threads, static_cast<std::int64_t>(region.rows.size()),
               [&](std::int64_t i, int thread) {
                 const auto at = static_cast<std::ptrdiff_t>(i * cols);
                 reference_row(s, in, region.rows[i], region.cols, scratch[thread], rounding,
                               {out.value + at, out.bound + at, out.plain_bound + at});
               });
}

}  // namespace

std::optional<std::string> option_refusal(const Problem& problem, DType of_code) {
  const Sizes s(problem);
  for (const auto& [name, asked] :
       {std::pair("v_dim", s.v_dim != s.head_dim), std::pair("window", s.window != 0),
        std::pair("softcap", s.softcap != 0), std::pair("mask", s.mask),
        std::pair("lengths", s.lengths)}) {
    if (!asked) continue;
    return fmt::format("{}={}: this is code for plain and causal attention without options", name,
                       problem.value(name));
  }
  for (const auto& [name, type] : {std::pair("type", s.type), std::pair("kv_type", s.kv_type)}) {
    if (type == of_code) continue;
    return fmt::format("{}={}: this is code for {}", name, type->short_name, of_code->name);
  }
  return std::nullopt;
}

void require_no_options(const Problem& problem, const Tuning& step) {
  if (const auto reason = option_refusal(problem)) {
    throw unavailable_error(fmt::format("{}: {}", step.text(), *reason));
  }
}

const Kernel kernel = {
    .name = "attention",
    .summary = "o = softmax(scale * q * k^T) * v per head",
    .params = params,
    .tensors = tensors,
    .cost = cost,
    .check = check,
    .reference = reference,
    .maths = kernel_maths,
    .math_defect = defect_of_math,
};

}  // namespace rooflane::attention
