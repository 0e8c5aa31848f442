// Programs kept on disk between processes, in the form that the driver returns. This cache does not
// look into a program; opencl_build.cpp builds them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace rooflane::opencl {

// A folder of programs, one file each: mark, length and text of the key, length, hash and bytes of
// the program. The file's name is the key's hash; the key itself, compared in full, decides. Files
// appear by renaming, so that no reader sees half of one; whatever is damaged counts as absent. Any
// number of processes may use one folder. Nothing here throws: a cache that cannot be read or
// written only costs time.
class ProgramCache {
 public:
  // Beyond `most_bytes` in all, the programs used longest ago go.
  ProgramCache(std::filesystem::path folder, std::size_t most_bytes);

  // The cache of this user: the folder that the environment variable ROOFLANE_PROGRAM_CACHE names
  // (empty: none), else `rooflane/programs` in $XDG_CACHE_HOME or ~/.cache. Null: there is none.
  static const ProgramCache* of_user();
  // Whether ROOFLANE_PROGRAM_CACHE names it: then it serves every device, CPUs too.
  static bool is_asked_for();

  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view program) const;
  void remove(std::string_view key) const;

  const std::filesystem::path& folder() const { return folder_; }
  // What `doctor` says: "FOLDER: 12 programs, 3.1 MiB", or "FOLDER: cannot be written: ...;
  // programs are built again in every process".
  std::string state() const;

 private:
  std::filesystem::path file_of(std::string_view key) const;
  void evict_oldest(std::size_t room) const;

  std::filesystem::path folder_;
  std::size_t most_bytes_;
};

}  // namespace rooflane::opencl
