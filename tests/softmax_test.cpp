// Softmax: special values, stability, in place, threads that share a row, cost. What every kernel
// must do on every shape is in conformance_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
  Matrix y;
  Operands operands;

  Case(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0, std::int64_t offset = 0)
      : problem(
            make_problem("softmax:rows=" + std::to_string(rows) + ",cols=" + std::to_string(cols))),
        x(rows, cols, padding, offset),
        y(rows, cols, padding, offset) {
    operands.set("x", x.view());
    operands.set("y", y.view());
  }
  enum class Peers { yes, no };
  void check_every_way(Peers peers = Peers::yes) {
    each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (peers == Peers::no && variant.name == std::string("onednn")) return;
      if (!takes_next_case()) return;
      y.fill([](auto, auto) { return not_a_number; });
      run(variant, problem, tuning, env, operands);
      check_output(problem, operands, y, variant);
    });
  }
};

float wave(std::int64_t r, std::int64_t j) {
  return 8 * std::sin(static_cast<float>(1 + r) * 0.7f + static_cast<float>(j) * 1.3f);
}

}  // namespace

TEST_CASE("softmax is right around vector widths and blocks, with every tuning and misalignment") {
  for (const std::int64_t cols : edge_cols) {
    for (const std::int64_t padding : {0, 3}) {
      Case c(3, cols, padding, padding == 0 ? 0 : 5);
      c.x.fill(wave);
      c.check_every_way();
    }
  }
}

TEST_CASE("softmax of many narrow rows is right, also when the last group of rows is not full") {
  for (const std::int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33, 49, 64, 65}) {
    for (const std::int64_t rows : {1, 5, 17, 100}) {
      for (const std::int64_t padding : {0, 2}) {
        Case c(rows, cols, padding, rows % 3);
        c.x.fill(wave);
        c.check_every_way();
      }
    }
  }
}

TEST_CASE("softmax of narrow rows shared by threads is right where their shares meet in a vector") {
  for (const std::int64_t cols : {3, 17, 33, 65, 100}) {
    Case c(50000 / cols, cols, 0, 1);
    c.x.fill(wave);
    c.check_every_way();
  }
}

TEST_CASE("softmax of rows of up to eight vectors is right past the caches") {
  // Rows that begin a vector each: with 16, 8 and 4 lanes, one to eight vectors, the last one whole
  // and in part.
  const std::pair<std::int64_t, std::int64_t> rows[] = {
      {128, 0}, {115, 13}, {96, 0}, {81, 15}, {31, 1}, {47, 1}, {61, 3},
      {64, 0},  {48, 0},   {32, 0}, {15, 1},  {23, 1}, {29, 3}, {7, 1}};
  for (const auto& [cols, padding] : rows) {
    Case c(100, cols, padding, 0);
    c.x.fill(wave);
    c.check_every_way();
  }
}

TEST_CASE("softmax: NaN and +inf make their row NaN, -inf weighs zero, other rows are untouched") {
  for (const std::int64_t cols : {1, 2, 3, 4, 5, 8, 16, 19, 33, 64, 131, 9001, 20000}) {
    for (const std::int64_t place : {std::int64_t{0}, cols / 2, cols - 1}) {
      // Rows: plain, one NaN, plain, one +inf, one -inf, all -inf, plain, NaN among -inf,
      // +inf and -inf, -inf but for one place.
      Case c(10, cols);
      c.x.fill([&](std::int64_t r, std::int64_t j) {
        if (r == 5) return -infinity;
        if (r == 7) return j == place ? not_a_number : -infinity;
        if (r == 9) return j == place ? -2.5f : -infinity;
        if (j != place) return r == 8 ? -infinity : wave(r, j);
        return r == 1             ? not_a_number
               : r == 3 || r == 8 ? infinity
               : r == 4           ? -infinity
                                  : wave(r, j);
      });
      each_way(c.problem, [&](const Variant& variant, const Tuning& tuning,
                              const Environment& env) {
        // oneDNN's exp takes NaN for a number: softmax/onednn.cpp says so.
        if (variant.name == std::string("onednn")) return;
        run(variant, c.problem, tuning, env, c.operands);
        INFO("place ", place);
        for (const std::int64_t r : {1, 3, 5, 7, 8}) {
          CHECK(std::all_of(c.y.row(r), c.y.row(r) + cols, [](float y) { return std::isnan(y); }));
        }
        if (cols > 1) CHECK(c.y.row(4)[place] == 0);
        for (std::int64_t j = 0; j < cols; ++j) {
          if (c.y.row(9)[j] != (j == place ? 1.0f : 0.0f)) FAIL_CHECK("one-hot row, element ", j);
        }
        check_output(c.problem, c.operands, c.y, variant);
      });
    }
  }
}

TEST_CASE("softmax of a row of one element is exactly one") {
  Case c(37, 1);
  c.x.fill([](std::int64_t r, auto) { return static_cast<float>(r * r - 300) * 1e30f; });
  each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    run(variant, c.problem, tuning, env, c.operands);
    for (float y : c.y.dense()) CHECK(y == 1);
  });
}

TEST_CASE("softmax of a power of two of equal elements is exact, at any magnitude") {
  for (const std::int64_t cols : {1, 2, 4, 8, 64, 1024, 16384}) {
    Case c(4, cols);
    c.x.fill([](std::int64_t r, auto) {
      return r == 0 ? 0.0f : r == 1 ? 1e4f : r == 2 ? -1e4f : 3e38f;
    });
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      run(variant, c.problem, tuning, env, c.operands);
      for (float y : c.y.dense()) {
        if (y != 1.0f / static_cast<float>(cols)) FAIL_CHECK(y);
      }
    });
  }
}

TEST_CASE("softmax neither overflows nor loses its sum at large |x|") {
  for (const std::int64_t cols : {3, 17, 300, 10007}) {
    Case c(6, cols);
    c.x.fill([](std::int64_t r, std::int64_t j) {
      const float sign = j % 2 == 0 ? 1.0f : -1.0f;
      switch (r) {
        case 0:
          return 1e4f + wave(r, j);
        case 1:
          return -1e4f + wave(r, j);
        case 2:
          return sign * 1e4f;
        case 3:
          return sign * 3e38f;
        case 4:
          return static_cast<float>(j) * 1e30f;
        default:
          return 88.0f * sign;
      }
    });
    c.check_every_way();
  }
}

TEST_CASE("softmax of long ramps, steps and one-sided sums stays within the bound") {
  // A sum kept badly drifts one way here: equal terms beside one of another size, and a maximum
  // that rises from block to block.
  for (const std::int64_t cols : {96, 4096, 50021}) {
    Case c(7, cols);
    c.x.fill([&](std::int64_t r, std::int64_t j) {
      const float at = static_cast<float>(j) / static_cast<float>(cols);
      switch (r) {
        case 0:
          return 40 * at;
        case 1:
          return -40 * at;
        case 2:
          return 0.01f * at;
        case 3:
          return j == 0 ? 0.0f : -0.35f;
        case 4:
          return j == cols - 1 ? 0.0f : -1.05f;
        case 5:
          return j == cols / 2 ? 5.0f : -2.1f;
        default:
          return std::floor(16 * at);
      }
    });
    // onednn's plain sums drift farther here than random roundings would.
    c.check_every_way(Case::Peers::no);
  }
}

TEST_CASE("hwy: softmax of rows that fill L2 and more is right") {
  // Four rows do not stay in L2, not one, not one thread's third of one. The maximum rises from
  // block to block, or comes last. (Rungs of the ladders that add up plainly lose too many digits.)
  const auto l2 = static_cast<std::int64_t>(machine().l2_bytes / sizeof(float));
  int runs = 0;
  for (const std::int64_t cols : {l2 / 8 + 4465, l2 / 2 + 1001, 3 * l2 / 2 + 1001}) {
    Case c(2, cols);
    c.x.fill([&](std::int64_t r, std::int64_t j) {
      if (r == 0) return 40 * static_cast<float>(j) / static_cast<float>(cols);
      return j == cols - 1 ? 0.0f : -1.05f;
    });
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (variant.name != std::string("hwy") || tuning.get("step", -1) >= 0) return;
      run(variant, c.problem, tuning, env, c.operands);
      check_output(c.problem, c.operands, c.y, variant);
      ++runs;
    });
  }
  CHECK(runs > 0);
}

TEST_CASE("softmax in place gives the same bits as out of place") {
  // 67 short rows: groups of them are written while later ones are read.
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {5, 1},  {5, 3},  {5, 16}, {5, 33}, {5, 257}, {5, 1000}, {5, 9000}, {5, 70001},
      {67, 1}, {67, 2}, {67, 3}, {67, 7}, {67, 9},  {67, 17},  {67, 33},  {67, 61}};
  for (const auto& [rows, cols] : sizes) {
    for (const std::int64_t padding : {0, 2}) {
      Case c(rows, cols, padding, 1);
      Matrix both(rows, cols, padding, 1);
      Operands in_place;
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

TEST_CASE("softmax of no rows is a success") {
  Case c(0, 5);
  each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    run(variant, c.problem, tuning, env, c.operands);
  });
}

TEST_CASE("softmax without columns is refused") {
  CHECK_THROWS_AS(make_problem("softmax:rows=3,cols=0"), Error);
}

TEST_CASE("softmax's cost is what a plain loop counts") {
  const std::int64_t rows = 7, cols = 13;
  std::int64_t flops = 0, exps = 0, bytes = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < cols; ++j) bytes += 4, flops += 1;  // read x; max
    for (std::int64_t j = 0; j < cols; ++j) {
      flops += 1;             // x - max
      exps += 1, flops += 1;  // exp
      flops += 1;             // sum
    }
    for (std::int64_t j = 0; j < cols; ++j) flops += 1, bytes += 4;  // scale; write y
  }
  const Problem problem = make_problem("softmax:rows=7,cols=13");
  const Cost cost = problem.kernel().cost(problem);
  CHECK(cost.flops == flops);
  CHECK(cost.exps == exps);
  CHECK(cost.bytes == bytes);
}

TEST_CASE("the check of whole softmax outputs finds rows that were swapped or not scaled") {
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
  run(variant, c.problem, {}, {}, c.operands);
  for (std::int64_t j = 0; j < 300; ++j) c.y.row(3)[j] *= 1.00001f;
  CHECK(whole() > 1);
  run(variant, c.problem, {}, {}, c.operands);
  c.x.row(2)[7] = not_a_number;
  CHECK(whole() > 1);
}

TEST_CASE("softmax of scale times x plus a mask whose rows repeat is that of the sums") {
  // Two heads of three queries over 21 keys: one mask of three rows under both.
  constexpr std::int64_t rows = 6, cols = 21, mask_rows = 3;
  constexpr float scale = 0.25F, hidden = -std::numeric_limits<float>::infinity();
  Matrix x(rows, cols), mask(mask_rows, cols), sums(rows, cols), y(rows, cols),
      expected(rows, cols);
  x.fill(wave);
  mask.fill(
      [&](std::int64_t r, std::int64_t j) { return j > r + 15 ? hidden : 0.5F * wave(r, j); });
  sums.fill([&](std::int64_t r, std::int64_t j) {
    return scale * wave(r, j) + (j > r % 3 + 15 ? hidden : 0.5F * wave(r % 3, j));
  });
  Operands plain;
  plain.set("x", sums.view());
  plain.set("y", expected.view());
  const Problem of_sums = make_problem("softmax:rows=6,cols=21");
  each_way(of_sums, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    if (variant.name == std::string("scalar")) run(variant, of_sums, tuning, env, plain);
  });
  const Problem problem = make_problem("softmax:rows=6,cols=21,scale=0.25,mask=1,mask_rows=3");
  Operands operands;
  operands.set("x", x.view());
  operands.set("mask", mask.view());
  operands.set("y", y.view());
  int ways = 0;
  each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    if (tuning.find(std::string(step_key))) return;  // rungs have no options
    y.fill([](auto, auto) { return not_a_number; });
    run(variant, problem, tuning, env, operands);
    ++ways;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < cols; ++j) {
        CHECK(std::abs(y.row(r)[j] - expected.row(r)[j]) <= 1e-6F);
        if (j > r % 3 + 15) CHECK(y.row(r)[j] == 0);
      }
    }
  });
  CHECK(ways >= 2);
}

TEST_CASE("softmax refuses a mask that does not repeat evenly, and a scale that is not finite") {
  CHECK_THROWS_WITH_AS(make_problem("softmax:rows=6,cols=2,mask=1,mask_rows=4"),
                       doctest::Contains("mask_rows=4: allowed are divisors of rows=6"), Error);
  CHECK_THROWS_WITH_AS(make_problem("softmax:rows=6,cols=2,scale=1e39"),
                       doctest::Contains("scale=1e39: allowed is a finite number"), Error);
}
