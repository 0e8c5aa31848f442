// A plan with the arrays that it works on, as Python holds it; and computing in one call, with
// plans that are kept for the next call of the same kind.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/variant.hpp"
#include "python/request.hpp"

namespace rooflane::python {

class BoundPlan {
 public:
  BoundPlan(const Problem& problem, std::unique_ptr<Plan> plan);

  // Takes arrays for every tensor except constants, and keeps them alive until others take their
  // place. Throws like operands_of and Plan::bind; the earlier arrays then stay bound.
  void bind(const nb::dict& arrays);
  void bind(std::vector<Array> arrays);
  void unbind();
  // Computes without the GIL; from several threads one after the other. Throws Error when nothing
  // is bound.
  void run();

  // The mean time in ns of so many runs, called from here: what run() is measured against.
  double time_runs(std::int64_t runs);

  const Problem& problem() const { return problem_; }
  nb::dict facts() const;

 private:
  void run_bound();  // with the mutex held

  Problem problem_;
  std::unique_ptr<Plan> plan_;
  std::vector<Array> arrays_;
  bool bound_ = false;
  std::mutex mutex_;  // of the plan and the bound arrays; taken without the GIL
};

// What Python knows of a tensor: name, role, dtype, and the shape of its array.
nb::list tensors_of(const Problem& problem);

// Makes the plan of a problem at `place`. `constants`: arrays of the tensors that planning packs.
void construct(BoundPlan* place, const Problem& problem, const nb::dict& options,
               const nb::dict& constants);
// The problem that parameters and arrays of inputs, and of outputs, make.
Problem problem_from(const std::string& kernel, const nb::dict& parameters, const nb::dict& arrays);
// (name, dtype, shape) of each output for these arrays of inputs: with the axes that they have.
nb::list outputs_like(const Problem& problem, const nb::dict& arrays);

// A kernel's outputs from its inputs, in the kernel's order. Those that `outputs` lacks are made by
// `allocate(name, shape, dtype)`. Plans of the last few dozen kinds of call are kept.
nb::list compute(const std::string& kernel, const nb::dict& inputs, const nb::dict& outputs,
                 const nb::dict& parameters, const nb::dict& options, const nb::callable& allocate);
// Frees the plans that are kept and not at work.
void forget_plans();

}  // namespace rooflane::python
