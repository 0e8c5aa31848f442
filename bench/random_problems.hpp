// Random problems, drawn from a seed: they show where a rule that was fitted to listed shapes
// fails.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernel.hpp"
#include "core/problem.hpp"

namespace rooflane {

struct RandomProblems {
  int count;
  std::uint64_t seed;
  std::int64_t largest = 4096;  // size
  // Number formats and the functions behind a product, too, are drawn.
  bool formats = false;
};

// Problems of a kernel: required sizes log-uniform from 1 to the largest, an optional size once in
// five, flags once in four, everything else at its default; with formats all combinations that go
// together, a chain every second time, and every second size a multiple of 32. Up to 4 Gflop and
// 256 MiB each. The same seed gives the same problems on every
// machine.
std::vector<Problem> random_problems(const Kernel& kernel, const RandomProblems& asked);

}  // namespace rooflane
