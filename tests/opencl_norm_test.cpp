// LayerNorm and RMSNorm of `opencl` where squares leave float32: right beside ordinary rows,
// whichever way items are laid over rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

// Rows for 64 columns and more; gamma and beta are small and differ from column to column.
struct Norm {
  Problem problem;
  Matrix x, gamma, beta, y;
  Operands operands;

  Norm(const std::string& kernel, std::int64_t rows, std::int64_t cols, const std::string& eps)
      : problem(make_problem(kernel + ":rows=" + std::to_string(rows) +
                             ",cols=" + std::to_string(cols) + ",eps=" + eps)),
        x(rows, cols),
        gamma(1, cols),
        beta(1, cols),
        y(rows, cols) {
    const Shape shape = {cols};
    gamma.fill([](auto, std::int64_t j) { return 1 + 0.25F * static_cast<float>(j % 3); });
    beta.fill([](auto, std::int64_t j) { return 0.5F * static_cast<float>(j % 5); });
    operands.set("x", x.view());
    operands.set("gamma", contiguous_view(gamma.row(0), shape));
    if (kernel == "layernorm") operands.set("beta", contiguous_view(beta.row(0), shape));
    operands.set("y", y.view());
  }

  // Every element of y within `ulps` of expected(row, column), by each tuning.
  void check(double ulps, const std::function<double(std::int64_t, std::int64_t)>& expected) {
    const Catalogue catalogue = Catalogue::built_in();
    const Variant& variant = *catalogue.variant(problem.kernel(), "opencl").variant;
    Environment env;
    env.threads = 0;
    env.math = "fp32";
    const std::int64_t cols = x.cols();
    const std::int64_t vectors = (cols + 6) / 4;  // a row may start anywhere in one
    const auto parts = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
    const std::vector<Tuning> tunings = {
        {},
        {{"form", 0}, {"v", 8}, {"lx", 1}, {"ly", 4}, {"chunk", 1}, {"splits", 1}},
        {{"form", 0}, {"v", 4}, {"lx", 8}, {"ly", 2}, {"chunk", parts(vectors, 8)}, {"splits", 1}},
        {{"form", 0}, {"v", 4}, {"lx", 4}, {"ly", 1}, {"chunk", 2}, {"splits", 3}},
        {{"form", 1},
         {"v", 4},
         {"lx", 8},
         {"ly", 2},
         {"ry", 2},
         {"chunk", parts(vectors, 8)},
         {"splits", 1}},
        {{"form", 1},
         {"v", 4},
         {"lx", 64},
         {"ly", 1},
         {"ry", 1},
         {"chunk", parts(vectors, 64)},
         {"splits", 1}},
        {{"form", 1},
         {"v", 4},
         {"lx", 8},
         {"ly", 1},
         {"ry", 1},
         {"chunk", parts(vectors, 16)},
         {"splits", 2}},
        {{"form", 2}, {"v", 4}, {"lx", 8}, {"ly", 2}, {"chunk", parts(cols, 8)}, {"splits", 1}},
        {{"form", 2}, {"v", 4}, {"lx", 64}, {"ly", 2}, {"chunk", parts(cols, 64)}, {"splits", 1}}};
    std::vector<Tuning> legal;
    for (const Tuning& tuning : tunings) {
      Tuning whole = complete_tuning(variant, problem, env, tuning);
      if (!tuning.values().empty()) whole.set("code_path", 0);
      // Rows may be too long for registers.
      if (!variant.tuning_defect(problem, whole, env)) legal.push_back(whole);
    }
    // A device may allow few of these: then some that the variant offers for it.
    constexpr std::size_t least = 3;
    const std::vector<Tuning> offered = variant.tunings(problem, env);
    for (std::size_t i = 0; legal.size() < least && i < offered.size();
         i += std::max<std::size_t>(1, offered.size() / least)) {
      legal.push_back(complete_tuning(variant, problem, env, offered[i]));
    }
    REQUIRE(legal.size() >= least);
    for (const Tuning& whole : legal) {
      INFO(problem.text(), " ", whole.text());
      y.fill([](auto, auto) { return not_a_number; });
      run(variant, problem, whole, env, operands);
      for (std::int64_t r = 0; r < y.rows(); ++r) {
        for (std::int64_t j = 0; j < cols; ++j) {
          const double right = expected(r, j), got = y.row(r)[j];
          INFO("row ", r, " column ", j, ": ", got, " expected ", right);
          REQUIRE(std::abs(got - right) <= ulps * 0x1p-23 * std::max(std::abs(right), 0.25));
        }
      }
    }
  }
};

// Ordinary rows lie between the others.
float ordinary(std::int64_t j) { return j % 2 == 0 ? 1.0F : -1.0F; }

}  // namespace

TEST_CASE("RMSNorm of rows whose squares overflow is gamma") {
  const float values[] = {1e19F, 1, 1e25F, 1e35F, 3e38F};
  for (const std::int64_t cols : {64, 67, 1025}) {
    Norm norm("rmsnorm", 5, cols, "1e-5");
    norm.x.fill([&](std::int64_t r, std::int64_t j) { return values[r] * ordinary(j); });
    norm.check(8, [&](std::int64_t r, std::int64_t j) {
      const double one = values[r] == 1 ? 1 / std::sqrt(1 + 1e-5) : 1;
      return one * ordinary(j) * norm.gamma.row(0)[j];
    });
  }
}

TEST_CASE(
    "RMSNorm of rows whose squares underflow is gamma without eps, and exact beside a small one") {
  const float values[] = {1e-20F, 1, 1e-25F, 1e-38F, 1e-44F};
  for (const std::int64_t cols : {64, 67}) {
    Norm none("rmsnorm", 5, cols, "0");
    none.x.fill([&](std::int64_t r, std::int64_t j) { return values[r] * ordinary(j); });
    none.check(8, [&](std::int64_t, std::int64_t j) { return ordinary(j) * none.gamma.row(0)[j]; });
    Norm tiny("rmsnorm", 5, cols, "1e-46");
    tiny.x.fill([&](std::int64_t r, std::int64_t j) { return values[r] * ordinary(j); });
    tiny.check(8, [&](std::int64_t r, std::int64_t j) {
      const double value = values[r];
      return value / std::sqrt(value * value + 1e-46) * ordinary(j) * tiny.gamma.row(0)[j];
    });
  }
}

TEST_CASE(
    "LayerNorm of rows that alternate between m and m/2 is beta ± gamma up to the largest m") {
  const float values[] = {1e20F, 1, 1e30F, 3e38F, 1e-30F};
  for (const std::int64_t cols : {64, 66, 1026}) {
    Norm norm("layernorm", 5, cols, "0");
    norm.x.fill(
        [&](std::int64_t r, std::int64_t j) { return j % 2 == 0 ? values[r] : values[r] / 2; });
    // The mean of an even number of columns is 3/4 m, all differences are m/4. Beside the mean, the
    // rounding of a sum counts three times as much.
    norm.check(16, [&](std::int64_t, std::int64_t j) {
      return (j % 2 == 0 ? 1 : -1) * norm.gamma.row(0)[j] + norm.beta.row(0)[j];
    });
  }
}

TEST_CASE("LayerNorm of a constant row is beta, whatever the number") {
  const float values[] = {3e38F, 1, -3e38F, 1e-44F, 0};
  for (const std::int64_t cols : {64, 67}) {
    Norm norm("layernorm", 5, cols, "1e-5");
    norm.x.fill([&](std::int64_t r, auto) { return values[r]; });
    norm.check(0, [&](std::int64_t, std::int64_t j) { return norm.beta.row(0)[j]; });
  }
}

TEST_CASE("LayerNorm of integers near 1e7 is as right as of integers near 0") {
  constexpr std::int64_t cols = 4096;
  const auto near_zero = [](std::int64_t j) { return static_cast<double>(j * 7919 % 9) - 4; };
  Norm norm("layernorm", 2, cols, "1e-5");
  norm.x.fill([&](std::int64_t r, std::int64_t j) {
    return static_cast<float>((r == 0 ? 1e7 : 0) + near_zero(j));
  });
  double mean = 0, squares = 0;
  for (std::int64_t j = 0; j < cols; ++j) mean += near_zero(j) / cols;
  for (std::int64_t j = 0; j < cols; ++j) squares += std::pow(near_zero(j) - mean, 2);
  const double sigma = std::sqrt(squares / cols + 1e-5);
  norm.check(64, [&](std::int64_t, std::int64_t j) {
    return (near_zero(j) - mean) / sigma * norm.gamma.row(0)[j] + norm.beta.row(0)[j];
  });
}

TEST_CASE("an infinity makes what NumPy makes of it, in its own row only") {
  Norm norm("rmsnorm", 3, 67, "1e-5");
  norm.x.fill([&](std::int64_t r, std::int64_t j) { return r == 1 && j == 5 ? infinity : 1.0F; });
  const Catalogue catalogue = Catalogue::built_in();
  const Variant& variant = *catalogue.variant(norm.problem.kernel(), "opencl").variant;
  Environment env;
  env.threads = 0;
  run(variant, norm.problem, {}, env, norm.operands);
  check_output(norm.problem, norm.operands, norm.y, variant);
  CHECK(std::isnan(norm.y.row(1)[5]));
  CHECK(norm.y.row(1)[6] == 0);
}
