// Each distribution of seeded inputs draws what it says, within what a kernel allows its operands,
// and a wrong implementation that the uniform one cannot show fails in another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "measure/case.hpp"
#include "measure/verify.hpp"

using namespace rooflane;

namespace {

constexpr std::uint64_t seed = 11;
constexpr std::int64_t rows = 400, cols = 50;

Problem problem_of(const std::string& text) {
  return parse_problem(text, Catalogue::built_in().kernels());
}

using Row = std::vector<double>;

// x of a softmax; its scale is 8.
std::vector<Row> drawn(const char* distribution, const std::string& type = "f32") {
  const Problem problem = problem_of("softmax:rows=" + std::to_string(rows) +
                                     ",cols=" + std::to_string(cols) + ",type=" + type);
  const OwnedOperands operands(problem, {seed, distribution_named(distribution)}, 2);
  std::vector<Row> all(static_cast<std::size_t>(rows), Row(static_cast<std::size_t>(cols)));
  for (std::int64_t row = 0; row < rows; ++row) {
    read_row(operands.inputs().at("x"), row, 0, all[static_cast<std::size_t>(row)]);
  }
  return all;
}

double largest(const Row& row) {
  return std::fabs(*std::max_element(
      row.begin(), row.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); }));
}

// Whether a kernel with y[i,j] = f(row of x) passes on the drawn row.
bool passes(const Problem& problem, const char* distribution,
            const std::function<void(const float* x, float* y, std::int64_t n)>& row_of_y) {
  const InputSeed inputs(seed, distribution_named(distribution));
  const OwnedOperands operands(problem, inputs, 1);
  const View &x = operands.all().at("x"), &y = operands.output();
  for (std::int64_t r = 0; r < y.rows(); ++r) {
    row_of_y(x.f32() + r * x.cols(), y.f32() + r * y.cols(), y.cols());
  }
  const Reference reference = compute_reference(problem, operands.inputs(), inputs);
  return verify_output(problem, operands.all(), reference, inputs).passed();
}

}  // namespace

TEST_CASE("uniform inputs are those of a seed alone") {
  const Problem problem = problem_of("softmax:rows=3,cols=5");
  CHECK(OwnedOperands(problem, seed, 1).input_hash() ==
        OwnedOperands(problem, {seed, uniform}, 1).input_hash());
}

TEST_CASE("wide: rows and elements of every magnitude, all finite") {
  for (const auto& [type, low, high] :
       {std::tuple("f32", -126, 128), std::tuple("bf16", -126, 128), std::tuple("f16", -14, 16)}) {
    INFO(type);
    std::set<int> of_rows, within_rows;
    const std::vector<Row> x = drawn("wide", type);
    for (std::size_t r = 0; r < x.size(); ++r) {
      if (r % 2 == 0) of_rows.insert(std::ilogb(largest(x[r])));
      for (const double value : x[r]) {
        REQUIRE(std::isfinite(value));
        if (r % 2 == 1 && value != 0) within_rows.insert(std::ilogb(value));
      }
      // Nearly all of 50 numbers within (-1,1) times one power of two are above its 2^-10.
      const auto large = std::count_if(x[r].begin(), x[r].end(), [&](double value) {
        return std::fabs(value) > largest(x[r]) * 0x1p-10;
      });
      if (r % 2 == 0 && std::ilogb(largest(x[r])) > low) CHECK(large > cols * 9 / 10);
    }
    CHECK(*of_rows.begin() < low + 5);
    CHECK(*of_rows.rbegin() > high - 5);
    CHECK(*within_rows.begin() < low + 2);
    CHECK(*within_rows.rbegin() == high - 1);
  }
}

TEST_CASE("cancelling: rows that hardly differ, and pairs that leave little") {
  const std::vector<Row> x = drawn("cancelling");
  for (std::size_t r = 0; r < x.size(); ++r) {
    if (r % 2 == 0) {
      const auto [low, high] = std::minmax_element(x[r].begin(), x[r].end());
      CHECK(*low > 8 * 4095 - 1);
      CHECK(*high - *low < 16);
      CHECK(*high > *low);
      continue;
    }
    for (std::size_t j = 0; j < x[r].size(); j += 2) {
      CHECK(std::fabs(x[r][j] + x[r][j + 1]) <= 8);
    }
    CHECK(largest(x[r]) > 8 * 2048);
  }
}

TEST_CASE("constant: one number a row, of any magnitude") {
  std::set<int> magnitudes;
  for (const Row& row : drawn("constant")) {
    CHECK(std::count(row.begin(), row.end(), row[0]) == cols);
    magnitudes.insert(std::ilogb(row[0]));
  }
  CHECK(*magnitudes.begin() < -120);
  CHECK(*magnitudes.rbegin() > 120);
}

TEST_CASE("outlier: one element of a row is far from the others, not always the same one") {
  std::set<std::ptrdiff_t> places;
  for (const Row& row : drawn("outlier")) {
    const auto is_far = [](double value) { return std::fabs(value) > 8; };
    CHECK(std::count_if(row.begin(), row.end(), is_far) == 1);
    CHECK(largest(row) == 8 * 4096);
    places.insert(std::find_if(row.begin(), row.end(), is_far) - row.begin());
  }
  CHECK(places.size() > 40);
}

TEST_CASE("ties: five values") {
  std::set<double> values;
  for (const Row& row : drawn("ties")) values.insert(row.begin(), row.end());
  CHECK(values == std::set<double>{-8, -4, 0, 4, 8});
}

TEST_CASE("denormals: every other row is below the normal numbers and not zero") {
  for (const auto& [type, least_normal] : {std::pair("f32", 0x1p-126), std::pair("f16", 0x1p-14)}) {
    const std::vector<Row> x = drawn("denormals", type);
    for (std::size_t r = 0; r < x.size(); ++r) {
      if (r % 2 == 0) {
        CHECK(largest(x[r]) <= least_normal);
        CHECK(largest(x[r]) > least_normal / 4);
      } else {
        CHECK(largest(x[r]) > 1);
      }
    }
  }
}

TEST_CASE("operands stay within their reach, vectors beside rows stay uniform") {
  for (const Distribution* const distribution : all_distributions()) {
    INFO(std::string(distribution->name));
    const Problem gemm = problem_of("gemm:m=40,n=40,k=40");
    const OwnedOperands products(gemm, {seed, *distribution}, 1);
    const View& a = products.inputs().at("a");
    CHECK(std::all_of(a.f32(), a.f32() + a.elements(),
                      [](float value) { return std::fabs(value) <= 0x1p48F; }));
    const Problem norm = problem_of("layernorm:rows=2,cols=40");
    const OwnedOperands ordinary(norm, seed, 1), others(norm, {seed, *distribution}, 1);
    for (const char* const name : {"gamma", "beta"}) {
      const View &x = ordinary.inputs().at(name), &y = others.inputs().at(name);
      CHECK(std::equal(x.f32(), x.f32() + 40, y.f32()));
    }
  }
}

TEST_CASE("GEMM's results stay within c's format, whatever the operands") {
  for (const char* const text :
       {"gemm:m=8,n=8,k=3360,c_type=f16", "gemm:m=8,n=8,k=300,alpha=-100,c_type=f16",
        "gemm:m=8,n=8,k=60,gate=1,c_type=f16", "gemm:m=8,n=8,k=40000,gate=1", "gemm:m=8,n=8,k=1",
        "gemm:m=8,n=8,k=1,c_type=f16,beta=2,epilogue=bias+add"}) {
    INFO(std::string(text));
    const Problem problem = problem_of(text);
    const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
    const TensorSpec& c = tensors.back();
    REQUIRE(c.name == "c");
    for (const Distribution* const distribution : all_distributions()) {
      INFO(std::string(distribution->name));
      const OwnedOperands operands(problem, {seed, *distribution}, 2);
      std::vector<std::int64_t> lines = {0, 1, 2, 3, 4, 5, 6, 7};
      const std::vector<double> values =
          reference_values(problem, operands.inputs(), c, {lines, lines});
      CHECK(std::all_of(values.begin(), values.end(),
                        [&](double value) { return std::fabs(value) <= c.dtype->largest; }));
    }
  }
}

TEST_CASE("a case carries its distribution as text") {
  const Catalogue catalogue = Catalogue::built_in();
  const std::string text = "softmax:rows=2,cols=3 variant=scalar distribution=ties";
  CHECK(parse_case(text, catalogue).text() == text);
  CHECK(parse_case(text, catalogue).distribution->name == "ties");
  CHECK_THROWS_AS(parse_case(text + "s", catalogue), Error);
}

TEST_CASE("kernels say which distributions they cannot serve") {
  const auto defect = [](const char* text, const Math& math, const char* distribution) {
    return distribution_defect(problem_of(text), math, distribution_named(distribution));
  };
  CHECK_FALSE(defect("gemm:m=2,n=2,k=2", fp32, "wide"));
  CHECK(*defect("gemm:m=2,n=2,k=2", math_f16, "wide") ==
        "math f16 rounds a_type=f32 to float16, which holds 2^-14 to 2^16");
  CHECK_FALSE(defect("gemm:m=2,n=2,k=2,a_type=f16,b_type=f16", math_f16, "wide"));
  CHECK(*defect("gemm:m=2,n=2,k=2,a_type=s8,b_type=s8,c_type=s32", math_int8, "ties") ==
        "no operand holds real numbers");
  CHECK(*defect("gemm:m=2,n=2,k=40000,c_type=f16", fp32, "wide") ==
        "results would not fit the output's format");
}

TEST_CASE("squares that overflow are shown by wide inputs alone") {
  const Problem problem = problem_of("rmsnorm:rows=40,cols=9");
  const OwnedOperands gammas(problem, seed, 1);
  const float* const gamma = gammas.inputs().at("gamma").f32();
  const auto rms_norm = [&](auto zero) {
    return [=](const float* x, float* y, std::int64_t n) {
      auto squares = zero;
      for (std::int64_t j = 0; j < n; ++j) squares += decltype(zero)(x[j]) * x[j];
      const double root = std::sqrt(squares / static_cast<double>(n) + 1e-5);
      for (std::int64_t j = 0; j < n; ++j) y[j] = static_cast<float>(x[j] / root * gamma[j]);
    };
  };
  for (const Distribution* const distribution : all_distributions()) {
    const std::string name(distribution->name);
    INFO(name);
    CHECK(passes(problem, name.c_str(), rms_norm(0.0)));
    const bool has_large_rows = name == "wide" || name == "constant";
    CHECK(passes(problem, name.c_str(), rms_norm(0.0F)) == !has_large_rows);
  }
}

TEST_CASE("a softmax without its maximum, and one with a variance by E[x²] - E[x]², are found") {
  const Problem softmax = problem_of("softmax:rows=40,cols=9");
  const auto plain = [](const float* x, float* y, std::int64_t n) {
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += std::exp(double{x[j]});
    for (std::int64_t j = 0; j < n; ++j) y[j] = static_cast<float>(std::exp(double{x[j]}) / sum);
  };
  CHECK(passes(softmax, "uniform", plain));
  CHECK(passes(softmax, "ties", plain));
  CHECK_FALSE(passes(softmax, "cancelling", plain));

  const Problem norm = problem_of("layernorm:rows=40,cols=64");
  const OwnedOperands vectors(norm, seed, 1);
  const float* const gamma = vectors.inputs().at("gamma").f32();
  const float* const beta = vectors.inputs().at("beta").f32();
  const auto by_squares = [&](const float* x, float* y, std::int64_t n) {
    float sum = 0, squares = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += x[j], squares += x[j] * x[j];
    const float mean = sum / static_cast<float>(n);
    const float variance = squares / static_cast<float>(n) - mean * mean;
    for (std::int64_t j = 0; j < n; ++j) {
      y[j] = (x[j] - mean) / std::sqrt(variance + 1e-5F) * gamma[j] + beta[j];
    }
  };
  CHECK(passes(norm, "uniform", by_squares));
  CHECK_FALSE(passes(norm, "cancelling", by_squares));
}
