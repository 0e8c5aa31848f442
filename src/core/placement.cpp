// Orders of logical CPUs. See placement.hpp.
#include "core/placement.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane {

namespace {

constexpr PlacementOrder orders[] = {
    {"cores", "one CPU of each core, fast cores first, node after node; then SMT siblings"},
    {"spread", "as cores, but cores of all NUMA nodes and L3 caches alternate"},
    {"siblings", "core after core with all its SMT siblings"},
    {"efficient", "as cores, but the most efficient cores first"},
};

// The index of the object of this type that holds the CPU; 0 where the machine reports none.
int index_of(hwloc_topology_t topology, hwloc_obj_t cpu, hwloc_obj_type_t type) {
  const hwloc_obj_t holder = hwloc_get_ancestor_obj_by_type(topology, type, cpu);
  return holder != nullptr ? static_cast<int>(holder->logical_index) : 0;
}

// NUMA nodes hang beside the tree of caches and cores, and one without CPUs holds memory alone.
int node_of(hwloc_topology_t topology, hwloc_obj_t cpu) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    if (hwloc_bitmap_isset(node->cpuset, cpu->os_index) != 0) {
      return static_cast<int>(node->logical_index);
    }
  }
  return 0;
}

// hwloc ranks kinds from the most efficient to the fastest.
int kind_of(hwloc_topology_t topology, hwloc_obj_t cpu) {
  const int kinds = hwloc_cpukinds_get_nr(topology, 0);
  const int kind = hwloc_cpukinds_get_by_cpuset(topology, cpu->cpuset, 0);
  return kinds > 0 && kind >= 0 ? kinds - 1 - kind : 0;
}

// The place of each CPU among those of the same group, in their order: of cores within a cache, of
// SMT siblings within a core.
template <class Group, class Member>
std::map<int, int> rank_within(std::span<const LogicalCpu> cpus, Group group, Member member) {
  std::map<decltype(group(cpus[0])), std::map<int, int>> ranks;
  std::map<int, int> by_cpu;
  for (const LogicalCpu& cpu : cpus) {
    auto& known = ranks[group(cpu)];
    by_cpu[cpu.number] = known.emplace(member(cpu), static_cast<int>(known.size())).first->second;
  }
  return by_cpu;
}

std::vector<int> in_order(std::span<const LogicalCpu> cpus, std::string_view order) {
  std::map<int, int> sibling = rank_within(
      cpus, [](const LogicalCpu& c) { return c.core; },
      [](const LogicalCpu& c) { return c.number; });
  std::map<int, int> within_cache = rank_within(
      cpus, [](const LogicalCpu& c) { return std::tuple(c.kind, c.node, c.cache); },
      [](const LogicalCpu& c) { return c.core; });
  std::map<int, int> cache_of_node = rank_within(
      cpus, [](const LogicalCpu& c) { return c.node; },
      [](const LogicalCpu& c) { return c.cache; });
  const auto key = [&](const LogicalCpu& c) {
    const int rank = sibling.at(c.number);
    if (order == "siblings") return std::tuple(c.kind, c.node, c.core, rank, 0);
    if (order == "spread") {
      return std::tuple(rank, c.kind, within_cache.at(c.number), cache_of_node.at(c.number),
                        c.node);
    }
    return std::tuple(rank, order == "efficient" ? -c.kind : c.kind, c.node, c.core, 0);
  };
  std::vector<LogicalCpu> sorted(cpus.begin(), cpus.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const LogicalCpu& a, const LogicalCpu& b) { return key(a) < key(b); });
  std::vector<int> numbers;
  for (const LogicalCpu& cpu : sorted) numbers.push_back(cpu.number);
  return numbers;
}

std::vector<int> from_list(std::span<const LogicalCpu> cpus, std::string_view list) {
  std::vector<int> numbers;
  for (const std::string_view piece : split(list, ',')) {
    const std::size_t dash = piece.find('-');
    const auto first = parse_integer(piece.substr(0, dash));
    const auto last = dash == piece.npos ? first : parse_integer(piece.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > 1 << 20) {
      std::vector<std::string> names;
      for (const PlacementOrder& order : orders) names.emplace_back(order.name);
      throw argument_error(
          fmt::format("placement '{}': allowed are {}, or a list of CPUs such as 0,2,4-7", list,
                      join(names, ", ")));
    }
    for (std::int64_t number = *first; number <= *last; ++number) {
      const bool usable = std::any_of(cpus.begin(), cpus.end(),
                                      [&](const LogicalCpu& c) { return c.number == number; });
      if (!usable) {
        throw argument_error(
            fmt::format("placement '{}': CPU {} is not usable by this process", list, number));
      }
      if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
        throw argument_error(fmt::format("placement '{}': CPU {} appears twice", list, number));
      }
      numbers.push_back(static_cast<int>(number));
    }
  }
  return numbers;
}

}  // namespace

std::vector<LogicalCpu> logical_cpus(hwloc_topology* topology, const hwloc_bitmap_s* usable) {
  std::vector<LogicalCpu> cpus;
  for (hwloc_obj_t cpu = nullptr;
       (cpu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, cpu)) != nullptr;) {
    if (hwloc_bitmap_isset(usable, cpu->os_index) == 0) continue;
    cpus.push_back({static_cast<int>(cpu->os_index), index_of(topology, cpu, HWLOC_OBJ_CORE),
                    index_of(topology, cpu, HWLOC_OBJ_L3CACHE), node_of(topology, cpu),
                    index_of(topology, cpu, HWLOC_OBJ_PACKAGE), kind_of(topology, cpu)});
  }
  return cpus;
}

std::span<const PlacementOrder> placement_orders() { return orders; }

std::vector<int> placed(std::span<const LogicalCpu> cpus, std::string_view placement) {
  const bool named = std::any_of(std::begin(orders), std::end(orders),
                                 [&](const PlacementOrder& o) { return placement == o.name; });
  return named ? in_order(cpus, placement) : from_list(cpus, placement);
}

std::string topology_text(std::span<const LogicalCpu> cpus) {
  std::set<int> nodes, caches, packages, cores;
  std::map<int, std::set<int>> cores_of_kind;
  for (const LogicalCpu& cpu : cpus) {
    packages.insert(cpu.package);
    nodes.insert(cpu.node);
    caches.insert(cpu.cache);
    cores.insert(cpu.core);
    cores_of_kind[cpu.kind].insert(cpu.core);
  }
  const auto count = [](std::size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("{}, {}, {}, {}, {}", count(packages.size(), "package"),
                                 count(nodes.size(), "NUMA node"), count(caches.size(), "L3 cache"),
                                 count(cores.size(), "core"), count(cpus.size(), "logical CPU"));
  if (cores_of_kind.size() > 1) {
    std::vector<std::string> kinds;
    for (const auto& [kind, members] : cores_of_kind) {
      kinds.push_back(
          fmt::format("{} of kind {}{}", members.size(), kind, kind == 0 ? " (fastest)" : ""));
    }
    text += "; cores: " + join(kinds, ", ");
  }
  return text;
}

std::string cpu_list_text(std::span<const int> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace rooflane
