// Maths in which third-party libraries quantise: the correct results of such a library pass, and
// its mistakes are found.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/float16.hpp"
#include "gemm_trial.hpp"
#include "kernels/gemm/foreign_maths.hpp"
#include "kernels/gemm/gemm.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

// Judges by the inputs as they are now.
void judge_anew(Trial& trial) {
  trial.reference = compute_reference(trial.problem, trial.operands.inputs(), seed, trial.math);
}

// A row of a in integers with a float16 step for each 32, as in llama.cpp.
struct Blocks {
  std::vector<double> quotients, steps;
  Blocks(const float* row, std::int64_t k) {
    for (std::int64_t p = 0; p < k; p += 32) {
      float largest = 0;
      for (int at = 0; at < 32; ++at) largest = std::max(largest, std::fabs(row[p + at]));
      const float inverse = 127 / largest;
      for (int at = 0; at < 32; ++at) quotients.push_back(std::nearbyint(row[p + at] * inverse));
      steps.push_back(Float16(largest / 127));
    }
  }
};

// c of such rows; `spoil` is handed the steps of each.
Status verdict_of_blocks(Trial& trial, const std::function<void(std::vector<double>&)>& spoil) {
  const gemm::Gemm g(trial.problem);
  std::vector<double> b(static_cast<std::size_t>(g.n * g.k));
  trial.operands.all().at("b").dtype->decode(trial.data<std::byte>("b"), b.data(), g.n * g.k);
  for (std::int64_t i = 0; i < g.m; ++i) {
    Blocks row(trial.data<float>("a") + i * g.k, g.k);
    spoil(row.steps);
    for (std::int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < g.k; ++p) {
        sum += row.steps[p / 32] * row.quotients[p] * b[j * g.k + p];
      }
      trial.data<float>("c")[i * g.n + j] = static_cast<float>(sum);
    }
  }
  return trial.verdict();
}

}  // namespace

TEST_CASE("int8-block: float16 steps pass, which int8-dynamic does not allow") {
  CHECK(contains(*math_defect(gemm_problem("m=1,n=1,k=32,b_type=s8c"), "int8-block"), "q4_0"));
  const auto none = [](std::vector<double>&) {};
  for (const char* const shape :
       {"m=3,n=40,k=1024,trans_b=1,b_type=q8_0", "m=3,n=40,k=1024,trans_b=1,b_type=q4_0",
        "m=260,n=520,k=1024,trans_b=1,b_type=q4_1"}) {
    INFO(shape);
    Trial halves(shape, "int8-block");
    CHECK(verdict_of_blocks(halves, none) == Status::passed);
    Trial strict(shape, "int8-dynamic");
    CHECK(verdict_of_blocks(strict, none) != Status::passed);
    // Steps of seeded blocks differ by little; the block before has twice its values here.
    for (int at = 0; at < 32; ++at) halves.data<float>("a")[64 + at] *= 2;
    judge_anew(halves);
    CHECK(verdict_of_blocks(halves, [](std::vector<double>& steps) { steps[3] = steps[2]; }) ==
          Status::failed);
    CHECK(verdict_of_blocks(halves, [](std::vector<double>& steps) { steps.back() = 0; }) ==
          Status::failed);
  }
}

TEST_CASE("int8-tensor: one scale and zero point pass, a zero point that is off by one is found") {
  Trial trial("m=5,n=40,k=512,trans_b=1,b_type=s8c", "int8-tensor");
  const gemm::Gemm g(trial.problem);
  auto* const a = trial.data<float>("a");
  for (std::int64_t at = 0; at < g.m * g.k; ++at) a[at] += 0.25f;
  judge_anew(trial);
  const auto [least, most] = std::minmax_element(a, a + g.m * g.k);
  const float step = (std::max(*most, 0.0f) - std::min(*least, 0.0f)) / 255;
  const double zero = std::nearbyint(-*least / step);
  const auto verdict_with_zero = [&](double subtracted) {
    for (std::int64_t i = 0; i < g.m; ++i) {
      for (std::int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p < g.k; ++p) {
          const double q = std::clamp(std::nearbyint(a[i * g.k + p] / step) + zero, 0.0, 255.0);
          sum += (q - subtracted) * trial.data<std::int8_t>("b")[j * g.k + p];
        }
        trial.data<float>("c")[i * g.n + j] =
            static_cast<float>(sum * step * trial.data<float>("b_scale")[j]);
      }
    }
    return trial.verdict();
  };
  CHECK(verdict_with_zero(zero) == Status::passed);
  CHECK(verdict_with_zero(zero - 1) == Status::failed);
  CHECK(verdict_with_zero(0) == Status::failed);
}
