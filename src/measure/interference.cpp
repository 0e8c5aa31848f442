// Reading /proc. See interference.hpp.
#include "measure/interference.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/statistics.hpp"
#include "core/text.hpp"
#include "measure/sampler.hpp"

namespace rooflane {

namespace {

constexpr double noticeable_share = 0.02;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The n-th word of a line, from 0; empty when there are fewer.
std::string_view word(std::string_view line, int n) {
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    line.remove_prefix(begin);
    const std::size_t length = std::min(line.find_first_of(" \t\n"), line.size());
    if (n-- == 0) return line.substr(0, length);
    line.remove_prefix(length);
  }
}

}  // namespace

double steal_ticks(std::string_view stat, std::span<const int> cpus) {
  constexpr int steal_field = 8;  // cpuN user nice system idle iowait irq softirq steal
  double ticks = 0;
  for (const std::string_view line : split(stat, '\n')) {
    const std::string_view label = word(line, 0);
    if (!label.starts_with("cpu")) continue;
    const auto number = parse_integer(label.substr(3));
    const bool wanted = cpus.empty()
                            ? label == "cpu"
                            : number && std::find(cpus.begin(), cpus.end(), *number) != cpus.end();
    if (wanted) ticks += static_cast<double>(parse_integer(word(line, steal_field)).value_or(0));
  }
  return ticks;
}

InterferenceCounts::Thread thread_counts(std::string_view status, std::string_view schedstat) {
  InterferenceCounts::Thread thread;
  for (const std::string_view line : split(status, '\n')) {
    if (!line.starts_with("nonvoluntary_ctxt_switches:")) continue;
    thread.preempted = parse_integer(word(line, 1)).value_or(0);
  }
  // Time on a CPU, time waiting for one, time slices.
  thread.used_ns = static_cast<double>(parse_integer(word(schedstat, 0)).value_or(0));
  thread.waiting_ns = static_cast<double>(parse_integer(word(schedstat, 1)).value_or(0));
  return thread;
}

InterferenceCounts interference_counts(std::span<const int> cpus, pid_t process) {
  InterferenceCounts counts;
  static const double tick_ns = 1e9 / static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK)));
  counts.steal_ns = steal_ticks(text_of("/proc/stat"), cpus) * tick_ns;
  std::error_code gone;  // threads and the process itself may end while they are read
  std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", process), gone);
  for (; !gone && threads != std::filesystem::directory_iterator(); threads.increment(gone)) {
    const std::filesystem::path& path = threads->path();
    const auto id = parse_integer(path.filename().string()).value_or(0);
    counts.threads[id] = thread_counts(text_of(path / "status"), text_of(path / "schedstat"));
  }
  counts.now_ns = steady_clock_ns();
  return counts;
}

std::string interference_between(const InterferenceCounts& before, const InterferenceCounts& after,
                                 std::size_t cpus) {
  constexpr double ran_share = 0.002;  // a thread that used less only woke up
  const double passed = std::max(after.now_ns - before.now_ns, 1.0);
  const double available = passed * static_cast<double>(std::max<std::size_t>(cpus, 1));
  std::string what;
  if (after.steal_ns - before.steal_ns > noticeable_share * available) what = "steal";
  std::int64_t preempted = 0;
  double waiting_ns = 0;
  std::size_t ran = 0;
  for (const auto& [id, now] : after.threads) {
    const auto known = before.threads.find(id);
    const InterferenceCounts::Thread then =
        known == before.threads.end() ? InterferenceCounts::Thread() : known->second;
    preempted += now.preempted - then.preempted;
    waiting_ns += now.waiting_ns - then.waiting_ns;
    ran += now.used_ns - then.used_ns > ran_share * passed;
  }
  if (ran <= cpus && preempted > 0 && waiting_ns > noticeable_share * passed) {
    what += what.empty() ? "preempted" : "+preempted";
  }
  return what;
}

bool probe_moved(std::span<const double> probe_ns) {
  constexpr std::size_t fewest = 5;
  constexpr double least = 0.05;
  constexpr double deviations = 3 * 1.4826;  // MAD to standard deviation of a normal distribution
  if (probe_ns.size() < fewest) return false;
  const double usual = median(probe_ns);
  std::vector<double> distances;
  for (const double ns : probe_ns) distances.push_back(std::abs(ns - usual));
  const double allowed = std::max(least * usual, deviations * median(distances));
  return std::abs(probe_ns.back() - usual) > allowed;
}

}  // namespace rooflane
