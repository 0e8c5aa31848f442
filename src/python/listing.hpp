// What there is, for Python: kernels with their parameters, variants with why they are absent.
#pragma once

#include <nanobind/nanobind.h>

namespace rooflane::python {

namespace nb = nanobind;

// (name, summary, parameters, maths) of each kernel; a parameter is (name, kind, required, default
// or None, choices), its default a number or, of choices and chains, text.
nb::list kernels();
// (kernel, name, backend, threads, why it is absent or None) of each variant. Opens the libraries
// and drivers that variants need.
nb::list variants();

}  // namespace rooflane::python
