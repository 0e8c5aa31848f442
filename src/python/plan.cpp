// Plans as Python holds them. See plan.hpp; compute.cpp keeps plans between calls.
#include "python/plan.hpp"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.hpp"
#include "core/kernel_names.hpp"

namespace rooflane::python {
namespace {

std::vector<Array> arrays_for(const Problem& problem, const nb::dict& named) {
  std::vector<Array> arrays;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    const char* const name = tensor.name.c_str();
    if (!named.contains(name)) continue;
    arrays.push_back(
        array_of(tensor.name, named[name], is_written(tensor.role) ? Access::write : Access::read));
  }
  for (const auto& [key, object] : named) {  // an unknown one is refused by operands_of
    const auto name = nb::cast<std::string>(key);
    if (find_array(arrays, name) == nullptr) {
      arrays.push_back(array_of(name, object, Access::read));
    }
  }
  return arrays;
}

}  // namespace

BoundPlan::BoundPlan(const Problem& problem, std::unique_ptr<Plan> plan)
    : problem_(problem), plan_(std::move(plan)) {}

void BoundPlan::bind(const nb::dict& arrays) { bind(arrays_for(problem_, arrays)); }

void BoundPlan::bind(std::vector<Array> arrays) {
  const Operands operands =
      operands_of(problem_, arrays, [](Role role) { return role != Role::constant; });
  {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    plan_->bind(operands);
    arrays_.swap(arrays);
    bound_ = true;
  }
}  // the arrays before are let go of here, with the GIL

void BoundPlan::unbind() {
  std::vector<Array> arrays;
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  arrays_.swap(arrays);
  bound_ = false;
}

void BoundPlan::run_bound() {
  if (!bound_) throw argument_error("plan: no arrays are bound: call bind first");
  plan_->upload();
  plan_->run();
  plan_->download();
}

void BoundPlan::run() {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  run_bound();
}

double BoundPlan::time_runs(std::int64_t runs) {
  if (runs < 1) throw argument_error(fmt::format("runs: {}: allowed: from 1", runs));
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  run_bound();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < runs; ++i) plan_->run();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(runs);
}

nb::dict BoundPlan::facts() const {
  const PlanFacts facts = plan_->facts();
  nb::dict told;
  told["isa"] = facts.isa;
  told["library"] = facts.library;
  told["device"] = facts.device;
  told["driver"] = facts.driver;
  told["path"] = facts.path;
  told["tuning"] = facts.tuning.text();
  told["workspace_bytes"] = facts.workspace_bytes;
  told["packed_bytes"] = facts.packed_bytes;
  return told;
}

nb::list tensors_of(const Problem& problem) {
  nb::list tensors;
  for (const TensorSpec& spec : problem.kernel().tensors(problem)) {
    nb::list shape;
    for (const std::int64_t length : tensor_shape(problem, spec)) shape.append(length);
    if (spec.dtype->block > 1) {  // its array holds bytes
      const std::int64_t elements = tensor_shape(problem, spec).back();
      shape[shape.size() - 1] = spec.dtype->bytes(elements);
    }
    tensors.append(nb::make_tuple(spec.name, name_of(spec.role), std::string(spec.dtype->name),
                                  nb::tuple(shape)));
  }
  return tensors;
}

Problem problem_from(const std::string& kernel, const nb::dict& parameters,
                     const nb::dict& arrays) {
  Problem known = known_problem(catalogue().kernel(kernel), parameters);
  if (arrays.size() == 0) {
    known.check();
    return known;
  }
  std::vector<Array> inputs = arrays_of(arrays, Access::read);
  std::vector<Array> outputs;
  for (const TensorSpec& tensor : known.kernel().tensors(known)) {
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const Array& array) {
      return tensor.role == Role::output && array.name == tensor.name;
    });
    if (found == inputs.end()) continue;
    outputs.push_back(std::move(*found));
    inputs.erase(found);
  }
  return inferred_problem(std::move(known), inputs, outputs);
}

nb::list outputs_like(const Problem& problem, const nb::dict& arrays) {
  const std::vector<NamedShape> shapes = shapes_of(problem, arrays_of(arrays, Access::read));
  nb::list outputs;
  for (const TensorSpec& spec : problem.kernel().tensors(problem)) {
    if (spec.role != Role::output) continue;
    nb::list shape;
    for (const std::int64_t length : output_array_shape(problem, spec, shapes)) {
      shape.append(length);
    }
    outputs.append(nb::make_tuple(spec.name, std::string(spec.dtype->name), nb::tuple(shape)));
  }
  return outputs;
}

void construct(BoundPlan* place, const Problem& problem, const nb::dict& options,
               const nb::dict& constants) {
  const std::vector<Array> arrays = arrays_of(constants, Access::read);
  const Operands operands =
      operands_of(problem, arrays, [](Role role) { return role == Role::constant; });
  const PlanOptions chosen = plan_options(options);
  std::unique_ptr<Plan> plan;
  {
    const nb::gil_scoped_release released;
    plan = plan_by_name(catalogue(), problem, chosen, operands);
  }
  new (place) BoundPlan(problem, std::move(plan));
}

}  // namespace rooflane::python
