// The kernels' own exp in a loop, so that its rate can be measured: what a second of `exps`
// (Cost) is worth. kernels/common/exp_loop.cpp has it.
#pragma once

#include <cstdint>

namespace rooflane {

struct ExpLoop {
  // exp(x), `steps` × exps_per_step times, in registers; the last result.
  float (*run)(std::int64_t steps, float x);
  double exps_per_step;
};

// At a Highway target of this CPU, one of those that resolve_isa gives.
ExpLoop exp_loop(std::int64_t target);

}  // namespace rooflane
