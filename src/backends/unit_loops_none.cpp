// For architectures without units of their own for short operands. See unit_loops.hpp.
#include "backends/unit_loops.hpp"

namespace rooflane {

std::span<const UnitLoop> unit_loops() { return {}; }

}  // namespace rooflane
