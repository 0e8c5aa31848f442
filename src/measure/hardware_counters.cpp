// Counters by perf_event_open, one a thread and event. See hardware_counters.hpp.
#include "measure/hardware_counters.hpp"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "core/text.hpp"

namespace rooflane {

namespace {

struct Event {
  const char* name;
  std::uint64_t config;
};
constexpr Event events[] = {
    {"cycles", PERF_COUNT_HW_CPU_CYCLES},
    {"instructions", PERF_COUNT_HW_INSTRUCTIONS},
    {"cache_misses", PERF_COUNT_HW_CACHE_MISSES},
};

// Below 0 with errno set where the event cannot be counted.
int open_counter(const Event& event, pid_t thread) {
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = event.config;
  attributes.disabled = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  constexpr int any_cpu = -1, no_group = -1;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, thread, any_cpu, no_group, PERF_FLAG_FD_CLOEXEC));
}

std::string reason_of(int error) {
  switch (error) {
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
      return "this machine has none (virtual machines seldom have)";
    case EACCES:
    case EPERM:
      return "not permitted; sudo sysctl kernel.perf_event_paranoid=2, and no container's seccomp "
             "filter in the way";
    case ENOSYS:
      return "this kernel has no perf_event";
    default:
      return fmt::format("perf_event_open: {}", std::strerror(error));
  }
}

std::vector<pid_t> threads_of_process() {
  std::vector<pid_t> threads;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    if (const auto id = parse_integer(entry.path().filename().string())) {
      threads.push_back(static_cast<pid_t>(*id));
    }
  }
  if (threads.empty()) threads.push_back(0);  // the calling one
  return threads;
}

}  // namespace

HardwareCounters::HardwareCounters() {
  const std::vector<pid_t> threads = threads_of_process();
  int error = 0;
  for (const Event& event : events) {
    Counter counter{event.name, {}};
    for (const pid_t thread : threads) {
      const int file = open_counter(event, thread);
      if (file >= 0) {
        counter.files.push_back(file);
      } else if (error == 0) {
        error = errno;
      }
    }
    if (!counter.files.empty()) counters_.push_back(std::move(counter));
  }
  if (counters_.empty()) absent_ = reason_of(error);
}

HardwareCounters::~HardwareCounters() {
  for (const Counter& counter : counters_) {
    for (const int file : counter.files) ::close(file);
  }
}

std::vector<std::string> HardwareCounters::names() const {
  std::vector<std::string> names;
  for (const Counter& counter : counters_) names.emplace_back(counter.name);
  return names;
}

void HardwareCounters::start() {
  for (const Counter& counter : counters_) {
    for (const int file : counter.files) ioctl(file, PERF_EVENT_IOC_ENABLE, 0);
  }
}

void HardwareCounters::stop() {
  for (const Counter& counter : counters_) {
    for (const int file : counter.files) ioctl(file, PERF_EVENT_IOC_DISABLE, 0);
  }
}

std::vector<std::pair<std::string, double>> HardwareCounters::counts() const {
  std::vector<std::pair<std::string, double>> counts;
  for (const Counter& counter : counters_) {
    double sum = 0;
    for (const int file : counter.files) {
      struct {
        std::uint64_t value, enabled, running;
      } read = {};
      if (::read(file, &read, sizeof read) != static_cast<ssize_t>(sizeof read)) continue;
      if (read.running == 0) continue;
      sum += static_cast<double>(read.value) * static_cast<double>(read.enabled) /
             static_cast<double>(read.running);
    }
    counts.emplace_back(counter.name, sum);
  }
  return counts;
}

}  // namespace rooflane
