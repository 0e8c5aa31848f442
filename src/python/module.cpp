// rooflane._core: the library's plans for Python's arrays. The interface for users, with types and
// help, is in python/rooflane.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/tuned.hpp"
#include "python/listing.hpp"
#include "python/plan.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace rooflane;
using rooflane::python::BoundPlan;

namespace {

// Error becomes ValueError where an argument is wrong, rooflane.errors.Unavailable where this
// machine or build cannot serve it.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::argument) {
      PyErr_SetString(PyExc_ValueError, error.what());
      return;
    }
    const nb::object unavailable = nb::module_::import_("rooflane.errors").attr("Unavailable");
    PyErr_SetString(unavailable.ptr(), error.what());
  }
}

Problem parsed(const std::string& text) {
  return parse_problem(text, python::catalogue().kernels());
}

void define_plan(nb::module_& module) {
  nb::class_<BoundPlan>(module, "Plan")
      .def(
          "__init__",
          [](BoundPlan* plan, const std::string& problem, const nb::dict& options,
             const nb::dict& constants) {
            python::construct(plan, parsed(problem), options, constants);
          },
          "problem"_a, "options"_a, "constants"_a)
      .def("_bind", nb::overload_cast<const nb::dict&>(&BoundPlan::bind), "arrays"_a)
      .def("_facts", &BoundPlan::facts)
      .def("unbind", &BoundPlan::unbind,
           "Lets the arrays go; run() then raises ValueError until bind() is called again.")
      .def(
          "run", &BoundPlan::run,
          "Computes on the bound arrays; returns when the outputs are complete. Raises ValueError\n"
          "when nothing is bound.")
      .def("time_runs", &BoundPlan::time_runs, "runs"_a,
           "Runs so often in a loop of C++; the mean time of a run in ns.")
      .def_prop_ro(
          "problem", [](const BoundPlan& plan) { return plan.problem().text(); },
          "The problem as the command line writes it.");
}

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(translate);
  module.attr("physical_cores") = machine().physical_cores;
  module.attr("version") = ROOFLANE_VERSION;
  module.def("kernels", python::kernels);
  module.def("variants", python::variants);
  module.def(
      "problem",
      [](const std::string& kernel, const nb::dict& parameters, const nb::dict& arrays) {
        return python::problem_from(kernel, parameters, arrays).text();
      },
      "kernel"_a, "parameters"_a, "arrays"_a);
  module.def(
      "tensors", [](const std::string& problem) { return python::tensors_of(parsed(problem)); },
      "problem"_a);
  module.def(
      "outputs",
      [](const std::string& problem, const nb::dict& arrays) {
        return python::outputs_like(parsed(problem), arrays);
      },
      "problem"_a, "arrays"_a);
  module.def("compute", python::compute, "kernel"_a, "inputs"_a, "outputs"_a, "parameters"_a,
             "options"_a, "allocate"_a);
  module.def("forget_plans", python::forget_plans);
  module.def("reread_tuned", reread_tuned);
  define_plan(module);
}
