// Frequency governor, turbo, SMT, huge pages, CPU quota, load, steal, limits, waiting policy,
// OpenBLAS's core type. Missing OpenCL drivers: missing_drivers.cpp.
#include "cli/slowdowns.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <thread>

#include "backends/highway.hpp"
#include "core/control_group.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

// First line of a file; empty when it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string whole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

constexpr auto cpu_folder = "/sys/devices/system/cpu";
// Device drivers pin host memory for transfers; less than this makes them stage through copies.
constexpr double enough_locked_memory = 64.0 * 1024 * 1024;
// Peers that compile start some tens of processes beside every worker's threads; OpenBLAS and
// OpenCL drivers start a thread per CPU each.
constexpr double enough_processes = 1024;
constexpr double noticeable_steal = 0.01;
constexpr double noticeable_load = 0.5;  // CPUs
constexpr double noticeable_busy = 0.1;  // of a sibling's time
constexpr auto watch_window = std::chrono::milliseconds(300);

void check_frequency(const std::string& root, std::vector<Slowdown>& found) {
  const std::string cpu = root + cpu_folder;
  const std::string governor = first_line(cpu + "/cpu0/cpufreq/scaling_governor");
  if (!governor.empty() && governor != "performance") {
    found.push_back(
        {fmt::format("the frequency governor is '{}': clocks rise late", governor),
         fmt::format("echo performance | sudo tee {}/cpu*/cpufreq/scaling_governor", cpu_folder)});
  }
  if (first_line(cpu + "/intel_pstate/no_turbo") == "1") {
    found.push_back({"turbo is off: clocks stay at the base frequency",
                     fmt::format("echo 0 | sudo tee {}/intel_pstate/no_turbo", cpu_folder)});
  }
  if (first_line(cpu + "/cpufreq/boost") == "0") {
    found.push_back({"boost is off: clocks stay at the base frequency",
                     fmt::format("echo 1 | sudo tee {}/cpufreq/boost", cpu_folder)});
  }
}

// A line of /proc/self/limits; what is unlimited is infinite.
struct Limit {
  double soft, hard;
};
std::optional<Limit> limit_of(const std::string& limits, std::string_view name) {
  const std::size_t at = limits.find(name);
  if (at == std::string::npos) return std::nullopt;
  std::string soft, hard;
  std::istringstream(limits.substr(at + name.size())) >> soft >> hard;
  constexpr double unlimited = std::numeric_limits<double>::infinity();
  return Limit{parse_real(soft).value_or(unlimited), parse_real(hard).value_or(unlimited)};
}

// Raises a limit to `value`: in this shell, or for good where the hard limit forbids that. `item`
// is limits.conf's name, `flag` ulimit's.
std::string raise_limit(const Limit& limit, double wanted, char flag, const char* item,
                        const std::string& value) {
  if (limit.hard >= wanted) return fmt::format("ulimit -{} {}", flag, value);
  return fmt::format(
      "echo '* - {0} {1}' | sudo tee /etc/security/limits.d/{0}.conf   # and log in "
      "again",
      item, value);
}

void check_topology(const std::string& root, std::vector<Slowdown>& found) {
  if (std::filesystem::exists(root + "/proc/cpuinfo") &&
      !std::filesystem::exists(root + cpu_folder)) {
    found.push_back({"/sys is not mounted: cores and caches are guesses, and PoCL cannot start",
                     "sudo mount -t sysfs sysfs /sys   # docker: do not hide /sys"});
  }
}

void check_memory(const std::string& root, std::vector<Slowdown>& found) {
  const std::string pages = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (pages.find("[never]") != std::string::npos) {
    found.push_back({"transparent huge pages are off: large operands miss the TLB",
                     "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  const std::string limits = whole(root + "/proc/self/limits");
  const auto locked = limit_of(limits, "Max locked memory");
  if (locked && locked->soft < enough_locked_memory && has_card(root)) {
    found.push_back({fmt::format("only {:.0f} KiB of memory may be locked: device transfers are "
                                 "staged",
                                 locked->soft / 1024),
                     raise_limit(*locked, enough_locked_memory, 'l', "memlock", "unlimited")});
  }
  // GPU drivers reserve as much as host and device have together, and use little of it.
  const double enough_space = 2.0 * static_cast<double>(machine().memory_bytes);
  const auto space = limit_of(limits, "Max address space");
  if (space && space->soft < enough_space) {
    found.push_back({fmt::format("the address space is limited to {}: large problems and GPU "
                                 "drivers fail",
                                 print_bytes(static_cast<std::size_t>(space->soft))),
                     raise_limit(*space, enough_space, 'v', "as", "unlimited")});
  }
  const auto processes = limit_of(limits, "Max processes");
  if (processes && processes->soft < enough_processes) {
    found.push_back({fmt::format("only {:.0f} processes and threads are allowed: workers may fail "
                                 "to start theirs",
                                 processes->soft),
                     raise_limit(*processes, enough_processes, 'u', "nproc",
                                 fmt::format("{:.0f}", enough_processes))});
  }
}

void check_quota(const std::string& root, std::vector<Slowdown>& found) {
  const auto quota = control_group_cpus(root);
  if (quota && *quota < machine().logical_cpus) {
    found.push_back(
        {fmt::format("a quota of {:.3g} CPUs applies to {} CPUs: threads are stopped in the middle "
                     "of a run",
                     *quota, machine().logical_cpus),
         "start the container without a CPU quota (--cpus), with --cpuset-cpus instead"});
  }
}

// ", and CPU 3, a sibling of CPU 1, is 40 % busy" for the busiest CPU that is not the first of
// its core; empty when none is busy. Lists are those of thread_siblings_list: "1,3" or "1-3".
std::string busy_sibling(const std::string& root, const std::vector<double>& busy) {
  std::string text;
  double most = noticeable_busy;
  for (std::size_t cpu = 0; cpu < busy.size(); ++cpu) {
    const std::string list =
        first_line(fmt::format("{}{}/cpu{}/topology/thread_siblings_list", root, cpu_folder, cpu));
    const auto first = parse_integer(list.substr(0, list.find_first_of(",-")));
    if (!first || *first == static_cast<std::int64_t>(cpu) || busy[cpu] <= most) continue;
    most = busy[cpu];
    text = fmt::format("; CPU {}, a sibling of CPU {}, is {:.0f} % busy", cpu, *first, 100 * most);
  }
  return text;
}

// What shows only while one watches, asleep: other work, busy siblings and steal. The load average
// would not do: it still holds what this user measured or built a minute ago.
void check_for_a_while(const std::string& root, std::vector<Slowdown>& found) {
  const std::string before = whole(root + "/proc/stat");
  std::string after = before;
  if (!before.empty()) {
    std::this_thread::sleep_for(watch_window);
    after = whole(root + "/proc/stat");
  }
  const double busy = busy_cpus(before, after);
  if (busy > noticeable_load) {
    found.push_back({fmt::format("other work keeps {:.1f} CPUs busy", busy),
                     "top -o %CPU   # and stop what need not run"});
  }
  if (first_line(root + cpu_folder + "/smt/active") == "1") {
    found.push_back({"SMT siblings share cores: work on a sibling slows the measurement" +
                         busy_sibling(root, busy_shares(before, after)),
                     fmt::format("echo off | sudo tee {}/smt/control", cpu_folder)});
  }
  const double share = steal_share(before, after);
  if (share > noticeable_steal) {
    found.push_back(
        {fmt::format("other guests of the hypervisor take {:.0f} % of the CPU time (steal)",
                     100 * share),
         "use a dedicated or larger instance; repeat runs until the noise is low"});
  }
}

void check_environment(std::vector<Slowdown>& found) {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (policy &&
      nearest_name(policy, {"passive", "PASSIVE", "active", "ACTIVE"}).find_first_of("pP") == 0) {
    found.push_back({"OMP_WAIT_POLICY=passive: threads sleep between parallel regions",
                     "unset OMP_WAIT_POLICY"});
  }
}

// user nice system idle iowait irq softirq steal, of a line of /proc/stat after its label.
constexpr std::size_t idle = 3, iowait = 4, steal = 7, fields = 8;

std::vector<double> fields_of(const std::string& line) {
  std::istringstream stream(line);
  std::string label;
  stream >> label;
  std::vector<double> values(fields, 0);
  for (double& value : values) stream >> value;
  return values;
}

std::vector<double> difference(const std::string& before, const std::string& after) {
  std::vector<double> a = fields_of(before), b = fields_of(after);
  for (std::size_t i = 0; i < fields; ++i) b[i] -= a[i];
  return b;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

// The lines "cpuN ..." of /proc/stat.
std::vector<std::string> cpu_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  std::string line;
  std::getline(stream, line);  // all CPUs together
  while (std::getline(stream, line) && line.starts_with("cpu")) lines.push_back(line);
  return lines;
}

}  // namespace

double steal_share(const std::string& before, const std::string& after) {
  const std::vector<double> spent =
      difference(before.substr(0, before.find('\n')), after.substr(0, after.find('\n')));
  const double total = sum(spent);
  return total > 0 ? spent[steal] / total : 0;
}

double busy_cpus(const std::string& before, const std::string& after) {
  const std::vector<double> spent =
      difference(before.substr(0, before.find('\n')), after.substr(0, after.find('\n')));
  const double total = sum(spent);
  if (total <= 0) return 0;
  const double busy = total - spent[idle] - spent[iowait] - spent[steal];
  return busy / total * static_cast<double>(cpu_lines(after).size());
}

std::vector<double> busy_shares(const std::string& before, const std::string& after) {
  const std::vector<std::string> first = cpu_lines(before), second = cpu_lines(after);
  std::vector<double> shares;
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    const std::vector<double> spent = difference(first[i], second[i]);
    const double total = sum(spent);
    shares.push_back(total > 0 ? 1 - (spent[idle] + spent[iowait]) / total : 0);
  }
  return shares;
}

std::vector<Slowdown> find_slowdowns(const std::string& root) {
  std::vector<Slowdown> found;
  check_topology(root, found);
  check_frequency(root, found);
  check_memory(root, found);
  check_quota(root, found);
  check_for_a_while(root, found);
  check_environment(found);
  return found;
}

std::optional<Slowdown> core_type_slowdown(
    const std::string& description, const std::vector<std::pair<std::string, std::string>>& best) {
  const std::string type = description.substr(description.find_last_of(' ') + 1);
  for (const auto& [name, value] : best) {
    if (name != "OPENBLAS_CORETYPE" || strcasecmp(type.c_str(), value.c_str()) == 0) continue;
    return Slowdown{fmt::format("{} mistakes this CPU for {}, and its {} kernels are faster: "
                                "workers use those, other programs do not",
                                description.substr(0, description.find_last_of(' ')), type, value),
                    fmt::format("export {}={}", name, value)};
  }
  return std::nullopt;
}

std::vector<Slowdown> find_library_slowdowns(const Catalogue& catalogue) {
  std::vector<Slowdown> found;
  std::set<std::string> seen;
  for (const CatalogueEntry& entry : catalogue.entries()) {
    const Libraries* libraries = entry.variant->backend->libraries;
    if (libraries == nullptr || !seen.insert(entry.library).second || absent_reason(entry)) {
      continue;
    }
    const auto slowdown = core_type_slowdown(libraries->open(entry.library).description,
                                             libraries->best_environment(entry.library));
    if (slowdown) found.push_back(*slowdown);
  }
  return found;
}

std::vector<Slowdown> slowdowns_here(const Catalogue& catalogue) {
  std::vector<Slowdown> found;
  const auto add = [&](std::vector<Slowdown> more) {
    found.insert(found.end(), more.begin(), more.end());
  };
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    if (const auto folder = backend->devices->drivers_folder()) {
      add(find_missing_drivers("", *folder));
    }
  }
  if (const std::string best = best_isa_left_out(); !best.empty()) {
    add({{fmt::format("this build was made for another CPU and lacks {}", best),
          "meson configure build -Disa-targets=all && ninja -C build"}});
  }
  add(find_slowdowns(""));
  add(find_library_slowdowns(catalogue));
  return found;
}

}  // namespace rooflane
