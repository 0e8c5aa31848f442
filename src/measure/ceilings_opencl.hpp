// Ceilings of one OpenCL device, by the device's own clock. Internal to src/measure; present only
// in builds with OpenCL (ROOFLANE_HAS_OPENCL).
#pragma once

#include "measure/ceilings.hpp"

namespace rooflane {

// Adds the FMA peak, exp and unfused rates, the peaks of tensor cores where there are any, the
// bandwidth curve, what a launch takes and, once per device, the transfer rates between host and
// device to `into`, in about `seconds`; less time means fewer repeats, never
// fewer points. A CPU device is measured on `threads` compute units; on others `threads` must be 0.
// Names are those of PlanFacts::device. Throws Error(unavailable) for what the device cannot do,
// DeviceError.
void measure_device_ceilings(int device, int threads, double seconds, Ceilings& into);

}  // namespace rooflane
