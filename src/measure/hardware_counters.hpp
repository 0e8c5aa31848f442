// The CPU's own counters (cycles, instructions, misses of the last cache) through Linux's
// perf_event, for all threads of this process, user code only. Virtual machines seldom have them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rooflane {

class HardwareCounters {
 public:
  // For the threads that the process has now; counts nothing yet.
  HardwareCounters();
  ~HardwareCounters();
  HardwareCounters(const HardwareCounters&) = delete;
  HardwareCounters& operator=(const HardwareCounters&) = delete;

  // Why there is none; nothing where there is at least one.
  const std::optional<std::string>& absent() const { return absent_; }
  std::vector<std::string> names() const;  // of those that are there

  void start();  // goes on counting
  void stop();
  // What was counted so far, all threads together. Where a counter had to share the CPU's registers
  // with others, what it missed is added in proportion.
  std::vector<std::pair<std::string, double>> counts() const;

 private:
  struct Counter {
    const char* name;
    std::vector<int> files;  // one a thread
  };
  std::vector<Counter> counters_;
  std::optional<std::string> absent_;
};

}  // namespace rooflane
