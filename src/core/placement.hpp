// Which logical CPUs threads run on: how a machine's CPUs share cores, caches and memory, and the
// orders in which threads may take them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

// hwloc's topology and set of CPUs.
struct hwloc_topology;
struct hwloc_bitmap_s;

namespace rooflane {

// Indices of the objects that hold a logical CPU, numbered from 0 over the machine.
struct LogicalCpu {
  int number = 0;   // as the operating system numbers it
  int core = 0;     // CPUs of one core are SMT siblings
  int cache = 0;    // cores that share an L3 cache; 0 for all where none is reported
  int node = 0;     // NUMA node; a sub-NUMA cluster is a node of its own
  int package = 0;  // socket
  int kind = 0;     // of cores: 0 the fastest, then ever more efficient ones
};

// The CPUs of `usable`, core by core in hwloc's order.
std::vector<LogicalCpu> logical_cpus(hwloc_topology* topology, const hwloc_bitmap_s* usable);

struct PlacementOrder {
  const char* name;
  const char* meaning;
};
// The first is the default.
std::span<const PlacementOrder> placement_orders();

// CPU numbers in the order in which threads take them: one of placement_orders() by name, or a list
// as taskset takes it ("0,2,4-7"), which must name usable CPUs, each once. Throws Error.
std::vector<int> placed(std::span<const LogicalCpu> cpus, std::string_view placement);

// "2 NUMA nodes, 4 L3 caches, 32 cores, 64 logical CPUs; 8 cores of kind 0 (fastest), 16 of kind 1"
std::string topology_text(std::span<const LogicalCpu> cpus);

// CPU numbers as taskset takes them, in their order: {0, 1, 2, 5} is "0-2,5".
std::string cpu_list_text(std::span<const int> cpus);

}  // namespace rooflane
