// What this machine is: CPU model, cores, caches, memory. Sizes reported by a virtual machine are
// hints; measured plateaus (measure/ceilings.hpp) decide where it matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rooflane {

struct Machine {
  std::string cpu;         // model name as the CPU gives it
  std::string host;        // node name
  std::string os;          // "Linux 6.1.0 x86_64"
  int logical_cpus = 1;    // usable by this process
  int physical_cores = 1;  // usable by this process
  // The same whatever the calling thread is bound to, as OpenMP's first one may be.
  int all_cpus = 1, all_cores = 1;
  std::vector<int> placement;    // logical CPUs, one of each physical core first
  std::size_t l1d_bytes = 0;     // per core
  std::size_t l2_bytes = 0;      // per core
  std::size_t l3_bytes = 0;      // per package as reported
  std::size_t memory_bytes = 0;  // physical, or the control group's limit when lower
};

const Machine& machine();              // read once
std::size_t available_memory_bytes();  // now, before swapping

}  // namespace rooflane
