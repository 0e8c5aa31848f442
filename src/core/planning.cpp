// From names and text to a plan. See planning.hpp.
#include "planning.hpp"

#include <fmt/format.h>

#include "core/shape_log.hpp"
#include "error.hpp"

namespace rooflane {

std::unique_ptr<Plan> plan_by_name(const Catalogue& catalogue, const Problem& problem,
                                   const PlanOptions& options, const Operands& constants) {
  const CatalogueEntry& entry = catalogue.variant(problem.kernel(), options.variant);
  if (const auto reason = absent_reason(entry)) {
    throw unavailable_error(fmt::format("{}: {}", entry.name, *reason));
  }
  if (options.threads < 1) {
    throw argument_error(fmt::format("threads: {}: allowed: from 1", options.threads));
  }
  Environment environment;
  environment.threads = options.threads;
  environment.device = options.device;
  environment.math = math_for(problem, catalogue.math(options.math));
  environment.isa = options.isa;
  environment.library = options.library.empty() ? entry.library : options.library;
  if (const auto reason = refusal(*entry.variant, problem, environment)) {
    throw unavailable_error(fmt::format("{}: {}", entry.name, *reason));
  }
  const Tuning tuning = parse_tuning(*entry.variant, options.tuning);
  log_shape(problem);
  return make_plan(*entry.variant, problem, tuning, environment, constants);
}

}  // namespace rooflane
