// Verification of a worker that cannot compare its output: it writes the output to a file in
// memory, and this process compares it with the reference. worker.hpp describes the request, op
// `output`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/problem.hpp"
#include "measure/verify.hpp"

namespace rooflane {

// The file has the size of all outputs, one after the other, and holds ones, NaN in every float
// format, so that what is not written fails.
class OutputFile {
 public:
  // Throws Error(unavailable) when no file in memory can be made.
  OutputFile(const Problem& problem, const InputSeed& seed);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::string path() const;  // other processes of this user can open it
  std::size_t bytes() const { return bytes_; }
  // Fails for another size than bytes(). The inputs are made from the seed and live during this
  // call only; an empty path: the reference is computed from them. Throws Error for a file that is
  // not a reference.
  Verification verify(const std::string& reference_path, const Math& math) const;
  // Checksum of the worker's output; 0 where it cannot be read.
  std::uint64_t hash() const;

 private:
  bool read_at(std::size_t offset, std::span<std::byte> to) const;

  Problem problem_;
  InputSeed seed_;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace rooflane
