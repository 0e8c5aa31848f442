// Standard files. See standard_streams.hpp.
#include "cli/standard_streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "core/error.hpp"

namespace rooflane {

void guard_standard_streams() {
  ::signal(SIGXFSZ, SIG_IGN);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) != -1) continue;
    // The lowest free number is this one. Open for what it is not used for: using it fails.
    static_cast<void>(::open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

void flush_standard_output() {
  const bool failed = !std::cout;
  std::cout.clear();  // what failed before fails again, and says why
  errno = 0;
  if (std::cout.flush() && !failed) return;
  const int why = errno;
  if (why == EPIPE) {  // the caller had the signal ignored
    ::signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
  }
  throw argument_error(fmt::format("standard output cannot be written{}{}", why == 0 ? "" : ": ",
                                   why == 0 ? "" : std::strerror(why)));
}

}  // namespace rooflane
