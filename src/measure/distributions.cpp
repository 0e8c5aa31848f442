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

std::string reason_not_drawn(Worker& worker, const Case& c) {
  if (c.distribution == &uniform) return {};
  if (const auto defect = distribution_defect(c.problem, c.math_record(), *c.distribution)) {
    return *defect;
  }
  if (c.tuning.find(step_key)) return "a rung of a ladder is for ordinary inputs";
  if (!worker.draws(*c.distribution)) return "this worker draws uniform inputs only";
  return {};
}

Verification in_distribution(Verification found, const Case& c, const PlanFacts& facts) {
  if (c.distribution == &uniform || found.passed()) return found;
  const bool is_peer = !facts.library.empty();
  if (is_peer) found.status = Status::inaccurate;
  found.reason = fmt::format("{} inputs: {}", c.distribution->name, found.reason);
  return found;
}

InDistribution verify_in_distribution(Worker& worker, const Case& c, ReferenceFile& references) {
  InDistribution result;
  result.left_out = reason_not_drawn(worker, c);
  if (!result.left_out.empty()) return result;
  const PlanFacts facts = worker.open(c).facts;
  const std::string reference = references.path_for(c.problem, c.inputs(), c.math_record());
  result.verification = in_distribution(worker.verify(reference), c, facts);
  worker.close();
  return result;
}

}  // namespace rooflane
