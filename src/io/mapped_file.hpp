// A file's bytes in memory, read-only, as the system pages them in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rooflane {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error(argument) naming the path: missing, a folder, no regular file. A file that becomes
  // shorter while it is mapped ends the program when the missing bytes are read.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace rooflane
