// `rooflane doctor`: what this machine offers to each backend, and what slows it down.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "backends/highway.hpp"
#include "cli/build_facts.hpp"
#include "cli/options.hpp"
#include "cli/slowdowns.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

void print_line(const std::string& label, const std::string& text) {
  std::cout << fmt::format("{:<14}{}\n", label, text);
}

void print_machine() {
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
  const std::vector<std::string> usable = isa_targets();
  const std::set<std::string> here(usable.begin(), usable.end());
  std::vector<std::string> targets;
  for (const std::string& name : generated_isa_targets()) {
    targets.push_back(here.contains(name) ? name : name + " (not on this CPU)");
  }
  print_line("ISA targets", join(targets, ", "));
}

void print_libraries(const Catalogue& catalogue) {
  std::set<std::string> seen;
  for (const CatalogueEntry& entry : catalogue.entries()) {
    const Libraries* libraries = entry.variant->backend->libraries;
    if (libraries == nullptr || !seen.insert(entry.name).second) continue;
    if (const auto reason = absent_reason(entry)) {
      print_line(entry.name, "absent: " + *reason);
      continue;
    }
    const LibraryFacts library = libraries->open(entry.library);
    std::string settings;
    for (const auto& [name, value] : libraries->best_environment(entry.library)) {
      settings += fmt::format("; workers run it with {}={}", name, value);
    }
    print_line(entry.name, fmt::format("{} ({}){}", library.description, library.path, settings));
  }
}

// The backends of this build whose variants run on devices.
std::vector<const Devices*> device_backends() {
  std::vector<const Devices*> all;
  for (const Backend* backend : all_backends()) {
    if (backend->devices != nullptr) all.push_back(backend->devices);
  }
  return all;
}

// Drivers that cannot be used, with what to do about them. Opens all of them, which `bench` does
// only when it measures a device.
std::vector<Slowdown> failed_drivers() {
  std::vector<Slowdown> found;
  for (const Devices* devices : device_backends()) {
    for (const FailedDriver& driver : devices->failed_drivers()) {
      found.push_back({fmt::format("the {} driver {} crashed at start ({}): its devices are absent",
                                   devices->title, driver.file, driver.reason),
                       "clinfo   # shows it; install the driver anew, or remove its file from "
                       "/etc/OpenCL/vendors"});
    }
  }
  return found;
}

void print_devices(const Devices& devices) {
  for (int i = 0; i < devices.count(); ++i) {
    const DeviceFacts facts = devices.facts(i);
    print_line(
        fmt::format("{} {}", devices.title, i),
        fmt::format("{} {} ({}; driver {}): {} compute units, {} memory, {} local", facts.kind,
                    facts.name, facts.platform, facts.driver, facts.compute_units,
                    print_bytes(facts.global_bytes), print_bytes(facts.local_bytes)));
    const auto failure = devices.failure(i);
    print_line("", failure ? "unusable: a plain kernel: " + *failure : devices.features(i));
  }
  for (const FailedDriver& driver : devices.failed_drivers()) {
    print_line(devices.title,
               fmt::format("{} is left out: it crashed at start: {}", driver.file, driver.reason));
  }
  if (devices.count() == 0) print_line(devices.title, "no device");
  print_line("programs", devices.kept_programs());
}

// What this build lacks, each reason once.
void print_absent(const Catalogue& catalogue) {
  std::set<std::string> seen;
  for (const AbsentVariant& absent : catalogue.absent()) {
    if (seen.insert(absent.reason).second) {
      print_line(absent.variant, "absent: " + absent.reason);
    }
  }
}

// Words of [a-z0-9] joined by '-': CPU model, best ISA target, cores, and the first device
// where it is more than the CPU again. Never the host's name. It names a folder of results/.
std::string machine_slug() {
  const Machine& m = machine();
  const std::vector<std::string> targets = isa_targets();
  std::string text = fmt::format("{} {} {}c", m.cpu, targets.empty() ? "baseline" : targets.front(),
                                 m.physical_cores);
  for (const Devices* devices : device_backends()) {
    if (devices->count() == 0 || devices->facts(0).is_cpu) continue;
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

void declare(Arguments& arguments) {
  declare_blas(arguments);
  arguments.flag("--slug", "print only this machine's name in results/: CPU, ISA, cores, device");
  arguments.examples({"rooflane doctor", "rooflane doctor --slug"});
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  apply_blas(arguments.values("--blas"), catalogue);
  if (arguments.has("--slug")) {
    std::cout << machine_slug() << "\n";
    return 0;
  }
  print_machine();
  print_libraries(catalogue);
  const std::vector<const Devices*> backends = device_backends();
  for (const Devices* devices : backends) print_devices(*devices);
  print_absent(catalogue);
  const bool has_devices = std::all_of(backends.begin(), backends.end(),
                                       [](const Devices* devices) { return devices->count() > 0; });
  std::vector<Slowdown> slowdowns = failed_drivers();
  for (Slowdown& slowdown : slowdowns_here(catalogue)) slowdowns.push_back(std::move(slowdown));
  const bool explained = std::any_of(slowdowns.begin(), slowdowns.end(), [](const Slowdown& s) {
    return s.what.find("OpenCL") != std::string::npos;
  });
  if (!has_devices && !explained) {
    slowdowns.push_back(
        {"no OpenCL device is found, though a driver is installed: it is broken or "
         "may not use the card",
         "clinfo   # says what the driver answers; /dev/dri and /dev/nvidia* must "
         "be open to this user"});
  }
  std::cout << (slowdowns.empty() ? "\nNothing found that slows this machine down.\n"
                                  : "\nWhat slows this machine down, and what mends it:\n");
  for (const Slowdown& slowdown : slowdowns) {
    std::cout << "- " << slowdown.what << "\n    " << slowdown.mend << "\n";
  }
  return 0;
}

}  // namespace

const Verb doctor_verb = {"doctor", "what this machine offers, and what slows it down", declare,
                          run};

}  // namespace rooflane
