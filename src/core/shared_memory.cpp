// Files in memory, found again by address. See shared_memory.hpp.
#include "shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>

namespace rooflane {

namespace {

struct Mapping {
  int descriptor;
  std::size_t bytes;
};

std::atomic<bool> sharing = false;
std::mutex mutex;
std::map<const std::byte*, Mapping> mappings;  // by their first byte

}  // namespace

void share_buffers() { sharing = true; }
bool buffers_are_shared() { return sharing; }

void* map_shared(std::size_t bytes) {
  const int descriptor = memfd_create("rooflane-operands", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) throw std::bad_alloc();
  void* memory = MAP_FAILED;
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (memory == MAP_FAILED) {
    close(descriptor);
    throw std::bad_alloc();
  }
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only
  const std::lock_guard lock(mutex);
  mappings[static_cast<const std::byte*>(memory)] = {descriptor, bytes};
  return memory;
}

void unmap_shared(void* memory) {
  Mapping mapping;
  {
    const std::lock_guard lock(mutex);
    const auto found = mappings.find(static_cast<const std::byte*>(memory));
    if (found == mappings.end()) return;
    mapping = found->second;
    mappings.erase(found);
  }
  munmap(memory, mapping.bytes);
  close(mapping.descriptor);
}

SharedMemory shared_memory_of(const void* pointer) {
  const auto* const byte = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(mutex);
  auto after = mappings.upper_bound(byte);
  if (after == mappings.begin()) return {};
  const auto& [begin, mapping] = *--after;
  const auto offset = static_cast<std::size_t>(byte - begin);
  if (offset > mapping.bytes) return {};
  return {mapping.descriptor, mapping.bytes, offset};
}

bool seal_against_writes(const SharedMemory& memory) {
  constexpr int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
  return fcntl(memory.descriptor, F_ADD_SEALS, seals) == 0;
}

}  // namespace rooflane
