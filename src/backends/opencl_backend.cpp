// The record of OpenCL, and its functions that describe devices. The functions that they call are
// in opencl.hpp, opencl_ceilings.hpp and their neighbours.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "backends/opencl.hpp"
#include "backends/opencl_bench.hpp"
#include "backends/opencl_ceilings.hpp"
#include "backends/opencl_features.hpp"
#include "backends/opencl_programs.hpp"

namespace rooflane::opencl {
namespace {

int count() { return static_cast<int>(devices().size()); }

std::optional<std::string> absent(const std::string& /*library*/) {
  if (count() > 0) return std::nullopt;
  return no_device_reason();
}

DeviceFacts facts(int index) {
  const DeviceInfo& info = device(index);
  DeviceFacts facts;
  facts.name = info.name;
  facts.kind = name_of(info.kind);
  facts.platform = info.platform;
  facts.driver = info.driver;
  facts.global_bytes = info.global_bytes;
  facts.local_bytes = info.local_bytes;
  facts.is_cpu = info.kind == DeviceKind::cpu;
  facts.compute_units = info.compute_units;
  // A CPU's driver reports the nominal clock, and turbo exceeds it.
  if (!facts.is_cpu && info.lanes_per_unit > 0) {
    facts.peak_gflops = 2e-3 * info.clock_mhz * info.compute_units * info.lanes_per_unit;
    facts.peak_formula = fmt::format("{} MHz x {} compute units x {} lanes x 2", info.clock_mhz,
                                     info.compute_units, info.lanes_per_unit);
  }
  return facts;
}

std::optional<std::string> refused_threads(int index, int threads) {
  return unsupported_threads(device(index), threads);
}

// Finding out what its kernels may use runs some.
void prepare(int index) { features(index); }

void warm_clock(int index) {
  if (device(index).kind != DeviceKind::cpu) DeviceBench(index, 0).warm_clock();
}

std::string features_text(int index) { return print_features(features(index)); }

std::vector<FailedDriver> failed_drivers() {
  std::vector<FailedDriver> failed;
  for (const BrokenDriver& driver : broken_drivers())
    failed.push_back({driver.file, driver.reason, driver.fault});
  return failed;
}

std::string kept_programs() {
  const ProgramCache* programs = ProgramCache::of_user();
  return programs != nullptr ? programs->state() : "kept nowhere between processes";
}

// The loader's own variable; it may also name a single file, which then stands for itself.
std::optional<std::string> drivers_folder() {
  const char* vendors = std::getenv("OCL_ICD_VENDORS");
  if (vendors == nullptr) return "/etc/OpenCL/vendors";
  if (std::filesystem::is_regular_file(vendors)) return std::nullopt;
  return vendors;
}

constexpr Devices functions = {.title = "OpenCL",
                               .count = count,
                               .facts = facts,
                               .unsupported_threads = refused_threads,
                               .prepare = prepare,
                               .warm_clock = warm_clock,
                               .lost = context_was_lost,
                               .measure_ceilings = measure_ceilings,
                               .failure = plain_kernel_failure,
                               .features = features_text,
                               .failed_drivers = failed_drivers,
                               .kept_programs = kept_programs,
                               .drivers_folder = drivers_folder};

}  // namespace

// Drivers start threads of their own.
const Backend backend = {
    .name = "opencl", .absent_reason = absent, .devices = &functions, .foreign_threads = true};

}  // namespace rooflane::opencl
