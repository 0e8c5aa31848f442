// A GEMM problem with inputs from a seed, what it should give, and the verdict on what a variant
// made of it: for tests of number formats.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "absent_variants.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "measure/verify.hpp"

namespace rooflane::test {

inline constexpr std::uint64_t seed = 31;

inline const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

inline Problem gemm_problem(const std::string& shape) {
  return parse_problem("gemm:" + shape, catalogue().kernels());
}

inline std::string error_of(const std::string& shape) {
  try {
    gemm_problem(shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A problem with inputs from a seed and what its usual math, or another, should give.
struct Trial {
  explicit Trial(const std::string& shape, const std::string& asked = "fp32")
      : problem(gemm_problem(shape)),
        math(*find_math(gemm::kernel, math_for(problem, asked))),
        operands(problem, seed, 1),
        reference(compute_reference(problem, operands.inputs(), seed, math)) {}

  Environment environment(int threads = 1) const {
    Environment env;
    env.math = math.name;
    env.threads = threads;
    return env;
  }
  void run(const std::string& variant, int threads = 1, const Tuning& tuning = {}) {
    const CatalogueEntry& entry = catalogue().variant(gemm::kernel, variant);
    const Environment env = environment(threads);
    REQUIRE_FALSE(refusal(*entry.variant, problem, env));
    const auto plan = make_plan(*entry.variant, problem, tuning, env, operands.all());
    plan->bind(operands.all());
    plan->run();
  }
  Status verdict() { return verify_output(problem, operands.all(), reference, seed, math).status; }
  template <class T>
  T* data(const char* name) {
    return static_cast<T*>(operands.all().at(name).data);
  }
  std::size_t bytes(const char* name) {
    const View& view = operands.all().at(name);
    return view.dtype->bytes(view.elements());
  }

  Problem problem;
  const Math& math;
  OwnedOperands operands;
  Reference reference;
};

// The variant if it computes the trial's problem here; null: it does not.
inline const Variant* variant_for(const Trial& trial, const std::string& name) {
  for (const CatalogueEntry* any : catalogue().variants(gemm::kernel)) {
    if (any->name != name || absent_reason(*any)) continue;
    if (refusal(*any->variant, trial.problem, trial.environment())) continue;
    return any->variant;
  }
  return nullptr;
}

}  // namespace rooflane::test
