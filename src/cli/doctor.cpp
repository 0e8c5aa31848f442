// `rooflane doctor`: what this machine offers to each backend, and what slows it down.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "backends/availability.hpp"
#include "backends/cblas.hpp"
#include "backends/highway.hpp"
#include "cli/build_facts.hpp"
#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/slowdowns.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/json.hpp"
#ifdef ROOFLANE_HAS_OPENCL
#include "backends/opencl.hpp"
#include "backends/opencl_features.hpp"
#include "backends/opencl_programs.hpp"
#endif

namespace rooflane {
namespace {

void print_line(const std::string& label, const std::string& text) {
  std::cout << fmt::format("{:<14}{}\n", label, text);
}

struct Library {
  std::string variant;
  std::optional<std::string> absent;
  std::string description, path;
  std::vector<std::pair<std::string, std::string>> environment;  // what workers run it with
};

struct IsaTarget {
  std::string name;
  bool here = false;  // this CPU has it
};

struct Device {
  int index = 0;
  std::string kind, name, platform, driver;
  int compute_units = 0;
  std::size_t global_bytes = 0, local_bytes = 0;
  std::optional<std::string> failure;  // of a plain kernel: the device is unusable
  std::string features;                // in words; empty where it is unusable
};

struct OpenCl {
  std::string absent;  // why this build knows no device; empty: it looks for them
  std::vector<Device> devices;
  std::vector<std::pair<std::string, std::string>> broken_drivers;  // file, reason
  std::string programs;  // what the cache of programs on disk holds
};

// What doctor tells, as text and as JSON.
struct Findings {
  std::vector<IsaTarget> targets;
  std::vector<Library> libraries;
  OpenCl opencl;
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
    if (std::string_view(entry.variant->backend) != "cblas" || !seen.insert(entry.name).second) {
      continue;
    }
    Library& library =
        libraries.emplace_back(Library{entry.name, absent_reason(entry), "", "", {}});
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

OpenCl opencl_of([[maybe_unused]] const Catalogue& catalogue) {
  OpenCl found;
#ifdef ROOFLANE_HAS_OPENCL
  for (const opencl::DeviceInfo& info : opencl::devices()) {
    Device device{info.index,
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
std::vector<Slowdown> slowdowns_of(const Catalogue& catalogue, const OpenCl& opencl) {
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

void print_opencl(const OpenCl& opencl) {
  if (!opencl.absent.empty()) {
    print_line("OpenCL", opencl.absent);
    return;
  }
  for (const Device& device : opencl.devices) {
    print_line(
        fmt::format("OpenCL {}", device.index),
        fmt::format("{} {} ({}; driver {}): {} compute units, {} memory, {} local", device.kind,
                    device.name, device.platform, device.driver, device.compute_units,
                    print_bytes(device.global_bytes), print_bytes(device.local_bytes)));
    print_line("",
               device.failure ? "unusable: a plain kernel: " + *device.failure : device.features);
  }
  for (const auto& [file, reason] : opencl.broken_drivers) {
    print_line("OpenCL", fmt::format("{} is left out: it crashed at start: {}", file, reason));
  }
  if (opencl.devices.empty()) print_line("OpenCL", "no device");
  print_line("programs", opencl.programs);
}

void print_slowdowns(const std::vector<Slowdown>& slowdowns) {
  std::cout << (slowdowns.empty() ? "\nNothing found that slows this machine down.\n"
                                  : "\nWhat slows this machine down, and what mends it:\n");
  for (const Slowdown& slowdown : slowdowns) {
    std::cout << "- " << slowdown.what << "\n    " << slowdown.mend << "\n";
  }
}

// Words of [a-z0-9] joined by '-': CPU model, best ISA target, cores, and the first OpenCL device
// where it is more than the CPU again. Never the host's name. It names a folder of results/.
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

using nlohmann::ordered_json;

ordered_json text_or_null(const std::optional<std::string>& text) {
  return text ? ordered_json(*text) : ordered_json();
}

ordered_json opencl_json(const OpenCl& opencl) {
  ordered_json devices = ordered_json::array();
  for (const Device& device : opencl.devices) {
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
  Findings findings{targets_of_build(), libraries_of(catalogue), opencl_of(catalogue), {}};
  findings.slowdowns = slowdowns_of(catalogue, findings.opencl);
  if (!json.replaces_text()) {
    print_machine(findings.targets);
    print_libraries(findings.libraries);
    print_opencl(findings.opencl);
    print_slowdowns(findings.slowdowns);
  }
  if (json.asked()) json.write(document(findings));
  return 0;
}

}  // namespace

const Verb doctor_verb = {"doctor", "what this machine offers, and what slows it down", declare,
                          run};

}  // namespace rooflane
