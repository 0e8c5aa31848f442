// References as files, and as files in memory. See reference_file.hpp.
#include "measure/reference_file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/machine.hpp"

namespace rooflane {

namespace {

constexpr char reference_magic[8] = {'R', 'L', 'R', 'E', 'F', '0', '0', '2'};

template <class T>
void write_vector(std::ofstream& file, const std::vector<T>& values) {
  const std::uint64_t count = values.size();
  file.write(reinterpret_cast<const char*>(&count), sizeof count);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(count * sizeof(T)));
}

template <class T>
std::vector<T> read_vector(std::ifstream& file, std::uint64_t file_bytes) {
  std::uint64_t count = 0;
  file.read(reinterpret_cast<char*>(&count), sizeof count);
  if (!file || count > file_bytes / sizeof(T)) return {};
  std::vector<T> values(count);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(count * sizeof(T)));
  return values;
}

}  // namespace

void write_reference(const Reference& reference, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reference_magic, sizeof reference_magic);
  const std::uint64_t header[2] = {reference.complete ? 1u : 0u, reference.parts.size()};
  file.write(reinterpret_cast<const char*>(header), sizeof header);
  for (const Reference::Part& part : reference.parts) {
    write_vector(file, std::vector<char>(part.tensor.begin(), part.tensor.end()));
    write_vector(file, part.region.rows);
    write_vector(file, part.region.cols);
    write_vector(file, part.value);
    write_vector(file, part.bound);
    write_vector(file, part.plain_bound);
  }
  file.flush();
  if (!file) throw argument_error(fmt::format("reference file '{}' cannot be written", path));
}

Reference read_reference(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto fail = [&]() {
    return argument_error(fmt::format("'{}' is no reference file, or it is truncated", path));
  };
  if (!file) throw fail();
  const auto bytes = static_cast<std::uint64_t>(file.tellg());
  file.seekg(0);
  char magic[sizeof reference_magic] = {};
  std::uint64_t header[2] = {};
  file.read(magic, sizeof magic);
  file.read(reinterpret_cast<char*>(header), sizeof header);
  if (!file || std::memcmp(magic, reference_magic, sizeof magic) != 0) throw fail();
  Reference reference;
  reference.complete = header[0] == 1;
  for (std::uint64_t i = 0; i < header[1]; ++i) {
    Reference::Part part;
    const std::vector<char> name = read_vector<char>(file, bytes);
    part.tensor.assign(name.begin(), name.end());
    part.region.rows = read_vector<std::int64_t>(file, bytes);
    part.region.cols = read_vector<std::int64_t>(file, bytes);
    part.value = read_vector<double>(file, bytes);
    part.bound = read_vector<double>(file, bytes);
    part.plain_bound = read_vector<double>(file, bytes);
    const std::size_t count = part.region.rows.size() * part.region.cols.size();
    const bool whole = part.value.size() == count && part.bound.size() == count &&
                       part.plain_bound.size() == count;
    if (!file || !whole) throw fail();
    reference.parts.push_back(std::move(part));
  }
  return reference;
}

ReferenceFile::~ReferenceFile() { reset(); }

void ReferenceFile::reset() {
  for (const auto& [distribution, descriptor] : descriptors_) ::close(descriptor);
  descriptors_.clear();
}

std::string ReferenceFile::path_for(const Problem& problem, const InputSeed& seed,
                                    const Math& math) {
  std::string wanted = fmt::format("{} seed={} math={}", problem.text(), seed.number, math.name);
  if (holds_ != wanted) reset();
  holds_ = std::move(wanted);
  const auto path = [](int descriptor) {
    return fmt::format("/proc/{}/fd/{}", getpid(), descriptor);
  };
  if (const auto known = descriptors_.find(seed.distribution); known != descriptors_.end()) {
    return path(known->second);
  }
  const OwnedOperands operands(problem, seed, machine().physical_cores);
  const Reference reference = compute_reference(problem, operands.inputs(), seed, math);
  const int descriptor = memfd_create("rooflane-reference", MFD_CLOEXEC);
  if (descriptor < 0) throw unavailable_error("no file in memory can be made for the reference");
  descriptors_[seed.distribution] = descriptor;
  write_reference(reference, path(descriptor));
  return path(descriptor);
}

}  // namespace rooflane
