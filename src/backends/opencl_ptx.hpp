// Instructions that NVIDIA's OpenCL compiler refuses although the device has them: it compiles for
// sm_90, and wgmma is one of sm_90a. A kernel writes them in inline assembly behind `sm_90a_mark`,
// where they are comments; the PTX that the driver returns is uncovered here and goes back to the
// driver, which assembles it (Context::program). docs/wgmma.md describes it with its pitfalls.
#pragma once

#include <string>
#include <string_view>

namespace rooflane::opencl {

inline constexpr std::string_view sm_90a_mark = "//sm_90a ";

// The PTX with its marked instructions and for the target sm_90a. Throws BuildError if it is not
// PTX for sm_90 (another device, another driver) or has no marked instruction.
std::string uncovered_ptx(std::string_view ptx);

// A warpgroup's product: sums of 64 × `columns` += 64 × 32 bytes times 32 bytes × `columns`,
// operands in local memory, or a in registers.
struct Wgmma {
  int columns;          // a multiple of 8, at most 256
  std::string_view a;   // "f16", "bf16", "s8" or "u8"; b is the same, or s8
  bool a_wide = false;  // rows lie across k, 16-bit formats only
  bool b_wide = false;
  bool a_in_registers = false;
  bool is_integer() const { return a.ends_with("8"); }
  // "wgmma.m64n256k16.f16", the column `path` of a row.
  std::string name() const;
  // NAME(sums, a, b, keep): b is a matrix descriptor, a another one or an item's four registers,
  // and keep=0 makes the sums those of this product alone; NAME_FENCE(sums), before the first
  // product after other instructions have written sums or registers of a; NAME_DONE(sums), before
  // others read them. `sums` is an array of columns / 2 floats or ints, and each macro names all of
  // them, as they must stay in registers.
  std::string macros(std::string_view name = "WGMMA") const;
};

}  // namespace rooflane::opencl
