// Facts of machine, libraries and devices, and what slows them down. See doctor_findings.hpp.
#include "cli/doctor_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backends/availability.hpp"
#include "backends/cblas.hpp"
#include "backends/highway.hpp"
#include "cli/build_facts.hpp"
#include "core/machine.hpp"
#include "io/json.hpp"
#ifdef ROOFLANE_HAS_OPENCL
#include "backends/opencl.hpp"
#include "backends/opencl_features.hpp"
#include "backends/opencl_programs.hpp"
#endif

namespace rooflane {
namespace {

std::vector<IsaTarget> targets_of_build() {
  const std::vector<std::string> usable = isa_targets();
  const std::set<std::string> here(usable.begin(), usable.end());
  std::vector<IsaTarget> targets;
  for (const std::string& name : generated_isa_targets()) {
    targets.push_back({name, here.contains(name)});
  }
  return targets;
}

std::vector<FoundLibrary> libraries_of(const Catalogue& catalogue) {
  std::vector<FoundLibrary> libraries;
  std::set<std::string> seen;
  for (const CatalogueEntry& entry : catalogue.entries()) {
    if (std::string_view(entry.variant->backend) != "cblas" || !seen.insert(entry.name).second) {
      continue;
    }
    FoundLibrary& library =
        libraries.emplace_back(FoundLibrary{entry.name, absent_reason(entry), "", "", {}});
    if (library.absent) continue;
    const auto opened = cblas::open(entry.library);
    library.description = opened->description;
    library.path = opened->path;
    for (const auto& [name, value] : cblas::best_environment(entry.library)) {
      library.environment.emplace_back(name, value);
    }
  }
  return libraries;
}

FoundOpenCl opencl_of([[maybe_unused]] const Catalogue& catalogue) {
  FoundOpenCl found;
#ifdef ROOFLANE_HAS_OPENCL
  for (const opencl::DeviceInfo& info : opencl::devices()) {
    FoundDevice device{info.index,
                       std::string(opencl::name_of(info.kind)),
                       info.name,
                       info.platform,
                       info.driver,
                       info.compute_units,
                       info.global_bytes,
                       info.local_bytes,
                       {},
                       {}};
    device.failure = opencl::plain_kernel_failure(info.index);
    if (!device.failure) device.features = opencl::print_features(opencl::features(info.index));
    found.devices.push_back(std::move(device));
  }
  for (const opencl::BrokenDriver& driver : opencl::broken_drivers()) {
    found.broken_drivers.emplace_back(driver.file, driver.reason);
  }
  const opencl::ProgramCache* programs = opencl::ProgramCache::of_user();
  found.programs = programs != nullptr ? programs->state() : "kept nowhere between processes";
#else
  for (const AbsentVariant& absent : catalogue.absent()) {
    if (absent.variant == "opencl") found.absent = absent.reason;
  }
#endif
  return found;
}

// What slows this machine down; drivers that cannot be used first.
std::vector<Slowdown> slowdowns_of(const Catalogue& catalogue, const FoundOpenCl& opencl) {
  std::vector<Slowdown> slowdowns;
  for (const auto& [file, reason] : opencl.broken_drivers) {
    slowdowns.push_back(
        {fmt::format("the OpenCL driver {} crashed at start ({}): its devices are absent", file,
                     reason),
         "clinfo   # shows it; install the driver anew, or remove its file from "
         "/etc/OpenCL/vendors"});
  }
  for (Slowdown& slowdown : slowdowns_here(catalogue)) slowdowns.push_back(std::move(slowdown));
  const bool explained = std::any_of(slowdowns.begin(), slowdowns.end(), [](const Slowdown& s) {
    return s.what.find("OpenCL") != std::string::npos;
  });
  if (opencl.absent.empty() && opencl.devices.empty() && !explained) {
    slowdowns.push_back(
        {"no OpenCL device is found, though a driver is installed: it is broken or "
         "may not use the card",
         "clinfo   # says what the driver answers; /dev/dri and /dev/nvidia* must "
         "be open to this user"});
  }
  return slowdowns;
}

using nlohmann::ordered_json;

ordered_json text_or_null(const std::optional<std::string>& text) {
  return text ? ordered_json(*text) : ordered_json();
}

ordered_json opencl_json(const FoundOpenCl& opencl) {
  ordered_json devices = ordered_json::array();
  for (const FoundDevice& device : opencl.devices) {
    devices.push_back({{"index", device.index},
                       {"kind", device.kind},
                       {"name", device.name},
                       {"platform", device.platform},
                       {"driver", device.driver},
                       {"compute_units", device.compute_units},
                       {"global_bytes", device.global_bytes},
                       {"local_bytes", device.local_bytes},
                       {"unusable", text_or_null(device.failure)},
                       {"features", device.features}});
  }
  ordered_json broken = ordered_json::array();
  for (const auto& [file, reason] : opencl.broken_drivers) {
    broken.push_back({{"file", file}, {"reason", reason}});
  }
  return {{"absent", opencl.absent.empty() ? ordered_json() : ordered_json(opencl.absent)},
          {"devices", devices},
          {"broken_drivers", broken},
          {"programs", opencl.programs}};
}

}  // namespace

Findings find_all(const Catalogue& catalogue) {
  Findings findings{targets_of_build(), libraries_of(catalogue), opencl_of(catalogue), {}};
  findings.slowdowns = slowdowns_of(catalogue, findings.opencl);
  return findings;
}

ordered_json findings_json(const Findings& findings) {
  ordered_json targets = ordered_json::array();
  for (const IsaTarget& target : findings.targets) {
    targets.push_back({{"name", target.name}, {"here", target.here}});
  }
  ordered_json libraries = ordered_json::array();
  for (const FoundLibrary& library : findings.libraries) {
    ordered_json environment = ordered_json::object();
    for (const auto& [name, value] : library.environment) environment[name] = value;
    libraries.push_back({{"variant", library.variant},
                         {"absent", text_or_null(library.absent)},
                         {"description", library.description},
                         {"path", library.path},
                         {"environment", environment}});
  }
  ordered_json slowdowns = ordered_json::array();
  for (const Slowdown& slowdown : findings.slowdowns) {
    slowdowns.push_back({{"what", slowdown.what}, {"mend", slowdown.mend}});
  }
  return {{"schema_version", 1},
          {"version", build_version},
          {"build_commit", build_commit},
          {"compiler", build_compiler},
          {"slug", machine_slug()},
          {"machine", machine_json(machine())},
          {"isa_targets", targets},
          {"libraries", libraries},
          {"opencl", opencl_json(findings.opencl)},
          {"slowdowns", slowdowns}};
}

std::string machine_slug() {
  const Machine& m = machine();
  const std::vector<std::string> targets = isa_targets();
  std::string text = fmt::format("{} {} {}c", m.cpu, targets.empty() ? "baseline" : targets.front(),
                                 m.physical_cores);
#ifdef ROOFLANE_HAS_OPENCL
  const auto& devices = opencl::devices();
  if (!devices.empty() && devices.front().kind != opencl::DeviceKind::cpu) {
    text += " " + devices.front().name;
  }
#endif
  for (const std::string_view mark : {"(R)", "(TM)", "(r)", "(tm)"}) {
    for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, mark.size(), " ");
    }
  }
  std::string slug;
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool word = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (word) {
      slug += lower;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  if (slug.ends_with('-')) slug.pop_back();
  return slug;
}

}  // namespace rooflane
