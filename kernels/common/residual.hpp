// residual=1 of the norms: a second input like x that is added to it, what follows it being a
// function of x + r. Who cannot add it says so here.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/variant.hpp"

namespace rooflane::common {

// Nothing where the problem has none.
inline std::optional<std::string> residual_refusal(const Problem& problem) {
  if (!problem.flag("residual")) return std::nullopt;
  return "residual=1: this code has no sum in front of the norm";
}

// For a ladder's rung: throws Error(unavailable) with that reason.
inline void require_no_residual(const Problem& problem, const Tuning& step) {
  if (const auto reason = residual_refusal(problem)) {
    throw unavailable_error(fmt::format("{}: {}", step.text(), *reason));
  }
}

}  // namespace rooflane::common
