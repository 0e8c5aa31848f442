// A thread that waits for standard output to break. See reader_watch.hpp.
#include "cli/reader_watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <thread>

namespace rooflane {

void end_with_reader() {
  std::thread([] {
    pollfd output{STDOUT_FILENO, 0, 0};  // a broken pipe is told without being asked for
    while (::poll(&output, 1, -1) <= 0 || (output.revents & (POLLERR | POLLHUP)) == 0) {
      if ((output.revents & POLLNVAL) != 0) return;
    }
    ::_exit(1);  // workers die with it
  }).detach();
}

}  // namespace rooflane
