// GEMM with short operands and quantised weights: which number formats go together, what
// verification finds wrong with kernels that make the usual mistakes, and units of this CPU against
// plain loops.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backends/highway.hpp"
#include "core/float16.hpp"
#include "gemm_trial.hpp"
#include "kernels/gemm/gemm.hpp"
#include "skip.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

// What plain loops make of operands that `spoil` changed, held against the right ones.
Status verdict_with(const std::string& shape, const std::function<void(Trial&)>& spoil,
                    const std::string& math = "fp32") {
  Trial trial(shape, math);
  trial.run("scalar");
  REQUIRE(trial.verdict() == Status::passed);
  spoil(trial);
  trial.run("scalar");
  return trial.verdict();
}

// Exact sums as somebody else's kernel has them: combine(sum so far, the products of a pair).
void multiply_pairs(Trial& trial, const std::function<std::int32_t(std::int32_t)>& pair) {
  const gemm::Gemm g(trial.problem);
  const auto* const a = trial.data<std::uint8_t>("a");
  const auto* const b = trial.data<std::int8_t>("b");
  for (std::int64_t i = 0; i < g.m; ++i) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t p = 0; p < g.k; p += 2) {
        sum += pair(a[i * g.k + p] * b[j * g.k + p] + a[i * g.k + p + 1] * b[j * g.k + p + 1]);
      }
      trial.data<std::int32_t>("c")[i * g.n + j] = sum;
    }
  }
}

}  // namespace

TEST_CASE("formats that do not go together are refused by name") {
  CHECK(contains(error_of("m=1,n=1,k=1,a_type=s8"), "b_type=f32"));
  CHECK(contains(error_of("m=1,n=1,k=1,b_type=s8"), "s8c"));
  CHECK(contains(error_of("m=1,n=1,k=1,a_type=s8,b_type=s8"), "c_type=f32"));
  CHECK(contains(error_of("m=1,n=1,k=1,c_type=s32"), "c_type=s32"));
  CHECK(contains(error_of("m=1,n=1,k=1,a_type=u8,b_type=s8,c_type=s32,alpha=2"), "alpha=2"));
  CHECK(contains(error_of("m=1,n=1,k=1,a_type=u8,b_type=s8,c_type=s32,beta=1"), "beta=1"));
  CHECK(contains(error_of("m=1,n=1,k=32,b_type=q4_0"), "trans_b=1"));
  CHECK(contains(error_of("m=1,n=1,k=33,b_type=q4_0,trans_b=1"), "multiple of 32"));
  CHECK(contains(error_of("m=1,n=1,k=1,b_type=u8"), "allowed is f32"));
  CHECK(contains(error_of("m=1,n=1,k=1,a_type=q8_0"), "allowed is f32"));
}

TEST_CASE("k is bounded where a sum of the largest products would overflow") {
  CHECK(error_of("m=1,n=1,k=131071,a_type=s8,b_type=s8,c_type=s32").empty());
  CHECK(contains(error_of("m=1,n=1,k=131072,a_type=s8,b_type=s8,c_type=s32"), "131071"));
  CHECK(error_of("m=1,n=1,k=65793,a_type=u8,b_type=s8,c_type=s32").empty());
  CHECK(contains(error_of("m=1,n=1,k=65794,a_type=u8,b_type=s8,c_type=s32"), "65793"));
}

TEST_CASE("a problem's formats decide which maths it has, and its usual one") {
  const Problem floats = gemm_problem("m=1,n=1,k=1"),
                integers = gemm_problem("m=1,n=1,k=1,a_type=s8,b_type=s8,c_type=s32"),
                weights = gemm_problem("m=1,n=1,k=32,b_type=s8c");
  CHECK(math_for(floats, "fp32") == "fp32");
  CHECK(math_for(integers, "fp32") == "int8");
  CHECK(math_for(weights, "fp32") == "fp32");
  CHECK(math_for(weights, "int8-dynamic") == "int8-dynamic");
  CHECK(contains(*math_defect(floats, "int8"), "a_type=s8"));
  const Problem longest = gemm_problem("m=1,n=1,k=132104,b_type=s8c"),
                too_long = gemm_problem("m=1,n=1,k=132105,b_type=s8c");
  CHECK_FALSE(math_defect(longest, "int8-dynamic"));
  CHECK(contains(*math_defect(too_long, "int8-dynamic"), "k=132104"));
  CHECK(contains(*math_defect(floats, "int8-dynamic"), "s8c"));
  CHECK(contains(*math_defect(integers, "bf16"), "float"));
}

TEST_CASE("quantised weights: mistakes of kernels are found") {
  for (const char* format : {"q4_0", "q4_1"}) {
    const std::string shape = std::string("m=3,n=5,k=96,trans_b=1,b_type=") + format;
    const std::size_t head = std::string(format) == "q4_0" ? 2 : 4, block = head + 16;
    INFO(format);
    const auto swap_nibbles_of_one_block = [&](Trial& t) {
      auto* const bytes = t.data<std::uint8_t>("b") + 7 * block;
      for (std::size_t i = head; i < block; ++i) {
        bytes[i] = static_cast<std::uint8_t>(bytes[i] << 4 | bytes[i] >> 4);
      }
    };
    CHECK(verdict_with(shape, swap_nibbles_of_one_block) == Status::failed);
    const auto take_the_neighbours_scale = [&](Trial& t) {
      auto* const bytes = t.data<std::uint8_t>("b");
      std::memcpy(bytes, bytes + block, 2);
    };
    CHECK(verdict_with(shape, take_the_neighbours_scale) == Status::failed);
  }
  CHECK(verdict_with("m=3,n=5,k=96,trans_b=1,b_type=q4_1", [](Trial& t) {  // no minimum
          std::memset(t.data<std::uint8_t>("b") + 2, 0, 2);
        }) == Status::failed);
  CHECK(verdict_with("m=3,n=5,k=96,trans_b=1,b_type=q8_0", [](Trial& t) {  // last block left out
          std::memset(t.data<std::uint8_t>("b") + 2 * 34, 0, 34);
        }) == Status::failed);
  CHECK(verdict_with("m=3,n=5,k=33,trans_b=1,b_type=s8c", [](Trial& t) {  // a neighbour's scale
          std::swap(t.data<float>("b_scale")[0], t.data<float>("b_scale")[1]);
        }) == Status::failed);
}

TEST_CASE("integers: saturation, a missing compensation and a lost rest of k are found") {
  const std::string shape = "m=4,n=6,k=64,trans_b=1,a_type=u8,b_type=s8,c_type=s32";
  Trial exact(shape);
  multiply_pairs(exact, [](std::int32_t pair) { return pair; });
  CHECK(exact.verdict() == Status::passed);
  multiply_pairs(exact, [](std::int32_t pair) {  // vpmaddubsw's
    return std::clamp<std::int32_t>(pair, std::numeric_limits<std::int16_t>::min(),
                                    std::numeric_limits<std::int16_t>::max());
  });
  CHECK(exact.verdict() == Status::failed);

  Trial shifted("m=4,n=6,k=64,trans_b=1,a_type=s8,b_type=s8,c_type=s32");
  shifted.run("scalar");
  REQUIRE(shifted.verdict() == Status::passed);
  for (std::int64_t j = 0; j < 6; ++j) {  // 128 times the sum of one column of b is still in it
    std::int32_t sum = 0;
    for (std::int64_t p = 0; p < 64; ++p) sum += shifted.data<std::int8_t>("b")[j * 64 + p];
    if (j == 5) shifted.data<std::int32_t>("c")[5] += 128 * sum;
  }
  CHECK(shifted.verdict() == Status::failed);

  const auto lose_the_last_of_k = [](Trial& t) {
    for (std::int64_t j = 0; j < 6; ++j) t.data<std::int8_t>("b")[j * 67 + 66] = 0;
  };
  CHECK(verdict_with("m=4,n=6,k=67,trans_b=1,a_type=s8,b_type=s8,c_type=s32", lose_the_last_of_k) ==
        Status::failed);
}

TEST_CASE("bfloat16: products of rounded operands are not those of float32 ones") {
  Trial trial("m=3,n=5,k=64,trans_b=1,a_type=bf16,b_type=bf16", "bf16");
  trial.run("scalar");
  CHECK(trial.verdict() == Status::passed);
  // The least bit of one element of a.
  trial.data<std::uint16_t>("a")[5] ^= 1;
  trial.run("scalar");
  CHECK(trial.verdict() == Status::failed);
}

TEST_CASE("rounding of operands excuses no error of beta · c0") {
  Trial trial("m=3,n=5,k=64,trans_b=1,beta=100000", "bf16");
  for (int at = 0; at < 15; ++at) {
    double sum = 0;
    for (int p = 0; p < 64; ++p) {
      sum +=
          double{trial.data<float>("a")[at / 5 * 64 + p]} * trial.data<float>("b")[at % 5 * 64 + p];
    }
    trial.data<float>("c")[at] = static_cast<float>(sum + 1e5 * trial.data<float>("c0")[at]);
  }
  CHECK(trial.verdict() == Status::passed);
  for (int at = 0; at < 15; ++at) trial.data<float>("c")[at] *= 1 + 0x1p-9f;
  CHECK(trial.verdict() == Status::failed);
}

TEST_CASE("int8-dynamic: errs by steps of its rows, and a row that is not finite is NaN") {
  const std::string shape = "m=3,n=5,k=70,trans_b=1,b_type=s8c";
  for (const char* variant : {"scalar", "hwy", "avx512"}) {
    INFO(variant);
    Trial trial(shape, "int8-dynamic");
    if (variant_for(trial, variant) == nullptr) continue;
    trial.run(variant);
    CHECK(trial.verdict() == Status::passed);
    trial.data<float>("a")[70 + 3] = std::numeric_limits<float>::infinity();
    trial.data<float>("a")[2 * 70 + 5] = std::nanf("");  // larger numbers follow
    trial.run(variant);
    const auto* const c = trial.data<float>("c");
    for (int j = 0; j < 5; ++j) {
      CHECK(std::isfinite(c[j]));
      CHECK(std::isnan(c[5 + j]));
      CHECK(std::isnan(c[10 + j]));
    }
  }
  CHECK(verdict_with(
            shape,
            [](Trial& t) {  // a scale of another column
              std::swap(t.data<float>("b_scale")[0], t.data<float>("b_scale")[1]);
            },
            "int8-dynamic") == Status::failed);
}

namespace {

// c of plain int32 sums, with what `spoil` makes of a row's integers.
Status verdict_of_quantised(Trial& trial,
                            const std::function<void(int row, std::vector<double>&)>& spoil) {
  const gemm::Gemm g(trial.problem);
  const auto* const b = trial.data<std::int8_t>("b");
  for (int i = 0; i < g.m; ++i) {
    const float* const a = trial.data<float>("a") + i * g.k;
    float largest = 0;
    for (std::int64_t p = 0; p < g.k; ++p) largest = std::max(largest, std::fabs(a[p]));
    std::vector<double> quotients(static_cast<std::size_t>(g.k));
    for (std::int64_t p = 0; p < g.k; ++p) quotients[p] = std::nearbyint(a[p] * (127 / largest));
    spoil(i, quotients);
    for (std::int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < g.k; ++p) sum += quotients[p] * b[j * g.k + p];
      trial.data<float>("c")[i * g.n + j] =
          static_cast<float>(sum * largest / 127 * trial.data<float>("b_scale")[j]);
    }
  }
  return trial.verdict();
}

}  // namespace

TEST_CASE("int8-dynamic: a long sum that loses a part of k or a step of a row is found") {
  // Compared element by element; and so large that a Freivalds product has to find it.
  for (const char* const shape :
       {"m=3,n=64,k=4096,trans_b=1,b_type=s8c", "m=260,n=520,k=4096,trans_b=1,b_type=s8c"}) {
    INFO(shape);
    Trial trial(shape, "int8-dynamic");
    CHECK(trial.reference.complete == (trial.problem.size("m") == 3));
    const auto none = [](int, std::vector<double>&) {};
    CHECK(verdict_of_quantised(trial, none) == Status::passed);
    const auto lose_the_last = [](int, std::vector<double>& row) {
      std::fill(row.end() - 16, row.end(), 0.0);
    };
    CHECK(verdict_of_quantised(trial, lose_the_last) == Status::failed);
    const auto round_one_row_up = [](int i, std::vector<double>& row) {
      for (double& quotient : row) quotient += i == 1 ? 1 : 0;
    };
    CHECK(verdict_of_quantised(trial, round_one_row_up) == Status::failed);
  }
}

TEST_CASE("large integer products are checked as a whole") {
  Trial trial("m=300,n=600,k=600,trans_b=1,a_type=s8,b_type=s8,c_type=s32");
  REQUIRE_FALSE(trial.reference.complete);
  trial.run("hwy", 2);
  CHECK(trial.verdict() == Status::passed);
  // An element that no chosen row or column crosses: some are, whichever the seed chose.
  int found = 0;
  for (int i = 100; i < 104; ++i) {
    auto& element = trial.data<std::int32_t>("c")[i * 600 + 301 + i];
    element += 1;
    found += trial.verdict() == Status::failed ? 1 : 0;
    element -= 1;
  }
  CHECK(found == 4);
}

TEST_CASE(
    "a row's path is scalar only at targets without vectors, and names what integers run on") {
  for (const std::string& isa : isa_targets()) {
    INFO(isa);
    const bool plain = isa == "SCALAR" || isa == "EMU128";
    const auto path_of = [&](const std::string& shape, const std::string& math,
                             const Tuning& tuning = {}) {
      const Problem problem = gemm_problem(shape);
      Environment env;
      env.isa = isa;
      env.math = math_for(problem, math);
      return make_plan(gemm::hwy, problem, tuning, env, {})->facts().path;
    };
    for (const char* const b_type : {"f32", "bf16"}) {
      const std::string path = path_of(std::string("m=9,n=5,k=64,b_type=") + b_type, "fp32");
      CHECK_FALSE(path.empty());
      CHECK((path == "scalar") == plain);
    }
    const std::string integers = path_of("m=9,n=5,k=64,b_type=s8c", "int8-dynamic", {{"unit", 1}});
    CHECK((integers == "scalar") == plain);
    if (isa.starts_with("AVX") || isa.starts_with("SS")) CHECK(integers.ends_with("-pmaddwd"));
  }
}

namespace {

float flushed(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}
// A fused multiply-add that rounds to nearest and takes subnormal operands and results for zeros.
float fused(const BFloat16& a, const BFloat16& b, float sum) {
  return flushed(std::fma(flushed(a), flushed(b), sum));
}
// vdpbf16ps by Intel's and AMD's manuals: the odd element of a pair first, then the even one.
float dot_of_pairs(const BFloat16* a, const BFloat16* b, std::int64_t k) {
  float sum = 0;
  for (std::int64_t p = 0; p < k; p += 2) {
    if (p + 1 < k) sum = fused(a[p + 1], b[p + 1], sum);
    sum = fused(a[p], b[p], sum);
  }
  return sum;
}
// tdpbf16ps by Intel's manual: of each tile's 32 elements of k one sum of even places and one of
// odd ones, which are added to each other and then to the tile's.
float dot_of_tiles(const BFloat16* a, const BFloat16* b, std::int64_t k) {
  float sum = 0;
  for (std::int64_t first = 0; first < k; first += 32) {
    float of_places[2] = {};
    for (std::int64_t p = first; p < std::min(k, first + 32); ++p) {
      of_places[p % 2] = fused(a[p], b[p], of_places[p % 2]);
    }
    sum = flushed(sum + flushed(of_places[0] + of_places[1]));
  }
  return sum;
}

struct Unit {
  const char* variant;
  float (*dot)(const BFloat16*, const BFloat16*, std::int64_t);
};
constexpr Unit units[] = {{"avx512", dot_of_pairs}, {"amx", dot_of_tiles}};

// While it lives floats are rounded up.
struct RoundedUp {
  RoundedUp() { std::fesetround(FE_UPWARD); }
  ~RoundedUp() { std::fesetround(FE_TONEAREST); }
};

}  // namespace

TEST_CASE(
    "products of bfloat16 do what their manuals say, bit for bit, however floats are rounded") {
  for (const Unit& unit : units) {
    INFO(unit.variant);
    Trial trial("m=20,n=37,k=131,trans_b=1,a_type=bf16,b_type=bf16", "bf16");
    if (variant_for(trial, unit.variant) == nullptr) {
      test::skip_part(std::string("no products of bfloat16 by ") + unit.variant + " here", "");
      continue;
    }
    auto* const a = trial.data<BFloat16>("a");
    const auto* const b = trial.data<BFloat16>("b");
    for (int p = 0; p < 131; ++p) {
      a[3 * 131 + p].bits =
          static_cast<std::uint16_t>(p % 3 == 0 ? 0x0055 : 0x0100 + 7 * p);  // tiny
      a[4 * 131 + p] = BFloat16(std::ldexp(static_cast<float>(a[4 * 131 + p]), 40 - p));
    }
    for (const bool upward : {false, true}) {
      if (upward) {
        const RoundedUp upwards;
        trial.run(unit.variant);
      } else {
        trial.run(unit.variant);
      }
      int same = 0;
      for (int i = 0; i < 20; ++i) {
        for (int j = 0; j < 37; ++j) {
          const auto expected =
              std::bit_cast<std::uint32_t>(unit.dot(a + i * 131, b + j * 131, 131));
          same += trial.data<std::uint32_t>("c")[i * 37 + j] == expected ? 1 : 0;
        }
      }
      CHECK(same == 20 * 37);
    }
  }
}

TEST_CASE("products of integers are exact where 16 bits or signs would not hold them") {
  for (const Unit& unit : units) {
    for (const char* const a_type : {"s8", "u8"}) {
      INFO(unit.variant, " ", a_type);
      Trial trial(std::string("m=33,n=35,k=133,trans_b=1,b_type=s8,c_type=s32,a_type=") + a_type);
      if (variant_for(trial, unit.variant) == nullptr) {
        test::skip_part(std::string("no products of integers by ") + unit.variant + " here", "");
        continue;
      }
      const bool has_sign = a_type[0] == 's';
      auto* const a = trial.data<std::uint8_t>("a");
      auto* const b = trial.data<std::int8_t>("b");
      std::fill_n(a, 2 * 133, has_sign ? 0x80 : 0xFF);  // the largest magnitudes
      std::fill_n(b, 133, std::int8_t{-128});
      std::fill_n(b + 133, 133, std::int8_t{127});
      trial.run(unit.variant);
      int same = 0;
      for (int i = 0; i < 33; ++i) {
        for (int j = 0; j < 35; ++j) {
          std::int32_t sum = 0;
          for (int p = 0; p < 133; ++p) {
            const int x = a[i * 133 + p];
            sum += (has_sign && x > 127 ? x - 256 : x) * b[j * 133 + p];
          }
          same += trial.data<std::int32_t>("c")[i * 35 + j] == sum ? 1 : 0;
        }
      }
      CHECK(same == 33 * 35);
    }
  }
}

TEST_CASE("units and plain loops apply every function to c, in every form of it") {
  for (const std::string variant : {"hwy", "avx512", "amx", "scalar"}) {
    for (const char* const types :
         {"bf16:a_type=bf16,b_type=bf16", "bf16:a_type=bf16,b_type=bf16,c_type=bf16",
          "int8-dynamic:b_type=s8c", "int8-dynamic:b_type=s8c,c_type=bf16"}) {
      const std::string text = types, math = text.substr(0, text.find(':'));
      for (const char* const rest :
           {"m=3,n=70,epilogue=bias+relu", "m=5,n=70,epilogue=gelu+add,beta=2,alpha=-0.5",
            "m=67,n=37,epilogue=bias+gelu_tanh+add+clamp,low=-1,high=2,prepack=1",
            "m=33,n=40,batch=2,epilogue=leaky_relu+silu+bias,trans_a=1", "m=4,n=35,gate=1",
            "m=37,n=35,gate=1,batch=2,prepack=1", "m=3,n=5,k=0,beta=3,epilogue=bias+relu"}) {
        if (contains(rest, "gate") && contains(text, "s8c")) continue;  // has one scale a column
        std::string shape = std::string(rest) + ",trans_b=1," + text.substr(math.size() + 1);
        if (!contains(shape, "k=0")) shape += ",k=96";
        INFO(variant, " ", shape);
        Trial trial(shape, math);
        if (variant_for(trial, variant) == nullptr) continue;
        // Highway's own unit: the others have their variants.
        Tuning tuning;
        if (variant == "hwy") tuning.set("unit", math == "bf16" ? 0 : 1);
        trial.run(variant, 2, tuning);
        CHECK(trial.verdict() == Status::passed);
      }
    }
  }
}

TEST_CASE("formats: schedules of the search space are right, predicted, and found by their text") {
  constexpr const char* forms[] = {"fp32:b_type=q4_0",
                                   "fp32:b_type=q8_0,c_type=bf16",
                                   "fp32:b_type=q4_1",
                                   "fp32:a_type=f16,b_type=f16",
                                   "fp32:b_type=s8c",
                                   "bf16:a_type=bf16,b_type=bf16",
                                   "int8-dynamic:b_type=q8_0",
                                   "int8-dynamic:b_type=q4_1",
                                   "int8-dynamic:b_type=s8c",
                                   "int8:a_type=s8,b_type=s8,c_type=s32",
                                   "int8:a_type=u8,b_type=s8,c_type=s32"};
  for (const std::string form : forms) {
    const std::string math = form.substr(0, form.find(':')), types = form.substr(math.size() + 1);
    for (const char* const sizes : {"m=1,n=70,k=320", "m=7,n=67,k=96", "m=53,n=131,k=1376",
                                    "m=29,n=37,k=2080,batch=2,prepack=1"}) {
      for (const char* const name : {"hwy", "avx512", "amx"}) {
        Trial trial(std::string(sizes) + ",trans_b=1," + types, math);
        const Variant* const variant = variant_for(trial, name);
        if (variant == nullptr) continue;
        const Environment env = trial.environment(3);
        const std::vector<Tuning> all = variant->tunings(trial.problem, env);
        for (std::size_t i = 0; i < all.size(); i += i < 6 ? 1 : 5) {
          const Tuning& tuning = all[i];
          INFO(name, " ", form, " ", sizes, " ", tuning.text());
          CHECK_FALSE(variant->tuning_defect(trial.problem, tuning, env));
          CHECK(variant->complete(trial.problem, tuning, env) == tuning);
          CHECK(variant->predicted_seconds(trial.problem, tuning, env) > 0);
          const auto plan = make_plan(*variant, trial.problem, tuning, env, trial.operands.all());
          CHECK(plan->facts().tuning == tuning);
          plan->bind(trial.operands.all());
          plan->run();
          plan->run();  // pieces are packed again
          CHECK(trial.verdict() == Status::passed);
        }
      }
    }
  }
}

TEST_CASE("few rows: a row's sums are the same bits however many rows are beside it") {
  // k is in parts where several rows are, and whole where one is.
  constexpr const char* forms[] = {
      "fp32:k=2080,b_type=q4_0", "fp32:k=2080,b_type=q4_1", "fp32:k=2080,b_type=q8_0",
      "fp32:k=2075,b_type=s8c",  "fp32:k=2075,b_type=bf16", "bf16:k=2075,a_type=bf16,b_type=bf16"};
  for (const std::string form : forms) {
    const std::string math = form.substr(0, form.find(':')), rest = form.substr(math.size() + 1);
    const auto first_row = [&](int m) {
      Trial trial("m=" + std::to_string(m) + ",n=37,trans_b=1," + rest, math);
      trial.run("hwy", 1 + m % 2, Tuning{{"path", 5}});
      const float* const c = trial.data<float>("c");
      return std::vector<float>(c, c + 37);
    };
    const std::vector<float> alone = first_row(1);
    for (int m = 2; m <= 8; ++m) {
      INFO(form, " m=", m);
      const bool same = alone == first_row(m);
      CHECK(same);
    }
  }
}

TEST_CASE("a that lies across memory is converted as one that lies along it, in every format") {
  for (const std::string form :
       {"bf16:b_type=bf16", "int8-dynamic:b_type=s8c", "int8-dynamic:b_type=q4_1"}) {
    const std::string math = form.substr(0, form.find(':')), rest = form.substr(math.size() + 1);
    for (const std::string a_type : {"f32", "bf16", "f16"}) {
      if (math == "bf16" && a_type == "f16") continue;
      for (const std::string sizes : {"m=1,n=19,k=96", "m=5,n=40,k=352", "m=45,n=33,k=160"}) {
        INFO(form, " ", a_type, " ", sizes);
        const std::string shape = fmt::format("{},trans_b=1,a_type={},{}", sizes, a_type, rest);
        Trial along(shape, math), across(shape + ",trans_a=1", math);
        if (variant_for(along, "hwy") == nullptr) {
          test::skip_part("no unit here for " + form, "");
          continue;
        }
        for (Trial* const trial : {&along, &across}) {
          trial->run("hwy", 2);
          CHECK(trial->verdict() == Status::passed);
        }
        if (math == "bf16") continue;  // another unit may add in another order
        const auto m = static_cast<std::size_t>(along.problem.size("m"));
        const auto k = static_cast<std::size_t>(along.problem.size("k"));
        const std::size_t size = along.bytes("a") / (m * k);
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t p = 0; p < k; ++p) {
            std::copy_n(along.data<std::byte>("a") + (i * k + p) * size, size,
                        across.data<std::byte>("a") + (p * m + i) * size);
          }
        }
        std::copy_n(along.data<std::byte>("b"), along.bytes("b"), across.data<std::byte>("b"));
        if (along.problem.dtype("b_type") == &int8_per_channel) {
          std::copy_n(along.data<std::byte>("b_scale"), along.bytes("b_scale"),
                      across.data<std::byte>("b_scale"));
        }
        across.run("hwy", 2);
        const bool same = std::equal(along.data<float>("c"),
                                     along.data<float>("c") + along.bytes("c") / sizeof(float),
                                     across.data<float>("c"));
        CHECK(same);
      }
    }
  }
}

TEST_CASE("hwy takes the unit that is predicted to be fastest, and any that a tuning names") {
  struct Form {
    const char* shape;
    const char* math;
    std::vector<int> units;  // that may take it
  };
  const Form forms[] = {
      {"m=200,n=200,k=256,trans_b=1,a_type=bf16,b_type=bf16", "bf16", {0, 2, 5}},
      {"m=200,n=200,k=256,trans_b=1,b_type=bf16", "bf16", {2, 5}},
      {"m=200,n=200,k=256,trans_b=1,a_type=bf16,b_type=bf16", "fp32", {0}},
      {"m=200,n=200,k=256,trans_b=1,b_type=s8c", "int8-dynamic", {1, 3, 5}},
      {"m=200,n=200,k=256,trans_b=1,b_type=q8_0", "int8-dynamic", {4}},
      {"m=200,n=200,k=256,trans_b=1,a_type=u8,b_type=s8,c_type=s32", "int8", {1, 3, 5}}};
  for (const Form& form : forms) {
    Trial trial(form.shape, form.math);
    const Environment env = trial.environment(2);
    if (refusal(gemm::hwy, trial.problem, env)) continue;
    const Tuning chosen = gemm::hwy.complete(trial.problem, {}, env);
    const double least = gemm::hwy.predicted_seconds(trial.problem, chosen, env);
    for (int unit = 0; unit <= 5; ++unit) {
      const Tuning named = gemm::hwy.complete(trial.problem, {{"unit", unit}}, env);
      INFO(form.shape, " ", form.math, " ", named.text());
      CHECK(named.find("unit") == unit);
      const bool known = std::find(form.units.begin(), form.units.end(), unit) != form.units.end();
      const auto defect = gemm::hwy.tuning_defect(trial.problem, named, env);
      if (!known) CHECK(defect);
      if (defect) {
        CHECK(contains(*defect, "unit=" + std::to_string(unit)));
        continue;
      }
      CHECK(least <= gemm::hwy.predicted_seconds(trial.problem, named, env) * (1 + 1e-9));
      const auto plan = make_plan(gemm::hwy, trial.problem, named, env, trial.operands.all());
      plan->bind(trial.operands.all());
      plan->run();
      CHECK(trial.verdict() == Status::passed);
    }
  }
}

TEST_CASE("hwy: plans of the same constant b keep it once, and each its own once b changed") {
  for (const char* const n : {"n=70", "n=700"}) {  // in pages of its own, and beside others
    const std::string rest = std::string(",k=512,trans_b=1,b_type=q8_0,prepack=1,") + n;
    Trial many("m=40" + rest), one("m=1" + rest);
    std::memcpy(one.data<std::byte>("b"), many.data<std::byte>("b"), many.bytes("b"));
    const auto plan_of = [&](const Trial& trial) {
      auto plan = make_plan(gemm::hwy, trial.problem, {{"path", 4}}, trial.environment(),
                            many.operands.all());
      plan->bind(trial.operands.all());
      return plan;
    };
    const auto kept = [](const Plan& plan) { return plan.regions().back().data(); };
    auto first = plan_of(many);
    const auto second = plan_of(one);
    CHECK(kept(*second) == kept(*first));
    std::fill_n(many.data<std::byte>("b"), many.bytes("b"), std::byte{0});
    const auto third = plan_of(many);
    CHECK(kept(*third) != kept(*first));
    first->run();
    std::memcpy(many.data<std::byte>("b"), one.data<std::byte>("b"), one.bytes("b"));
    CHECK(many.verdict() == Status::passed);
    first.reset();
    second->run();
    const Reference reference =
        compute_reference(one.problem, one.operands.inputs(), seed, one.math);
    CHECK(verify_output(one.problem, one.operands.all(), reference, seed, one.math).status ==
          Status::passed);
  }
}
