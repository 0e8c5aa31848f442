// Problems that nobody listed, drawn from a seed: what a rule fitted to listed shapes fails on.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kernel.hpp"
#include "core/problem.hpp"

namespace rooflane {

// `count` problems of a kernel: required sizes log-uniform from 1 to 4096, an optional size once in
// five, flags once in four, everything else at its default; up to 4 Gflop and 256 MiB each. The
// same seed gives the same problems on every machine.
std::vector<Problem> random_problems(const Kernel& kernel, int count, std::uint64_t seed);

}  // namespace rooflane
