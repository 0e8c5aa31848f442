// The C function of a task: what a source for `rooflane judge` defines unless it is a plugin's
// table. Made from the kernels' own records, so that every kernel and number format has one.
#pragma once

#include <string>
#include <vector>

#include "core/problem.hpp"

namespace rooflane::judge {

struct Argument {
  enum class Kind { tensor, size, number } kind;
  std::string name;
  std::string c_type;   // "const float*", "int64_t", "float"
  std::string meaning;  // "[rows,cols] float32"
  std::string dtype;    // of a tensor: its format's name
  bool constant = false;
};

// The function has the kernel's name. Arguments: the kernel's tensors in their documented order
// (inputs const, then outputs), row-major and without gaps; the sizes that the kernel requires, and
// the others that the problem sets; numbers (scale, eps, alpha…) where the problem sets them or
// where they have another default than 0 or 1. Flags and choices are no arguments: the function is
// written for those of the problem.
struct Signature {
  std::string function;
  std::vector<Argument> arguments;

  std::string text() const;  // "void softmax(const float* x, float* y, int64_t rows, int64_t cols)"
  friend bool operator==(const Signature& a, const Signature& b) { return a.text() == b.text(); }
};
Signature signature_of(const Problem& problem);

// The signature with what each argument is, as comments in C.
std::string described_signature(const Problem& problem);
// A header with the declaration, for C and C++.
std::string header_of(const Signature& signature);
// The plugin's table around the function, in C, to be compiled with rooflane/variant.h.
std::string table_of(const Signature& signature, bool many_threads);

// The problems with signatures that describe a kernel: the plainest one, and one for each other
// number format that it takes.
std::vector<Problem> described_problems(const Kernel& kernel);

}  // namespace rooflane::judge
