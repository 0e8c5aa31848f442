// References as files. A problem's is computed once, while its cases are worked on, in a file that
// worker processes open by its path.
#pragma once

#include <map>
#include <string>

#include "core/math.hpp"
#include "core/problem.hpp"
#include "measure/verify.hpp"

namespace rooflane {

// A binary file. Throw Error: it cannot be written; it is not a reference, or it is truncated.
void write_reference(const Reference& reference, const std::string& path);
Reference read_reference(const std::string& path);

// The file lies in memory and is gone when this process is, however it ends.
class ReferenceFile {
 public:
  ReferenceFile() = default;
  ~ReferenceFile();
  ReferenceFile(const ReferenceFile&) = delete;
  ReferenceFile& operator=(const ReferenceFile&) = delete;

  // The path of this problem's reference. The references of one problem, seed number and math,
  // those of the last call, are kept for all distributions; any other is computed. Throws
  // Error(unavailable) when no file in memory can be made.
  std::string path_for(const Problem& problem, const InputSeed& seed, const Math& math);

 private:
  void reset();

  std::string holds_;                                    // the problem, seed and math of the files
  std::map<const Distribution*, int> descriptors_ = {};  // their open files
};

}  // namespace rooflane
