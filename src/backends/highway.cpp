// Names and choice of Highway targets. Holds no kernel; the per-target code stands in the files
// that use ROOFLANE_HWY_FUNCTION.
#include "backends/highway.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"
#include "hwy/targets.h"

#ifndef ROOFLANE_SVE_BITS  // built for another architecture
#define ROOFLANE_SVE_BITS 0
#endif

namespace rooflane {

namespace highway {
const Backend backend = {
    .name = "highway", .takes_isa = true, .isa_named = [](const std::string& name) {
      return isa_name(resolve_isa(name));
    }};
}

namespace {

// Targets that a build with -Disa-targets=all leaves out too.
constexpr std::int64_t disabled_in_all = ROOFLANE_DISABLED_IN_ALL;

// The single targets of a mask. Highway gives better targets lower bits, hence best first.
std::vector<std::int64_t> targets_in(std::int64_t mask) {
  std::vector<std::int64_t> targets;
  for (; mask != 0; mask &= mask - 1) targets.push_back(mask & -mask);
  return targets;
}

// HWY_TARGETS is the same in every file of this build: all are compiled with the same flags.
std::vector<std::int64_t> generated() { return targets_in(HWY_TARGETS); }

// Bits of this machine's SVE vectors as the system has set them, 0 without SVE.
int sve_bits() {
#if defined(__aarch64__) && defined(PR_SVE_GET_VL)
  const int answer = ::prctl(PR_SVE_GET_VL);
  return answer < 0 ? 0 : (answer & PR_SVE_VL_LEN_MASK) * 8;
#else
  return 0;
#endif
}

bool is_sve(std::string_view name) { return name.starts_with("SVE"); }

// Targets that the CPU lacks although it has their instructions: SVE of another length.
std::int64_t of_other_length() {
  std::int64_t mask = 0;
  for (std::int64_t target : generated()) {
    if (is_sve(isa_name(target)) && sve_bits() != ROOFLANE_SVE_BITS) mask |= target;
  }
  return mask;
}

// The static target is what the compiler may use anywhere, so a CPU that runs this line runs it.
// Asked once: Highway asks the CPU each time, which in a virtual machine costs more than many a
// plan.
const std::vector<std::int64_t>& runnable() {
  static const std::vector<std::int64_t> targets =
      targets_in(HWY_TARGETS & (hwy::SupportedTargets() | HWY_STATIC_TARGET) & ~of_other_length());
  return targets;
}

// The target of a name that Highway has on this architecture, generated or not; 0 without one.
std::int64_t known_target(std::string_view name) {
  for (int bit = 0; bit < 63; ++bit) {
    const std::int64_t target = std::int64_t{1} << bit;
    if (name != "Unknown" && isa_name(target) == name) return target;
  }
  return 0;
}

// Whether a build with -Disa-targets=all has a target that this one lacks. Every build has one of
// the two emulations.
bool is_left_out(std::int64_t target) {
  constexpr std::int64_t emulations = HWY_EMU128 | HWY_SCALAR;
  constexpr std::int64_t lacking = HWY_DISABLED_TARGETS & ~disabled_in_all & ~emulations;
  return (target & lacking) != 0 && std::string_view(hwy::TargetName(target)) != "Unknown";
}

std::vector<std::string> names_of(const std::vector<std::int64_t>& targets) {
  std::vector<std::string> names;
  names.reserve(targets.size());
  for (std::int64_t target : targets) names.push_back(isa_name(target));
  return names;
}

}  // namespace

std::vector<std::string> isa_targets() { return names_of(runnable()); }

std::vector<std::string> generated_isa_targets() { return names_of(generated()); }

std::string absence_of_isa(std::string_view name) {
  if (!is_sve(name) || sve_bits() == 0) return "not on this CPU";
  return fmt::format("this CPU's vectors have {} bits: -Dsve_bits={}", sve_bits(), sve_bits());
}

std::string absent_isa_targets() {
  std::vector<std::string> names;
  for (int bit = 0; bit < 63; ++bit) {
    const std::int64_t target = std::int64_t{1} << bit;
    if (is_left_out(target)) names.push_back(isa_name(target));
  }
  if (names.empty()) return "";
  return fmt::format("this build has only {}; -Disa-targets=all adds {}",
                     join(generated_isa_targets(), ", "), join(names, ", "));
}

std::string best_isa_left_out() {
  const std::int64_t here = hwy::SupportedTargets() & ~disabled_in_all;
  return is_left_out(here & -here) ? isa_name(here & -here) : "";
}

std::int64_t resolve_isa(std::string_view name) {
  const std::vector<std::int64_t>& here = runnable();
  if (name.empty()) return here.front();
  for (std::int64_t target : here) {
    if (isa_name(target) == name) return target;
  }
  const std::vector<std::string> known = generated_isa_targets();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const std::int64_t target = known_target(name);
    if (target == 0) throw argument_error(unknown_name("ISA target", name, known));
    if (is_left_out(target)) {
      throw unavailable_error(
          fmt::format("ISA target '{}': this build has only {}; configure with -Disa-targets=all",
                      name, join(known, ", ")));
    }
    throw unavailable_error(fmt::format("ISA target '{}': this build lacks it; it has {}", name,
                                        join(names_of(here), ", ")));
  }
  if (is_sve(name) && sve_bits() != 0) {
    throw unavailable_error(fmt::format(
        "ISA target '{}': this build's vectors have {} bits, this machine's {}: -Dsve_bits={}",
        name, ROOFLANE_SVE_BITS, sve_bits(), sve_bits()));
  }
  throw unavailable_error(fmt::format("ISA target '{}': this CPU lacks it; it has {}", name,
                                      join(names_of(here), ", ")));
}

// Newer versions of Highway name the NEON that every ARMv8 has after what it lacks.
std::string isa_name(std::int64_t target) {
  const std::string name = hwy::TargetName(target);
  return name == "NEON_WITHOUT_AES" ? "NEON" : name;
}

}  // namespace rooflane
