// The elementwise kernels (add, activation): accuracy over samples of all floats, special values,
// in place, threads that share elements, cost. What every kernel must do on every shape is in
// conformance_test.cpp.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

struct Case {
  Problem problem;
  Matrix x;
  Matrix second;  // r, or g where there is a gate
  Matrix y;
  Operands operands;

  // `kernel_and_sizes`: "add:rows=3,cols=5", with a name for the second input, or none.
  Case(const std::string& text, const char* second_name, std::int64_t padding = 0,
       std::int64_t offset = 0)
      : problem(make_problem(text)),
        x(problem.size("rows"), problem.size("cols"), padding, offset),
        second(problem.size("rows"), problem.size("cols"), 2 * padding, 2 * offset),
        y(problem.size("rows"), problem.size("cols"), padding, offset) {
    second.fill([](std::int64_t r, std::int64_t j) { return wave(r + 5, j); });
    operands.set("x", x.view());
    operands.set("y", y.view());
    if (second_name != nullptr) operands.set(second_name, second.view());
  }
  static float wave(std::int64_t r, std::int64_t j) {
    return 6 * std::sin(static_cast<float>(1 + r) * 0.7f + static_cast<float>(j) * 1.3f);
  }
  void check_every_way() {
    each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      y.fill([](auto, auto) { return not_a_number; });
      run(variant, problem, tuning, env, operands);
      check_output(problem, operands, y, variant);
    });
  }
};

std::string sized(const std::string& kernel, std::int64_t rows, std::int64_t cols,
                  const std::string& more = "") {
  return kernel + ":rows=" + std::to_string(rows) + ",cols=" + std::to_string(cols) + more;
}

constexpr const char* kinds[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh"};

// What a library does with special values is its own affair.
bool is_ours(const Variant& variant) { return variant.name != std::string("onednn"); }

}  // namespace

TEST_CASE("add is right around vector widths, with every tuning, misaligned") {
  for (const std::int64_t cols : edge_cols) {
    for (const std::int64_t padding : {0, 3}) {
      Case c(sized("add", 3, cols), "r", padding, padding);
      c.x.fill(Case::wave);
      c.check_every_way();
    }
  }
}

TEST_CASE("activation is right around vector widths, with every tuning, misaligned") {
  for (const std::int64_t cols : edge_cols) {
    for (const std::int64_t padding : {0, 3}) {
      Case c(sized("activation", 3, cols, ",kind=silu,gate=1"), "g", padding, padding);
      c.x.fill(Case::wave);
      c.check_every_way();
    }
  }
}

TEST_CASE(
    "elements shared by threads are right where shares meet, with gaps between rows and without") {
  // Several shares of a thread; of the rows with gaps some are cut.
  for (const std::int64_t padding : {0, 1}) {
    Case sum(sized("add", 67, 3001), "r", padding, 1);
    sum.x.fill(Case::wave);
    sum.check_every_way();
    Case gelu(sized("activation", 3, 30011, ",kind=gelu"), nullptr, padding, 1);
    gelu.x.fill(Case::wave);
    gelu.check_every_way();
  }
}

TEST_CASE("activation functions keep their bounds over a sweep of all floats on every ISA target") {
  // Every float with bits that are a multiple of 8191 (a prime); from 2^-13 to 128, where the
  // functions do more than scale, a multiple of 1021.
  std::vector<float> floats;
  const auto add = [&](std::uint64_t first, std::uint64_t last, std::uint64_t step) {
    for (std::uint64_t bits = first; bits < last; bits += step) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      floats.push_back(x);
      floats.push_back(-x);
    }
  };
  const auto bits_of = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  add(0, bits_of(infinity), 8191);
  add(bits_of(0x1p-13f), bits_of(128), 1021);
  for (const char* kind : kinds) {
    const auto cols = static_cast<std::int64_t>(floats.size());
    Case c(sized("activation", 1, cols, std::string(",kind=") + kind), nullptr);
    c.x.fill([&](auto, std::int64_t j) { return floats[static_cast<std::size_t>(j)]; });
    each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
      if (!is_ours(variant) || env.threads > 1) return;
      run(variant, c.problem, tuning, env, c.operands);
      check_output(c.problem, c.operands, c.y, variant);
    });
  }
}

TEST_CASE("activation gives NumPy's values for NaN, infinities and zeros, in every lane") {
  struct Special {
    float x;
    float expected[5];  // of each kind
  };
  const Special specials[] = {
      {not_a_number, {not_a_number, not_a_number, not_a_number, not_a_number, not_a_number}},
      {infinity, {infinity, infinity, infinity, infinity, 1}},
      {-infinity, {0, not_a_number, not_a_number, not_a_number, -1}},
      {0.0f, {0, 0, 0, 0, 0}},
      {-0.0f, {0, 0, 0, 0, 0}},
      {3e38f, {3e38f, 3e38f, 3e38f, 3e38f, 1}},
      {-3e38f, {0, 0, 0, 0, -1}},
  };
  for (std::size_t kind = 0; kind < 5; ++kind) {
    for (const std::int64_t cols : {1, 7, 61}) {
      Case c(sized("activation", 1, cols, std::string(",kind=") + kinds[kind]), nullptr);
      for (const Special& special : specials) {
        c.x.fill([&](auto, auto) { return special.x; });
        each_way(c.problem,
                 [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
                   if (!is_ours(variant)) return;
                   run(variant, c.problem, tuning, env, c.operands);
                   const float expected = special.expected[kind];
                   for (const float y : c.y.dense()) {
                     INFO("x = ", special.x);
                     CHECK((std::isnan(expected) ? std::isnan(y) : y == expected));
                   }
                 });
      }
    }
  }
}

TEST_CASE("add: NaN spreads, infinities of both signs give NaN, one stays") {
  Case c(sized("add", 1, 4), "r");
  const float x[] = {not_a_number, infinity, infinity, 1}, r[] = {1, -infinity, 1, not_a_number};
  c.x.fill([&](auto, std::int64_t j) { return x[j]; });
  c.second.fill([&](auto, std::int64_t j) { return r[j]; });
  each_way(c.problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    run(variant, c.problem, tuning, env, c.operands);
    const std::vector<float> y = c.y.dense();
    CHECK((std::isnan(y[0]) && std::isnan(y[1]) && y[2] == infinity && std::isnan(y[3])));
  });
}

TEST_CASE("elementwise kernels in place give the same bits as out of place") {
  const std::pair<const char*, const char*> kernels[] = {
      {"add", ""}, {"activation", ",kind=tanh"}, {"activation", ",kind=gelu,gate=1"}};
  for (const auto& [kernel, more] : kernels) {
    for (const std::int64_t cols : {1, 5, 33, 1000, 20011}) {
      const bool is_gated = std::string(more).find("gate") != std::string::npos;
      const char* second = kernel == std::string("add") ? "r" : is_gated ? "g" : nullptr;
      Case c(sized(kernel, 3, cols, more), second, 2, 1);
      Matrix both(3, cols, 2, 1);
      Operands in_place = c.operands;
      in_place.set("x", both.view());
      in_place.set("y", both.view());
      each_way(c.problem,
               [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
                 c.x.fill(Case::wave);
                 both.fill(Case::wave);
                 run(variant, c.problem, tuning, env, c.operands);
                 run(variant, c.problem, tuning, env, in_place);
                 CHECK(c.y.dense() == both.dense());
                 CHECK(both.guards_hold());
               });
    }
  }
}

TEST_CASE("the cost of elementwise kernels is what their headers say") {
  const auto cost_of = [](const std::string& text) {
    const Problem problem = make_problem(text);
    return problem.kernel().cost(problem);
  };
  CHECK(cost_of("add:rows=7,cols=13").flops == 91);
  CHECK(cost_of("add:rows=7,cols=13").bytes == 3 * 4 * 91);
  CHECK(cost_of("add:rows=7,cols=13,broadcast=1").bytes == 2 * 4 * 91 + 4 * 13);
  CHECK(cost_of("add:rows=7,cols=13,type=bf16").bytes == 3 * 2 * 91);
  const int flops[] = {1, 5, 9, 4, 1};
  for (std::size_t kind = 0; kind < 5; ++kind) {
    const std::string text = sized("activation", 7, 13, std::string(",kind=") + kinds[kind]);
    CHECK(cost_of(text).flops == 91 * flops[kind]);
    CHECK(cost_of(text).exps == (kind == 0 ? 0 : 91));
    CHECK(cost_of(text).bytes == 2 * 4 * 91);
    CHECK(cost_of(text + ",gate=1").flops == 91 * (flops[kind] + 1));
    CHECK(cost_of(text + ",gate=1").bytes == 3 * 4 * 91);
  }
}

TEST_CASE("activation needs a kind, and refuses one that it does not know") {
  CHECK_THROWS_AS(make_problem("activation:rows=2,cols=3"), Error);
  CHECK_THROWS_AS(make_problem("activation:rows=2,cols=3,kind=sigmoid"), Error);
}

TEST_CASE("the checks of whole elementwise outputs find an element that is another's") {
  const std::pair<const char*, const char*> kernels[] = {{"add", ""}, {"activation", ",kind=silu"}};
  for (const auto& [kernel, more] : kernels) {
    Case c(sized(kernel, 4, 30, more), kernel == std::string("add") ? "r" : nullptr);
    c.x.fill(Case::wave);
    const Variant& variant = *Catalogue::built_in().variant(c.problem.kernel(), "scalar").variant;
    const auto whole = [&] {
      return c.problem.kernel().whole_check(c.problem, fp32, c.operands, 1).over_plain_bound;
    };
    run(variant, c.problem, {}, {}, c.operands);
    CHECK(whole() <= 1);
    std::swap_ranges(c.y.row(1), c.y.row(1) + 30, c.y.row(2));
    CHECK(whole() > 1);
  }
}
