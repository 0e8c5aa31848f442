// A thread that waits. See watchdog.hpp.
#include "cli/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "cli/terminal.hpp"
#include "core/text.hpp"

namespace rooflane {

Watchdog::Watchdog(double seconds, std::string what)
    : thread_([this, seconds, what = std::move(what)] {
        std::unique_lock lock(mutex_);
        const auto limit = std::chrono::duration<double>(seconds);
        if (ended_.wait_for(lock, limit, [this] { return done_; })) return;
        print_error(
            fmt::format("TIMEOUT: {} took longer than --timeout {}", what, print_real(seconds)));
        ::_exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace rooflane
