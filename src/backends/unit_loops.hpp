// Loops of products in registers on units that Highway has no functions for: what their ceilings
// are measured with (measure/ceilings.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace rooflane {

struct UnitLoop {
  const char* math;                         // the number format of its ceiling
  const char* path;                         // the instruction, as rows name it
  std::optional<std::string> (*missing)();  // why this machine cannot run it
  void (*run)(std::int64_t steps);
  double operations_per_step;  // products and sums of all independent accumulators
};

// The loops of this build; none on another architecture than x86-64.
std::span<const UnitLoop> unit_loops();

}  // namespace rooflane
