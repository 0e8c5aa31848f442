// What this machine can do at most, as measured: FMA peaks per math, ISA target and thread count,
// bandwidth curves over footprint per thread count, the same per device. Data only; measuring and
// asking: measure/ceilings.hpp.
#pragma once

#include <string>
#include <vector>

namespace rooflane {

struct FmaCeiling {
  // fp32; of tensor cores tf32, f16, bf16 and int8 (their operands; sums are float32 or int32), and
  // 3xtf32 and 3xf16: a third of those, for float32 products of operands split in parts
  std::string math;
  std::string isa;     // Highway target, or the instruction of a unit; empty on a device's fp32
  int threads = 1;     // 0 on a device other than a CPU
  std::string device;  // its name; empty for the CPU itself
  double gflops = 0;
};

// What the maths needs beside multiply-adds, at best and in registers. Only the model asks.
struct RateCeiling {
  std::string isa;            // as above
  int threads = 1;            // as above
  std::string device;         // as above
  double exp_g_s = 0;         // 1e9 float32 exps a second, by the kernels' own exp
  double unfused_gflops = 0;  // adds, products and maxima in equal parts, never fused
};

struct BandwidthPoint {
  double footprint_bytes = 0;  // all arrays of the loop together
  double read_gb_s = 0;
  double write_gb_s = 0;
  double copy_gb_s = 0;                                // read + written bytes
  std::string read_method, write_method, copy_method;  // "nt,4 streams, there and back"
};

struct Plateau {
  std::string label;                   // L1, L2, L3, memory
  double largest_footprint_bytes = 0;  // up to here
};

struct BandwidthCurve {
  int threads = 1;
  std::string device;
  std::vector<BandwidthPoint> points;  // rising footprint
  std::vector<Plateau> plateaus;       // rising; the last is memory
};

struct TransferCeiling {
  std::string device;
  double h2d_gb_s = 0;  // the better of the two below
  double d2h_gb_s = 0;
  double pageable_h2d_gb_s = 0;  // ordinary host memory
  double pageable_d2h_gb_s = 0;
  double pinned_h2d_gb_s = 0;  // memory that the driver allocated
  double pinned_d2h_gb_s = 0;
};

// What a kernel that does nothing takes, one at a time: no run is faster. Medians.
struct LaunchCeiling {
  std::string device;
  int threads = 1;       // as above
  double host_ns = 0;    // from enqueueing to its end, as a steady timer sees a run
  double device_ns = 0;  // by the device's clock, as an event timer does
};

struct Ceilings {
  std::vector<FmaCeiling> fma;
  std::vector<BandwidthCurve> bandwidth;
  std::vector<TransferCeiling> transfer;
  std::vector<RateCeiling> rates;
  std::vector<LaunchCeiling> launch;
  // Cross-checks in words (measure/ceilings_check.hpp): what was compared and held, and what did
  // not.
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

}  // namespace rooflane
