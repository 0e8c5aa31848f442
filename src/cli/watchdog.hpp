// Ends the program if a variant in it runs too long, because a hung run cannot be stopped
// otherwise.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace rooflane {

class Watchdog {
 public:
  // After `seconds` the program says that `what` took longer, and ends with status 1.
  Watchdog(double seconds, std::string what);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace rooflane
