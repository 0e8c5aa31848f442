// Experiments with untrusted code (Backend::untrusted) after a wrong result: what does it do
// instead of its work? Each experiment is repeated until it shows, so that the answer does not
// depend on the moment. A right result needs none.
#pragma once

#include <string>

#include "measure/case.hpp"
#include "measure/verify.hpp"

namespace rooflane {

class Plan;

// How the plan came to a wrong output, as the beginning of a reason: "NAME: what was seen; ", or
// nothing. Names are those of `judge` (judge/cheats.hpp). `was_right`: the same case was right
// before, with other contents. The operands are those that the plan is bound to; inputs are
// afterwards as before. Throws what the plan throws.
std::string how_it_cheats(Plan& plan, OwnedOperands& operands, const Case& c, bool was_right);

}  // namespace rooflane
