// Mapping by mmap. See mapped_file.hpp.
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"

namespace rooflane {

MappedFile::MappedFile(const std::string& path) {
  const auto failure = [&](const char* why) {
    return argument_error(fmt::format("'{}' cannot be read: {}", path, why));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw failure(std::strerror(errno));
  struct stat facts {};
  ::fstat(descriptor, &facts);
  if (!S_ISREG(facts.st_mode)) {
    ::close(descriptor);
    throw failure(S_ISDIR(facts.st_mode) ? "it is a folder" : "it is not a regular file");
  }
  size_ = static_cast<std::size_t>(facts.st_size);
  // mmap refuses to map nothing.
  if (size_ > 0) data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw failure(std::strerror(error));
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace rooflane
