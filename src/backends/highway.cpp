// Names and choice of Highway targets. Holds no kernel; the per-target code stands in the files
// that use ROOFLANE_HWY_FUNCTION.
#include "backends/highway.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"

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
std::vector<std::int64_t> runnable() {
  return targets_in(HWY_TARGETS & (hwy::SupportedTargets() | HWY_STATIC_TARGET) &
                    ~of_other_length());
}

// Every target that Highway has a name for on this architecture, generated or not.
bool is_known(std::string_view name) {
  for (int bit = 0; bit < 63; ++bit) {
    const std::string known = hwy::TargetName(std::int64_t{1} << bit);
    if (known != "Unknown" && known == name) return true;
  }
  return false;
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

std::int64_t resolve_isa(std::string_view name) {
  const std::vector<std::int64_t> here = runnable();
  if (name.empty()) return here.front();
  for (std::int64_t target : here) {
    if (isa_name(target) == name) return target;
  }
  const std::vector<std::string> known = generated_isa_targets();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    if (!is_known(name)) throw argument_error(unknown_name("ISA target", name, known));
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
