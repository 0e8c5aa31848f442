// `rooflane doctor`: what this machine offers to each backend, and what slows it down.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iostream>

#include "backends/highway.hpp"
#include "cli/build_facts.hpp"
#include "cli/doctor_findings.hpp"
#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/traits_text.hpp"
#include "cli/tuned_text.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

void print_line(const std::string& label, const std::string& text) {
  std::cout << fmt::format("{:<14}{}\n", label, text);
}

// Orders that come to the same on this machine share an entry.
std::vector<std::pair<std::vector<int>, std::vector<std::string>>> orders_by_placement(
    std::span<const LogicalCpu> cpus) {
  std::vector<std::pair<std::vector<int>, std::vector<std::string>>> found;
  for (const PlacementOrder& order : placement_orders()) {
    const std::vector<int> placement = placed(cpus, order.name);
    auto same = std::find_if(found.begin(), found.end(),
                             [&](const auto& entry) { return entry.first == placement; });
    if (same == found.end()) same = found.insert(found.end(), {placement, {}});
    same->second.emplace_back(order.name);
  }
  return found;
}

void print_machine(const std::vector<IsaTarget>& targets) {
  const Machine& m = machine();
  print_line("rooflane", fmt::format("{} ({}, {})", build_version, build_commit, build_compiler));
  print_line("system", m.os);
  print_line("CPU", m.cpu);
  print_line("cores", fmt::format("{} physical, {} logical CPUs for this process", m.physical_cores,
                                  m.logical_cpus));
  print_line("topology", topology_text(m.cpus));
  for (const auto& [placement, names] : orders_by_placement(m.cpus)) {
    print_line("placement", fmt::format("{} ({})", cpu_list_text(placement), join(names, ", ")));
  }
  print_line("caches", fmt::format("L1d {}, L2 {} per core; L3 {} as reported; `rooflane ceilings` "
                                   "measures them",
                                   print_bytes(m.l1d_bytes), print_bytes(m.l2_bytes),
                                   print_bytes(m.l3_bytes)));
  print_line("memory", fmt::format("{}, {} available", print_bytes(m.memory_bytes),
                                   print_bytes(available_memory_bytes())));
  std::vector<std::string> names;
  for (const IsaTarget& target : targets) {
    names.push_back(target.here ? target.name
                                : fmt::format("{} ({})", target.name, absence_of_isa(target.name)));
  }
  print_line("ISA targets", join(names, ", "));
  if (const std::string absent = absent_isa_targets(); !absent.empty()) print_line("", absent);
  print_line("traits", traits_origin(traits_source(), std::time(nullptr)));
  const std::string summary = traits_summary(traits(isa_targets().front(), m.physical_cores));
  for (const std::string_view line : split(summary, '\n')) print_line("", std::string(line));
  print_line("tuned", tuned_summary(tuned_source(), std::time(nullptr)));
}

void print_libraries(const std::vector<FoundLibrary>& libraries) {
  for (const FoundLibrary& library : libraries) {
    std::string settings;
    for (const auto& [name, value] : library.environment) {
      settings += fmt::format("; workers run it with {}={}", name, value);
    }
    print_line(library.variant, library.absent ? "absent: " + *library.absent
                                               : fmt::format("{} ({}){}", library.description,
                                                             library.path, settings));
  }
}

void print_devices(const FoundDevices& backend) {
  for (std::size_t i = 0; i < backend.devices.size(); ++i) {
    const auto& [facts, failure, features] = backend.devices[i];
    print_line(
        fmt::format("{} {}", backend.title, i),
        fmt::format("{} {} ({}; driver {}): {} compute units, {} memory, {} local", facts.kind,
                    facts.name, facts.platform, facts.driver, facts.compute_units,
                    print_bytes(facts.global_bytes), print_bytes(facts.local_bytes)));
    print_line("", failure ? "unusable; a simple kernel: " + *failure : features);
  }
  for (const auto& [file, reason, fault] : backend.failed_drivers) {
    print_line(backend.title, fmt::format("{} is not used: it {}: {}", file, fault, reason));
  }
  if (backend.devices.empty()) print_line(backend.title, "no device");
  print_line("programs", backend.programs);
}

void print_slowdowns(const std::vector<Slowdown>& slowdowns) {
  std::cout << (slowdowns.empty() ? "\nNothing found that slows this machine down.\n"
                                  : "\nProblems that slow this machine down, and their fixes:\n");
  for (const Slowdown& slowdown : slowdowns) {
    std::cout << "- " << slowdown.what << "\n    " << slowdown.fix << "\n";
  }
}

void declare_doctor(Arguments& arguments) {
  declare_blas(arguments);
  arguments.flag("--slug", "print only this machine's name in results/: CPU, ISA, cores, device");
  arguments.json_output("as JSON");
  arguments.examples({"rooflane doctor", "rooflane doctor --slug", "rooflane doctor --json"});
}

int run_doctor(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  const JsonOutput json(arguments);
  apply_blas(arguments.values("--blas"), catalogue);
  if (arguments.has("--slug")) {
    std::cout << machine_slug() << "\n";
    return 0;
  }
  const Findings findings = find_all(catalogue);
  if (!json.replaces_text()) {
    print_machine(findings.targets);
    for (const std::string& entry : findings.unused) print_line("", "not used: " + entry);
    print_line("counters", findings.counters_absent ? "absent: " + *findings.counters_absent
                                                    : join(findings.counters, ", "));
    print_libraries(findings.libraries);
    for (const FoundDevices& backend : findings.device_backends) print_devices(backend);
    for (const AbsentVariant& variant : findings.absent) {
      print_line(variant.variant, "absent: " + variant.reason);
    }
    print_slowdowns(findings.slowdowns);
  }
  if (json.asked()) json.write(findings_json(findings));
  return 0;
}

}  // namespace

const Verb doctor_verb = {"doctor", "shows what this machine offers, and what slows it down",
                          declare_doctor, run_doctor};

}  // namespace rooflane
