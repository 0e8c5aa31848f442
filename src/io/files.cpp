// Whole files in, replaced files out.
#include "io/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.hpp"

namespace rooflane {
namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, std::string_view why) {
  return argument_error(fmt::format("'{}' cannot be written: {}", path, why));
}

// The file that `path` stands for, through symbolic links; `path` itself when it does not exist.
std::string resolve(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target.string();
}

// Opens a new file beside `target`; its name goes to `name`.
int open_beside(const std::string& target, const std::string& path, std::string& name) {
  fs::path folder = fs::path(target).parent_path();
  if (folder.empty()) folder = ".";
  name = (folder / ("." + fs::path(target).filename().string() + ".XXXXXX")).string();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) throw cannot_write(path, std::strerror(errno));
  return descriptor;
}

// True when `target` is to be written to directly. Throws when it can be neither.
bool must_write_directly(const std::string& target, const std::string& path) {
  if (fs::path(target).filename().empty()) throw cannot_write(path, "it names no file");
  struct stat facts {};
  if (::stat(target.c_str(), &facts) != 0) return false;
  if (S_ISDIR(facts.st_mode)) throw cannot_write(path, "it is a folder");
  if (::access(target.c_str(), W_OK) != 0) throw cannot_write(path, std::strerror(errno));
  return !S_ISREG(facts.st_mode);
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw argument_error(fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)));
  }
  std::string text;
  char chunk[1 << 16];
  ssize_t count = 0;
  while ((count = ::read(descriptor, chunk, sizeof chunk)) > 0 || (count < 0 && errno == EINTR)) {
    if (count > 0) text.append(chunk, static_cast<std::size_t>(count));
  }
  const int failure = count < 0 ? errno : 0;
  ::close(descriptor);
  if (failure) {
    throw argument_error(fmt::format("'{}' cannot be read: {}", path, std::strerror(failure)));
  }
  return text;
}

void write_all(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw cannot_write(path, std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void require_writable(const std::string& path) {
  const std::string target = resolve(path);
  if (must_write_directly(target, path)) return;
  std::string name;
  ::close(open_beside(target, path, name));
  ::unlink(name.c_str());
}

ReplacedFile::ReplacedFile(const std::string& path) : path_(path), target_(resolve(path)) {
  if (must_write_directly(target_, path_)) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw cannot_write(path_, std::strerror(errno));
    return;
  }
  descriptor_ = open_beside(target_, path_, temporary_);
  // mkostemp makes a private file; the result has the mode of the file it replaces, or the usual.
  struct stat facts {};
  mode_t mode = 0;
  if (::stat(target_.c_str(), &facts) == 0) {
    mode = facts.st_mode & 07777;
  } else {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode = 0666 & ~mask;
  }
  ::fchmod(descriptor_, mode);
}

ReplacedFile::~ReplacedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void ReplacedFile::write(std::string_view bytes) { write_all(descriptor_, bytes, path_); }

void ReplacedFile::commit() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) throw cannot_write(path_, std::strerror(errno));
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw cannot_write(path_, std::strerror(errno));
  }
  temporary_.clear();
}

}  // namespace rooflane
