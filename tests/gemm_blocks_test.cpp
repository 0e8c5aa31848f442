// GEMM with weights in GGUF's blocks and math int8-dynamic: op(a) is quantised in blocks of 32.
// What the units make of every edge, against the double reference; that rows do not depend on one
// another; and mistakes that verification has to find.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
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

constexpr const char* formats[] = {"q8_0", "q4_0", "q4_1"};

std::string shape_of(const std::string& sizes, const char* format) {
  return sizes + ",trans_b=1,b_type=" + format;
}

void check(const std::string& shape, const char* variant, int threads) {
  INFO(shape, " ", variant, " threads=", threads);
  Trial trial(shape, "int8-dynamic");
  REQUIRE(trial.math.name == "int8-dynamic");
  if (variant_for(trial, variant) == nullptr) return;
  trial.run(variant, threads);
  CHECK(trial.verdict() == Status::passed);
}

bool has_unit() {
  return variant_for(Trial("m=1,n=1,k=32,trans_b=1,b_type=q4_0", "int8-dynamic"), "avx512") !=
         nullptr;
}

}  // namespace

TEST_CASE("blocks: every number of rows, part of a group of columns and of blocks") {
  if (!has_unit()) test::skip_part("no vpdpbusd here", "");
  for (const char* const format : formats) {
    for (int m = 1; m <= 14; ++m) {
      for (const char* const rest : {",n=37,k=32", ",n=16,k=224", ",n=65,k=288", ",n=130,k=608"}) {
        check(shape_of("m=" + std::to_string(m) + rest, format), "avx512", 1 + m % 2);
      }
    }
    check(shape_of("m=3,n=37,k=288", format), "scalar", 1);
  }
}

TEST_CASE("blocks: layouts, types, scalars and what follows the product") {
  for (const char* const format : formats) {
    for (const char* const rest :
         {"m=3,n=37,k=96,trans_a=1", "m=29,n=37,k=96,trans_a=1,a_type=bf16",
          "m=5,n=70,k=288,batch=3,alpha=-0.5,beta=2", "m=17,n=70,k=288,batch=3,beta=-1,c_type=bf16",
          "m=2,n=33,k=320,prepack=1", "m=31,n=33,k=320,prepack=1,c_type=bf16",
          "m=4,n=33,k=320,epilogue=bias+gelu+add", "m=14,n=33,k=96,epilogue=bias+relu,c_type=bf16",
          "m=7,n=33,k=96,gate=1", "m=19,n=33,k=96,gate=1,prepack=1,c_type=bf16",
          "m=3,n=5,k=0,beta=3,epilogue=relu"}) {
      check(shape_of(rest, format), "avx512", 2);
      check(shape_of(rest, format), "scalar", 1);
    }
    check(shape_of("m=3,n=5,k=64,batch=2,trans_a=1,beta=2,prepack=1", format), "scalar", 1);
  }
}

TEST_CASE(
    "blocks: threads that multiply the last rows of several batches do not disturb each other") {
  for (const char* const format : formats) {
    for (const char* const rest : {"", ",prepack=1"}) {
      check(shape_of("m=3,n=17,k=4096,batch=64" + std::string(rest), format), "avx512", 2);
    }
  }
}

TEST_CASE("blocks: a row's sums are the same bits whatever is beside it and however b is packed") {
  if (!has_unit()) {
    test::skip_part("no vpdpbusd here", "");
    return;
  }
  for (const char* const format : formats) {
    INFO(format);
    const auto rows_of = [&](const std::string& m, int threads) {
      const std::string sizes = "m=" + m + ",n=83,k=416,prepack=" + (threads > 1 ? "1" : "0");
      Trial trial(shape_of(sizes, format), "int8-dynamic");
      trial.run("avx512", threads);
      const float* const c = trial.data<float>("c");
      return std::vector<float>(c, c + 83);
    };
    const std::vector<float> alone = rows_of("1", 1);
    for (const char* const m : {"1", "2", "8", "9", "26"}) {
      const std::vector<float> beside = rows_of(m, 2);
      CHECK(alone == beside);
    }
  }
}

TEST_CASE("blocks: a row that is not finite is NaN, and alone so") {
  for (const char* const variant : {"scalar", "avx512"}) {
    for (const char* const format : formats) {
      INFO(variant, " ", format);
      Trial trial(shape_of("m=3,n=5,k=96", format), "int8-dynamic");
      if (variant_for(trial, variant) == nullptr) continue;
      trial.data<float>("a")[96 + 40] = std::numeric_limits<float>::infinity();
      trial.data<float>("a")[2 * 96 + 95] = std::nanf("");
      std::fill_n(trial.data<float>("a"), 32, 0x1p-140f);  // the inverse of its maximum overflows
      trial.run(variant);
      for (int j = 0; j < 5; ++j) {
        CHECK(std::isfinite(trial.data<float>("c")[j]));
        CHECK(std::isnan(trial.data<float>("c")[5 + j]));
        CHECK(std::isnan(trial.data<float>("c")[10 + j]));
      }
    }
  }
}

namespace {

// c as a kernel has it that makes a mistake: `spoil` changes the integers and steps of op(a)'s
// rows.
struct QuantisedRow {
  std::vector<double> integers, steps;
};
Status verdict_of(Trial& trial, const std::function<void(QuantisedRow&)>& spoil) {
  const gemm::Gemm g(trial.problem);
  const NumberFormat& format = *trial.problem.dtype("b_type");
  std::vector<double> weights(static_cast<std::size_t>(g.k));
  for (std::int64_t i = 0; i < g.m; ++i) {
    QuantisedRow row;
    for (std::int64_t p = 0; p < g.k; p += 32) {
      const float* const a = trial.data<float>("a") + i * g.k + p;
      float largest = 0;
      for (int t = 0; t < 32; ++t) largest = std::max(largest, std::fabs(a[t]));
      row.steps.push_back(largest / 127);
      for (int t = 0; t < 32; ++t) row.integers.push_back(std::nearbyint(a[t] * (127 / largest)));
    }
    spoil(row);
    for (std::int64_t j = 0; j < g.n; ++j) {
      format.decode(trial.data<std::byte>("b") + format.bytes(j * g.k), weights.data(), g.k);
      double sum = 0;
      for (std::size_t p = 0; p < weights.size(); ++p) {
        sum += row.integers[p] * row.steps[p / 32] * weights[p];
      }
      trial.data<float>("c")[i * g.n + j] = static_cast<float>(sum);
    }
  }
  return trial.verdict();
}

}  // namespace

TEST_CASE("blocks: mistakes in quantising op(a) are found, element by element and as a whole") {
  for (const char* const format : formats) {
    for (const char* const sizes : {"m=3,n=40,k=320", "m=130,n=520,k=2048"}) {
      const bool large = std::string(sizes).starts_with("m=130");
      if (large && std::string(format) != "q4_1") continue;
      INFO(format, " ", sizes);
      Trial trial(shape_of(sizes, format), "int8-dynamic");
      CHECK(trial.reference.complete != large);
      CHECK(verdict_of(trial, [](QuantisedRow&) {}) == Status::passed);
      CHECK(verdict_of(trial, [](QuantisedRow& row) { std::swap(row.steps[0], row.steps[1]); }) ==
            Status::failed);
      CHECK(verdict_of(trial, [](QuantisedRow& row) {  // a step for the whole row
              std::fill(row.steps.begin(), row.steps.end(), row.steps[3]);
            }) == Status::failed);
      CHECK(verdict_of(trial, [](QuantisedRow& row) {  // the last block left out
              std::fill(row.integers.end() - 32, row.integers.end(), 0.0);
            }) == Status::failed);
      CHECK(verdict_of(trial, [](QuantisedRow& row) {  // truncated, not rounded
              for (double& integer : row.integers) integer -= 0.25;
            }) == Status::failed);
    }
  }
}

TEST_CASE("blocks: an ISA target without products of blocks refuses them by name") {
  const Trial trial("m=3,n=5,k=64,trans_b=1,b_type=q4_1", "int8-dynamic");
  for (const std::string& isa : isa_targets()) {
    if (isa.starts_with("AVX3")) continue;
    Environment env = trial.environment();
    env.isa = isa;
    const auto reason = refusal(gemm::hwy, trial.problem, env);
    REQUIRE(reason);
    CHECK(contains(*reason, "b_type=q4_1"));
    CHECK(contains(*reason, isa));
  }
}
