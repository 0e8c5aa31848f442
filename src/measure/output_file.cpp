// A worker's output as a file in memory. See output_file.hpp.
#include "measure/output_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "measure/reference_file.hpp"

namespace rooflane {

OutputFile::OutputFile(const Problem& problem, std::uint64_t seed)
    : problem_(problem), seed_(seed), bytes_(sizeof(float)) {
  const auto tensors = problem.kernel().tensors(problem);
  for (const std::int64_t size : tensor_shape(problem, output_of(tensors))) {
    bytes_ *= static_cast<std::size_t>(size);
  }
  descriptor_ = memfd_create("rooflane-output", MFD_CLOEXEC);
  if (descriptor_ < 0) throw unavailable_error("no file in memory can be made for the output");
  const std::vector<float> nan(1 << 16, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t written = 0; written < bytes_;) {
    const ssize_t count =
        write(descriptor_, nan.data(), std::min(bytes_ - written, nan.size() * sizeof(float)));
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

Verification OutputFile::verify(const std::string& reference_path) const {
  Verification failure;
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes_) {
    failure.reason =
        fmt::format("the worker wrote an output of {} bytes, expected {}", status.st_size, bytes_);
    return failure;
  }
  OwnedOperands operands(problem_, seed_, machine().physical_cores);
  const View& output = operands.output();
  auto* const to = static_cast<std::byte*>(output.data);
  // Read and not mapped: the worker could still cut the file short.
  for (std::size_t done = 0; done < bytes_;) {
    const ssize_t count = pread(descriptor_, to + done, bytes_ - done, static_cast<off_t>(done));
    if (count <= 0) {
      failure.reason = "the worker's output cannot be read";
      return failure;
    }
    done += static_cast<std::size_t>(count);
  }
  const Reference reference = reference_path.empty()
                                  ? compute_reference(problem_, operands.all(), seed_)
                                  : read_reference(reference_path);
  return verify_output(problem_, operands.all(), output, reference, seed_);
}

}  // namespace rooflane
