// One writer for each file of results.
#pragma once

#include <string>

namespace rooflane {

// Held while it lives: FILE.lock beside the file, locked by this process. The kernel frees it when
// the process ends in whatever way, so that a killed run never blocks the next one. Pipes and
// devices may have several writers; a file system without locks refuses nobody.
class OutputLock {
 public:
  // Throws Error(argument) that names the option and the process which writes the file now.
  OutputLock(const std::string& option, const std::string& path);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string lock_path_;
  int descriptor_ = -1;  // none: not locked
};

}  // namespace rooflane
