// References as files in memory. See reference_file.hpp.
#include "measure/reference_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "measure/verify.hpp"

namespace rooflane {

ReferenceFile::~ReferenceFile() { reset(); }

void ReferenceFile::reset() {
  holds_.clear();
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::string ReferenceFile::path_for(const Problem& problem, std::uint64_t seed, const Math& math) {
  const std::string wanted = fmt::format("{} seed={} math={}", problem.text(), seed, math.name);
  const auto path = [&] { return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_); };
  if (holds_ == wanted) return path();
  reset();
  const OwnedOperands operands(problem, seed, machine().physical_cores);
  const Reference reference = compute_reference(problem, operands.inputs(), seed, math);
  descriptor_ = memfd_create("rooflane-reference", MFD_CLOEXEC);
  if (descriptor_ < 0) throw unavailable_error("no file in memory can be made for the reference");
  write_reference(reference, path());
  holds_ = wanted;
  return path();
}

}  // namespace rooflane
