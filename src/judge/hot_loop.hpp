// The hot loop of a built library, from its disassembly: the innermost loop of the kernel's code
// with the most vector instructions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jail/jail.hpp"

namespace rooflane::judge {

struct HotLoop {
  std::string function;
  std::vector<std::string> instructions;
  int width_bits = 0;  // of the widest registers that compute; 0: no vectors
  int spills = 0;      // moves between registers and the stack
  int gathers = 0, calls = 0;
};

// `disassembly`: what objdump -d --no-show-raw-insn prints. Nothing where it holds no loop.
std::optional<HotLoop> hot_loop_in(const std::string& disassembly);
// Disassembles folder/judged.so in the jail. Nothing without objdump.
std::optional<HotLoop> hot_loop_of(jail::Kind kind, const std::string& folder);

}  // namespace rooflane::judge
