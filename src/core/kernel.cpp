// What follows from a kernel's record: array shapes, sizes from arrays. See kernel.hpp.
#include "kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "error.hpp"
#include "text.hpp"

namespace rooflane {

std::int64_t axis_length(const Problem& problem, const Axis& axis) {
  return axis.derived != nullptr ? axis.derived(problem) : axis.times * problem.size(axis.param);
}

Shape tensor_shape(const Problem& problem, const TensorSpec& tensor) {
  Shape shape;
  shape.reserve(tensor.axes.size());
  for (const Axis& axis : tensor.axes) shape.push_back(axis_length(problem, axis));
  return shape;
}

double tensor_bytes(const Problem& problem, const TensorSpec& tensor) {
  double elements = 1;
  for (const Axis& axis : tensor.axes) {
    elements *= static_cast<double>(axis_length(problem, axis));
  }
  return elements / static_cast<double>(tensor.dtype->block) *
         static_cast<double>(tensor.dtype->block_bytes);
}

double operand_bytes(const Problem& problem) {
  double bytes = 0;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    bytes += tensor_bytes(problem, tensor);
  }
  return bytes;
}

double traffic_bytes(const Problem& problem) {
  double bytes = 0;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    bytes += (tensor.role == Role::updated ? 2 : 1) * tensor_bytes(problem, tensor);
  }
  return bytes;
}

double output_roundoff(DType dtype) { return dtype == &float32 ? 0 : dtype->unit_roundoff; }

std::string dtype_text(const Problem& problem) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    const std::string name(tensor.dtype->name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return join(names, "+");
}

const Math* find_math(const Kernel& kernel, std::string_view name) {
  const auto found = std::find_if(kernel.maths.begin(), kernel.maths.end(),
                                  [&](const Math* math) { return math->name == name; });
  return found == kernel.maths.end() ? nullptr : *found;
}

std::optional<std::string> math_defect(const Problem& problem, std::string_view name) {
  const Kernel& kernel = problem.kernel();
  const Math* const math = find_math(kernel, name);
  if (math == nullptr || kernel.math_defect == nullptr) return std::nullopt;
  return kernel.math_defect(problem, *math);
}

std::string math_for(const Problem& problem, const std::string& asked) {
  const Kernel& kernel = problem.kernel();
  if (asked != kernel.maths.front()->name || !math_defect(problem, asked)) return asked;
  const auto fits = std::find_if(kernel.maths.begin(), kernel.maths.end(), [&](const Math* math) {
    return !math_defect(problem, math->name);
  });
  return fits == kernel.maths.end() ? asked : std::string((*fits)->name);
}

namespace {

// Where a size came from, for messages about a disagreement.
struct Origin {
  std::string param;
  std::string where;  // "axis 1 of a [3,4]" or "--params"
  std::int64_t size;
};

class SizeTable {
 public:
  void add(Origin origin) {
    for (const Origin& known : origins_) {
      if (known.param != origin.param || known.size == origin.size) continue;
      throw argument_error(fmt::format("{} is {} by {} but {} by {}", origin.param, known.size,
                                       known.where, origin.size, origin.where));
    }
    origins_.push_back(std::move(origin));
  }
  const std::vector<Origin>& all() const { return origins_; }

 private:
  std::vector<Origin> origins_;
};

std::string axes_text(const TensorSpec& tensor) {
  std::vector<std::string> parts;
  for (const Axis& axis : tensor.axes) {
    parts.push_back(axis.form == Axis::Form::leading ? "..."
                    : axis.times != 1                ? fmt::format("{}{}", axis.times, axis.param)
                                                     : axis.param);
  }
  return fmt::format("[{}]", join(parts, ","));
}

void match_axes(const TensorSpec& tensor, const NamedShape& array, SizeTable& sizes) {
  const auto form = tensor.axes.front().form;
  const std::size_t plain = tensor.axes.size() - (form == Axis::Form::plain ? 0 : 1);
  const std::size_t rank = array.shape.size();
  const bool fits = form == Axis::Form::leading     ? rank >= plain
                    : form == Axis::Form::droppable ? rank == plain || rank == plain + 1
                                                    : rank == plain;
  if (!fits) {
    const std::string rule = form == Axis::Form::leading ? fmt::format("{} or more", plain)
                             : form == Axis::Form::droppable
                                 ? fmt::format("{} or {}", plain, plain + 1)
                                 : fmt::format("{}", plain);
    throw argument_error(fmt::format("{} {} has {} axes, allowed are {}: {}", tensor.name,
                                     print_shape(array.shape), rank, rule, axes_text(tensor)));
  }
  const std::size_t leading = rank - plain;
  if (form != Axis::Form::plain) {
    double product = 1;
    for (std::size_t i = 0; i < leading; ++i) product *= static_cast<double>(array.shape[i]);
    if (product > 0x1p52) {
      throw argument_error(
          fmt::format("{} {} is too large", tensor.name, print_shape(array.shape)));
    }
    sizes.add({tensor.axes.front().param,
               leading == 0
                   ? fmt::format("{} {} without that axis", tensor.name, print_shape(array.shape))
                   : fmt::format("axis 0{} of {} {}",
                                 leading > 1 ? fmt::format(" to {}", leading - 1) : "", tensor.name,
                                 print_shape(array.shape)),
               static_cast<std::int64_t>(product)});
  }
  for (std::size_t i = 0; i < plain; ++i) {
    const Axis& axis = tensor.axes[tensor.axes.size() - plain + i];
    const std::int64_t length = array.shape[leading + i];
    std::string where =
        fmt::format("axis {} of {} {}", leading + i, tensor.name, print_shape(array.shape));
    if (length % axis.times != 0) {
      throw argument_error(fmt::format("{} is {}, allowed are multiples of {}: {}", where, length,
                                       axis.times, axes_text(tensor)));
    }
    sizes.add({axis.param, std::move(where), length / axis.times});
  }
}

std::vector<TensorSpec> inputs_of(const Problem& problem) {
  std::vector<TensorSpec> inputs = problem.kernel().tensors(problem);
  std::erase_if(inputs, [](const TensorSpec& tensor) { return !is_read(tensor.role); });
  return inputs;
}

}  // namespace

Problem infer_problem(const Problem& known, const std::vector<NamedShape>& shapes) {
  const Kernel& kernel = known.kernel();
  const std::vector<TensorSpec> inputs = inputs_of(known);
  std::vector<std::string> names;
  for (const TensorSpec& tensor : inputs) names.push_back(tensor.name);
  for (const NamedShape& array : shapes) {
    if (std::find(names.begin(), names.end(), array.name) == names.end()) {
      throw argument_error(unknown_name(
          fmt::format("input of {} with these parameters", kernel.name), array.name, names));
    }
  }
  SizeTable sizes;
  for (const ParamSpec& param : kernel.params) {
    if (param.kind == ParamKind::size && known.has(param.name)) {
      sizes.add({param.name, "the given parameter", known.size(param.name)});
    }
  }
  for (const TensorSpec& tensor : inputs) {
    const auto array = std::find_if(shapes.begin(), shapes.end(), [&](const NamedShape& shape) {
      return shape.name == tensor.name;
    });
    if (array == shapes.end()) {
      throw argument_error(fmt::format("{} needs input {} {}: it is missing", kernel.name,
                                       tensor.name, axes_text(tensor)));
    }
    match_axes(tensor, *array, sizes);
  }
  Problem problem = known;
  for (const Origin& origin : sizes.all()) {
    try {
      problem.set(origin.param, static_cast<double>(origin.size));
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", origin.where, error.what()));
    }
  }
  problem.check();
  return problem;
}

Shape output_array_shape(const Problem& problem, const TensorSpec& output,
                         const std::vector<NamedShape>& inputs) {
  Shape shape = tensor_shape(problem, output);
  const std::vector<TensorSpec> tensors = inputs_of(problem);
  const auto spec = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
    return tensor.name == output.like;
  });
  const auto like = std::find_if(inputs.begin(), inputs.end(), [&](const NamedShape& input) {
    return input.name == output.like;
  });
  if (like == inputs.end() || output.axes.front().form == Axis::Form::plain) return shape;
  // The one flexible leading axis becomes the leading axes of the array it is like.
  const std::size_t plain = spec->axes.size() - 1;
  Shape result(like->shape.begin(), like->shape.end() - static_cast<std::ptrdiff_t>(plain));
  result.insert(result.end(), shape.begin() + 1, shape.end());
  return result;
}

}  // namespace rooflane
