// The record of plain loops. See scalar.hpp.
#include "backends/scalar.hpp"

namespace rooflane::scalar {

const Backend backend = {.name = "scalar", .isa = "baseline"};

}  // namespace rooflane::scalar
