// Computing in one call. A kind of call is a kernel with parameters, options, and the formats and
// shapes of its arrays; the plans of the kinds last called are kept, so that planning and packing's
// memory are paid once. Several threads that make the same kind of call have a plan each.
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <iterator>
#include <list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"
#include "python/plan.hpp"

namespace rooflane::python {
namespace {

// So many kinds of call: a network's layers have a few dozen.
constexpr std::size_t most_kinds = 64;

struct Kind {
  std::string key;
  Problem problem;
  std::vector<std::pair<TensorSpec, Shape>> outputs;  // with the shapes that callers see
  std::vector<std::unique_ptr<Plan>> idle;
};
using KindPointer = std::shared_ptr<Kind>;

// The kinds by their keys, the last one used first.
class Kinds {
 public:
  KindPointer find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return order_.front();
  }
  void add(const KindPointer& kind) {
    const std::lock_guard lock(mutex_);
    if (places_.contains(kind->key)) return;  // another thread came first
    order_.push_front(kind);
    places_[kind->key] = order_.begin();
    if (order_.size() <= most_kinds) return;
    places_.erase(order_.back()->key);
    order_.pop_back();
  }
  std::unique_ptr<Plan> take(Kind& kind) {
    const std::lock_guard lock(mutex_);
    if (kind.idle.empty()) return nullptr;
    std::unique_ptr<Plan> plan = std::move(kind.idle.back());
    kind.idle.pop_back();
    return plan;
  }
  void give_back(Kind& kind, std::unique_ptr<Plan> plan) {
    const std::lock_guard lock(mutex_);
    kind.idle.push_back(std::move(plan));
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    places_.clear();
    order_.clear();
  }

 private:
  std::mutex mutex_;
  std::list<KindPointer> order_;
  std::unordered_map<std::string, std::list<KindPointer>::iterator> places_;
};

Kinds& kinds() {
  static auto* const all = new Kinds;  // never destroyed: plans may hold a driver's objects
  return *all;
}

void append(std::string& key, const nb::dict& named) {
  for (const auto& [name, value] : named) {
    if (value.is_none()) continue;
    fmt::format_to(std::back_inserter(key), ";{}={}", nb::cast<const char*>(name),
                   nb::repr(value).c_str());
  }
}

void append(std::string& key, const std::vector<Array>& arrays) {
  for (const Array& array : arrays) {
    fmt::format_to(std::back_inserter(key), ";{}:{}", array.name, array.dtype->short_name);
    for (const std::int64_t length : array.shape) {
      fmt::format_to(std::back_inserter(key), ",{}", length);
    }
  }
}

std::vector<std::pair<TensorSpec, Shape>> outputs_of(const Problem& problem,
                                                     const std::vector<Array>& inputs) {
  const std::vector<NamedShape> shapes = shapes_of(problem, inputs);
  std::vector<std::pair<TensorSpec, Shape>> outputs;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (tensor.role == Role::constant) {
      throw argument_error(fmt::format(
          "prepack=1: one call packs nothing beforehand, rooflane.plan(\"{}\", ...) does",
          problem.kernel().name));
    }
    if (tensor.role == Role::output) {
      outputs.emplace_back(tensor, output_array_shape(problem, tensor, shapes));
    }
  }
  return outputs;
}

KindPointer make_kind(const std::string& key, const std::string& kernel, const nb::dict& parameters,
                      const std::vector<Array>& inputs, const std::vector<Array>& outputs) {
  auto kind = std::make_shared<Kind>();
  kind->key = key;
  kind->problem =
      inferred_problem(known_problem(catalogue().kernel(kernel), parameters), inputs, outputs);
  kind->outputs = outputs_of(kind->problem, inputs);
  return kind;
}

// A plan at work, given back whatever happens.
class Borrowed {
 public:
  Borrowed(Kind& kind, std::unique_ptr<Plan> plan) : kind_(kind), plan_(std::move(plan)) {}
  ~Borrowed() { kinds().give_back(kind_, std::move(plan_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Plan* operator->() { return plan_.get(); }

 private:
  Kind& kind_;
  std::unique_ptr<Plan> plan_;
};

void run(Kind& kind, const Operands& operands, const PlanOptions& options) {
  const nb::gil_scoped_release released;
  std::unique_ptr<Plan> plan = kinds().take(kind);
  if (plan == nullptr) plan = plan_by_name(catalogue(), kind.problem, options, {});
  Borrowed borrowed(kind, std::move(plan));
  borrowed->bind(operands);
  borrowed->upload();
  borrowed->run();
  borrowed->download();
}

// The outputs as the caller gets them; their arrays are added to `arrays`.
nb::list take_outputs(const Kind& kind, const nb::dict& given, const nb::callable& allocate,
                      std::vector<Array>& arrays) {
  nb::list results;
  for (const auto& [tensor, shape] : kind.outputs) {
    const nb::str name(tensor.name.c_str());
    nb::object output = given.contains(name) ? nb::object(given[name]) : nb::none();
    if (output.is_none()) {
      nb::list lengths;
      for (const std::int64_t length : shape) lengths.append(length);
      output = allocate(name, nb::tuple(lengths), nb::str(std::string(tensor.dtype->name).c_str()));
    }
    arrays.push_back(array_of(tensor.name, output, Access::write));
    const Shape found = elements_of(arrays.back(), tensor.dtype);
    if (found != shape) {
      throw argument_error(fmt::format("{} is {}, allowed is {}", tensor.name, print_shape(found),
                                       print_shape(shape)));
    }
    results.append(output);
  }
  for (const auto& [key, object] : given) {
    const auto name = nb::cast<std::string>(key);
    if (find_array(arrays, name) != nullptr) continue;
    std::vector<std::string> names;
    for (const auto& output : kind.outputs) names.push_back(output.first.name);
    throw argument_error(
        unknown_name(fmt::format("output of {}", kind.problem.kernel().name), name, names));
  }
  return results;
}

}  // namespace

nb::list compute(const std::string& kernel, const nb::dict& inputs, const nb::dict& outputs,
                 const nb::dict& parameters, const nb::dict& options,
                 const nb::callable& allocate) {
  std::vector<Array> arrays = arrays_of(inputs, Access::read);
  std::string key = kernel;
  append(key, parameters);
  append(key, options);
  append(key, arrays);
  const std::vector<Array> given = arrays_of(outputs, Access::write);
  key += "->";
  for (const Array& array : given) {  // their formats count; shapes follow
    fmt::format_to(std::back_inserter(key), ";{}:{}", array.name, array.dtype->short_name);
  }
  KindPointer kind = kinds().find(key);
  if (kind == nullptr) {
    kind = make_kind(key, kernel, parameters, arrays, given);
    kinds().add(kind);
  }
  nb::list results = take_outputs(*kind, outputs, allocate, arrays);
  const Operands operands = operands_of(kind->problem, arrays, [](Role) { return true; });
  run(*kind, operands, plan_options(options));
  return results;
}

void forget_plans() { kinds().clear(); }

}  // namespace rooflane::python
