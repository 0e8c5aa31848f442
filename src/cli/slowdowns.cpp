// Frequency governor, turbo, SMT, huge pages, CPU quota, load, steal, limits, waiting policy.
#include "cli/slowdowns.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

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
constexpr rlim_t enough_locked_memory = 64u << 20;
constexpr double noticeable_steal = 0.01;
constexpr double noticeable_load = 0.5;  // runnable processes beside this one
constexpr auto steal_window = std::chrono::milliseconds(300);

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
  if (first_line(cpu + "/smt/active") == "1") {
    found.push_back(
        {"SMT siblings share cores: other processes on a sibling take from a measurement",
         fmt::format("echo off | sudo tee {}/smt/control", cpu_folder)});
  }
}

void check_memory(const std::string& root, std::vector<Slowdown>& found) {
  const std::string pages = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (pages.find("[never]") != std::string::npos) {
    found.push_back({"transparent huge pages are off: large operands miss the TLB",
                     "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < enough_locked_memory) {
    found.push_back({fmt::format("only {} KiB of memory may be locked: device transfers are staged",
                                 limit.rlim_cur >> 10),
                     "ulimit -l unlimited"});
  }
}

void check_sharing(const std::string& root, std::vector<Slowdown>& found) {
  std::istringstream quota(first_line(root + "/sys/fs/cgroup/cpu.max"));
  std::string allowed;
  double period = 0;
  quota >> allowed >> period;
  const auto microseconds = parse_real(allowed);
  if (microseconds && period > 0 && *microseconds / period < machine().logical_cpus) {
    found.push_back(
        {fmt::format("a quota of {:.3g} CPUs holds for {} CPUs: threads are stopped in "
                     "the middle of a run",
                     *microseconds / period, machine().logical_cpus),
         "start the container without a CPU quota (--cpus), with --cpuset-cpus instead"});
  }
  double load = 0;
  if (std::istringstream(first_line(root + "/proc/loadavg")) >> load && load > noticeable_load) {
    found.push_back({fmt::format("other work runs: load {:.2f} over the last minute", load),
                     "top -o %CPU   # and stop what need not run"});
  }
  const std::string before = whole(root + "/proc/stat");
  if (before.empty()) return;
  std::this_thread::sleep_for(steal_window);
  const double share = steal_share(before, whole(root + "/proc/stat"));
  if (share > noticeable_steal) {
    found.push_back({fmt::format("the hypervisor gives {:.0f} % of the CPU time to others (steal)",
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

}  // namespace

double steal_share(const std::string& before, const std::string& after) {
  // cpu user nice system idle iowait irq softirq steal
  const auto fields = [](const std::string& text) {
    std::istringstream stream(text.substr(0, text.find('\n')));
    std::string label;
    stream >> label;
    std::vector<double> values(8, 0);
    for (double& value : values) stream >> value;
    return values;
  };
  const std::vector<double> a = fields(before), b = fields(after);
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += b[i] - a[i];
  return total > 0 ? (b[7] - a[7]) / total : 0;
}

std::vector<Slowdown> find_slowdowns(const std::string& root) {
  std::vector<Slowdown> found;
  check_frequency(root, found);
  check_memory(root, found);
  check_sharing(root, found);
  check_environment(found);
  return found;
}

}  // namespace rooflane
