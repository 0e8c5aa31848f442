// The units of AVX-512 and AMX as `units.hpp` asks for them. Their instructions: avx512.cpp,
// avx512_blocks.cpp, amx.cpp.
#include "backends/amx.hpp"
#include "backends/avx512.hpp"
#include "kernels/gemm/avx512_units.hpp"
#include "kernels/gemm/units.hpp"

namespace rooflane::gemm {

std::optional<std::string> absence_of_x86(UnitKind kind) {
  // Asks Linux for the tiles, which each process has to: without it their first use is a SIGILL.
  if (kind == UnitKind::amx) return amx::backend.absent_reason("");
  return avx512::missing_instruction(kind == UnitKind::vdpbf16ps);
}

Unit x86_unit(UnitKind kind, const Problem& problem, const Environment& env) {
  switch (kind) {
    case UnitKind::vdpbf16ps:
      return avx512_bfloat16_unit();
    case UnitKind::block_vpdpbusd:
      return avx512_block_unit(problem);
    case UnitKind::amx:
      return amx_unit(problem, env);
    default:
      return avx512_integer_unit();
  }
}

}  // namespace rooflane::gemm
