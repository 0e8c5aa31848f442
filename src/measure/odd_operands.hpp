// Operands that a contract allows and a benchmark never has: at any multiple of an element, with
// gaps between rows, with NaN and infinities in them. Anybody's code (Backend::untrusted) is run on
// them.
#pragma once

#include <string>

#include "measure/case.hpp"
#include "measure/verify.hpp"

namespace rooflane {

class Plan;

// How the plan fails on them, as a reason; empty: it does not. The operands are those that it is
// bound to, and is bound to afterwards; they are read and their outputs written. A plan may refuse
// to bind rows with gaps. Throws what the plan throws.
std::string defect_on_odd_operands(Plan& plan, OwnedOperands& operands, const Reference& reference,
                                   const Case& c);

}  // namespace rooflane
