// A build without the units of AVX-512 and AMX. See units.hpp.
#include "core/error.hpp"
#include "kernels/gemm/units.hpp"

namespace rooflane::gemm {

std::optional<std::string> absence_of_x86(UnitKind) {
  return "built without the units of AVX-512 and AMX";
}

Unit x86_unit(UnitKind kind, const Problem&, const Environment&) {
  throw unavailable_error(*absence_of_x86(kind));
}

}  // namespace rooflane::gemm
