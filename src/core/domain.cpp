// Domains of integer tensors. See domain.hpp.
#include "domain.hpp"

#include <fmt/format.h>

#include <limits>

#include "error.hpp"
#include "kernel.hpp"

namespace rooflane {

namespace {

std::int64_t size_of_domain(const Problem& problem, const TensorSpec& tensor) {
  return problem.size(tensor.domain.size);
}

}  // namespace

std::int64_t domain_end(const Problem& problem, const TensorSpec& tensor) {
  const std::int64_t n = size_of_domain(problem, tensor);
  return tensor.domain.kind == IntegerDomain::Kind::counts ? n + 1 : n;
}

void check_domain(const Problem& problem, const TensorSpec& tensor) {
  if (!tensor.domain.limited()) return;
  const std::int64_t n = size_of_domain(problem, tensor);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (n > most) {
    throw argument_error(fmt::format("{}={}: {} holds values up to it as int32, allowed is {}",
                                     tensor.domain.size, n, tensor.name, most));
  }
  double elements = 1;
  for (const std::int64_t size : tensor_shape(problem, tensor)) {
    elements *= static_cast<double>(size);
  }
  if (elements > 0 && domain_end(problem, tensor) < 1) {
    throw argument_error(fmt::format("{}={}: the ids in {} {} would have to be below it",
                                     tensor.domain.size, n, tensor.name,
                                     print_shape(tensor_shape(problem, tensor))));
  }
}

std::string element_name(const std::string& tensor, const View& view, std::int64_t index) {
  Shape place(static_cast<std::size_t>(view.rank));
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    place[static_cast<std::size_t>(axis)] = index % view.shape[axis];
    index /= view.shape[axis];
  }
  return tensor + print_shape(place);
}

void require_in_domain(const Problem& problem, const TensorSpec& tensor, const View& view) {
  if (!tensor.domain.limited() || view.empty()) return;
  const std::int64_t end = domain_end(problem, tensor), cols = view.cols();
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    const std::int64_t value = reinterpret_cast<std::int32_t*>(view.row(i / cols))[i % cols];
    if (value < 0 || value >= end) {
      throw argument_error(fmt::format("{} is {}; allowed are 0 to {} ({}={})",
                                       element_name(tensor.name, view, i), value, end - 1,
                                       tensor.domain.size, problem.size(tensor.domain.size)));
    }
    if (tensor.domain.ascending && value < before) {
      throw argument_error(fmt::format("{} is {} behind {}; allowed are values in ascending order",
                                       element_name(tensor.name, view, i), value, before));
    }
    before = value;
  }
}

}  // namespace rooflane
