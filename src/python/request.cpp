// From a call's arguments to a problem. See request.hpp.
#include "python/request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"

namespace rooflane::python {
namespace {

std::string name_of(nb::handle key) { return nb::cast<std::string>(key); }

void set_parameter(Problem& problem, const std::string& name, nb::handle value) {
  if (nb::isinstance<nb::str>(value)) {
    problem.set(name, name_of(value));
  } else if (PyNumber_Check(value.ptr()) != 0) {
    problem.set(name, nb::cast<double>(nb::float_(value)));
  } else {
    throw nb::type_error(fmt::format("{}: a parameter is a number, a bool or a str", name).c_str());
  }
}

bool is_set(const Problem& known, const ParamSpec& param) { return known.has(param.name); }

// The tensors that get their format from this choice, in the order of the kernel's list.
std::vector<std::string> tensors_of(const Problem& known, const ParamSpec& param) {
  Problem first = known, second = known;
  first.set(param.name, param.dtypes.front()->short_name);
  second.set(param.name, param.dtypes.back()->short_name);
  std::vector<std::string> names;
  const std::vector<TensorSpec> tensors = known.kernel().tensors(second);
  for (const TensorSpec& tensor : known.kernel().tensors(first)) {
    const auto other = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
      return spec.name == tensor.name;
    });
    if (other != tensors.end() && other->dtype != tensor.dtype) names.push_back(tensor.name);
  }
  return names;
}

[[noreturn]] void refuse_format(const ParamSpec& param, const Array& array) {
  std::vector<std::string> plain, blocks;
  for (const DType dtype : param.dtypes) {
    (dtype->block == 1 ? plain : blocks)
        .emplace_back(dtype->block == 1 ? dtype->name : dtype->short_name);
  }
  const bool may_be_blocks = array.dtype == &uint8 && !blocks.empty();
  throw argument_error(fmt::format(
      "{} is {}, allowed are {}{}", array.name, array.dtype->name, join(plain, ", "),
      may_be_blocks ? fmt::format("; or bytes of what {} says: {}", param.name, join(blocks, ", "))
                    : std::string()));
}

// Sets a choice of formats to the format of the first array that it decides.
void set_format(Problem& known, const ParamSpec& param, std::span<const Array> inputs,
                std::span<const Array> outputs) {
  for (const std::string& tensor : tensors_of(known, param)) {
    const Array* array = find_array(inputs, tensor);
    if (array == nullptr) array = find_array(outputs, tensor);
    if (array == nullptr) continue;
    const auto same = std::find(param.dtypes.begin(), param.dtypes.end(), array->dtype);
    if (same == param.dtypes.end()) refuse_format(param, *array);
    known.set(param.name, (*same)->short_name);
    return;
  }
}

}  // namespace

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

std::vector<Array> arrays_of(const nb::dict& named, Access access) {
  std::vector<Array> arrays;
  for (const auto& [key, object] : named) {
    if (!object.is_none()) arrays.push_back(array_of(name_of(key), object, access));
  }
  return arrays;
}

const Array* find_array(std::span<const Array> arrays, std::string_view name) {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const Array& array) { return array.name == name; });
  return found == arrays.end() ? nullptr : &*found;
}

Problem known_problem(const Kernel& kernel, const nb::dict& parameters) {
  Problem known(kernel);
  for (const auto& [key, value] : parameters) {
    if (!value.is_none()) set_parameter(known, name_of(key), value);
  }
  return known;
}

Problem inferred_problem(Problem known, std::span<const Array> inputs,
                         std::span<const Array> outputs) {
  const auto params = known.kernel().params;
  for (const ParamSpec& param : params) {
    if (param.kind == ParamKind::flag && !is_set(known, param) &&
        find_array(inputs, param.name) != nullptr) {
      known.set(param.name, 1);
      // A tensor may have the name of a flag that means something else.
      const auto tensors = known.kernel().tensors(known);
      if (std::none_of(tensors.begin(), tensors.end(),
                       [&](const TensorSpec& tensor) { return tensor.name == param.name; })) {
        known.set(param.name, 0);
      }
    }
  }
  for (const ParamSpec& param : params) {
    if (!param.dtypes.empty() && !is_set(known, param)) set_format(known, param, inputs, outputs);
  }
  return infer_problem(known, shapes_of(known, inputs));
}

std::vector<NamedShape> shapes_of(const Problem& problem, std::span<const Array> arrays) {
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  std::vector<NamedShape> shapes;
  for (const Array& array : arrays) {
    const auto spec = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
      return tensor.name == array.name;
    });
    // An array without a tensor is refused by name where sizes are inferred.
    shapes.push_back(
        {array.name, spec == tensors.end() ? array.shape : elements_of(array, spec->dtype)});
  }
  return shapes;
}

Operands operands_of(const Problem& problem, std::span<const Array> arrays, bool (*wanted)(Role)) {
  const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
  std::vector<std::string> names;
  Operands operands;
  for (const TensorSpec& tensor : tensors) {
    if (!wanted(tensor.role)) continue;
    names.push_back(tensor.name);
    const Array* const array = find_array(arrays, tensor.name);
    const Shape shape = tensor_shape(problem, tensor);
    if (array == nullptr) {
      throw argument_error(fmt::format("{} {} is missing", tensor.name, print_shape(shape)));
    }
    const View view = view_of(*array, tensor, shape);
    if (is_read(tensor.role)) require_in_domain(problem, tensor, view);
    operands.set(tensor.name, view);
  }
  for (const Array& array : arrays) {
    if (operands.has(array.name)) continue;
    throw argument_error(
        unknown_name(fmt::format("tensor of {}", problem.text()), array.name, names));
  }
  return operands;
}

PlanOptions plan_options(const nb::dict& options) {
  PlanOptions plan;
  plan.threads = machine().physical_cores;
  for (const auto& [key, value] : options) {
    const std::string name = name_of(key);
    if (value.is_none()) continue;
    if (name == "threads" || name == "device") {
      (name == "threads" ? plan.threads : plan.device) = nb::cast<int>(value);
      continue;
    }
    std::string* const text = name == "variant"   ? &plan.variant
                              : name == "tuning"  ? &plan.tuning
                              : name == "math"    ? &plan.math
                              : name == "isa"     ? &plan.isa
                              : name == "library" ? &plan.library
                                                  : nullptr;
    if (text == nullptr) {
      throw argument_error(unknown_name(
          "option", name, {"variant", "threads", "tuning", "math", "isa", "library", "device"}));
    }
    *text = nb::cast<std::string>(value);
  }
  return plan;
}

}  // namespace rooflane::python
