// A tuning that gives a plan all threads of its environment: what is predicted for the small
// problems of tests is one, and sharing would go untested. GEMM's own test of threads is
// gemm_threads_test.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/variant.hpp"

namespace rooflane::test {

inline Tuning on_all_threads(const Variant& variant, const Tuning& tuning, const Environment& env) {
  const bool has_threads = std::any_of(
      variant.tunables.begin(), variant.tunables.end(),
      [](const Tunable& tunable) { return std::string_view(tunable.name) == "threads"; });
  if (!has_threads || rung_of(variant, tuning) != nullptr ||
      variant.kernel->name == std::string_view("gemm")) {
    return tuning;
  }
  Tuning all = tuning;
  all.set("threads", std::max(1, env.threads));
  return all;
}

}  // namespace rooflane::test
