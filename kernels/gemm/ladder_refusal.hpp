// What the rungs of both ladders refuse. See epilogue.hpp.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/error.hpp"
#include "core/variant.hpp"
#include "kernels/gemm/epilogue.hpp"

namespace rooflane::gemm {

// A rung computes the product alone: throws Error(unavailable) where more is asked for.
inline void require_no_epilogue(const Problem& problem, const Tuning& step) {
  const std::string text = epilogue_text(problem);
  if (text.empty()) return;
  throw unavailable_error(
      fmt::format("{}: {}: rungs of the ladder compute the product alone", step.text(), text));
}

}  // namespace rooflane::gemm
