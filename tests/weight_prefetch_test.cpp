// How far threads read ahead of a phase's products. That lines arrive cannot be seen from here.
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "generate/weight_prefetch.hpp"

namespace rooflane::generate {
namespace {

constexpr std::size_t of_step = 512;  // bytes

// Steps until there is nothing left to do.
std::size_t steps_of(WeightPrefetch& prefetch, int thread) {
  std::size_t steps = 0;
  while (prefetch.step(thread)) ++steps;
  return steps;
}

TEST_CASE(
    "threads read their parts ahead as far as they may, past a matrix's end, not the last's") {
  const std::vector<std::byte> memory(64 << 10);
  WeightPrefetch prefetch(2, 8 * of_step);
  for (std::size_t matrix = 0; matrix < 4; ++matrix) {
    CHECK(prefetch.add({memory.data() + 10 * of_step * matrix, 10 * of_step}) == matrix);
  }
  CHECK(steps_of(prefetch, 0) == 0);  // nobody reads yet
  prefetch.read_until(0);
  // 5 steps of the first matrix and 3 of the second, each thread for itself.
  CHECK(steps_of(prefetch, 0) == 8);
  CHECK(steps_of(prefetch, 1) == 8);
  CHECK(steps_of(prefetch, 2) == 0);  // no thread of this crew
  prefetch.read_until(1);
  CHECK(steps_of(prefetch, 0) == 5);
  prefetch.read_until(3);
  CHECK(steps_of(prefetch, 0) == 5);  // what is being read is left alone
  prefetch.read_until(0);             // the next token
  CHECK(steps_of(prefetch, 0) == 8);
}

}  // namespace
}  // namespace rooflane::generate
