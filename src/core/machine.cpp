// Reads the machine through hwloc and /proc. See machine.hpp.
#include "machine.hpp"

#include <hwloc.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "core/control_group.hpp"
#include "core/cpu_model.hpp"

namespace rooflane {

namespace {

int cores_of(std::span<const LogicalCpu> cpus) {
  std::set<int> cores;
  for (const LogicalCpu& cpu : cpus) cores.insert(cpu.core);
  return std::max<int>(1, static_cast<int>(cores.size()));
}

void read_topology(Machine& m) {
  hwloc_topology_t topology = nullptr;
  // Without /sys it would print a line in every process; `doctor` reports that instead.
  setenv("HWLOC_HIDE_ERRORS", "2", 0);
  if (hwloc_topology_init(&topology) != 0) return;
  // Only what this process may use, so that a restricted container counts right.
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, usable, HWLOC_CPUBIND_PROCESS) != 0) {
      hwloc_bitmap_copy(usable, hwloc_topology_get_allowed_cpuset(topology));
    }
    const auto allowed = hwloc_topology_get_allowed_cpuset(topology);
    hwloc_bitmap_and(usable, usable, allowed);
    m.all_cpus = std::max(1, hwloc_bitmap_weight(allowed));
    m.cpus = logical_cpus(topology, usable);
    m.logical_cpus = std::max<int>(1, static_cast<int>(m.cpus.size()));
    m.physical_cores = cores_of(m.cpus);
    m.all_cores = cores_of(logical_cpus(topology, allowed));
    m.placement = placed(m.cpus, placement_orders().front().name);
    const auto cache_bytes = [&](hwloc_obj_type_t type) -> std::size_t {
      hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
      return cache != nullptr ? cache->attr->cache.size : 0;
    };
    m.l1d_bytes = cache_bytes(HWLOC_OBJ_L1CACHE);
    m.l2_bytes = cache_bytes(HWLOC_OBJ_L2CACHE);
    m.l3_bytes = cache_bytes(HWLOC_OBJ_L3CACHE);
    hwloc_bitmap_free(usable);
  }
  hwloc_topology_destroy(topology);
}

Machine read_machine() {
  Machine m;
  std::ifstream cpuinfo("/proc/cpuinfo");
  m.cpu = cpu_model(cpuinfo);
  utsname names{};
  if (uname(&names) == 0) {
    m.host = names.nodename;
    m.os = std::string(names.sysname) + " " + names.release + " " + names.machine;
  }
  m.logical_cpus = std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  m.physical_cores = m.all_cores = m.all_cpus = m.logical_cpus;
  read_topology(m);
  if (m.cpus.empty()) {
    for (int cpu = 0; cpu < m.logical_cpus; ++cpu) {
      m.cpus.push_back({cpu, cpu});
      m.placement.push_back(cpu);
    }
  }
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  m.memory_bytes = std::min(pages * page, control_group_limit());
  // Where nothing is reported (some virtual machines): the smallest caches of x86-64 servers and
  // desktops of the last ten years, so that blocks fit everywhere.
  if (m.l1d_bytes == 0) m.l1d_bytes = 32u << 10;
  if (m.l2_bytes == 0) m.l2_bytes = 256u << 10;
  if (m.l3_bytes == 0) m.l3_bytes = m.l2_bytes;
  return m;
}

Machine& this_machine() {
  static Machine m = read_machine();
  return m;
}

}  // namespace

const Machine& machine() { return this_machine(); }

void use_placement(std::string_view placement) {
  this_machine().placement = placed(machine().cpus, placement);
}

std::size_t available_memory_bytes() {
  std::size_t available = machine().memory_bytes;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) {
      std::istringstream words(line.substr(line.find(':') + 1));
      std::size_t kibibytes = 0;
      if (words >> kibibytes) available = std::min(available, kibibytes << 10);
      break;
    }
  }
  return std::min(available, control_group_free());
}

}  // namespace rooflane
