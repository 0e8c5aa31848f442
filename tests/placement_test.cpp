// Orders of logical CPUs, on made-up machines of hwloc's synthetic topologies and on this one.
#include <doctest/doctest.h>
#include <hwloc.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/placement.hpp"

using namespace rooflane;

namespace {

// Kinds of cores: their logical CPUs, the most efficient kind first.
std::vector<LogicalCpu> made_up(const char* description,
                                const std::vector<std::pair<int, int>>& kinds = {},
                                const std::vector<int>& forbidden = {}) {
  hwloc_topology_t topology = nullptr;
  REQUIRE(hwloc_topology_init(&topology) == 0);
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> owned(topology,
                                                                          hwloc_topology_destroy);
  REQUIRE(hwloc_topology_set_synthetic(topology, description) == 0);
  REQUIRE(hwloc_topology_load(topology) == 0);
  const std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> set(hwloc_bitmap_alloc(),
                                                                      hwloc_bitmap_free);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    hwloc_bitmap_zero(set.get());
    hwloc_bitmap_set_range(set.get(), static_cast<unsigned>(kinds[i].first), kinds[i].second);
    REQUIRE(hwloc_cpukinds_register(topology, set.get(), static_cast<int>(i), 0, nullptr, 0) == 0);
  }
  hwloc_bitmap_copy(set.get(), hwloc_topology_get_complete_cpuset(topology));
  for (const int cpu : forbidden) hwloc_bitmap_clr(set.get(), static_cast<unsigned>(cpu));
  return logical_cpus(topology, set.get());
}

std::string text(const std::vector<LogicalCpu>& cpus, std::string_view placement) {
  return cpu_list_text(placed(cpus, placement));
}

}  // namespace

TEST_CASE("two sockets with SMT: cores first, one after the other, or alternating") {
  const auto cpus = made_up("pack:2 [numa] l3:1 core:2 pu:2");
  CHECK(topology_text(cpus) == "2 packages, 2 NUMA nodes, 2 L3 caches, 4 cores, 8 logical CPUs");
  CHECK(text(cpus, "cores") == "0,2,4,6,1,3,5,7");
  CHECK(text(cpus, "spread") == "0,4,2,6,1,5,3,7");
  CHECK(text(cpus, "siblings") == "0-7");
  CHECK(text(cpus, "efficient") == text(cpus, "cores"));
}

TEST_CASE("sub-NUMA clusters and several L3 caches: spread takes nodes, then caches") {
  const auto cpus = made_up("pack:1 group:2 [numa] l3:2 core:2 pu:1");
  CHECK(topology_text(cpus) == "1 package, 2 NUMA nodes, 4 L3 caches, 8 cores, 8 logical CPUs");
  CHECK(text(cpus, "cores") == "0-7");
  CHECK(text(cpus, "spread") == "0,4,2,6,1,5,3,7");
}

TEST_CASE("fast cores come first, and efficient ones where they are asked for") {
  // Numbers 0 to 3 are efficient cores.
  const auto cpus = made_up("pack:1 [numa] l3:1 core:6 pu:1", {{0, 3}, {4, 5}});
  CHECK(topology_text(cpus) ==
        "1 package, 1 NUMA node, 1 L3 cache, 6 cores, 6 logical CPUs; cores: 2 of kind 0 "
        "(fastest), 4 of kind 1");
  CHECK(text(cpus, "cores") == "4-5,0-3");
  CHECK(text(cpus, "spread") == "4-5,0-3");
  CHECK(text(cpus, "efficient") == "0-5");
}

TEST_CASE("CPUs that the process may not use are in no order") {
  const auto cpus = made_up("pack:1 [numa] l3:1 core:4 pu:2", {}, {0, 2, 3});
  CHECK(topology_text(cpus) == "1 package, 1 NUMA node, 1 L3 cache, 3 cores, 5 logical CPUs");
  CHECK(text(cpus, "cores") == "1,4,6,5,7");
  CHECK_THROWS_WITH_AS(placed(cpus, "1,2"), "placement '1,2': CPU 2 is not usable by this process",
                       Error);
}

TEST_CASE("a list of CPUs is taken in its order") {
  const auto cpus = made_up("core:8 pu:1");
  CHECK(placed(cpus, "3,0-2,7") == std::vector<int>{3, 0, 1, 2, 7});
  CHECK_THROWS_WITH_AS(placed(cpus, "1,0-1"), "placement '1,0-1': CPU 1 appears twice", Error);
  for (const char* wrong : {"", "fast", "1-", "-1", "2-1", "1,,2", "1.5"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(placed(cpus, wrong), Error);
  }
}

TEST_CASE("every order takes each CPU of this machine once, and lists survive their text") {
  const Machine& m = machine();
  REQUIRE(m.cpus.size() == static_cast<std::size_t>(m.logical_cpus));
  for (const PlacementOrder& order : placement_orders()) {
    CAPTURE(order.name);
    std::vector<int> cpus = placed(m.cpus, order.name);
    CHECK(placed(m.cpus, cpu_list_text(cpus)) == cpus);
    std::sort(cpus.begin(), cpus.end());
    CHECK(std::adjacent_find(cpus.begin(), cpus.end()) == cpus.end());
    CHECK(cpus.size() == m.cpus.size());
  }
  CHECK(m.placement == placed(m.cpus, "cores"));
}
