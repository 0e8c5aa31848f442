// From names and text to a plan: what the C interface and Python share. Who has the objects already
// calls make_plan (variant.hpp).
#pragma once

#include <memory>
#include <string>

#include "catalogue.hpp"

namespace rooflane {

// Empty or zero: the variant's default.
struct PlanOptions {
  std::string variant = "hwy";
  std::string tuning;  // "mc=96,kc=384"; empty: the machine's tuned schedule, else the model's
  std::string math = "fp32";
  std::string isa;
  std::string library;
  int threads = 1;
  int device = 0;
};

// Throws Error: argument for an unknown name, a wrong tuning or threads below 1; unavailable for a
// variant that this machine or build lacks, or that refuses the problem.
std::unique_ptr<Plan> plan_by_name(const Catalogue& catalogue, const Problem& problem,
                                   const PlanOptions& options, const Operands& constants);

}  // namespace rooflane
