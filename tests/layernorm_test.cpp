// LayerNorm: special values, means far from zero, in place, threads that share a row, cost. What
// every kernel must do on every shape is in conformance_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/seeds.hpp"
#include "tests/part_of_cases.hpp"
#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

struct Case {
  Problem problem;
  Matrix x;
  Matrix gamma;
  Matrix beta;
  Matrix y;
  Operands operands;

  Case(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0, std::int64_t offset = 0,
       const std::string& more = "")
      : problem(make_problem("layernorm:rows=" + std::to_string(rows) +
                             ",cols=" + std::to_string(cols) + more)),
        x(rows, cols, padding, offset),
        gamma(1, cols, 0, offset),
        beta(1, cols, 0, offset + 1),
        y(rows, cols, padding, offset) {
    gamma.fill([](auto, std::int64_t j) { return std::cos(static_cast<float>(j)); });
    beta.fill([](auto, std::int64_t j) { return std::sin(static_cast<float>(j) * 0.3f); });
    operands.set("x", x.view());
    operands.set("gamma", vector(gamma));
    operands.set("beta", vector(beta));
    operands.set("y", y.view());
  }
  static View vector(const Matrix& matrix) {
    const Shape shape = {matrix.cols()};
    return contiguous_view(matrix.row(0), shape);
  }
  void check_every_way() {
    each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (!takes_next_case()) return;
      y.fill([](auto, auto) { return not_a_number; });
      run(variant, problem, tuning, env, operands);
      check_output(problem, operands, y, variant);
    });
  }
  // Greatest |y - reference| / (|gamma||x - mean| / sigma + |beta|), in units of 2^-24: the error
  // without the allowance that the bound makes for |mean|.
  double error_beside_mean() const {
    double worst = 0;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const auto n = static_cast<double>(x.cols());
      double sum = 0, squares = 0;
      for (std::int64_t j = 0; j < x.cols(); ++j) sum += x.row(r)[j];
      for (std::int64_t j = 0; j < x.cols(); ++j) squares += std::pow(x.row(r)[j] - sum / n, 2);
      const double sigma = std::sqrt(squares / n + problem.value("eps"));
      for (std::int64_t j = 0; j < x.cols(); ++j) {
        const double scaled = (x.row(r)[j] - sum / n) / sigma * gamma.row(0)[j];
        const double error = std::abs(y.row(r)[j] - (scaled + beta.row(0)[j]));
        // One u of the row's spread is allowed for elements that are equal to the mean.
        const double size = std::abs(scaled) + std::abs(beta.row(0)[j]) + 1;
        worst = std::isnan(error) ? infinity : std::max(worst, error / size * 0x1p24);
      }
    }
    return worst;
  }
};

float wave(std::int64_t r, std::int64_t j) {
  return std::sin(static_cast<float>(1 + r) * 0.7f + static_cast<float>(j) * 1.3f);
}

}  // namespace

TEST_CASE("LayerNorm is right around vector widths and blocks, with every tuning, misaligned") {
  for (const std::int64_t cols : edge_cols) {
    for (const std::int64_t padding : {0, 3}) {
      Case c(3, cols, padding, padding == 0 ? 0 : 5);
      c.x.fill(wave);
      c.check_every_way();
    }
  }
}

TEST_CASE("LayerNorm of many narrow rows is right, also when the last group of rows is not full") {
  for (const std::int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33, 65, 100, 128}) {
    for (const std::int64_t rows : {1, 5, 17, 100}) {
      for (const std::int64_t padding : {0, 2}) {
        Case c(rows, cols, padding, rows % 3);
        c.x.fill(wave);
        c.check_every_way();
      }
    }
  }
}

TEST_CASE(
    "LayerNorm of narrow rows shared by threads is right where their shares meet in a vector") {
  for (const std::int64_t cols : {3, 17, 33, 65, 100}) {
    Case c(50000 / cols, cols, 0, 1);
    c.x.fill(wave);
    c.check_every_way();
  }
}

TEST_CASE("LayerNorm keeps its digits at mean 1e4 and variance 1") {
  for (const std::int64_t cols : {3, 12, 100, 4096, 30011}) {
    Case c(4, cols);
    c.x.fill([](std::int64_t r, std::int64_t j) { return 1e4f + 1.4f * wave(r, j); });
    c.check_every_way();
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (variant.name != std::string("hwy") && variant.name != std::string("scalar")) return;
      run(variant, c.problem, tuning, env, c.operands);
      CHECK(c.error_beside_mean() < 4);
    });
  }
}

TEST_CASE("LayerNorm keeps the digits of elements that sit on a mean near zero") {
  // Random numbers, one small one, and one that brings their sum to about zero: a mean from float32
  // sums is off by far more than the small one's bound.
  for (const std::int64_t cols : {4, 9, 13, 79, 1025, 5001}) {
    Case c(20, cols);
    for (std::int64_t r = 0; r < c.x.rows(); ++r) {
      double sum = 0;
      for (std::int64_t j = 0; j + 1 < cols; ++j) {
        const std::uint64_t bits = splitmix64(static_cast<std::uint64_t>(r * cols + j)) >> 40;
        c.x.row(r)[j] = j == cols / 2 ? 1e-5f : static_cast<float>(bits) * 0x1p-23f - 1;
        sum += c.x.row(r)[j];
      }
      c.x.row(r)[cols - 1] = static_cast<float>(-sum);
    }
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      // What a library adds in is its own affair.
      const std::string name = variant.name;
      if (name == "blas" || name == "onednn") return;
      run(variant, c.problem, tuning, env, c.operands);
      check_output(c.problem, c.operands, c.y, variant);
    });
  }
}

TEST_CASE("LayerNorm bears an outlying first element, drifting means and steps") {
  // Four rows of the last size do not stay in L2.
  const auto l2 = static_cast<std::int64_t>(machine().l2_bytes / sizeof(float));
  for (const std::int64_t cols : {std::int64_t{13}, std::int64_t{100}, std::int64_t{4096},
                                  std::int64_t{30011}, l2 / 8 + 4465}) {
    Case c(5, cols);
    c.x.fill([&](std::int64_t r, std::int64_t j) {
      const float at = static_cast<float>(j) / static_cast<float>(cols);
      switch (r) {
        case 0:
          return j == 0 ? 1e4f : 0.3f;
        case 1:
          return j == 0 ? -1e6f : wave(r, j);
        case 2:
          return 1000 * at + wave(r, j);
        case 3:
          return at < 0.5f ? -300.0f : 7e4f;
        default:
          return j == cols - 1 ? 1e5f : -0.7f;
      }
    });
    c.check_every_way();
  }
}

TEST_CASE("LayerNorm: NaN and infinities make their row NaN and leave other rows alone") {
  for (const std::int64_t cols : {1, 2, 3, 4, 5, 8, 16, 19, 33, 64, 131, 9001, 20000}) {
    for (const std::int64_t place : {std::int64_t{0}, cols / 2, cols - 1}) {
      Case c(6, cols);
      c.x.fill([&](std::int64_t r, std::int64_t j) {
        if (j != place) return wave(r, j);
        return r == 1 ? not_a_number : r == 3 ? infinity : r == 4 ? -infinity : wave(r, j);
      });
      each_way(c.problem, [&](const Variant& variant, const Tuning& tuning,
                              const Environment& env) {
        run(variant, c.problem, tuning, env, c.operands);
        INFO("place ", place);
        for (const std::int64_t r : {1, 3, 4}) {
          CHECK(std::all_of(c.y.row(r), c.y.row(r) + cols, [](float y) { return std::isnan(y); }));
        }
        check_output(c.problem, c.operands, c.y, variant);
      });
    }
  }
}

TEST_CASE("LayerNorm of rows of one element, and of equal elements, is beta") {
  for (const std::int64_t cols : {1, 3, 16, 100, 9000}) {
    Case c(5, cols);
    c.x.fill([](std::int64_t r, auto) { return static_cast<float>(r - 2) * 1234.567f; });
    c.check_every_way();
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (variant.name != std::string("hwy") && variant.name != std::string("scalar")) return;
      run(variant, c.problem, tuning, env, c.operands);
      for (std::int64_t r = 0; r < 5; ++r) {
        CHECK(std::equal(c.y.row(r), c.y.row(r) + cols, c.beta.row(0)));
      }
    });
  }
}

TEST_CASE("LayerNorm divides by zero like NumPy when eps is 0 and a row is constant") {
  for (const std::int64_t cols : {1, 3, 16, 100}) {
    Case c(2, cols, 0, 0, ",eps=0");
    c.x.fill([](auto, auto) { return 0.5f; });
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      run(variant, c.problem, tuning, env, c.operands);
      for (float y : c.y.dense()) CHECK(std::isnan(y));
    });
  }
}

TEST_CASE("LayerNorm honours eps") {
  Case c(3, 77, 0, 0, ",eps=2.5");
  c.x.fill(wave);
  c.check_every_way();
}

TEST_CASE("LayerNorm refuses an eps that is negative or not finite, and rows without columns") {
  for (const char* eps : {"-1e-5", "nan", "inf"}) {
    CHECK_THROWS_AS(make_problem(std::string("layernorm:rows=2,cols=3,eps=") + eps), Error);
  }
  CHECK_THROWS_AS(make_problem("layernorm:rows=3,cols=0"), Error);
}

TEST_CASE("LayerNorm in place gives the same bits as out of place") {
  // 37 and 67 short rows: batches of them are written while later ones are read.
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {5, 1},    {5, 3},     {5, 16}, {5, 33},  {5, 257}, {5, 1000},
      {5, 9000}, {5, 70001}, {37, 9}, {37, 33}, {37, 65}, {37, 96},
      {37, 128}, {67, 1},    {67, 2}, {67, 3},  {67, 7},  {67, 17}};
  for (const auto& [rows, cols] : sizes) {
    for (const std::int64_t padding : {0, 2}) {
      Case c(rows, cols, padding, 1);
      Matrix both(rows, cols, padding, 1);
      Operands in_place = c.operands;
      in_place.set("x", both.view());
      in_place.set("y", both.view());
      each_way(c.problem,
               [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
                 c.x.fill(wave);
                 c.y.fill([](auto, auto) { return not_a_number; });
                 both.fill(wave);
                 run(variant, c.problem, tuning, env, c.operands);
                 run(variant, c.problem, tuning, env, in_place);
                 CHECK(c.y.dense() == both.dense());
                 CHECK(both.guards_hold());
               });
    }
  }
}

TEST_CASE("LayerNorm of no rows is a success") {
  Case c(0, 5);
  each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    run(variant, c.problem, tuning, env, c.operands);
  });
}

TEST_CASE("LayerNorm's cost is what a plain loop counts") {
  const std::int64_t rows = 7, cols = 13;
  std::int64_t flops = 0, bytes = 0;
  for (std::int64_t j = 0; j < cols; ++j) bytes += 8;  // gamma, beta: once for all rows
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < cols; ++j) bytes += 4, flops += 1;  // read x; sum
    for (std::int64_t j = 0; j < cols; ++j) flops += 3;              // x - mean, square, sum
    for (std::int64_t j = 0; j < cols; ++j) flops += 3, bytes += 4;  // scale, gamma, beta; write
  }
  const Problem problem = make_problem("layernorm:rows=7,cols=13");
  const Cost cost = problem.kernel().cost(problem);
  CHECK(cost.flops == flops);
  CHECK(cost.exps == 0);
  CHECK(cost.bytes == bytes);
}

TEST_CASE("the check of whole LayerNorm outputs finds rows that were swapped") {
  Case c(4, 300);
  c.x.fill(wave);
  const Variant& variant = *Catalogue::built_in().variant(c.problem.kernel(), "scalar").variant;
  const auto whole = [&] {
    return c.problem.kernel().whole_check(c.problem, fp32, c.operands, 1).over_plain_bound;
  };
  run(variant, c.problem, {}, {}, c.operands);
  CHECK(whole() <= 1);
  std::swap_ranges(c.y.row(1), c.y.row(1) + 300, c.y.row(2));
  CHECK(whole() > 1);
}
