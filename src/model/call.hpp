// Statements that declare a tensor or call a kernel, with the symbols' values at hand.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "model/instance.hpp"

namespace rooflane::model {

// A kernel that takes a tensor, but in no format that it has.
class UnfitFormat : public Error {
 public:
  UnfitFormat(std::string name, const std::string& message)
      : Error(argument_error(message)), tensor(std::move(name)) {}
  std::string tensor;
};

// `KIND NAME [AXIS,...] key=value...`. Throws Error(argument).
Tensor parse_tensor(const Statement& statement, const Symbols& symbols);

// Views of a call by the kernel's names.
using Views = std::vector<std::pair<std::string, Strided>>;
// The call of a kernel with these parameters and a view for each of its tensors. Throws
// Error(argument), UnfitFormat among them.
Call call_of(const Problem& asked, const Views& given, const std::vector<Tensor>& tensors);

// `step NAME KERNEL key=value...`: parameters of the kernel, and a view for each of its tensors.
// Sizes that are not given follow from the shapes of the views, parameters for number formats from
// their formats. A flag with a tensor of its name is set by the tensor's view. Throws
// Error(argument), UnfitFormat among them.
Call parse_call(const Statement& statement, const Symbols& symbols,
                std::span<const Kernel* const> kernels, const std::vector<Tensor>& tensors,
                const std::function<Strided(const std::string& name)>& find);

}  // namespace rooflane::model
