// The hot loop of a built library, from its disassembly: the innermost loop that calls a
// mathematical function, or else the one with the most vector instructions, where loops in loops
// count for more.
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
  std::string calls_math;  // "expf": of the mathematical functions that it calls the first
  int depth = 0;           // of the loops around it
};

// folder/judged.so, disassembled in the jail by objdump -d --no-show-raw-insn -C; empty without it.
std::string disassembly_of(jail::Kind kind, const std::string& folder);
// Nothing where a disassembly holds no loop.
std::optional<HotLoop> hot_loop_in(const std::string& disassembly);
// A clock function of the C or C++ library that the code redefines; empty: none.
std::string clock_defined_in(const std::string& disassembly);

}  // namespace rooflane::judge
