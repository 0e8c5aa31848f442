// What this machine is: CPU model, cores, caches, memory. Sizes reported by a virtual machine are
// hints; measured plateaus (measure/ceilings.hpp) decide where it matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "placement.hpp"

namespace rooflane {

struct Machine {
  std::string cpu;         // model name as the CPU gives it
  std::string host;        // node name
  std::string os;          // "Linux 6.1.0 x86_64"
  int logical_cpus = 1;    // usable by this process
  int physical_cores = 1;  // usable by this process
  // The same whatever the calling thread is bound to, as OpenMP's first one may be.
  int all_cpus = 1, all_cores = 1;
  std::vector<LogicalCpu> cpus;  // usable by this process
  std::vector<int> placement;    // their numbers in the order in which threads take them
  std::size_t l1d_bytes = 0;     // per core
  std::size_t l2_bytes = 0;      // per core
  std::size_t l3_bytes = 0;      // per package as reported
  std::size_t memory_bytes = 0;  // physical, or the control group's limit when lower
};

const Machine& machine();  // read once

// Threads, measured ceilings included, take CPUs in this order from now on (core/placement.hpp).
// Before threads start. Throws Error.
void use_placement(std::string_view placement);

std::size_t available_memory_bytes();  // now, before swapping

}  // namespace rooflane
