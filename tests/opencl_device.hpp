// Skips a test case where there is no OpenCL device.
#pragma once

#include "backends/opencl.hpp"
#include "skip.hpp"

namespace rooflane::test {

// `if (!has_device()) return;`
inline bool has_device() {
  return require_or_skip(!opencl::devices().empty(), "no OpenCL device", "pocl-opencl-icd");
}

// The same where the device's compiler cannot be given kernels of GEMM.
inline bool has_gemm_device() {
  if (!has_device()) return false;
  const auto fault = opencl::gemm_compiler_fault(opencl::device(0));
  return require_or_skip(!fault, fault.value_or(""), "");
}

}  // namespace rooflane::test
