// CPU time and memory of a process from /proc and its CPU clock. See process_usage.hpp.
#include "measure/process_usage.hpp"

#include <fmt/format.h>
#include <time.h>

#include <fstream>
#include <string>

#include "core/text.hpp"
#include "measure/sampler.hpp"

namespace rooflane {

namespace {

// A line of /proc/PID/status such as "VmRSS:     1234 kB", in bytes.
std::int64_t status_bytes(pid_t process, std::string_view key) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  std::int64_t kibibytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t first = line.find_first_of("0123456789");
    if (first == std::string::npos) return 0;
    const std::size_t last = line.find_first_not_of("0123456789", first);
    kibibytes = parse_integer(std::string_view(line).substr(first, last - first)).value_or(0);
    break;
  }
  return kibibytes * 1024;
}

}  // namespace

double cpu_time_ns(pid_t process) {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

std::int64_t resident_bytes(pid_t process) { return status_bytes(process, "VmRSS:"); }
std::int64_t peak_resident_bytes(pid_t process) { return status_bytes(process, "VmHWM:"); }

bool is_stopped(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");  // the name may hold anything
  return name_end != std::string::npos && line.compare(name_end + 2, 1, "T") == 0;
}

bool settle(pid_t process) {
  constexpr double patience_seconds = 1;
  return wait_until_still([process] { return cpu_time_ns(process); }, patience_seconds);
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << 5; }

}  // namespace rooflane
