// Verification in a distribution. See distributions.hpp.
#include "measure/distributions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace rooflane {

Problem shrunk(Problem problem, double most) {
  const auto is_large = [&] {
    return std::max(problem.kernel().cost(problem).flops, operand_bytes(problem) / 4) > most;
  };
  while (is_large()) {
    std::vector<std::pair<std::int64_t, const char*>> sizes;
    for (const ParamSpec& param : problem.kernel().params) {
      if (param.kind == ParamKind::size) sizes.emplace_back(problem.size(param.name), param.name);
    }
    std::sort(sizes.rbegin(), sizes.rend());
    const auto halve = [&](const auto& size) {
      Problem smaller = problem;
      try {
        const std::int64_t half = size.first / 2;
        smaller.set(size.second, static_cast<double>(half));
        smaller.check();
      } catch (const Error&) {
        return false;  // heads must stay a multiple of kv_heads, say
      }
      problem = smaller;
      return true;
    };
    if (std::none_of(sizes.begin(), sizes.end(),
                     [&](const auto& size) { return size.first >= 2 && halve(size); })) {
      break;
    }
  }
  return problem;
}

InDistribution verify_in_distribution(Worker& worker, const Case& c, ReferenceFile& references) {
  InDistribution result;
  const Math& math = c.math_record();
  if (const auto defect = distribution_defect(c.problem, math, *c.distribution)) {
    result.left_out = *defect;
    return result;
  }
  if (c.distribution != &uniform && c.tuning.find(step_key)) {
    result.left_out = "a rung of a ladder is for ordinary inputs";
    return result;
  }
  if (!worker.draws(*c.distribution)) {
    result.left_out = "this worker draws uniform inputs only";
    return result;
  }
  const bool is_peer = !worker.open(c).facts.library.empty();
  result.verification = worker.verify(references.path_for(c.problem, c.inputs(), math));
  worker.close();
  Verification& found = result.verification;
  if (c.distribution == &uniform || found.passed()) return result;
  if (is_peer) found.status = Status::inaccurate;
  found.reason = fmt::format("{} inputs: {}", c.distribution->name, found.reason);
  return result;
}

}  // namespace rooflane
