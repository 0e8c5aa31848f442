// Kernels' parameters and resolved problems as JSON, for `list --json` and a worker's `open`
// request, so that no script parses shapes or repeats a kernel's defaults and costs.
#pragma once

#include <nlohmann/json.hpp>

#include "core/kernel.hpp"

namespace rooflane {

// [{"name":"eps","kind":"real","required":false,"default":1e-05}, ...]: `default` where it is
// constant, `least` of sizes, `choices` of choices.
nlohmann::ordered_json parameters_json(const Kernel& kernel);

// A complete problem: {"kernel","text","parameters":{every name: value},"tensors":[{"name","role",
// "dtype","shape","seed_scale"}],"cost":{"flops","exps","bytes"}}. Tensors are in the kernel's
// order, outputs last; inputs from a seed are multiplied by `seed_scale`. Choices are words.
nlohmann::ordered_json problem_json(const Problem& problem);

}  // namespace rooflane
