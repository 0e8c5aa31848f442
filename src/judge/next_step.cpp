// What to try next. See judge.hpp.
#include <fmt/format.h>

#include "judge/judge.hpp"

namespace rooflane::judge {

std::string next_step(const Judgement& judgement) {
  // Per cent of memory's roof, which a kernel that moves each element five times still reaches.
  constexpr double few_passes = 20;
  std::string next;
  const Build& built = judgement.build;
  if (judgement.verdict == Verdict::build) {
    next = "Fix what the compiler says first.";
  } else if (judgement.verdict == Verdict::crash) {
    next = "Run the source under the address sanitizer at the shape named.";
  } else if (judgement.verdict == Verdict::timeout) {
    next = "Look for a loop without end, or threads that wait for each other.";
  } else if (judgement.first_wrong) {
    next = fmt::format("Correct {}[{},{}] at {} first: nothing is timed before.",
                       judgement.first_wrong->tensor, judgement.first_wrong->row,
                       judgement.first_wrong->col, judgement.first_wrong->shape);
  } else if (!is_right(judgement.verdict) && !judgement.cheat) {
    next = "Take the problem, or name another with --shape: the reason says what fails.";
  } else if (!is_right(judgement.verdict)) {
    next = "Compute the outputs from the inputs of each call.";
  } else if (!judgement.shapes.empty()) {
    const ShapeFigures& shape = judgement.shapes.front();
    const double share = shape.row.roof_pct.value_or(0);
    const bool vectors = judgement.hot_loop && judgement.hot_loop->width_bits > 128;
    if (share > 90) {
      next = fmt::format("At {:.0f} % of the roof little is left: try another shape.", share);
    } else if (judgement.hot_loop && !judgement.hot_loop->calls_math.empty()) {
      next = fmt::format("The hot loop calls {} for each element: inline a vector form of it.",
                         judgement.hot_loop->calls_math);
    } else if (judgement.hot_loop && judgement.hot_loop->calls > 0) {
      next = "The hot loop calls a function: inline it, or use a vector form of it.";
    } else if (!vectors && !built.not_vectorised.empty()) {
      next = "The compiler did not vectorise: " + built.not_vectorised.front() + ".";
    } else if (!vectors && judgement.hot_loop) {
      next =
          "The hot loop has no vectors wider than 128 bits: use intrinsics, or loops that the "
          "compiler vectorises.";
    } else if (vectors && judgement.hot_loop->spills > 0) {
      next = fmt::format("The hot loop moves {} vectors to or from the stack: use fewer registers.",
                         judgement.hot_loop->spills);
    } else if (vectors && judgement.hot_loop->gathers > 0) {
      next = "The hot loop gathers single elements: change the order in which it reads.";
    } else if (shape.row.bound == "memory" && share < few_passes) {
      next = fmt::format(
          "At {:.0f} % of what memory allows, computing probably takes the time: {}fewer "
          "instructions for each element.",
          share, vectors ? "" : "use vectors, and ");
    } else if (shape.row.bound == "memory") {
      next = fmt::format("At {:.0f} % of what memory allows: read and write each element once.",
                         share);
    } else {
      next = fmt::format(
          "At {:.0f} % of the peak of multiply-adds: keep more independent sums in "
          "registers.",
          share);
    }
  }
  return next;
}

}  // namespace rooflane::judge
