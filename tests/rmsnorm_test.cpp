// RMSNorm: special values, large and small rows, in place, threads that share a row, cost. What
// every kernel must do on every shape is in conformance_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "tests/part_of_cases.hpp"
#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

struct Case {
  Problem problem;
  Matrix x;
  Matrix gamma;
  Matrix y;
  Operands operands;

  Case(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0, std::int64_t offset = 0,
       const std::string& more = "")
      : problem(make_problem("rmsnorm:rows=" + std::to_string(rows) +
                             ",cols=" + std::to_string(cols) + more)),
        x(rows, cols, padding, offset),
        gamma(1, cols, 0, offset),
        y(rows, cols, padding, offset) {
    gamma.fill([](auto, std::int64_t j) { return std::cos(static_cast<float>(j)); });
    const Shape shape = {cols};
    operands.set("x", x.view());
    operands.set("gamma", contiguous_view(gamma.row(0), shape));
    operands.set("y", y.view());
  }
  void check_every_way() {
    each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (!takes_next_case()) return;
      y.fill([](auto, auto) { return not_a_number; });
      run(variant, problem, tuning, env, operands);
      check_output(problem, operands, y, variant);
    });
  }
};

float wave(std::int64_t r, std::int64_t j) {
  return std::sin(static_cast<float>(1 + r) * 0.7f + static_cast<float>(j) * 1.3f);
}

}  // namespace

TEST_CASE("RMSNorm is right around vector widths and blocks, with every tuning, misaligned") {
  for (const std::int64_t cols : edge_cols) {
    for (const std::int64_t padding : {0, 3}) {
      Case c(3, cols, padding, padding == 0 ? 0 : 5);
      c.x.fill(wave);
      c.check_every_way();
    }
  }
}

TEST_CASE("RMSNorm of many narrow rows is right, and where threads' shares of them meet") {
  for (const std::int64_t cols : {1, 3, 8, 17, 64, 100}) {
    Case c(50000 / cols, cols, 0, 1);
    c.x.fill(wave);
    c.check_every_way();
  }
}

TEST_CASE("RMSNorm bears rows of very large, very small and very different elements") {
  // Four rows of the last size do not stay in L2.
  const auto l2 = static_cast<std::int64_t>(machine().l2_bytes / sizeof(float));
  for (const std::int64_t cols : {std::int64_t{13}, std::int64_t{100}, std::int64_t{4096},
                                  std::int64_t{30011}, l2 / 8 + 4465}) {
    Case c(5, cols);
    const float large = 1e19f / std::sqrt(static_cast<float>(cols));  // the squares' sum fits
    c.x.fill([&](std::int64_t r, std::int64_t j) {
      switch (r) {
        case 0:
          return large * wave(r, j);
        case 1:
          return 1e-12f * wave(r, j);
        case 2:
          return j == cols / 2 ? 1e6f : wave(r, j);
        case 3:
          return 0.1f;
        default:
          return 0.0f;
      }
    });
    c.check_every_way();
  }
}

TEST_CASE("RMSNorm: NaN makes its row NaN, an infinity NaN beside zeros; other rows stay alone") {
  for (const std::int64_t cols : {1, 3, 16, 19, 131, 9001, 20000}) {
    for (const std::int64_t place : {std::int64_t{0}, cols / 2, cols - 1}) {
      Case c(5, cols);
      c.x.fill([&](std::int64_t r, std::int64_t j) {
        if (j != place) return wave(r, j);
        return r == 1 ? not_a_number : r == 3 ? -infinity : wave(r, j);
      });
      each_way(
          c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
            run(variant, c.problem, tuning, env, c.operands);
            INFO("place ", place);
            const float* y = c.y.row(1);
            CHECK(std::all_of(y, y + cols, [](float value) { return std::isnan(value); }));
            y = c.y.row(3);
            CHECK(std::isnan(y[place]));
            CHECK(std::count_if(y, y + cols, [](float value) { return value == 0; }) == cols - 1);
            check_output(c.problem, c.operands, c.y, variant);
          });
    }
  }
}

TEST_CASE("RMSNorm of zeros is zero, and NaN when eps is 0") {
  for (const std::int64_t cols : {1, 16, 100}) {
    for (const bool is_nan : {false, true}) {
      Case c(2, cols, 0, 0, is_nan ? ",eps=0" : "");
      c.x.fill([](auto, auto) { return 0.0f; });
      each_way(c.problem,
               [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
                 run(variant, c.problem, tuning, env, c.operands);
                 for (const float y : c.y.dense()) CHECK((is_nan ? std::isnan(y) : y == 0));
               });
    }
  }
}

TEST_CASE("RMSNorm honours eps, refuses one that is negative or not finite, and empty rows") {
  Case c(3, 77, 0, 0, ",eps=2.5");
  c.x.fill(wave);
  c.check_every_way();
  for (const char* eps : {"-1e-5", "nan", "inf"}) {
    CHECK_THROWS_AS(make_problem(std::string("rmsnorm:rows=2,cols=3,eps=") + eps), Error);
  }
  CHECK_THROWS_AS(make_problem("rmsnorm:rows=3,cols=0"), Error);
}

TEST_CASE("RMSNorm in place gives the same bits as out of place") {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{5, 1},    {5, 16},    {5, 257},
                                                         {5, 9000}, {3, 70001}, {67, 17}};
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
                 both.fill(wave);
                 run(variant, c.problem, tuning, env, c.operands);
                 run(variant, c.problem, tuning, env, in_place);
                 CHECK(c.y.dense() == both.dense());
                 CHECK(both.guards_hold());
               });
    }
  }
}

TEST_CASE("RMSNorm's cost is what a plain loop counts") {
  const Problem problem = make_problem("rmsnorm:rows=7,cols=13");
  const Cost cost = problem.kernel().cost(problem);
  CHECK(cost.flops == 7 * 13 * (2 + 2));  // square, sum; scale, gamma
  CHECK(cost.exps == 0);
  CHECK(cost.bytes == 4 * (2 * 7 * 13 + 13));
}

TEST_CASE("the check of whole RMSNorm outputs finds rows that were swapped") {
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
