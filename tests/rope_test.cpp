// Rotary position embedding: angles, both styles beside each other, layouts of heads, in place,
// long positions, cost. What every kernel must do on every shape is in conformance_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

struct Case {
  Problem problem;
  Shape shape;
  std::vector<float> x, y;
  Operands operands;

  explicit Case(const std::string& text)
      : problem(make_problem(text)),
        shape{problem.size("batch"), problem.size("heads"), problem.size("len"),
              problem.size("head_dim")} {
    x.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    y.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 1.3f);
    operands.set("x", contiguous_view(x.data(), shape));
    operands.set("y", contiguous_view(y.data(), shape));
  }
  // Heads of a position side by side, as a linear layer leaves them.
  void lay_heads_inside() {
    for (const char* name : {"x", "y"}) {
      View view = operands.at(name);
      view.strides[1] = shape[3];
      view.strides[2] = shape[1] * shape[3];
      operands.set(name, view);
    }
  }
  void check_every_way() {
    each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      std::fill(y.begin(), y.end(), not_a_number);
      run(variant, problem, tuning, env, operands);
      const Reference& reference = known_reference(problem, operands, 1);
      const Verification result = verify_output(problem, operands, reference, 1);
      CHECK_MESSAGE(result.passed(), result.reason);
    });
  }
};

}  // namespace

TEST_CASE("rope rotates pairs of a known row by known angles, in both styles") {
  // Position 2 of base 100 and 4 elements: the second pair rotates a tenth as fast.
  const double t[] = {2, 0.2};
  const float x[] = {1, 2, 3, 4};
  for (const bool is_half : {true, false}) {
    Case c(std::string("rope:batch=1,heads=1,len=1,head_dim=4,base=100,offset=2,style=") +
           (is_half ? "half" : "interleaved"));
    std::copy(x, x + 4, c.x.begin());
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      run(variant, c.problem, tuning, env, c.operands);
      for (int i = 0; i < 2; ++i) {
        const int a = is_half ? i : 2 * i, b = is_half ? i + 2 : 2 * i + 1;
        CHECK(c.y[a] == doctest::Approx(x[a] * std::cos(t[i]) - x[b] * std::sin(t[i])));
        CHECK(c.y[b] == doctest::Approx(x[b] * std::cos(t[i]) + x[a] * std::sin(t[i])));
      }
    });
  }
}

TEST_CASE("rope leaves position 0 alone") {
  Case c("rope:batch=1,heads=3,len=1,head_dim=34,style=interleaved");
  each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    run(variant, c.problem, tuning, env, c.operands);
    CHECK(c.y == c.x);
  });
}

TEST_CASE("rope is right with every tuning, around vector widths, with heads inside positions") {
  for (const char* style : {"half", "interleaved"}) {
    for (const int head_dim : {2, 6, 14, 16, 18, 30, 32, 34, 64, 66, 80, 126, 130}) {
      Case c("rope:batch=2,heads=3,len=5,head_dim=" + std::to_string(head_dim) +
             ",offset=7,style=" + style);
      c.check_every_way();
      c.lay_heads_inside();
      c.check_every_way();
    }
  }
}

TEST_CASE("rope shared by threads is right where shares meet, and far from the first position") {
  for (const char* style : {"half", "interleaved"}) {
    Case c(
        std::string("rope:batch=1,heads=5,len=301,head_dim=128,base=500000,offset=130000,style=") +
        style);
    c.check_every_way();
    c.lay_heads_inside();
    c.check_every_way();
  }
}

TEST_CASE("rope in place gives the same bits as out of place") {
  for (const char* style : {"half", "interleaved"}) {
    for (const int head_dim : {6, 64, 130}) {
      Case c("rope:batch=1,heads=2,len=33,head_dim=" + std::to_string(head_dim) +
             ",style=" + style);
      std::vector<float> both;
      each_way(c.problem,
               [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
                 both = c.x;
                 Operands in_place;
                 in_place.set("x", contiguous_view(both.data(), c.shape));
                 in_place.set("y", contiguous_view(both.data(), c.shape));
                 run(variant, c.problem, tuning, env, c.operands);
                 run(variant, c.problem, tuning, env, in_place);
                 CHECK(c.y == both);
               });
    }
  }
}

TEST_CASE("rope: NaN and infinities stay in their pair") {
  for (const bool is_half : {true, false}) {
    Case c(std::string("rope:batch=1,heads=1,len=2,head_dim=48,style=") +
           (is_half ? "half" : "interleaved"));
    c.x[48 + 5] = not_a_number;
    c.x[48 + 10] = infinity;
    const int others[] = {is_half ? 5 + 24 : 4, is_half ? 10 + 24 : 11};
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      run(variant, c.problem, tuning, env, c.operands);
      for (int j = 0; j < 48; ++j) {
        const bool touched = j == 5 || j == 10 || j == others[0] || j == others[1];
        CHECK(std::isfinite(c.y[48 + j]) != touched);
      }
    });
  }
}

TEST_CASE("rope refuses an odd head_dim and a base that is no finite number above 0") {
  const std::string sizes = "rope:batch=1,heads=1,len=1,head_dim=";
  CHECK_THROWS_AS(make_problem(sizes + "3"), Error);
  for (const char* base : {"0", "-2", "inf", "nan"}) {
    CHECK_THROWS_AS(make_problem(sizes + "4,base=" + base), Error);
  }
}

TEST_CASE("rope's cost is what its header says") {
  const Problem problem = make_problem("rope:batch=2,heads=3,len=5,head_dim=8,type=bf16");
  const Cost cost = problem.kernel().cost(problem);
  CHECK(cost.flops == 3 * 2 * 3 * 5 * 8);
  CHECK(cost.exps == 0);
  CHECK(cost.bytes == 2 * 2 * 2 * 3 * 5 * 8);
}

TEST_CASE("the check of whole rope outputs finds positions that were swapped") {
  Case c("rope:batch=1,heads=2,len=4,head_dim=64");
  const Variant& variant = *Catalogue::built_in().variant(c.problem.kernel(), "scalar").variant;
  const auto whole = [&] {
    return c.problem.kernel().whole_check(c.problem, fp32, c.operands, 1).over_plain_bound;
  };
  run(variant, c.problem, {}, {}, c.operands);
  CHECK(whole() <= 1);
  std::swap_ranges(c.y.begin() + 64, c.y.begin() + 128, c.y.begin() + 128);
  CHECK(whole() > 1);
}
