// Parameters and problems to JSON. See problem_json.hpp.
#include "measure/problem_json.hpp"

#include "core/kernel_names.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

// As it is written in a shape: sizes and flags are whole numbers, choices and chains words.
ordered_json value_json(const ParamSpec& param, double value) {
  if (param.kind == ParamKind::real) return value;
  const bool in_words = param.kind == ParamKind::choice || param.kind == ParamKind::chain;
  if (in_words) return print_value(param, value);
  return static_cast<std::int64_t>(value);
}

}  // namespace

ordered_json parameters_json(const Kernel& kernel) {
  ordered_json list = ordered_json::array();
  for (const ParamSpec& param : kernel.params) {
    ordered_json item = {
        {"name", param.name}, {"kind", name_of(param.kind)}, {"required", param.required}};
    if (!param.required && param.default_from == nullptr) {
      item["default"] = value_json(param, param.default_value);
    }
    if (param.kind == ParamKind::size) item["least"] = param.least;
    if (const auto words = choices_of(param); !words.empty()) item["choices"] = words;
    list.push_back(std::move(item));
  }
  return list;
}

ordered_json problem_json(const Problem& problem) {
  const Kernel& kernel = problem.kernel();
  ordered_json parameters = ordered_json::object();
  for (const ParamSpec& param : kernel.params) {
    parameters[param.name] = value_json(param, problem.value(param.name));
  }
  ordered_json tensors = ordered_json::array();
  for (const TensorSpec& tensor : kernel.tensors(problem)) {
    ordered_json item = {{"name", tensor.name},
                         {"role", name_of(tensor.role)},
                         {"dtype", name_of(tensor.dtype)},
                         {"shape", tensor_shape(problem, tensor)},
                         {"seed_scale", tensor.seed_scale}};
    const IntegerDomain& domain = tensor.domain;
    if (domain.kind == IntegerDomain::Kind::ids) item["ids_below"] = domain.size;
    if (domain.kind == IntegerDomain::Kind::counts) item["counts_to"] = domain.size;
    if (domain.ascending) item["ascending"] = true;
    tensors.push_back(std::move(item));
  }
  const Cost cost = kernel.cost(problem);
  return {{"kernel", kernel.name},
          {"text", problem.text()},
          {"parameters", parameters},
          {"tensors", tensors},
          {"cost", {{"flops", cost.flops}, {"exps", cost.exps}, {"bytes", cost.bytes}}}};
}

}  // namespace rooflane
