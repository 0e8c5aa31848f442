// Names of CPUs. ARM's numbers: the main ID registers in each core's reference manual, as Linux
// keeps them in arch/arm64/include/asm/cputype.h.
#include "core/cpu_model.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace rooflane {
namespace {

struct Part {
  long implementer, part;
  const char* name;
};
constexpr Part parts[] = {
    {0x41, 0xd03, "Arm Cortex-A53"},     {0x41, 0xd05, "Arm Cortex-A55"},
    {0x41, 0xd07, "Arm Cortex-A57"},     {0x41, 0xd08, "Arm Cortex-A72"},
    {0x41, 0xd0b, "Arm Cortex-A76"},     {0x41, 0xd0c, "Arm Neoverse-N1"},
    {0x41, 0xd40, "Arm Neoverse-V1"},    {0x41, 0xd49, "Arm Neoverse-N2"},
    {0x41, 0xd4f, "Arm Neoverse-V2"},    {0x41, 0xd83, "Arm Neoverse-V3AE"},
    {0x41, 0xd84, "Arm Neoverse-V3"},    {0x41, 0xd8e, "Arm Neoverse-N3"},
    {0x46, 0x001, "Fujitsu A64FX"},      {0x48, 0xd01, "HiSilicon TSV110"},
    {0x51, 0x001, "Qualcomm Oryon"},     {0x61, 0x022, "Apple M1 Icestorm"},
    {0x61, 0x023, "Apple M1 Firestorm"}, {0x61, 0x032, "Apple M2 Blizzard"},
    {0x61, 0x033, "Apple M2 Avalanche"}, {0xc0, 0xac3, "Ampere-1"},
};

std::string name_of(long implementer, long part) {
  for (const Part& each : parts) {
    if (each.implementer == implementer && each.part == part) return each.name;
  }
  return fmt::format("ARM implementer {:#04x} part {:#05x}", implementer, part);
}

}  // namespace

std::string cpu_model(std::istream& cpuinfo) {
  std::string model, board;
  long implementer = -1;
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin == std::string::npos) continue;
    const std::string value = line.substr(begin);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("Model")) board = value;
    const auto number = [&] { return std::strtol(value.c_str(), nullptr, 0); };
    if (line.starts_with("CPU implementer")) implementer = number();
    if (line.starts_with("CPU part")) model = name_of(implementer, number());
  }
  if (!model.empty()) return model;
  return board.empty() ? "unknown CPU" : board;
}

}  // namespace rooflane
