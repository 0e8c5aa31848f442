// What is particular to GEMM: reference, cost, Freivalds check, the rules of alpha, beta and NaN,
// exactness, memory, strides, every path of hwy. Edge shapes in general: conformance_test.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absent_variants.hpp"
#include "backends/highway.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "measure/verify.hpp"
#include "tests/gemm_ways.hpp"
#include "tests/part_of_cases.hpp"

using namespace rooflane;
using namespace rooflane::gemm_ways;
using std::int64_t;

namespace {

const float nan_value = std::numeric_limits<float>::quiet_NaN();

std::vector<Problem> gemm_problems(const std::string& shapes) {
  const Kernel* const kernels[] = {&gemm::kernel};
  return parse_shapes("gemm:" + shapes, kernels);
}

// Every variant and rung at every ISA target it has, with one and with several threads.
template <class F>
void for_each_way(const Problem& problem, F&& body) {
  const Catalogue catalogue = Catalogue::built_in();
  test::skip_absent(catalogue, gemm::kernel);
  for (const CatalogueEntry* entry : catalogue.variants(gemm::kernel)) {
    const Variant& variant = *entry->variant;
    std::vector<Tuning> tunings = step_tunings(variant);
    tunings.emplace_back();
    const bool highway = variant.backend->name == std::string("highway");
    for (const std::string& isa : highway ? isa_targets() : std::vector<std::string>{""}) {
      for (const int threads : {1, 3}) {
        Environment env;
        env.isa = isa;
        env.threads = threads;
        if (refusal(variant, problem, env)) continue;
        for (const Tuning& tuning : tunings) {
          if (threads > 1 && threads_of(variant, tuning) != Threads::many) continue;
          if (!test::takes_next_case()) continue;
          INFO(problem.text(), " ", entry->name, " isa=", isa, " threads=", threads, " ",
               tuning.text());
          body(Way(variant, tuning), env);
        }
      }
    }
  }
}

float* data(const OwnedOperands& operands, const char* name) {
  return operands.all().at(name).f32();
}
void fill(const OwnedOperands& operands, const char* name, float value) {
  const View& view = operands.all().at(name);
  std::fill_n(view.f32(), view.elements(), value);
}

Region whole_region(int64_t rows, int64_t cols) {
  Region region;
  for (int64_t i = 0; i < rows; ++i) region.rows.push_back(i);
  for (int64_t j = 0; j < cols; ++j) region.cols.push_back(j);
  return region;
}

}  // namespace

TEST_CASE("the reference equals values computed by hand, for both transpositions") {
  // op(a) = [1 2 3; 4 5 6], op(b) = [1 0; -1 2; 3 1], product [8 7; 17 16].
  const float a[] = {1, 2, 3, 4, 5, 6}, at[] = {1, 4, 2, 5, 3, 6};
  const float b[] = {1, 0, -1, 2, 3, 1}, bt[] = {1, -1, 3, 0, 2, 1};
  const float c0[] = {10, 20, 30, 40};
  const double expected[] = {2 * 8 - 5, 2 * 7 - 10, 2 * 17 - 15, 2 * 16 - 20};
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      Problem problem = gemm_problem("m=2,n=2,k=3,alpha=2,beta=-0.5");
      problem.set("trans_a", trans_a ? 1.0 : 0.0);
      problem.set("trans_b", trans_b ? 1.0 : 0.0);
      Operands operands;
      const Shape shape_a = trans_a ? Shape{1, 3, 2} : Shape{1, 2, 3};
      const Shape shape_b = trans_b ? Shape{1, 2, 3} : Shape{1, 3, 2};
      operands.set("a", contiguous_view(const_cast<float*>(trans_a ? at : a), shape_a));
      operands.set("b", contiguous_view(const_cast<float*>(trans_b ? bt : b), shape_b));
      operands.set("c0", contiguous_view(const_cast<float*>(c0), Shape{1, 2, 2}));
      double value[4], bound[4], plain_bound[4];
      gemm::kernel.reference(problem, fp32, operands, "c", whole_region(2, 2),
                             {value, bound, plain_bound});
      for (int i = 0; i < 4; ++i) CHECK(value[i] == expected[i]);
      // |alpha||A||B| + |beta||c0| of element (0,0): 2·(1 + 2 + 9) + 5 = 29.
      CHECK(bound[0] == doctest::Approx((8 + std::sqrt(3.0)) * 0x1p-24 * 29).epsilon(1e-12));
      CHECK(plain_bound[0] == doctest::Approx(2 * bound[0]).epsilon(1e-12));
    }
  }
}

TEST_CASE("chosen rows and columns of the reference equal the same elements of the whole") {
  const Problem problem = gemm_problem("m=13,n=150,k=21,batch=3,trans_b=1,alpha=0.5,beta=2");
  const OwnedOperands operands(problem, seed, 1);
  std::vector<double> value(39 * 150), bound(39 * 150), plain(39 * 150);
  gemm::kernel.reference(problem, fp32, operands.all(), "c", whole_region(39, 150),
                         {value.data(), bound.data(), plain.data()});
  const Region region = {{38, 0, 12, 13, 14}, {149, 3, 70}};
  std::vector<double> some(15), some_bound(15);
  gemm::kernel.reference(problem, fp32, operands.all(), "c", region,
                         {some.data(), some_bound.data(), plain.data()});
  for (std::size_t i = 0; i < region.rows.size(); ++i) {
    for (std::size_t j = 0; j < region.cols.size(); ++j) {
      const auto at = static_cast<std::size_t>(region.rows[i] * 150 + region.cols[j]);
      CHECK(some[i * 3 + j] == doctest::Approx(value[at]).epsilon(1e-14));
      CHECK(some_bound[i * 3 + j] == doctest::Approx(bound[at]).epsilon(1e-14));
    }
  }
}

TEST_CASE("cost equals what plain loops count") {
  for (const Problem& problem : gemm_problems("m=0..6+3,n=1..5+4,k=0..4+2,batch=0..2+1,beta=0")) {
    for (const double beta : {0.0, 1.5}) {
      Problem p = problem;
      p.set("beta", beta);
      const gemm::Gemm g(p);
      double flops = 0, bytes = 0;
      for (int64_t batch = 0; batch < g.batch; ++batch) {
        for (int64_t i = 0; i < g.m; ++i) {
          for (int64_t j = 0; j < g.n; ++j) {
            flops += 2.0 * static_cast<double>(g.k);
            bytes += beta != 0 ? 8 : 4;
          }
        }
        for (int64_t i = 0; i < g.m; ++i) bytes += 4.0 * static_cast<double>(g.k);
        for (int64_t j = 0; j < g.n; ++j) bytes += 4.0 * static_cast<double>(g.k);
      }
      const Cost cost = gemm::kernel.cost(p);
      CHECK(cost.flops == flops);
      CHECK(cost.bytes == bytes);
      CHECK(cost.exps == 0);
    }
  }
}

TEST_CASE(
    "the Freivalds check passes right outputs and catches one wrong element or swapped rows") {
  for (const Problem& problem : gemm_problems(
           "m=150,n=130,k=200,batch=2,trans_a=0..1+1,trans_b=0..1+1,alpha=-1.5,beta=0.5")) {
    INFO(problem.text());
    OwnedOperands operands(problem, seed, 1);
    run_plan(gemm::scalar, problem, {}, operands.all());
    const auto check = [&] {
      return gemm::kernel.whole_check(problem, fp32, operands.all(), seed).over_plain_bound;
    };
    CHECK(check() <= 1);
    float* c = operands.output().f32();
    const int64_t last = 2 * 150 * 130 - 1;
    for (const int64_t at : {int64_t{0}, int64_t{64 * 130 + 7}, last}) {
      for (const float wrong : {0.0f, nan_value, std::numeric_limits<float>::infinity()}) {
        const float right = c[at];
        c[at] = wrong;
        CHECK(check() > 1);
        c[at] = right;
      }
    }
    std::swap_ranges(c + 3 * 130, c + 4 * 130, c + 77 * 130);
    CHECK(check() > 1);
  }
}

TEST_CASE("the Freivalds check finds one wrong element among thousands of small products") {
  for (const char* shape : {"m=1,n=1,k=64,batch=5000,trans_b=1", "m=3,n=5,k=4,batch=2000,beta=0.5",
                            "m=64,n=3,k=2,batch=30", "m=65,n=3,k=2,batch=30"}) {
    INFO(shape);
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    run_plan(gemm::scalar, problem, {}, operands.all());
    const auto check = [&] {
      return gemm::kernel.whole_check(problem, fp32, operands.all(), seed).over_plain_bound;
    };
    CHECK(check() <= 1);
    float* c = operands.output().f32();
    const int64_t last = operands.output().elements() - 1;
    for (const int64_t at : {int64_t{0}, last / 2, last - 1, last}) {
      const float right = c[at];
      c[at] = right + 0.01f;
      CHECK(check() > 1);
      c[at] = right;
    }
  }
}

TEST_CASE("alpha = 0: a and b are not read; beta = 0: neither c0 nor the old c; k = 0: beta c0") {
  for (const char* shape :
       {"m=37,n=29,k=80,alpha=0", "m=37,n=29,k=80,alpha=0,beta=1.5", "m=5,n=7,k=0",
        "m=5,n=7,k=0,beta=-2", "m=37,n=29,k=80,alpha=0,beta=1.5,prepack=1",
        "m=5,n=7,k=0,beta=-2,prepack=1,batch=3"}) {
    const Problem problem = gemm_problem(shape);
    const gemm::Gemm g(problem);
    OwnedOperands operands(problem, seed, 1);
    fill(operands, "a", nan_value);
    fill(operands, "b", nan_value);
    for_each_way(problem, [&](const Way& way, const Environment& env) {
      fill(operands, "c", nan_value);
      run_plan(way, problem, env, operands.all());
      int wrong = 0;
      for (int64_t i = 0; i < operands.output().elements(); ++i) {
        const float expected = g.reads_c0() ? g.beta * data(operands, "c0")[i] : 0.0f;
        wrong += data(operands, "c")[i] != expected;
      }
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("what c held before has no influence, on every path") {
  for (const char* shape : {"m=1,n=300,k=200", "m=300,n=1,k=200", "m=3,n=4,k=5", "m=9,n=600,k=400",
                            "m=9,n=600,k=400,trans_b=1", "m=600,n=9,k=400,trans_a=1",
                            "m=200,n=210,k=220", "m=33,n=35,k=37", "m=200,n=210,k=220,prepack=1",
                            // B micro-panels of four vectors, and others beside; long runs of c, b
                            // in place and packed; a packed before its first use, in both layouts.
                            "m=24,n=64,k=144,batch=4", "m=61,n=113,k=140", "m=700,n=1001,k=3",
                            "m=700,n=1000,k=4,trans_b=1", "m=800,n=900,k=17", "m=300,n=1601,k=200",
                            "m=300,n=1601,k=200,trans_a=1"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    for_each_way(problem, [&](const Way& way, const Environment& env) {
      fill(operands, "c", nan_value);
      run_plan(way, problem, env, operands.all());
      check_right(problem, operands.all(), operands.output());
    });
  }
}

TEST_CASE("NaN and infinity spread to exactly the elements that depend on them") {
  for (const char* shape : {"m=40,n=50,k=70,beta=1", "m=3,n=300,k=500,beta=1,trans_b=1",
                            "m=300,n=3,k=500,beta=1", "m=200,n=190,k=230,beta=1"}) {
    const Problem problem = gemm_problem(shape);
    const gemm::Gemm g(problem);
    OwnedOperands operands(problem, seed, 1);
    const int64_t bad_row = 1, bad_col = 2, last = g.m * g.n - 1;
    data(operands, "a")[bad_row * g.k + 5] = nan_value;
    data(operands, "b")[g.trans_b ? bad_col * g.k + 7 : 7 * g.n + bad_col] = nan_value;
    data(operands, "c0")[last] = -std::numeric_limits<float>::infinity();
    for_each_way(problem, [&](const Way& way, const Environment& env) {
      fill(operands, "c", 0);
      run_plan(way, problem, env, operands.all());
      int wrong = 0;
      for (int64_t i = 0; i < g.m; ++i) {
        for (int64_t j = 0; j < g.n; ++j) {
          const float v = data(operands, "c")[i * g.n + j];
          const bool spreads = i == bad_row || j == bad_col;
          if (spreads) {
            wrong += !std::isnan(v);
          } else if (i * g.n + j == last) {
            wrong += !(std::isinf(v) && v < 0);
          } else {
            wrong += !std::isfinite(v);
          }
        }
      }
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("a times a permutation scaled by powers of two returns a's bits") {
  for (const char* shape :
       {"m=61,n=67,k=67", "m=61,n=67,k=67,trans_b=1", "m=67,n=61,k=61,trans_a=1", "m=1,n=131,k=131",
        "m=7,n=401,k=401", "m=7,n=401,k=401,trans_b=1", "m=203,n=211,k=211,prepack=1",
        "m=401,n=16,k=16", "m=190,n=450,k=450,trans_b=1"}) {
    const Problem problem = gemm_problem(shape);
    const gemm::Gemm g(problem);
    REQUIRE(g.n == g.k);
    OwnedOperands operands(problem, seed, 1);
    // Column p of op(a) goes to column (p·step + 3) mod n, times 2^(p mod 9 - 4); step and n are
    // coprime.
    const int64_t step = g.n % 7 == 0 ? 5 : 7;
    const auto column = [&](int64_t p) { return (p * step + 3) % g.n; };
    const auto exponent = [](int64_t p) { return static_cast<int>(p % 9) - 4; };
    fill(operands, "b", 0);
    for (int64_t p = 0; p < g.k; ++p) {
      const int64_t at = g.trans_b ? column(p) * g.k + p : p * g.n + column(p);
      data(operands, "b")[at] = std::ldexp(1.0f, exponent(p));
    }
    // Full mantissas: the generator's steps of 2^-23 leave short ones near zero.
    for (int64_t i = 0; i < g.m * g.k; ++i) {
      float& x = data(operands, "a")[i];
      std::uint32_t bits;
      std::memcpy(&bits, &x, sizeof bits);
      bits = (bits & 0xFF800000U) | (splitmix64(static_cast<std::uint64_t>(i)) & 0x7FFFFFU) | 1U;
      std::memcpy(&x, &bits, sizeof bits);
    }
    for_each_way(problem, [&](const Way& way, const Environment& env) {
      fill(operands, "c", nan_value);
      run_plan(way, problem, env, operands.all());
      int wrong = 0;
      for (int64_t i = 0; i < g.m; ++i) {
        for (int64_t p = 0; p < g.k; ++p) {
          const float x = data(operands, "a")[g.trans_a ? p * g.m + i : i * g.k + p];
          wrong += data(operands, "c")[i * g.n + column(p)] != std::ldexp(x, exponent(p));
        }
      }
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("inputs may have rows that repeat or overlap, and one row may have any stride") {
  struct Case {
    const char* shape;
    int64_t a_batch, a_row, b_batch, b_row;
  };
  // Rows of a all the same (stride 0), overlapping windows (stride 1), a batch sharing one b, and
  // single rows with a stride smaller than their length.
  const Case cases[] = {{"m=30,n=20,k=50", 0, 0, 0, 20},
                        {"m=30,n=20,k=50", 0, 1, 0, 7},
                        {"m=30,n=20,k=50,trans_b=1", 0, 3, 0, 2},
                        {"m=30,n=20,k=50,trans_a=1,batch=3", 1500, 30, 0, 20},
                        {"m=1,n=20,k=50", 0, 0, 0, 25},
                        {"m=40,n=1,k=50", 0, 50, 0, 0},
                        {"m=40,n=30,k=1", 0, 0, 0, 1}};
  for (const Case& one : cases) {
    const Problem problem = gemm_problem(one.shape);
    std::vector<float> a(6000), b(6000);
    const gemm::Gemm g(problem);
    std::vector<float> c(static_cast<std::size_t>(g.batch * g.m * g.n));
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = seeded_value(seed, "gemm", "a", i);
      b[i] = seeded_value(seed, "gemm", "b", i);
    }
    Operands operands;
    for (const TensorSpec& spec : gemm::kernel.tensors(problem)) {
      View view = contiguous_view(spec.name == "a"   ? a.data()
                                  : spec.name == "b" ? b.data()
                                                     : c.data(),
                                  tensor_shape(problem, spec));
      if (spec.name == "a") view.strides[0] = one.a_batch, view.strides[1] = one.a_row;
      if (spec.name == "b") view.strides[0] = one.b_batch, view.strides[1] = one.b_row;
      operands.set(spec.name, view);
    }
    for_each_way(problem, [&](const Way& way, const Environment& env) {
      std::fill(c.begin(), c.end(), nan_value);
      run_plan(way, problem, env, operands);
      check_right(problem, operands, operands.at("c"));
    });
  }
}

TEST_CASE("hwy: every path and tuning of the search space is right at the borders of the table") {
  for (const Problem& problem : gemm_problems("m=15..17+1,n=48..49+1,k=63..65+1")) {
    OwnedOperands operands(problem, seed, 1);
    for_each_way(problem, [&](const Way& way, const Environment& env) {
      run_plan(way, problem, env, operands.all());
      check_right(problem, operands.all(), operands.output());
    });
  }
  for (const char* shape : {"m=15,n=700,k=401", "m=700,n=16,k=401,trans_a=1",
                            "m=17,n=500,k=130,trans_b=1", "m=161,n=163,k=160", "m=370,n=290,k=400",
                            "m=97,n=300,k=193,trans_a=1,trans_b=1,alpha=2,beta=-1,batch=2",
                            "m=97,n=14,k=193,prepack=1,beta=1", "m=12,n=97,k=193,prepack=1",
                            // k is shared; a skinny m or n; c transposed, with and without c0
                            "m=20,n=20,k=3000,beta=2", "m=3,n=70,k=90", "m=90,n=2,k=70,trans_a=1",
                            "m=40,n=90,k=65,trans_b=1,beta=3", "m=9,n=35,k=40,trans_b=1,batch=2",
                            "m=77,n=2,k=70,beta=2", "m=77,n=3,k=70,alpha=2,beta=-1",
                            "m=90,n=1,k=70,beta=2,batch=2", "m=90,n=1,k=17,trans_a=1,trans_b=1",
                            "m=3,n=700,k=90,trans_b=1", "m=61,n=97,k=65,trans_b=1"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    for (const std::string& isa : isa_targets()) {
      for (const int threads : {1, 2, 5}) {
        Environment env;
        env.isa = isa;
        env.threads = threads;
        std::vector<Tuning> tunings = gemm::hwy.tunings(problem, env);
        REQUIRE(!tunings.empty());
        // Further targets differ in their vectors only: every fifth.
        if (isa != isa_targets().front()) {
          std::size_t i = 0;
          std::erase_if(tunings, [&](const Tuning&) { return i++ % 5 != 0; });
        }
        // Blocks smaller than a micro-tile, and blocks that no size is a multiple of, either order,
        // packed or not.
        for (const int path : {3, 4}) {
          for (int choice = 0; choice < 8; ++choice) {
            const Tuning odd = {{"path", path},
                                {"mc", choice < 4 ? 1 : 50},
                                {"kc", choice < 4 ? 7 : 33},
                                {"kb", 33 * 7},
                                {"nc", choice < 4 ? 1 : 100},
                                {"order", choice % 2},
                                {path == 3 ? "pack_b" : "pack_a", choice / 2 % 2}};
            if (!gemm::hwy.tuning_defect(problem, odd, env)) tunings.push_back(odd);
          }
        }
        for (const Tuning& tuning : tunings) {
          if (!test::takes_next_case()) continue;
          INFO(problem.text(), " ", isa, " threads=", threads, " ", tuning.text());
          operands.poison_output();
          run_plan({gemm::hwy, tuning}, problem, env, operands.all());
          check_right(problem, operands.all(), operands.output());
        }
      }
    }
  }
}

TEST_CASE("hwy: a skinny dimension by dot products, the long operand read once") {
  // Every number of rows that one pass serves, and what takes two; k whole chunks, odd ones, less
  // than one; k contiguous and transposed; threads with fewer rows than are prefetched; c0;
  // batches. Rows at once that are neighbours or not, whole blocks of them and what is left. On the
  // best target: others have too few registers.
  for (const char* shape : {"m=601,n=8,k=1024",
                            "m=597,n=7,k=1031",
                            "m=6,n=1399,k=401,trans_b=1",
                            "m=5,n=721,k=823,trans_b=1,trans_a=1,alpha=2,beta=-1",
                            "m=1100,n=8,k=509,trans_b=1,beta=3",
                            "m=801,n=8,k=700,prepack=1",
                            "m=821,n=5,k=700,batch=2",
                            "m=15011,n=3,k=290",
                            "m=701,n=4,k=901",
                            "m=601,n=12,k=1031,beta=2",
                            "m=821,n=9,k=700,batch=2",
                            "m=11,n=1399,k=401,trans_b=1,trans_a=1,alpha=2,beta=-1",
                            "m=2,n=22011,k=200,trans_b=1,beta=1",
                            "m=601,n=16,k=1031",
                            "m=901,n=13,k=700,batch=2",
                            "m=16,n=9001,k=65,trans_b=1,beta=2",
                            "m=9001,n=5,k=80,alpha=2,beta=-1",
                            "m=1,n=700,k=100,trans_b=1,batch=2",
                            "m=603,n=1,k=65,beta=2",
                            "m=4,n=150,k=100,trans_b=1,beta=3",
                            "m=2,n=90,k=49,trans_b=1,beta=2"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    for (const int threads : {1, 3}) {
      Environment env;
      env.threads = threads;
      int tried = 0;
      for (int choice = 0; choice < 8; ++choice) {
        // The skinny operand packed or not, rows at once that are neighbours or not; chunks of k
        // that no size is a multiple of, tasks of a few rows.
        Tuning tuning = {{"path", 1}, {"pack_a", choice % 2}, {"order", choice / 2 % 2}};
        if (choice >= 4) tuning.set("kc", 112), tuning.set("nc", choice < 6 ? 37 : 137);
        if (gemm::hwy.tuning_defect(problem, tuning, env)) continue;
        ++tried;
        INFO(problem.text(), " threads=", threads, " ", tuning.text());
        operands.poison_output();
        run_plan({gemm::hwy, tuning}, problem, env, operands.all());
        check_right(problem, operands.all(), operands.output());
      }
      CHECK(tried >= 4);
    }
  }
}

TEST_CASE("hwy: outer products in whole rows of c, for every number of rows of sums and one more") {
  // Either operand skinny; k groups of 8 rows, 4 and single ones; columns less than the prefetch
  // distance, less than a vector, more than a task's; c0; batches. The last two are worth several
  // threads.
  for (int skinny = 1; skinny <= 13; ++skinny) {
    for (const char* shape : {"m={},k=29,n=450", "m={},k=8,n=401,alpha=2,beta=-1", "m={},k=7,n=5",
                              "n={},k=30,m=433,trans_a=1,alpha=3,beta=2",
                              "m={},k=140,n=4301,batch=2", "n={},k=140,m=4301,trans_a=1,batch=2"}) {
      const Problem problem = gemm_problem(fmt::format(fmt::runtime(shape), skinny));
      const bool large = problem.text().find("4301") != std::string::npos;
      OwnedOperands operands(problem, seed, 1);
      const std::vector<std::string> all = isa_targets();
      for (const std::string& isa : large ? std::vector{all.front()} : all) {
        Environment env;
        env.isa = isa;
        env.threads = large ? 3 : 1;
        for (const int nc : {64, 1000, 4096}) {
          const Tuning tuning = {{"path", 2}, {"nc", nc}, {"order", 1}};
          const auto defect = gemm::hwy.tuning_defect(problem, tuning, env);
          CHECK(defect.has_value() == (skinny > 12));
          if (defect) continue;
          INFO(problem.text(), " ", isa, " ", tuning.text());
          operands.poison_output();
          const auto plan = gemm::hwy.plan(
              problem, complete_tuning(gemm::hwy, problem, env, tuning), env, operands.all());
          CHECK(plan->facts().tuning.get("order", -1) == 1);
          plan->bind(operands.all());
          plan->run();
          check_right(problem, operands.all(), operands.output());
        }
      }
    }
  }
}

TEST_CASE("hwy: a transposed a against a skinny n, or so many columns beyond whole vectors") {
  for (const int n : {2, 3, 4, 5, 6, 7, 8, 17, 18, 19, 20, 21, 22, 99}) {
    for (const char* shape :
         {"m=16,k=1,n={}", "m=79,k=15,n={},trans_b=1", "m=131,k=61,n={},alpha=2,beta=-1",
          "m=70,k=12,n={},batch=3", "m=128,k=19,n={},trans_b=1,beta=0.5,batch=2"}) {
      const Problem problem = gemm_problem(fmt::format(fmt::runtime(shape), n) + ",trans_a=1");
      OwnedOperands operands(problem, seed, 1);
      for (const std::string& isa : isa_targets()) {
        for (const int threads : {1, 3}) {
          Environment env;
          env.isa = isa;
          env.threads = threads;
          INFO(problem.text(), " ", isa, " threads=", threads);
          operands.poison_output();
          run_plan({gemm::hwy, {{"path", 3}}}, problem, env, operands.all());
          check_right(problem, operands.all(), operands.output());
        }
      }
    }
  }
}

TEST_CASE("hwy: nothing beside c is touched, not even to write back what was there") {
  // Rows of c lie within longer ones: a stray product of a's NaN would change the rest of those.
  for (const char* shape :
       {"m=1,n=5,k=9", "m=1,n=45,k=70", "m=3,n=45,k=70", "n=3,m=45,k=70,trans_a=1", "m=45,n=1,k=70",
        "m=45,n=1,k=70,trans_a=1", "m=77,n=21,k=60,trans_a=1"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    fill(operands, "a", nan_value);
    View c = operands.output();
    const int64_t rows = c.shape[1], cols = c.shape[2], apart = cols + 32;
    c.strides[1] = apart;
    for (const std::string& isa : isa_targets()) {
      Environment env;
      env.isa = isa;
      for (const Tuning& tuning : gemm::hwy.tunings(problem, env)) {
        INFO(problem.text(), " ", isa, " ", tuning.text());
        std::vector<float> wide(static_cast<std::size_t>(rows * apart), 1.5f);
        c.data = wide.data();
        Operands all = operands.all();
        all.set("c", c);
        run_plan({gemm::hwy, tuning}, problem, env, all);
        for (int64_t i = 0; i < rows; ++i) {
          const float* rest = wide.data() + i * apart + cols;
          CHECK(std::all_of(rest, rest + 32, [](float x) { return x == 1.5f; }));
        }
      }
    }
  }
}

TEST_CASE("hwy: a column of c, with and without gaps, on top of one of c0 with and without") {
  for (const char* shape : {"m=45,n=1,k=70,beta=2", "m=9,n=1,k=70,trans_a=1,batch=3,beta=2",
                            "m=45,n=1,k=70,trans_a=1,beta=2"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    View c0 = operands.all().at("c0"), c = operands.output();
    const int64_t rows = c.shape[1], batch = 3 * rows, floats = c.shape[0] * batch;
    const auto plan = gemm::hwy.plan(problem, {}, Environment(), operands.all());
    for (const int gaps : {1, 2, 3, 0, 1}) {  // of c, of c0; bound again
      std::vector<float> apart(static_cast<std::size_t>(floats), 1.5f), apart0 = apart;
      View wide = c, wide0 = c0;
      wide.data = apart.data(), wide0.data = apart0.data();
      wide.strides[0] = wide0.strides[0] = batch;
      wide.strides[1] = (gaps & 1) != 0 ? 3 : 1, wide0.strides[1] = (gaps & 2) != 0 ? 3 : 1;
      const auto at = [&](const View& view, int64_t i) -> float& {
        return view.f32()[i / rows * view.strides[0] + i % rows * view.strides[1]];
      };
      for (int64_t i = 0; i < c.shape[0] * rows; ++i) at(wide0, i) = at(c0, i) += 1;
      Operands all = operands.all();
      all.set("c", wide), all.set("c0", wide0);
      plan->bind(all), plan->run();
      for (int64_t i = 0; i < c.shape[0] * rows; ++i) at(c, i) = std::exchange(at(wide, i), 1.5f);
      check_right(problem, operands.all(), c);
      CHECK(std::count(apart.begin(), apart.end(), 1.5f) == floats);
    }
  }
}

TEST_CASE("hwy: a path that cannot serve the problem is refused, with what it needs") {
  const Problem problem = gemm_problem("m=20,n=20,k=20,trans_b=1");
  OwnedOperands operands(problem, seed, 1);
  CHECK_THROWS_WITH_AS((void)gemm::hwy.plan(problem, Tuning{{"path", 2}}, {}, operands.all()),
                       "tuning: path=2,transposed=0 needs a b that is contiguous across k", Error);
}

TEST_CASE("hwy: workspace stays within 64 MiB whatever the size, without touching operands") {
  for (const char* shape :
       {"m=8192,n=8192,k=8192", "m=8192,n=8192,k=8192,trans_a=1,trans_b=1",
        "m=16,n=1000000,k=1000000", "m=12,n=1000000,k=1000000", "m=1000000,n=8,k=1000000,trans_a=1",
        "m=1000000,n=16,k=1000000,trans_a=1", "m=5,n=5,k=100000000", "m=1000000,n=1,k=1000000",
        "m=100000,n=100000,k=1", "m=64,n=64,k=64,batch=1000000",
        "m=30,n=1000,k=1000,batch=1000,trans_b=1"}) {
    for (const std::string& isa : isa_targets()) {
      for (const int threads : {1, 2, 64, 512}) {
        Environment env;
        env.isa = isa;
        env.threads = threads;
        INFO(shape, " ", isa, " threads=", threads);
        const auto plan = gemm::hwy.plan(gemm_problem(shape), {}, env, {});
        CHECK(plan->facts().workspace_bytes <= std::size_t{64} << 20);
      }
    }
  }
  // Schedules that nobody chose here: at the narrowest target they have most pieces to pack.
  Environment env;
  env.isa = isa_targets().back();
  env.threads = 64;
  for (const char* shape : {"m=8192,n=8192,k=8192", "m=100000,n=100000,k=1"}) {
    const Problem problem = gemm_problem(shape);
    for (const Tuning& tuning : gemm::hwy.tunings(problem, env)) {
      INFO(shape, " ", env.isa, " ", tuning.text());
      CHECK(gemm::hwy.plan(problem, tuning, env, {})->facts().workspace_bytes <= std::size_t{64}
                                                                                     << 20);
    }
  }
}

TEST_CASE("hwy: a packed constant b takes at most 1.1 times b's own bytes") {
  for (const Problem& problem :
       gemm_problems("m=8..200*5,n=1..40+13,k=1..301+100,trans_b=0..1+1,prepack=1")) {
    OwnedOperands operands(problem, seed, 1);
    const double b_bytes = 4.0 * static_cast<double>(operands.all().at("b").elements());
    for (const std::string& isa : isa_targets()) {
      Environment env;
      env.isa = isa;
      INFO(problem.text(), " ", isa);
      const auto plan = gemm::hwy.plan(problem, {}, env, operands.all());
      CHECK(static_cast<double>(plan->facts().packed_bytes) <= 1.1 * b_bytes);
    }
  }
}
