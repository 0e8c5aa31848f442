// Skips a test case where there is no OpenCL device.
#pragma once

#include "backends/opencl.hpp"
#include "skip.hpp"

namespace rooflane::test {

// `if (!has_device()) return;`
inline bool has_device() {
  if (opencl::broken_drivers().empty()) {
    return require_or_skip(!opencl::devices().empty(), "no OpenCL device", "pocl-opencl-icd");
  }
  return require_or_skip(!opencl::devices().empty(), opencl::no_device_reason(), "");
}

}  // namespace rooflane::test
