// Measures all ceilings of a request and answers questions about them. The loops are in
// fma_peak.cpp and stream_loops.cpp, the levels of a curve in plateaus.cpp; devices are measured by
// their backend.
#include "measure/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backends/highway.hpp"
#include "backends/unit_loops.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "measure/bandwidth.hpp"
#include "measure/ceilings_check.hpp"
#include "measure/fma_peak.hpp"
#include "measure/math_rates.hpp"
#include "measure/plateaus.hpp"
#include "measure/unit_peak.hpp"

namespace rooflane {
namespace {

// What a measurement is worth of the budget, in seconds that suffice on a busy machine: an FMA peak
// settles within 0.15 s, two rates that only the model asks for within 0.1 s, a curve (24 points ×
// 15 to 23 loops) within 5 s, a device's peak and curve within 5 s. More time than that is not
// used.
constexpr double fma_seconds = 0.15;
constexpr double rates_seconds = 0.1;
constexpr double curve_seconds = 5;
constexpr double device_seconds = 5;

// One step of the plan: what progress shows, its seconds, and the work.
struct CeilingsStep {
  std::string what;
  double seconds;
  std::function<void(double seconds, const std::function<void(double)>& progress)> run;
};

std::string print_threads(int threads) {
  return threads == 1 ? "1 thread" : fmt::format("{} threads", threads);
}

std::size_t largest_footprint(const CeilingsRequest& request) {
  const std::size_t sensible = largest_bandwidth_footprint();
  return request.largest_footprint > 0 ? std::min(request.largest_footprint, sensible) : sensible;
}

// `clock_ghz` becomes the highest clock seen right before and after an FMA peak: turbo moves it.
void add_cpu_steps(const CeilingsRequest& request, int threads, Ceilings& out, double& clock_ghz,
                   std::vector<CeilingsStep>& steps) {
  const std::vector<std::string> isas = request.isas.empty() ? isa_targets() : request.isas;
  for (const std::string& isa : isas) {
    const std::int64_t target = resolve_isa(isa);
    steps.push_back({fmt::format("FMA peak at {}, {}", isa, print_threads(threads)), fma_seconds,
                     [=, &out, &clock_ghz](double seconds, const auto&) {
                       clock_ghz = std::max(clock_ghz, measure_clock_ghz());
                       out.fma.push_back({"fp32", isa, threads, "",
                                          measure_fma_gflops(target, threads, seconds)});
                       clock_ghz = std::max(clock_ghz, measure_clock_ghz());
                     }});
    steps.push_back({fmt::format("exp and unfused rates at {}, {}", isa, print_threads(threads)),
                     rates_seconds, [=, &out](double seconds, const auto&) {
                       const MathRates rates = measure_math_rates(target, threads, seconds);
                       out.rates.push_back({isa, threads, "", rates.exp_g_s, rates.unfused_gflops});
                     }});
  }
  for (const UnitLoop& unit : unit_loops()) {
    if (unit.missing()) continue;
    steps.push_back({fmt::format("{} in registers, {}", unit.path, print_threads(threads)),
                     fma_seconds, [=, &out](double seconds, const auto&) {
                       out.fma.push_back({unit.math, unit.path, threads, "",
                                          measure_unit_gflops(unit, threads, seconds)});
                     }});
  }
  steps.push_back(
      {fmt::format("bandwidth, {}", print_threads(threads)), curve_seconds,
       [=, &out, largest = largest_footprint(request)](double seconds, const auto& progress) {
         out.bandwidth.push_back(measure_bandwidth(threads, largest, seconds, progress));
       }});
}

// A device that is the CPU has its caches, one of those that a core has for each thread; of others
// only the cache that all units share is seen.
std::array<double, 3> cache_bytes(const DeviceFacts& facts, int threads) {
  if (!facts.is_cpu) return {no_such_level, 0.0, no_such_level};
  const Machine& cpu = machine();
  return {static_cast<double>(cpu.l1d_bytes) * threads, static_cast<double>(cpu.l2_bytes) * threads,
          static_cast<double>(cpu.l3_bytes)};
}

void measure_device(const DeviceId& device, const DeviceFacts& facts, int threads, double seconds,
                    Ceilings& out) {
  const std::size_t known = out.bandwidth.size();
  device.of->measure_ceilings(device.index, threads, seconds, largest_bandwidth_footprint(), out);
  for (std::size_t i = known; i < out.bandwidth.size(); ++i) {
    BandwidthCurve& curve = out.bandwidth[i];
    curve.plateaus = find_plateaus(curve.points, cache_bytes(facts, threads));
  }
}

void add_device_steps(const CeilingsRequest& request, const DeviceId& device, Ceilings& out,
                      std::vector<CeilingsStep>& steps) {
  const DeviceFacts facts = device.of->facts(device.index);
  for (int threads : facts.is_cpu ? request.threads : std::vector<int>{0}) {
    // A row at a number of threads that the device cannot serve is UNSUPPORTED and needs no roof.
    if (device.of->unsupported_threads(device.index, threads)) continue;
    steps.push_back(
        {facts.is_cpu ? fmt::format("{}, {}", facts.name, print_threads(threads)) : facts.name,
         device_seconds, [=, &out](double seconds, const auto&) {
           measure_device(device, facts, threads, seconds, out);
         }});
  }
}

// A curve's read, write and copy at one footprint: straight lines over the logarithm of the
// footprint, the end points beyond the ends. A point counts with the best of itself and all larger
// footprints: a smaller footprint is at least as fast, and a point that a shared machine disturbed
// must not lower the roof.
struct Rates {
  double read, write, copy;
};
Rates rates_at(const std::vector<BandwidthPoint>& measured, double footprint) {
  std::vector<BandwidthPoint> points = measured;
  for (std::size_t i = points.size() - 1; i-- > 0;) {
    points[i].read_gb_s = std::max(points[i].read_gb_s, points[i + 1].read_gb_s);
    points[i].write_gb_s = std::max(points[i].write_gb_s, points[i + 1].write_gb_s);
    points[i].copy_gb_s = std::max(points[i].copy_gb_s, points[i + 1].copy_gb_s);
  }
  const auto rates_of = [](const BandwidthPoint& p) {
    return Rates{p.read_gb_s, p.write_gb_s, p.copy_gb_s};
  };
  if (footprint <= points.front().footprint_bytes) return rates_of(points.front());
  if (footprint >= points.back().footprint_bytes) return rates_of(points.back());
  const auto right = std::upper_bound(
      points.begin(), points.end(), footprint,
      [](double bytes, const BandwidthPoint& p) { return bytes < p.footprint_bytes; });
  const auto left = right - 1;
  const double share = std::log(footprint / left->footprint_bytes) /
                       std::log(right->footprint_bytes / left->footprint_bytes);
  const auto between = [share](double a, double b) { return a + share * (b - a); };
  return {between(left->read_gb_s, right->read_gb_s), between(left->write_gb_s, right->write_gb_s),
          between(left->copy_gb_s, right->copy_gb_s)};
}

// The formula of find_memory_peak. R and W are raised to C/2 where need be: copying reads C/2 and
// writes C/2 at once, so either alone can do as much; the formula then gives C at w = 1/2.
double memory_peak(Rates rates, double w) {
  const double c = rates.copy;
  const double r = std::max(rates.read, c / 2);
  const double wr = std::max(rates.write, c / 2);
  const double line = w <= 0.5 ? r + (c - r) * 2 * w : c + (wr - c) * (2 * w - 1);
  double peak = std::max(c, line);
  if (w < 1) peak = std::min(peak, r / (1 - w));
  if (w > 0) peak = std::min(peak, wr / w);
  return peak;
}

const BandwidthCurve* find_curve(const Ceilings& ceilings, int threads, std::string_view device) {
  for (const BandwidthCurve& curve : ceilings.bandwidth) {
    if (curve.device != device || curve.points.empty()) continue;
    if (curve.threads == threads || (curve.threads == 0 && !device.empty())) return &curve;
  }
  return nullptr;
}

// Raises a point to what a curve says at its footprint. Beyond the curve's end nothing is known.
void raise(BandwidthPoint& point, const std::vector<BandwidthPoint>& curve) {
  if (point.footprint_bytes > curve.back().footprint_bytes) return;
  const Rates rates = rates_at(curve, point.footprint_bytes);
  point.read_gb_s = std::max(point.read_gb_s, rates.read);
  point.write_gb_s = std::max(point.write_gb_s, rates.write);
  point.copy_gb_s = std::max(point.copy_gb_s, rates.copy);
}

// The upper of two curves. Their points differ: half of them lie where bandwidth fell most.
std::vector<BandwidthPoint> upper_curve(const std::vector<BandwidthPoint>& x,
                                        const std::vector<BandwidthPoint>& y) {
  if (x.empty() || y.empty()) return x.empty() ? y : x;
  std::vector<BandwidthPoint> all = x;
  for (const BandwidthPoint& point : y) {
    const auto place = std::lower_bound(
        all.begin(), all.end(), point.footprint_bytes,
        [](const BandwidthPoint& p, double bytes) { return p.footprint_bytes < bytes; });
    if (place == all.end() || place->footprint_bytes != point.footprint_bytes) {
      all.insert(place, point);
    }
  }
  for (BandwidthPoint& point : all) {
    raise(point, x);
    raise(point, y);
  }
  return all;
}

}  // namespace

void keep_better(Ceilings& known, const Ceilings& again) {
  for (const FmaCeiling& fma : again.fma) {
    for (FmaCeiling& held : known.fma) {
      if (held.math == fma.math && held.isa == fma.isa && held.threads == fma.threads &&
          held.device == fma.device) {
        held.gflops = std::max(held.gflops, fma.gflops);
      }
    }
  }
  for (const RateCeiling& rate : again.rates) {
    for (RateCeiling& held : known.rates) {
      if (held.isa == rate.isa && held.threads == rate.threads && held.device == rate.device) {
        held.exp_g_s = std::max(held.exp_g_s, rate.exp_g_s);
        held.unfused_gflops = std::max(held.unfused_gflops, rate.unfused_gflops);
      }
    }
  }
  for (const LaunchCeiling& launch : again.launch) {
    for (LaunchCeiling& held : known.launch) {
      if (held.threads == launch.threads && held.device == launch.device) {
        held.host_ns = std::min(held.host_ns, launch.host_ns);
        held.device_ns = std::min(held.device_ns, launch.device_ns);
      }
    }
  }
  for (const BandwidthCurve& curve : again.bandwidth) {
    for (BandwidthCurve& held : known.bandwidth) {
      if (held.threads == curve.threads && held.device == curve.device) {
        held.points = upper_curve(held.points, curve.points);
      }
    }
  }
}

Ceilings measure_ceilings(const CeilingsRequest& request) {
  Ceilings out;
  double clock_ghz = 0;
  std::vector<CeilingsStep> steps;
  for (int threads : request.threads) {
    if (threads < 1) throw argument_error(fmt::format("threads {}: at least 1", threads));
    add_cpu_steps(request, threads, out, clock_ghz, steps);
  }
  for (const DeviceId& device : request.devices) add_device_steps(request, device, out, steps);

  double wanted = 0;
  for (const CeilingsStep& step : steps) wanted += step.seconds;
  const double scale = wanted > 0 ? std::clamp(request.seconds / wanted, 0.0, 1.0) : 1;
  double before = 0;
  for (const CeilingsStep& step : steps) {
    const auto progress = [&](double done) {
      if (request.progress) request.progress((before + done * step.seconds) / wanted, step.what);
    };
    progress(0);
    step.run(step.seconds * scale, progress);
    before += step.seconds;
  }
  check_ceilings(out, known_limits(request, clock_ghz));
  if (request.progress) request.progress(1, "ceilings");
  return out;
}

std::optional<double> find_fma_peak(const Ceilings& ceilings, std::string_view math,
                                    std::string_view isa, int threads, std::string_view device) {
  std::optional<double> best;
  for (const FmaCeiling& fma : ceilings.fma) {
    if (fma.math != math || fma.device != device) continue;
    if (fma.threads != threads && (fma.threads != 0 || device.empty())) continue;
    if (!isa.empty() && fma.isa != isa) continue;
    best = std::max(best.value_or(0), fma.gflops);
  }
  return best;
}

std::optional<double> find_compute_peak(const Ceilings& ceilings, std::string_view math,
                                        std::string_view isa, int threads, std::string_view device,
                                        std::string_view path) {
  const bool on_cpu = device.empty();
  // Not every unit of a device is measured: what does not say which it used may have a faster one.
  const bool has_units =
      std::any_of(ceilings.fma.begin(), ceilings.fma.end(), [&](const FmaCeiling& fma) {
        return fma.math == math && fma.device == device && !fma.isa.empty();
      });
  if (!on_cpu && has_units) {
    if (path == "fma") return find_fma_peak(ceilings, "fp32", isa, threads, device);
    return path.empty() ? std::nullopt : find_fma_peak(ceilings, math, path, threads, device);
  }
  if (on_cpu && math.starts_with("int8-")) math = "int8";
  if (on_cpu && !path.empty()) {
    if (auto unit = find_fma_peak(ceilings, math, path, threads, device)) return unit;
  }
  if (auto own = find_fma_peak(ceilings, math, isa, threads, device)) return own;
  if (auto unit = find_fma_peak(ceilings, math, "", threads, device)) return unit;
  const bool widened = math == "bf16" || math == "f16";
  return widened ? find_fma_peak(ceilings, "fp32", isa, threads, device) : std::nullopt;
}

std::optional<LaunchCeiling> find_launch(const Ceilings& ceilings, int threads,
                                         std::string_view device) {
  for (const LaunchCeiling& launch : ceilings.launch) {
    if (launch.device == device && (launch.threads == threads || launch.threads == 0)) {
      return launch;
    }
  }
  return std::nullopt;
}

std::optional<RateCeiling> find_rates(const Ceilings& ceilings, std::string_view isa, int threads,
                                      std::string_view device) {
  std::optional<RateCeiling> best;
  for (const RateCeiling& rate : ceilings.rates) {
    if (rate.device != device) continue;
    if (rate.threads != threads && (rate.threads != 0 || device.empty())) continue;
    if (!isa.empty() && rate.isa != isa) continue;
    if (!best) best = rate;
    best->exp_g_s = std::max(best->exp_g_s, rate.exp_g_s);
    best->unfused_gflops = std::max(best->unfused_gflops, rate.unfused_gflops);
  }
  return best;
}

std::optional<MemoryPeak> find_memory_peak(const Ceilings& ceilings, double footprint_bytes,
                                           double write_fraction, int threads,
                                           std::string_view device) {
  const BandwidthCurve* curve = find_curve(ceilings, threads, device);
  if (curve == nullptr) return std::nullopt;
  MemoryPeak peak;
  peak.gb_s =
      memory_peak(rates_at(curve->points, footprint_bytes), std::clamp(write_fraction, 0.0, 1.0));
  peak.level = plateau_at(*curve, footprint_bytes);
  return peak;
}

std::string plateau_at(const BandwidthCurve& curve, double footprint_bytes) {
  for (const Plateau& plateau : curve.plateaus) {
    if (footprint_bytes <= plateau.largest_footprint_bytes) return plateau.label;
  }
  return curve.plateaus.empty() ? "" : curve.plateaus.back().label;
}

std::optional<double> find_knee(const Ceilings& ceilings, int threads) {
  const BandwidthCurve* curve = find_curve(ceilings, threads, "");
  if (curve == nullptr || curve->plateaus.size() < 2) return std::nullopt;
  return curve->plateaus[curve->plateaus.size() - 2].largest_footprint_bytes;
}

}  // namespace rooflane
