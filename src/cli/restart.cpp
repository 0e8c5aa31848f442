// The program in its own place. See restart.hpp.
#include "cli/restart.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "io/files.hpp"

namespace rooflane {
namespace {

constexpr const char* mark = "ROOFLANE_RESTARTED";

}  // namespace

bool is_restarted() { return std::getenv(mark) != nullptr; }

void restart(const Variables& environment, const std::string& program) {
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::setenv(mark, "1", 1);
  std::string words = read_text_file("/proc/self/cmdline");  // each ends with a zero byte
  std::vector<char*> argv;
  for (std::size_t i = 0; i < words.size(); i = words.find('\0', i) + 1) {
    argv.push_back(words.data() + i);
  }
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw unavailable_error(fmt::format("'{}' cannot be restarted with another environment: {}",
                                      program, std::strerror(errno)));
}

}  // namespace rooflane
