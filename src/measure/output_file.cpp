// A worker's output as a file in memory. See output_file.hpp.
#include "measure/output_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "measure/reference_file.hpp"

namespace rooflane {

OutputFile::OutputFile(const Problem& problem, const InputSeed& seed)
    : problem_(problem), seed_(seed) {
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (is_written(tensor.role)) bytes_ += static_cast<std::size_t>(tensor_bytes(problem, tensor));
  }
  descriptor_ = memfd_create("rooflane-output", MFD_CLOEXEC);
  if (descriptor_ < 0) throw unavailable_error("no file in memory can be made for the output");
  const std::vector<char> ones(1 << 18, '\xFF');
  for (std::size_t written = 0; written < bytes_;) {
    const ssize_t count = write(descriptor_, ones.data(), std::min(bytes_ - written, ones.size()));
    if (count <= 0) {
      ::close(descriptor_);
      throw unavailable_error("not enough memory for the output's file");
    }
    written += static_cast<std::size_t>(count);
  }
}

OutputFile::~OutputFile() { ::close(descriptor_); }

std::string OutputFile::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_);
}

Verification OutputFile::verify(const std::string& reference_path, const Math& math) const {
  Verification failure;
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes_) {
    failure.reason =
        fmt::format("the worker wrote an output of {} bytes, expected {}", status.st_size, bytes_);
    return failure;
  }
  const OwnedOperands operands(problem_, seed_, machine().physical_cores);
  std::size_t at = 0;
  for (const TensorSpec& tensor : problem_.kernel().tensors(problem_)) {
    if (!is_written(tensor.role)) continue;
    const View& output = operands.all().at(tensor.name);
    const std::size_t bytes = output.dtype->bytes(output.elements());
    if (!read_at(at, {static_cast<std::byte*>(output.data), bytes})) {
      failure.reason = "the worker's output cannot be read";
      return failure;
    }
    at += bytes;
  }
  const Reference reference = reference_path.empty()
                                  ? compute_reference(problem_, operands.inputs(), seed_, math)
                                  : read_reference(reference_path);
  return verify_output(problem_, operands.all(), reference, seed_, math);
}

std::uint64_t OutputFile::hash() const {
  std::vector<std::byte> piece(std::size_t{1} << 20);
  std::uint64_t hash = 0;
  for (std::size_t at = 0; at < bytes_; at += piece.size()) {
    piece.resize(std::min(piece.size(), bytes_ - at));
    if (!read_at(at, piece)) return 0;
    hash = hash_bytes(hash, piece);
  }
  return hash_of_output(hash);
}

// Read and not mapped: the worker could still cut the file short.
bool OutputFile::read_at(std::size_t offset, std::span<std::byte> to) const {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t count =
        pread(descriptor_, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace rooflane
