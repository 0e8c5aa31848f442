// See shape_log.hpp.
#include "core/shape_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <string>

#include "core/error.hpp"

namespace rooflane {
namespace {

class ShapeLog {
 public:
  void add(const std::string& path, const std::string& line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (path != path_) read(path);
    if (!lines_.insert(line).second) return;
    // One write at the end of the file: lines of several processes stay whole.
    const std::string text = line + "\n";
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const bool written =
        file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int why = errno;
    if (file >= 0) ::close(file);
    if (written) return;
    lines_.erase(line);
    throw argument_error(
        fmt::format("ROOFLANE_SHAPES: {} cannot be written: {}", path, std::strerror(why)));
  }

 private:
  void read(const std::string& path) {
    path_ = path;
    lines_.clear();
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines_.insert(line);
  }

  std::mutex mutex_;
  std::string path_;
  std::set<std::string> lines_;
};

}  // namespace

void log_shape(const Problem& problem) {
  const char* const path = std::getenv("ROOFLANE_SHAPES");
  if (path == nullptr || *path == '\0') return;
  static ShapeLog log;
  log.add(path, problem.text());
}

}  // namespace rooflane
