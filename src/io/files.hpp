// Files that are read whole, and files that are replaced only when complete. Nothing here knows
// what the bytes mean: io/csv.hpp, io/json.hpp and io/npy.hpp do.
#pragma once

#include <string>
#include <string_view>

namespace rooflane {

// The file's bytes. Throws Error(argument) naming the path.
std::string read_text_file(const std::string& path);

// Writes everything or throws Error(argument) naming `path` (disk full).
void write_all(int descriptor, std::string_view bytes, const std::string& path);

// Throws Error(argument) when `path` could not be written now: its folder is missing or read-only,
// it is a folder, or a file without write permission. Leaves an existing file as it is and no new
// one behind.
void require_writable(const std::string& path);

// A file that takes the place of `path` only at commit(): bytes go to a temporary file in the same
// folder, which is renamed then, and removed when the object dies before. A `path` that exists and
// is not a regular file (a pipe, a terminal) is written to directly.
class ReplacedFile {
 public:
  explicit ReplacedFile(const std::string& path);  // throws Error(argument)
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  std::string path_;       // as the user gave it
  std::string target_;     // links resolved
  std::string temporary_;  // empty: direct, or committed
  int descriptor_ = -1;
};

}  // namespace rooflane
