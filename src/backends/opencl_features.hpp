// What a device can do beyond OpenCL 1.2, found out by running a tiny program per feature and
// looking at its result, since drivers announce none of it. The code path of a kernel (`code_path`
// in its tuning: 0 portable OpenCL C, 1 NVIDIA's inline PTX) is chosen from this.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace rooflane::opencl {

struct Features {
  bool inline_ptx = false;  // asm volatile in OpenCL C
  bool shuffle = false;     // shfl.sync between the 32 work-items of a warp
  bool copy_async = false;  // cp.async from global to local memory
  bool mma_tf32 = false;    // mma.sync.m16n8k8 on tf32 operands
  bool mma_f16 = false;     // mma.sync.m16n8k16 on f16 operands, float32 sums
  bool wgmma = false;       // wgmma and what feeds it: bulk tensor copies that arrive at a barrier
  std::string no_wgmma;     // what its probe said instead; empty where mma_f16 is missing too
  // Largest __local array declared in a kernel that came back right, bytes; at least what
  // CL_DEVICE_LOCAL_MEM_SIZE says.
  std::size_t static_local_bytes = 0;
  // The first feature of code path 1 that is missing and what its probe said; empty when none is.
  std::string missing;

  // Everything that kernels of code path 1 may use.
  bool nvidia_code_path() const { return inline_ptx && shuffle && copy_async; }
};

// The features of device `index`, numbered like `doctor`'s. Probed at the first call of a process;
// thread-safe. A probe that does not build, fails or answers wrongly is a missing feature, never an
// error. Throws Error(unavailable) for a device that does not exist.
const Features& features(int index);

// "code path nvidia: inline PTX, shuffles, cp.async, tensor cores tf32 f16; no wgmma: does not
// build: ...; local arrays up to 224 KiB", or "portable code path only: " and why.
std::string print_features(const Features& features);

// Builds and runs the plainest kernel on device `index` and looks at what it wrote: nothing when it
// is right, else what failed. Throws as `features` does.
std::optional<std::string> plain_kernel_failure(int index);

}  // namespace rooflane::opencl
