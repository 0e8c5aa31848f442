// Ways to compute a GEMM, run and compared with the reference. Shared by the tests of GEMM.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "measure/verify.hpp"
#include "tests/known_reference.hpp"

namespace rooflane::gemm_ways {

inline constexpr std::uint64_t seed = 77;

inline Problem gemm_problem(const std::string& shape) {
  const Kernel* const kernels[] = {&gemm::kernel};
  return parse_problem("gemm:" + shape, kernels);
}

// A variant, or with `step=I` a rung of its ladder.
struct Way {
  Way(const Variant& chosen, Tuning step = {}) : variant(chosen), tuning(std::move(step)) {}
  const Variant& variant;
  Tuning tuning;
};

inline void run_plan(const Way& way, const Problem& problem, const Environment& env,
                     const Operands& operands) {
  const auto plan = make_plan(way.variant, problem, way.tuning, env, operands);
  plan->bind(operands);
  plan->upload();
  plan->run();
  plan->download();
}

inline void check_right(const Problem& problem, Operands operands, const View& output) {
  operands.set("c", output);
  const Reference& reference = test::known_reference(problem, operands, seed);
  const Verification result = verify_output(problem, operands, reference, seed);
  CHECK_MESSAGE(result.passed(), result.reason);
}

}  // namespace rooflane::gemm_ways
