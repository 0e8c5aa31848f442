// The catalogue as Python's lists. See listing.hpp.
#include "python/listing.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "core/kernel.hpp"
#include "core/kernel_names.hpp"
#include "python/request.hpp"

namespace rooflane::python {
namespace {

nb::object default_of(const ParamSpec& param) {
  if (param.required || param.default_from != nullptr) return nb::none();
  if (param.kind == ParamKind::flag) return nb::bool_(param.default_value != 0);
  if (param.kind == ParamKind::size) {
    return nb::int_(static_cast<std::int64_t>(param.default_value));
  }
  if (param.kind == ParamKind::real) return nb::float_(param.default_value);
  return nb::str(print_value(param, param.default_value).c_str());
}

nb::tuple parameter(const ParamSpec& param) {
  nb::list choices;
  for (const std::string& choice : choices_of(param)) choices.append(choice);
  return nb::make_tuple(param.name, name_of(param.kind), param.required, default_of(param),
                        nb::tuple(choices));
}

}  // namespace

nb::list kernels() {
  nb::list all;
  for (const Kernel* kernel : catalogue().kernels()) {
    nb::list parameters, maths;
    for (const ParamSpec& param : kernel->params) parameters.append(parameter(param));
    for (const Math* math : kernel->maths) maths.append(std::string(math->name));
    all.append(
        nb::make_tuple(kernel->name, kernel->summary, nb::tuple(parameters), nb::tuple(maths)));
  }
  return all;
}

nb::list variants() {
  nb::list all;
  for (const CatalogueEntry& entry : catalogue().entries()) {
    const Variant& variant = *entry.variant;
    const auto reason = absent_reason(entry);
    all.append(nb::make_tuple(variant.kernel->name, entry.name, variant.backend->name,
                              std::string(name_of(variant.threads)),
                              reason ? nb::object(nb::str(reason->c_str())) : nb::none()));
  }
  for (const AbsentVariant& absent : catalogue().absent()) {
    all.append(nb::make_tuple(absent.kernel, absent.variant, "", "", absent.reason));
  }
  return all;
}

}  // namespace rooflane::python
