// The plugin's table around an OpenCL kernel: a C program that the judge writes.
#pragma once

#include <string>

#include "judge/signature.hpp"

namespace rooflane::judge {

// `source`: OpenCL C with a kernel of the task's name. Its arguments are those of the C function,
// tensors as `__global` pointers, sizes as `long`. A line of it says how many work-items run:
// `// global: rows*64, 1`, in C over the sizes; another, `// local: 64, 1`, how many make a group.
// Without the first there is one for each of the function's first size. Throws Error(argument) for
// a line that is not a list of such expressions.
// Compiled with COMPILES defined it is a program that writes the device's binary of the source;
// then the table contains that binary: a driver takes most of a second to compile a source, and
// each judgement plans some thirty times, in processes that keep nothing.
inline constexpr const char* opencl_binary = "program.bin";
std::string opencl_table_of(const Signature& signature, const std::string& source);

}  // namespace rooflane::judge
