// From words to tensors and calls. See call.hpp.
#include "model/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ranges>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::model {
namespace {

// A tebibyte of float32: no machine that runs one process has more.
constexpr double most_elements = 0x1p38;

Tensor::Kind kind_of(const std::string& keyword) {
  if (keyword == "input") return Tensor::Kind::input;
  if (keyword == "weight") return Tensor::Kind::weight;
  if (keyword == "state") return Tensor::Kind::state;
  return keyword == "output" ? Tensor::Kind::output : Tensor::Kind::buffer;
}

Shape parse_shape(const std::string& text, const Symbols& symbols) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    throw argument_error(fmt::format("'{}' is no shape: write [AXIS,...]", text));
  }
  Shape shape;
  double elements = 1;
  for (const std::string& axis : split_list(std::string_view(text).substr(1, text.size() - 2))) {
    shape.push_back(integer_of(axis, symbols));
    if (shape.back() < 0) throw argument_error(fmt::format("axis {} is {}", axis, shape.back()));
    elements *= static_cast<double>(std::max<std::int64_t>(shape.back(), 1));
  }
  if (shape.empty() || shape.size() > View::max_rank) {
    throw argument_error(fmt::format("{} axes, allowed are 1 to {}", shape.size(), View::max_rank));
  }
  if (elements > most_elements) {
    throw argument_error(fmt::format("{} has {:.3g} elements, allowed are {:.3g}",
                                     print_shape(shape), elements, most_elements));
  }
  return shape;
}

double finite_real(const std::string& key, const std::string& text, const Symbols& symbols) {
  const double value = real_of(text, symbols);
  if (std::isfinite(static_cast<float>(value))) return value;
  throw argument_error(fmt::format("{}={}: allowed is a finite number", key, text));
}

// A product by weights keeps the magnitude of its inputs: numbers between -1 and 1 have a third of
// variance 1, and a sum of n products has n times that of one. Vectors are small, as biases are.
void set_default_values(Tensor& tensor, std::optional<std::int64_t> fan) {
  constexpr double vector_scale = 0.1;
  if (tensor.kind != Tensor::Kind::weight) return;
  if (tensor.shape.size() == 1 && !fan) {
    tensor.scale = vector_scale;
  } else {
    const std::int64_t terms = fan.value_or(tensor.shape.back());
    tensor.scale = std::sqrt(3 / static_cast<double>(std::max<std::int64_t>(terms, 1)));
  }
}

// Weights may have any format that holds a matrix, what steps write those that kernels write.
DType parse_format(const std::string& text, const Tensor& tensor) {
  std::vector<DType> allowed = {&float32, &float16, &bfloat16, &int32};
  if (tensor.kind == Tensor::Kind::weight) allowed.insert(allowed.end(), {&q8_0, &q4_0, &q4_1});
  std::string names;
  for (const DType dtype : allowed) {
    if (text == dtype->short_name) {
      if (tensor.shape.back() % dtype->block == 0) return dtype;
      throw argument_error(fmt::format("type={}: the last axis is {}, allowed are multiples of {}",
                                       text, tensor.shape.back(), dtype->block));
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", dtype->short_name);
  }
  throw argument_error(fmt::format("type={}: allowed are {}", text, names));
}

// Rows of the tensors that this one is put together from.
std::vector<std::int64_t> parse_parts(const std::string& text, const Symbols& symbols,
                                      const Tensor& tensor) {
  std::vector<std::int64_t> parts;
  std::int64_t sum = 0;
  for (const std::string_view part : split(text, ',')) {
    parts.push_back(integer_of(std::string(part), symbols));
    if (parts.back() < 0) break;
    sum += parts.back();
  }
  if (tensor.kind == Tensor::Kind::weight && parts.back() >= 0 && sum == tensor.shape.front()) {
    return parts;
  }
  throw argument_error(fmt::format("parts={}: allowed are rows of a weight, {} altogether", text,
                                   tensor.shape.front()));
}

}  // namespace

Tensor parse_tensor(const Statement& statement, const Symbols& symbols) {
  const std::vector<std::string>& words = statement.words;
  if (words.size() < 2) {
    throw argument_error(fmt::format("write `{} NAME [AXIS,...]`", statement.keyword));
  }
  Tensor tensor;
  tensor.kind = kind_of(statement.keyword);
  tensor.line = statement.line;
  tensor.name = substituted(words[0], symbols);
  tensor.shape = parse_shape(words[1], symbols);
  std::optional<double> scale;
  std::optional<std::int64_t> fan;
  const std::vector<std::string> keys = {"type",  "scale", "offset", "fan",
                                         "below", "order", "parts"};
  for (auto word = words.begin() + 2; word != words.end(); ++word) {
    const auto [key, value] = key_and_value(*word);
    if (key == "type") {
      tensor.dtype = parse_format(value, tensor);
    } else if (key == "scale") {
      scale = finite_real(key, value, symbols);
    } else if (key == "offset") {
      tensor.offset = finite_real(key, value, symbols);
    } else if (key == "fan") {
      fan = integer_of(value, symbols);
    } else if (key == "below") {
      tensor.below = integer_of(value, symbols);
      if (tensor.below < 1 || tensor.below > 0x7fffffff) {
        throw argument_error(fmt::format("below={}: allowed is 1 to 2147483647", value));
      }
      tensor.dtype = &int32;
    } else if (key == "parts") {
      tensor.parts = parse_parts(value, symbols, tensor);
    } else if (key == "order") {
      if (value != "ascending") {
        throw argument_error(fmt::format("order={}: allowed is ascending", value));
      }
      tensor.ascending = true;
    } else {
      throw argument_error(unknown_name("key of a tensor", key, keys));
    }
  }
  set_default_values(tensor, fan);
  if (scale) tensor.scale = *scale;
  if (tensor.ascending && tensor.below == 0) {
    throw argument_error("order=ascending is for integers: below=N says which");
  }
  const bool filled = tensor.kind == Tensor::Kind::input || tensor.kind == Tensor::Kind::weight ||
                      tensor.kind == Tensor::Kind::state;
  if (filled && tensor.dtype == &int32 && tensor.below == 0) {
    throw argument_error(fmt::format("{} holds integers: below=N says which", tensor.name));
  }
  return tensor;
}

namespace {

const Kernel& find_kernel(const std::string& name, std::span<const Kernel* const> kernels) {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels) {
    if (kernel->name == name) return *kernel;
    names.emplace_back(kernel->name);
  }
  throw argument_error(unknown_name("kernel", name, names));
}

void set_parameter(Problem& problem, const ParamSpec& param, const std::string& text,
                   const Symbols& symbols) {
  if (problem.has(param.name)) throw argument_error(fmt::format("{} is given twice", param.name));
  switch (param.kind) {
    case ParamKind::choice:
    case ParamKind::chain:
      problem.set(param.name, std::string_view(text));
      return;
    case ParamKind::real:
      problem.set(param.name, real_of(text, symbols));
      return;
    case ParamKind::size:
    case ParamKind::flag:
      problem.set(param.name, static_cast<double>(integer_of(text, symbols)));
      return;
  }
}

// Whether a tensor has the name of the flag that asks for it, as attention's mask: its view says
// both.
bool is_tensor_too(const Kernel& kernel, const ParamSpec& param) {
  if (param.kind != ParamKind::flag) return false;
  Problem asking(kernel);
  asking.set(param.name, 1.0);
  const std::vector<TensorSpec> specs = kernel.tensors(asking);
  return std::any_of(specs.begin(), specs.end(), [&](const TensorSpec& spec) {
    return param.name == std::string_view(spec.name);
  });
}

const Strided* find_view(const Views& given, std::string_view name) {
  for (const auto& [known, view] : given) {
    if (known == name) return &view;
  }
  return nullptr;
}

bool covers(const Strided& view, const Tensor& tensor) {
  if (view.elements() != tensor.elements()) return false;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] > 1 && view.strides[i] == 0) return false;
  }
  return true;
}

// How many of the views are of tensors in another format than the problem says.
std::int64_t unfit_formats(const Problem& problem, const Views& given,
                           const std::vector<Tensor>& tensors) {
  const std::vector<TensorSpec> specs = problem.kernel().tensors(problem);
  return std::ranges::count_if(specs, [&](const TensorSpec& spec) {
    const Strided* const view = find_view(given, spec.name);
    return view != nullptr && tensors[view->tensor].dtype != spec.dtype;
  });
}

// Parameters that choose a number format and are not given follow the tensors, as far as more of
// them fit then: the last first, because one may be the default of those after it.
Problem with_formats(Problem known, const Views& given, const std::vector<Tensor>& tensors) {
  std::int64_t unfit = unfit_formats(known, given, tensors);
  for (const ParamSpec& param : std::views::reverse(known.kernel().params)) {
    if (param.dtypes.empty() || known.has(param.name)) continue;
    for (const DType dtype : param.dtypes) {
      if (unfit == 0) return known;
      Problem trial = known;
      trial.set(param.name, dtype->short_name);
      const std::int64_t left = unfit_formats(trial, given, tensors);
      if (left >= unfit) continue;
      unfit = left;
      known = std::move(trial);
    }
  }
  return known;
}

// Blocks of a format lie whole in each row of a view.
bool keeps_blocks(const Strided& view, DType dtype) {
  if (dtype->block == 1) return true;
  bool whole = view.offset % dtype->block == 0 && view.shape.back() % dtype->block == 0;
  for (std::size_t i = 0; i + 1 < view.strides.size(); ++i) {
    whole = whole && view.strides[i] % dtype->block == 0;
  }
  return whole && view.strides.back() == 1;
}

void require_format(const TensorSpec& spec, const Strided& view, const Tensor& tensor,
                    const Kernel& kernel) {
  if (tensor.dtype != spec.dtype) {
    throw UnfitFormat(tensor.name,
                      fmt::format("{} is {} of {}, {} wants {}", spec.name, tensor.name,
                                  tensor.dtype->name, kernel.name, spec.dtype->name));
  }
  if (!keeps_blocks(view, tensor.dtype)) {
    throw UnfitFormat(tensor.name, fmt::format("{}: the view cuts blocks of {} elements of {}",
                                               spec.name, tensor.dtype->block, tensor.name));
  }
}

}  // namespace

// Sizes and formats from what is read, then every tensor held against them.
Call call_of(const Problem& asked, const Views& given, const std::vector<Tensor>& tensors) {
  const Problem known = with_formats(asked, given, tensors);
  std::vector<NamedShape> shapes;
  std::vector<std::string> names;
  for (const TensorSpec& spec : known.kernel().tensors(known)) {
    names.push_back(spec.name);
    const Strided* view = find_view(given, spec.name);
    if (view == nullptr) {
      throw argument_error(
          fmt::format("{} needs {}=: it is missing", known.kernel().name, spec.name));
    }
    if (is_read(spec.role)) shapes.push_back({spec.name, fitted(*view, spec).shape});
  }
  for (const auto& [name, view] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::vector<std::string> all = names;
    for (const ParamSpec& param : known.kernel().params) all.emplace_back(param.name);
    throw argument_error(
        unknown_name(fmt::format("parameter or tensor of {}", known.kernel().name), name, all));
  }
  Call call;
  call.problem = infer_problem(known, shapes);
  for (const TensorSpec& spec : call.problem.kernel().tensors(call.problem)) {
    const Strided view = fitted(*find_view(given, spec.name), spec);
    const Shape wanted = tensor_shape(call.problem, spec);
    const Tensor& tensor = tensors[view.tensor];
    if (view.shape != wanted) {
      throw argument_error(fmt::format("{} is {}, {} makes it {}", spec.name,
                                       print_shape(view.shape), call.problem.text(),
                                       print_shape(wanted)));
    }
    require_format(spec, view, tensor, call.problem.kernel());
    if (spec.role == Role::constant && tensor.kind != Tensor::Kind::weight) {
      throw argument_error(fmt::format("{} is packed beforehand: it must be a weight, {} is none",
                                       spec.name, tensor.name));
    }
    call.operands.push_back({spec.name, spec.role, view, covers(view, tensor),
                             spec.domain.limited() ? domain_end(call.problem, spec) : 0,
                             spec.domain.ascending});
  }
  return call;
}

Call parse_call(const Statement& statement, const Symbols& symbols,
                std::span<const Kernel* const> kernels, const std::vector<Tensor>& tensors,
                const std::function<Strided(const std::string& name)>& find) {
  const std::vector<std::string>& words = statement.words;
  const Kernel& kernel = find_kernel(words[1], kernels);
  Problem known(kernel);
  Views given;
  for (auto word = words.begin() + 2; word != words.end(); ++word) {
    const auto [key, value] = key_and_value(*word);
    try {
      if (const ParamSpec* param = find_param(kernel, key)) {
        const bool is_view = is_tensor_too(kernel, *param);
        set_parameter(known, *param, is_view ? "1" : value, symbols);
        if (!is_view) continue;
      }
      if (find_view(given, key) != nullptr) throw argument_error("given twice");
      given.emplace_back(key, parse_view(value, symbols, find));
    } catch (const Error& error) {
      throw argument_error(fmt::format("{}: {}", key, error.what()));
    }
  }
  return call_of(known, given, tensors);
}

}  // namespace rooflane::model
