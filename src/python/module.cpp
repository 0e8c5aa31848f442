// The Python module rooflane._core.
#include <nanobind/nanobind.h>

NB_MODULE(_core, module) {
  module.def(
      "version", [] { return ROOFLANE_VERSION; }, "The version of the library, as text.");
}
