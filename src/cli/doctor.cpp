// `rooflane doctor`: what this machine offers to each backend, and what slows it down.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "backends/highway.hpp"
#include "cli/build_facts.hpp"
#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/slowdowns.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/json.hpp"

namespace rooflane {
namespace {

void print_line(const std::string& label, const std::string& text) {
  std::cout << fmt::format("{:<14}{}\n", label, text);
}

struct Library {
  std::string variant;
  std::optional<std::string> absent;
  std::string description, path;
  Variables environment;  // what workers run it with
};

struct IsaTarget {
  std::string name;
  bool here = false;  // this CPU has it
};

struct Device {
  DeviceFacts facts;
  std::optional<std::string> failure;  // of a plain kernel: the device is unusable
  std::string features;                // in words; empty where it is unusable
};

// What a backend of this build finds whose variants run on devices.
struct DeviceBackend {
  std::string name, title;
  std::vector<Device> devices;
  std::vector<FailedDriver> failed_drivers;
  std::string programs;  // what the cache of programs on disk holds
};

// What doctor tells, as text and as JSON.
struct Findings {
  std::vector<IsaTarget> targets;
  std::vector<Library> libraries;
  std::vector<DeviceBackend> device_backends;
  std::vector<AbsentVariant> absent;  // what this build lacks, each reason once
  std::vector<Slowdown> slowdowns;
};

std::vector<IsaTarget> targets_of_build() {
  const std::vector<std::string> usable = isa_targets();
  const std::set<std::string> here(usable.begin(), usable.end());
  std::vector<IsaTarget> targets;
  for (const std::string& name : generated_isa_targets()) {
    targets.push_back({name, here.contains(name)});
  }
  return targets;
}

std::vector<Library> libraries_of(const Catalogue& catalogue) {
  std::vector<Library> libraries;
  std::set<std::string> seen;
  for (const CatalogueEntry& entry : catalogue.entries()) {
    const Libraries* functions = entry.variant->backend->libraries;
    if (functions == nullptr || !seen.insert(entry.name).second) continue;
    Library& library =
        libraries.emplace_back(Library{entry.name, absent_reason(entry), "", "", {}});
    if (library.absent) continue;
    const LibraryFacts opened = functions->open(entry.library);
    library.description = opened.description;
    library.path = opened.path;
    library.environment = functions->best_environment(entry.library);
  }
  return libraries;
}

std::vector<DeviceBackend> device_backends() {
  std::vector<DeviceBackend> found;
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    const Devices& functions = *backend->devices;
    DeviceBackend& here =
        found.emplace_back(DeviceBackend{backend->name, functions.title, {}, {}, {}});
    for (int i = 0; i < functions.count(); ++i) {
      Device& device =
          here.devices.emplace_back(Device{functions.facts(i), functions.failure(i), {}});
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
                                   const std::vector<DeviceBackend>& backends) {
  std::vector<Slowdown> slowdowns;
  for (const DeviceBackend& backend : backends) {
    for (const FailedDriver& driver : backend.failed_drivers) {
      slowdowns.push_back(
          {fmt::format("the {} driver {} crashed at start ({}): its devices are absent",
                       backend.title, driver.file, driver.reason),
           "clinfo   # shows it; install the driver anew, or remove its file from "
           "/etc/OpenCL/vendors"});
    }
  }
  for (Slowdown& slowdown : slowdowns_here(catalogue)) slowdowns.push_back(std::move(slowdown));
  for (const DeviceBackend& backend : backends) {
    const bool explained = std::any_of(slowdowns.begin(), slowdowns.end(), [&](const Slowdown& s) {
      return s.what.find(backend.title) != std::string::npos;
    });
    if (!backend.devices.empty() || explained) continue;
    slowdowns.push_back({fmt::format("no {} device is found, though a driver is installed: it is "
                                     "broken or may not use the card",
                                     backend.title),
                         "clinfo   # says what the driver answers; /dev/dri and /dev/nvidia* must "
                         "be open to this user"});
  }
  return slowdowns;
}

void print_machine(const std::vector<IsaTarget>& targets) {
  const Machine& m = machine();
  print_line("rooflane", fmt::format("{} ({}, {})", build_version, build_commit, build_compiler));
  print_line("system", m.os);
  print_line("CPU", m.cpu);
  print_line("cores", fmt::format("{} physical, {} logical CPUs for this process", m.physical_cores,
                                  m.logical_cpus));
  print_line("placement", fmt::format("{}", fmt::join(m.placement, " ")));
  print_line("caches", fmt::format("L1d {}, L2 {} per core; L3 {} as reported; `rooflane ceilings` "
                                   "measures them",
                                   print_bytes(m.l1d_bytes), print_bytes(m.l2_bytes),
                                   print_bytes(m.l3_bytes)));
  print_line("memory", fmt::format("{}, {} available", print_bytes(m.memory_bytes),
                                   print_bytes(available_memory_bytes())));
  std::vector<std::string> names;
  for (const IsaTarget& target : targets) {
    names.push_back(target.here ? target.name : target.name + " (not on this CPU)");
  }
  print_line("ISA targets", join(names, ", "));
}

void print_libraries(const std::vector<Library>& libraries) {
  for (const Library& library : libraries) {
    std::string settings;
    for (const auto& [name, value] : library.environment) {
      settings += fmt::format("; workers run it with {}={}", name, value);
    }
    print_line(library.variant, library.absent ? "absent: " + *library.absent
                                               : fmt::format("{} ({}){}", library.description,
                                                             library.path, settings));
  }
}

void print_devices(const DeviceBackend& backend) {
  for (std::size_t i = 0; i < backend.devices.size(); ++i) {
    const auto& [facts, failure, features] = backend.devices[i];
    print_line(
        fmt::format("{} {}", backend.title, i),
        fmt::format("{} {} ({}; driver {}): {} compute units, {} memory, {} local", facts.kind,
                    facts.name, facts.platform, facts.driver, facts.compute_units,
                    print_bytes(facts.global_bytes), print_bytes(facts.local_bytes)));
    print_line("", failure ? "unusable: a plain kernel: " + *failure : features);
  }
  for (const auto& [file, reason] : backend.failed_drivers) {
    print_line(backend.title, fmt::format("{} is left out: it crashed at start: {}", file, reason));
  }
  if (backend.devices.empty()) print_line(backend.title, "no device");
  print_line("programs", backend.programs);
}

void print_slowdowns(const std::vector<Slowdown>& slowdowns) {
  std::cout << (slowdowns.empty() ? "\nNothing found that slows this machine down.\n"
                                  : "\nWhat slows this machine down, and what mends it:\n");
  for (const Slowdown& slowdown : slowdowns) {
    std::cout << "- " << slowdown.what << "\n    " << slowdown.mend << "\n";
  }
}

// Words of [a-z0-9] joined by '-': CPU model, best ISA target, cores, and the first device
// where it is more than the CPU again. Never the host's name. It names a folder of results/.
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

using nlohmann::ordered_json;

ordered_json text_or_null(const std::optional<std::string>& text) {
  return text ? ordered_json(*text) : ordered_json();
}

ordered_json devices_json(const DeviceBackend& backend) {
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
  for (const auto& [file, reason] : backend.failed_drivers) {
    broken.push_back({{"file", file}, {"reason", reason}});
  }
  return {{"backend", backend.name},
          {"devices", devices},
          {"broken_drivers", broken},
          {"programs", backend.programs}};
}

ordered_json document(const Findings& findings) {
  ordered_json targets = ordered_json::array();
  for (const IsaTarget& target : findings.targets) {
    targets.push_back({{"name", target.name}, {"here", target.here}});
  }
  ordered_json libraries = ordered_json::array();
  for (const Library& library : findings.libraries) {
    ordered_json environment = ordered_json::object();
    for (const auto& [name, value] : library.environment) environment[name] = value;
    libraries.push_back({{"variant", library.variant},
                         {"absent", text_or_null(library.absent)},
                         {"description", library.description},
                         {"path", library.path},
                         {"environment", environment}});
  }
  ordered_json backends = ordered_json::array();
  for (const DeviceBackend& backend : findings.device_backends) {
    backends.push_back(devices_json(backend));
  }
  ordered_json absent = ordered_json::array();
  for (const AbsentVariant& variant : findings.absent) {
    absent.push_back({{"variant", variant.variant}, {"reason", variant.reason}});
  }
  ordered_json slowdowns = ordered_json::array();
  for (const Slowdown& slowdown : findings.slowdowns) {
    slowdowns.push_back({{"what", slowdown.what}, {"mend", slowdown.mend}});
  }
  return {{"schema_version", 1},          {"version", build_version},
          {"build_commit", build_commit}, {"compiler", build_compiler},
          {"slug", machine_slug()},       {"machine", machine_json(machine())},
          {"isa_targets", targets},       {"libraries", libraries},
          {"device_backends", backends},  {"absent", absent},
          {"slowdowns", slowdowns}};
}

void declare(Arguments& arguments) {
  declare_blas(arguments);
  arguments.flag("--slug", "print only this machine's name in results/: CPU, ISA, cores, device");
  arguments.json_output("as JSON");
  arguments.examples({"rooflane doctor", "rooflane doctor --slug", "rooflane doctor --json"});
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  const JsonOutput json(arguments);
  apply_blas(arguments.values("--blas"), catalogue);
  if (arguments.has("--slug")) {
    std::cout << machine_slug() << "\n";
    return 0;
  }
  Findings findings{targets_of_build(),
                    libraries_of(catalogue),
                    device_backends(),
                    absent_of_build(catalogue),
                    {}};
  findings.slowdowns = slowdowns_of(catalogue, findings.device_backends);
  if (!json.replaces_text()) {
    print_machine(findings.targets);
    print_libraries(findings.libraries);
    for (const DeviceBackend& backend : findings.device_backends) print_devices(backend);
    for (const AbsentVariant& variant : findings.absent) {
      print_line(variant.variant, "absent: " + variant.reason);
    }
    print_slowdowns(findings.slowdowns);
  }
  if (json.asked()) json.write(document(findings));
  return 0;
}

}  // namespace

const Verb doctor_verb = {"doctor", "what this machine offers, and what slows it down", declare,
                          run};

}  // namespace rooflane
