// Ceilings of one OpenCL device, by the device's own clock.
#pragma once

#include <cstddef>

#include "core/ceilings.hpp"

namespace rooflane::opencl {

// Adds the FMA peak, exp and unfused rates, the peaks of tensor cores where there are any, the
// bandwidth curve, what a launch takes and, once per device, the transfer rates between host and
// device to `into`, in about `seconds`; less time means fewer repeats, never fewer points. A CPU
// device is measured on `threads` compute units and up to `largest_footprint` bytes; on others
// `threads` must be 0. The curve gets no plateaus. Names are those of PlanFacts::device. Throws
// Error(unavailable) for what the device cannot do, DeviceError.
void measure_ceilings(int device, int threads, double seconds, std::size_t largest_footprint,
                      Ceilings& into);

}  // namespace rooflane::opencl
