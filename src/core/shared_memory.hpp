// Memory that can be handed to another process as a descriptor: files in memory, mapped here. Who
// measures a kernel that runs in another process keeps the operands in such memory.
#pragma once

#include <cstddef>

namespace rooflane {

// From now on every Buffer of this process is shared memory. For a process that does nothing else
// than to measure such kernels: it cannot be undone.
void share_buffers();
bool buffers_are_shared();

// Throws std::bad_alloc. Pages are not touched.
void* map_shared(std::size_t bytes);
void unmap_shared(void* memory);

struct SharedMemory {
  int descriptor = -1;
  std::size_t bytes = 0;   // of the whole mapping
  std::size_t offset = 0;  // of the pointer in it
};
// The mapping that holds a pointer; descriptor below 0: none does.
SharedMemory shared_memory_of(const void* pointer);
// From now on no new mapping can be writable; existing mappings stay writable. False where the
// system cannot do that.
bool seal_against_writes(const SharedMemory& memory);

}  // namespace rooflane
