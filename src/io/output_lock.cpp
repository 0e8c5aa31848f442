// Locks by fcntl: they name their holder. See output_lock.hpp.
#include "io/output_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.hpp"

namespace rooflane {
namespace {

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Between opening and locking, its last holder may have removed the file.
bool still_there(int descriptor, const std::string& path) {
  struct stat ours {
  }, there{};
  return ::fstat(descriptor, &ours) == 0 && ::stat(path.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace

OutputLock::OutputLock(const std::string& option, const std::string& path)
    : lock_path_(path + ".lock") {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return;
  }
  while (true) {
    descriptor_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw argument_error(
          fmt::format("{}: '{}' cannot be written: {}", option, lock_path_, std::strerror(errno)));
    }
    struct flock lock = whole_file();
    if (::fcntl(descriptor_, F_SETLK, &lock) == 0) {
      if (still_there(descriptor_, lock_path_)) return;
    } else if (errno != EAGAIN && errno != EACCES) {
      return;
    } else if (::fcntl(descriptor_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) {
      ::close(descriptor_);
      throw argument_error(fmt::format("{}: '{}' is being written by another process{}", option,
                                       path,
                                       lock.l_pid > 0 ? fmt::format(" ({})", lock.l_pid) : ""));
    }
    ::close(std::exchange(descriptor_, -1));
  }
}

OutputLock::~OutputLock() {
  if (descriptor_ < 0) return;
  ::unlink(lock_path_.c_str());  // while it is locked: nobody else can hold it
  ::close(descriptor_);
}

}  // namespace rooflane
