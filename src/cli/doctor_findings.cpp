// Facts of machine, libraries and devices, and what slows them down. See doctor_findings.hpp.
#include "cli/doctor_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backends/highway.hpp"
#include "cli/build_facts.hpp"
#include "cli/traits_text.hpp"
#include "cli/tuned_text.hpp"
#include "core/machine.hpp"
#include "io/json.hpp"
#include "measure/hardware_counters.hpp"

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
    const Libraries* functions = entry.variant->backend->libraries;
    if (functions == nullptr || !seen.insert(entry.name).second) continue;
    FoundLibrary& library =
        libraries.emplace_back(FoundLibrary{entry.name, absent_reason(entry), "", "", {}});
    if (library.absent) continue;
    const LibraryFacts opened = functions->open(entry.library);
    library.description = opened.description;
    library.path = opened.path;
    library.environment = functions->best_environment(entry.library);
  }
  return libraries;
}

std::vector<FoundDevices> device_backends() {
  std::vector<FoundDevices> found;
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    const Devices& functions = *backend->devices;
    FoundDevices& here =
        found.emplace_back(FoundDevices{backend->name, functions.title, {}, {}, {}});
    for (int i = 0; i < functions.count(); ++i) {
      FoundDevice& device =
          here.devices.emplace_back(FoundDevice{functions.facts(i), functions.failure(i), {}});
      if (!device.failure) device.features = functions.features(i);
    }
    here.failed_drivers = functions.failed_drivers();
    here.programs = functions.kept_programs();
  }
  return found;
}

std::vector<AbsentVariant> absent_of_build(const Catalogue& catalogue) {
  std::vector<AbsentVariant> absent;
  std::set<std::string> seen;
  for (const AbsentVariant& variant : catalogue.absent()) {
    if (seen.insert(variant.reason).second) absent.push_back(variant);
  }
  return absent;
}

// What slows this machine down; drivers that cannot be used first.
std::vector<Slowdown> slowdowns_of(const Catalogue& catalogue,
                                   const std::vector<FoundDevices>& backends) {
  std::vector<Slowdown> slowdowns;
  for (const FoundDevices& backend : backends) {
    for (const FailedDriver& driver : backend.failed_drivers) {
      slowdowns.push_back(
          {fmt::format("the {} driver {} {} ({}): its devices are absent", backend.title,
                       driver.file, driver.fault, driver.reason),
           "clinfo   # shows it; install the driver again or another release, or remove its file "
           "from /etc/OpenCL/vendors"});
    }
  }
  for (Slowdown& slowdown : slowdowns_here(catalogue)) slowdowns.push_back(std::move(slowdown));
  for (const FoundDevices& backend : backends) {
    const bool explained = std::any_of(slowdowns.begin(), slowdowns.end(), [&](const Slowdown& s) {
      return s.what.find(backend.title) != std::string::npos;
    });
    if (!backend.devices.empty() || explained) continue;
    slowdowns.push_back({fmt::format("no {} device is found, although a driver is installed: the "
                                     "driver is broken, or it has no access to the card",
                                     backend.title),
                         "clinfo   # shows the driver's answer; this user needs access to /dev/dri "
                         "and /dev/nvidia*"});
  }
  return slowdowns;
}

using nlohmann::ordered_json;

ordered_json text_or_null(const std::optional<std::string>& text) {
  return text ? ordered_json(*text) : ordered_json();
}

ordered_json devices_json(const FoundDevices& backend) {
  ordered_json devices = ordered_json::array();
  for (std::size_t i = 0; i < backend.devices.size(); ++i) {
    const auto& [facts, failure, features] = backend.devices[i];
    devices.push_back({{"index", i},
                       {"kind", facts.kind},
                       {"name", facts.name},
                       {"platform", facts.platform},
                       {"driver", facts.driver},
                       {"compute_units", facts.compute_units},
                       {"global_bytes", facts.global_bytes},
                       {"local_bytes", facts.local_bytes},
                       {"unusable", text_or_null(failure)},
                       {"features", features}});
  }
  ordered_json broken = ordered_json::array();
  for (const auto& [file, reason, fault] : backend.failed_drivers) {
    broken.push_back({{"file", file}, {"fault", fault}, {"reason", reason}});
  }
  return {{"backend", backend.backend},
          {"devices", devices},
          {"broken_drivers", broken},
          {"programs", backend.programs}};
}

}  // namespace

Findings find_all(const Catalogue& catalogue) {
  Findings findings{targets_of_build(),
                    libraries_of(catalogue),
                    device_backends(),
                    absent_of_build(catalogue),
                    {},
                    {},
                    {},
                    {}};
  const HardwareCounters counters;
  findings.counters = counters.names();
  findings.counters_absent = counters.absent();
  findings.slowdowns = slowdowns_of(catalogue, findings.device_backends);
  findings.unused = unused_entries(tuned_source(), catalogue);
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
  ordered_json backends = ordered_json::array();
  for (const FoundDevices& backend : findings.device_backends) {
    backends.push_back(devices_json(backend));
  }
  ordered_json absent = ordered_json::array();
  for (const AbsentVariant& variant : findings.absent) {
    absent.push_back({{"variant", variant.variant}, {"reason", variant.reason}});
  }
  ordered_json slowdowns = ordered_json::array();
  for (const Slowdown& slowdown : findings.slowdowns) {
    slowdowns.push_back({{"what", slowdown.what}, {"mend", slowdown.fix}});
  }
  const std::string isa = isa_targets().front();
  return {{"schema_version", 1},
          {"version", build_version},
          {"build_commit", build_commit},
          {"compiler", build_compiler},
          {"slug", machine_slug()},
          {"machine", machine_json(machine())},
          {"isa_targets", targets},
          {"traits", traits_json(traits_source(), isa, traits(isa, machine().physical_cores))},
          {"tuned", tuned_json(tuned_source(), findings.unused)},
          {"libraries", libraries},
          {"device_backends", backends},
          {"absent", absent},
          {"slowdowns", slowdowns},
          {"counters", findings.counters},
          {"counters_absent", text_or_null(findings.counters_absent)}};
}

std::string machine_slug() {
  const Machine& m = machine();
  const std::vector<std::string> targets = isa_targets();
  std::string text = fmt::format("{} {} {}c", m.cpu, targets.empty() ? "baseline" : targets.front(),
                                 m.physical_cores);
  for (const Backend* backend : all_backends()) {
    const Devices* devices = backend->devices;
    if (devices == nullptr || devices->count() == 0 || devices->facts(0).is_cpu) continue;
    text += " " + devices->facts(0).name;
    break;
  }
  return plain_slug(text);
}

std::string plain_slug(std::string text) {
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
