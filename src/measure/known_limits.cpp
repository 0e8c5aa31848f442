// What clock and units allow at most, for cross-checks of FMA peaks. See ceilings_check.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "backends/highway.hpp"
#include "measure/ceilings_check.hpp"
#include "measure/fma_peak.hpp"
#include "measure/together.hpp"

namespace rooflane {
namespace {

#if defined(__x86_64__)

// Vector ports that multiply and add, at full width, of every x86-64 CPU so far at most; SSE code
// has two for products beside two for sums, which comes to the same.
constexpr int ports = 2;

void add_cpu_limits(const CeilingsRequest& request, double ghz, std::vector<KnownLimit>& limits) {
  const char* source = "measured by dependent products";
  double khz = 0;
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") >> khz && khz > 0) {
    ghz = khz * 1e-6;
    source = "highest by cpufreq";
  }
  const std::vector<std::string> isas = request.isas.empty() ? isa_targets() : request.isas;
  for (const std::string& isa : isas) {
    const FmaLoop loop = fma_loop(resolve_isa(isa));
    const double lanes = loop.flops_per_step / 2 / loop.vectors;
    for (int threads : request.threads) {
      limits.push_back(
          {isa, threads, "", 2 * ports * lanes * ghz * threads,
           fmt::format("{:.2f} GHz ({}) x {} ports x {:.0f} lanes x 2{}", ghz, source, ports, lanes,
                       threads > 1 ? fmt::format(" x {} threads", threads) : "")});
    }
  }
}

#else

// Other CPUs differ in their number of ports from model to model.
void add_cpu_limits(const CeilingsRequest&, double, std::vector<KnownLimit>&) {}

#endif

}  // namespace

double measure_clock_ghz() {
#if defined(__x86_64__)
  constexpr int products = 50'000;  // 40 µs at 4 GHz: short enough to fall between disturbances
  constexpr double latency = 3;     // cycles, on every x86-64 CPU of the last ten years
  constexpr int repeats = 50;
  Together together(1);
  double best_ns = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double ns = together.run_ns([](int) {
      unsigned x = 3;
      for (int i = 0; i < products; ++i) asm volatile("imul %0, %0" : "+r"(x));
    });
    best_ns = repeat == 0 ? ns : std::min(best_ns, ns);
  }
  return latency * products / best_ns;
#else
  return 0;
#endif
}

std::vector<KnownLimit> known_limits(const CeilingsRequest& request, double clock_ghz) {
  std::vector<KnownLimit> limits;
  add_cpu_limits(request, clock_ghz, limits);
  for (const DeviceId& device : request.devices) {
    const DeviceFacts facts = device.of->facts(device.index);
    if (facts.peak_gflops == 0) continue;
    limits.push_back({"", 0, facts.name, facts.peak_gflops, facts.peak_formula});
  }
  return limits;
}

}  // namespace rooflane
