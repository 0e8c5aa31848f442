// Math 3xtf32 of gemm on OpenCL: its error against that of strict float32, values that a plain
// splitting gets wrong, and what is refused. Shapes and memory layouts: conformance_test.cpp;
// tiles: opencl_test.cpp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backends/opencl.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "measure/verify.hpp"
#include "opencl_device.hpp"

using namespace rooflane;
using std::int64_t;
using test::has_device;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

const Variant& variant() {
  return *catalogue().variant(catalogue().kernel("gemm"), "opencl").variant;
}

Environment environment(const char* math) {
  Environment env;
  env.threads = 0;
  env.math = math;
  return env;
}

// A product of [m,k] and [k,n] with given elements.
struct Product {
  int64_t m, n, k;
  std::vector<float> a, b;
  Product(int64_t m_, int64_t n_, int64_t k_)
      : m(m_),
        n(n_),
        k(k_),
        a(static_cast<std::size_t>(m * k)),
        b(static_cast<std::size_t>(k * n)) {}
  Problem problem() const {
    return parse_problem(
        "gemm:m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" + std::to_string(k),
        catalogue().kernels());
  }
  std::vector<float> run(const char* math, const Tuning& tuning = {}) {
    const Problem p = problem();
    std::vector<float> c(static_cast<std::size_t>(m * n), -1.0F);
    Operands operands;
    operands.set("a", contiguous_view(a.data(), Shape{1, m, k}));
    operands.set("b", contiguous_view(b.data(), Shape{1, k, n}));
    operands.set("c", contiguous_view(c.data(), Shape{1, m, n}));
    const auto plan = variant().plan(p, tuning, environment(math), operands);
    plan->bind(operands);
    plan->upload();
    plan->run();
    plan->download();
    return c;
  }
  // What people write first: both operands rounded to tf32, what is left rounded again, three
  // products, sums in float32.
  std::vector<float> naive() const {
    const auto tf32 = [](float x) {
      std::uint32_t bits;
      std::memcpy(&bits, &x, sizeof bits);
      bits = (bits + 0x1000U) & 0xFFFFE000U;
      std::memcpy(&x, &bits, sizeof bits);
      return x;
    };
    std::vector<float> c(static_cast<std::size_t>(m * n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < k; ++p) {
          const float x = a[i * k + p], y = b[p * n + j];
          const float big_x = tf32(x), big_y = tf32(y);
          sum += tf32(x - big_x) * big_y;
          sum += big_x * tf32(y - big_y);
          sum += big_x * big_y;
        }
        c[i * n + j] = sum;
      }
    }
    return c;
  }
  // The largest |c - exact| / Σ|a||b| in units of 2^-24. Elements with an exact value beyond
  // float32 must be that infinity or NaN; else the result is infinite.
  double error(const std::vector<float>& c) const {
    double worst = 0;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double exact = 0, magnitude = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double product = static_cast<double>(a[i * k + p]) * b[p * n + j];
          exact += product;
          magnitude += std::fabs(product);
        }
        const float got = c[i * n + j];
        if (std::isfinite(static_cast<float>(exact))) {
          const double off = std::fabs(got - exact);
          worst = std::max(worst, off == 0 ? 0 : std::isnan(off) ? infinity : off / magnitude);
        } else if (std::isnan(exact) ? !std::isnan(got) : got != static_cast<float>(exact)) {
          return infinity;
        }
      }
    }
    return worst / 0x1p-24;
  }
};

// Random sign and significand, exponent evenly in [least,most].
void fill(std::vector<float>& values, std::uint64_t seed, int least, int most) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = splitmix64(seed * 1000003 + i);
    const double significand = 1 + static_cast<double>(bits >> 41) * 0x1p-23;
    const int exponent = least + static_cast<int>((bits & 0xFFFF) % (most - least + 1));
    values[i] = static_cast<float>((bits & 0x10000 ? -1 : 1) * std::ldexp(significand, exponent));
  }
}

}  // namespace

TEST_CASE("3xtf32: on inputs of wide dynamic range the error is at most twice strict float32's") {
  if (!has_device()) return;
  for (const int64_t k : {64, 300, 2000}) {
    for (const int range : {0, 4, 12, 25}) {
      Product product(48, 40, k);
      fill(product.a, 1 + k, -range, range);
      fill(product.b, 2 + k, -range, range);
      const double strict = product.error(product.run("fp32"));
      const double split = product.error(product.run("3xtf32"));
      INFO("k=", k, " exponents ±", range, ": strict ", strict, " u, 3xtf32 ", split, " u");
      CHECK(split <= 2 * strict);
      CHECK(split > 0);
    }
  }
}

TEST_CASE("3xtf32: sums of one sign do not drift") {
  if (!has_device()) return;
  Product product(16, 16, 6000);
  for (auto* values : {&product.a, &product.b}) {
    for (float& x : *values)
      x = std::fabs(seeded_value(3, "gemm", "a", &x - values->data())) + 0.1F;
  }
  const double strict = product.error(product.run("fp32"));
  CHECK(product.error(product.run("3xtf32")) <= 2 * strict);
}

TEST_CASE("3xtf32: a value that the other operand selects comes back within 2 units") {
  // Its parts hold 22 bits; rounding both to 11 bits loses at most the last of 24.
  if (!has_device()) return;
  Product product(33, 37, 37);
  fill(product.a, 5, -120, 110);
  for (int64_t p = 0; p < 37; ++p) product.b[p * 37 + (p * 5 + 3) % 37] = 1;
  CHECK(product.error(product.run("3xtf32")) <= 2);
}

TEST_CASE("3xtf32: huge, tiny, mixed and special values, most of them wrong by plain splitting") {
  if (!has_device()) return;
  struct Kind {
    const char* name;
    std::function<void(Product&)> fill_in;
    bool naive_fails;
  };
  const float largest = std::numeric_limits<float>::max();
  const Kind kinds[] = {
      {"usual", [](Product& p) { fill(p.a, 1, -3, 3), fill(p.b, 2, -3, 3); }, false},
      {"largest float, which tf32 rounds to infinity",
       [&](Product& p) { fill(p.a, 1, -3, 3), fill(p.b, 2, -30, -20), p.a[7] = -largest; }, true},
      {"sums near the end of float32's range",
       [](Product& p) { fill(p.a, 1, 57, 58), fill(p.b, 2, 57, 58); }, false},
      {"normal values whose small part tf32 cannot hold, times huge ones",
       [](Product& p) { fill(p.a, 1, -126, -124), fill(p.b, 2, 100, 108); }, true},
      {"the same from the other side",
       [](Product& p) { fill(p.a, 1, 100, 108), fill(p.b, 2, -126, -124); }, true},
      {"subnormal values times huge ones",
       [](Product& p) { fill(p.a, 1, -149, -127), fill(p.b, 2, 90, 100); }, true},
      {"huge and tiny in one row and one column",
       [](Product& p) {
         for (int64_t q = 0; q < p.k; ++q) {
           std::vector<float> one(static_cast<std::size_t>(p.m)),
               other(static_cast<std::size_t>(p.n));
           const int up = q % 2 == 0 ? 100 : -126;
           fill(one, 10 + q, up, up + 1), fill(other, 90 + q, -up - 14, -up - 13);
           for (int64_t i = 0; i < p.m; ++i) p.a[i * p.k + q] = one[i];
           for (int64_t j = 0; j < p.n; ++j) p.b[q * p.n + j] = other[j];
         }
       },
       true},
      {"infinity times numbers that tf32 holds exactly",
       [](Product& p) {
         fill(p.a, 1, -3, 3), fill(p.b, 2, -3, 3);
         p.a[3] = infinity;
         for (int64_t j = 0; j < p.n; ++j)
           p.b[3 * p.n + j] = j % 3 == 2 ? 0.0F : j % 3 == 1 ? 2.0F : -1.0F;
       },
       true},
      {"infinity times infinity, of either sign",
       [](Product& p) {
         fill(p.a, 1, -3, 3), fill(p.b, 2, -3, 3);
         p.a[3] = p.a[p.k + 3] = infinity, p.b[3 * p.n + 1] = -infinity,
         p.b[3 * p.n + 2] = infinity;
         p.a[p.k + 4] = -infinity;
       },
       true},
      {"NaN of several payloads",
       [](Product& p) {
         fill(p.a, 1, -3, 3), fill(p.b, 2, -3, 3);
         const std::uint32_t all_ones = 0x7FFFFFFFU, lowest = 0xFF800001U;
         std::memcpy(&p.a[2 * p.k], &all_ones, 4), std::memcpy(&p.b[9], &lowest, 4);
         p.a[5 * p.k + 1] = nan_value;
       },
       true},
  };
  for (const Kind& kind : kinds) {
    const Tuning ways[] = {{{"packed", 0}, {"splits", 1}}, {{"splits", 2}}, {{"packed", 1}}};
    for (const Tuning& way : ways) {
      Product product(40, 36, 68);
      kind.fill_in(product);
      INFO(std::string(kind.name), ", ", way.text());
      const double bound = 8 + std::sqrt(68.0);
      CHECK(product.error(product.run("fp32")) <= bound);
      CHECK(product.error(product.run("3xtf32", way)) <= bound);
      CHECK((product.error(product.naive()) > bound) == kind.naive_fails);
    }
  }
}

TEST_CASE("3xtf32: paths and code paths that it lacks are refused in words") {
  if (!has_device()) return;
  const Problem problem = parse_problem("gemm:m=8,n=8,k=8", catalogue().kernels());
  const auto refusal = [&](const char* math, const Tuning& tuning) -> std::string {
    const Environment env = environment(math);
    try {
      require_tuning(variant(), problem, env, tuning);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto holds = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(holds(refusal("3xtf32", {{"path", 0}}), "path=0 is not of math 3xtf32"));
  CHECK(holds(refusal("fp32", {{"path", 3}}), "path=3 needs math 3xtf32"));
  CHECK(holds(refusal("3xtf32", {{"mt", 3}}), "powers of two"));
  CHECK(refusal("3xtf32", {{"splits", 3}, {"packed", 1}}) == "");
  if (opencl::device(0).kind == opencl::DeviceKind::cpu) {
    CHECK(holds(refusal("3xtf32", {{"code_path", 1}}), "path=3 needs matrix units"));
  } else {
    test::skip_part("OpenCL device 0 is no CPU", "");
  }
}

TEST_CASE("3xtf32: a rung of the ladder, which computes in float32, is refused") {
  if (!has_device()) return;
  const Problem problem = parse_problem("gemm:m=8,n=8,k=8", catalogue().kernels());
  OwnedOperands operands(problem, 1, 1);
  REQUIRE_FALSE(step_tunings(variant()).empty());
  for (const Tuning& step : step_tunings(variant())) {
    CHECK_THROWS_AS(
        (void)make_plan(variant(), problem, step, environment("3xtf32"), operands.all()), Error);
  }
}

TEST_CASE("3xtf32 is never what a plan uses unless it was asked for") {
  if (!has_device()) return;
  const Problem problem = parse_problem("gemm:m=40,n=40,k=40", catalogue().kernels());
  for (const Tuning& tuning : variant().tunings(problem, environment("fp32"))) {
    CHECK(tuning.get("path", -1) != 3);
  }
  for (const Tuning& tuning : variant().tunings(problem, environment("3xtf32"))) {
    CHECK(tuning.get("path", -1) == 3);
  }
}
