// What measured ceilings say about each other and about the hardware's numbers. See
// ceilings_check.hpp; where the limits come from: known_limits.cpp.
#include "measure/ceilings_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"

namespace rooflane {
namespace {

// What two honest measurements of one figure differ by on a shared machine.
constexpr double noise = 0.05;
// A GPU below this share of its limit was throttled, shared, or the loop does not fit it.
constexpr double least_device_share = 0.5;

std::string where(int threads, const std::string& device) {
  std::string text = device;
  if (threads > 0) {
    text +=
        fmt::format("{}{} thread{}", text.empty() ? "" : ", ", threads, threads == 1 ? "" : "s");
  }
  return text;
}

void check_limit(const FmaCeiling& fma, const KnownLimit& limit, Ceilings& ceilings) {
  const std::string name = fma.isa.empty() ? where(fma.threads, fma.device)
                                           : fma.isa + ", " + where(fma.threads, fma.device);
  const double share = fma.gflops / limit.gflops;
  const std::string text = fmt::format("FMA peak, {}: {:.1f} GFLOP/s is {:.0f} % of {:.1f} = {}",
                                       name, fma.gflops, 100 * share, limit.gflops, limit.how);
  if (share > 1 + noise) {
    ceilings.warnings.push_back(text + ": more than it can be");
  } else if (!fma.device.empty() && share < least_device_share) {
    ceilings.warnings.push_back(text + ": the device is throttled or shared");
  } else {
    ceilings.notes.push_back(text);
  }
}

void check_cpu_device(const FmaCeiling& fma, Ceilings& ceilings) {
  const std::optional<double> own = find_fma_peak(ceilings, fma.math, "", fma.threads, "");
  if (!own || *own <= 0) return;
  const double share = fma.gflops / *own;
  const std::string text =
      fmt::format("FMA peak, {}: {:.1f} GFLOP/s is {:.0f} % of the CPU's own {:.1f}",
                  where(fma.threads, fma.device), fma.gflops, 100 * share, *own);
  if (share > 1 + noise) {
    ceilings.warnings.push_back(text + ": the CPU's was measured too low");
  } else {
    ceilings.notes.push_back(text);
  }
}

}  // namespace

std::vector<std::string> curve_warnings(const BandwidthCurve& curve) {
  struct Loop {
    const char* name;
    double BandwidthPoint::*gb_s;
  };
  constexpr Loop loops[] = {{"read", &BandwidthPoint::read_gb_s},
                            {"write", &BandwidthPoint::write_gb_s},
                            {"copy", &BandwidthPoint::copy_gb_s}};
  std::vector<std::string> warnings;
  for (const Loop& loop : loops) {
    double beyond = 0;  // the fastest of the larger footprints
    double most = 0;    // how far a point lies below it
    std::vector<std::string> at;
    for (std::size_t i = curve.points.size(); i-- > 0;) {
      const double gb_s = curve.points[i].*loop.gb_s;
      if (gb_s < (1 - noise) * beyond) {
        most = std::max(most, 1 - gb_s / beyond);
        at.push_back(print_bytes(static_cast<std::size_t>(curve.points[i].footprint_bytes)));
      }
      beyond = std::max(beyond, gb_s);
    }
    if (at.empty()) continue;
    std::reverse(at.begin(), at.end());
    warnings.push_back(fmt::format(
        "bandwidth, {}: {} lies up to {:.0f} % below what larger footprints reach, at {}",
        where(curve.threads, curve.device), loop.name, 100 * most, join(at, ", ")));
  }
  return warnings;
}

void check_ceilings(Ceilings& ceilings, std::span<const KnownLimit> limits) {
  ceilings.notes.clear();
  ceilings.warnings.clear();
  for (const FmaCeiling& fma : ceilings.fma) {
    if (fma.math != "fp32") continue;  // tensor cores: their number per unit differs by model
    for (const KnownLimit& limit : limits) {
      if (limit.isa == fma.isa && limit.threads == fma.threads && limit.device == fma.device &&
          limit.gflops > 0) {
        check_limit(fma, limit, ceilings);
      }
    }
    if (!fma.device.empty() && fma.threads > 0) check_cpu_device(fma, ceilings);
  }
  for (const BandwidthCurve& curve : ceilings.bandwidth) {
    const std::vector<std::string> warnings = curve_warnings(curve);
    ceilings.warnings.insert(ceilings.warnings.end(), warnings.begin(), warnings.end());
    if (warnings.empty()) {
      ceilings.notes.push_back(fmt::format("bandwidth, {}: falls monotonically within {:.0f} %",
                                           where(curve.threads, curve.device), 100 * noise));
    }
  }
}

}  // namespace rooflane
