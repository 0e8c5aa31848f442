// The units of a variant (unit.hpp) and the functions of its record: which units take a problem
// here, the schedules of each, and the choice among all by prediction. `hwy` has every unit,
// `avx512` and `amx` those of their instructions.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/variant.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// A bit for each UnitKind.
using UnitSet = unsigned;
constexpr UnitSet operator|(UnitKind x, UnitKind y) {
  return 1u << static_cast<unsigned>(x) | 1u << static_cast<unsigned>(y);
}
constexpr UnitSet operator|(UnitSet set, UnitKind kind) {
  return set | 1u << static_cast<unsigned>(kind);
}

// For AVX-512 and AMX (units_x86.cpp): why this CPU lacks a unit, and its record. A build without
// them (units_none.cpp) lacks all.
std::optional<std::string> absence_of_x86(UnitKind kind);
Unit x86_unit(UnitKind kind, const Problem& problem, const Environment& env);

inline constexpr UnitSet every_unit = UnitKind::fma | UnitKind::pmaddwd | UnitKind::vdpbf16ps |
                                      UnitKind::vpdpbusd | UnitKind::block_vpdpbusd | UnitKind::amx;
inline constexpr UnitSet units_of_avx512 =
    UnitKind::vdpbf16ps | UnitKind::vpdpbusd | UnitKind::block_vpdpbusd;
inline constexpr UnitSet units_of_amx = UnitSet{} | UnitKind::amx;

// A record with the functions for one of these sets.
template <UnitSet set>
Variant unit_variant(const char* name, const Backend* backend, std::span<const Math* const> maths,
                     std::span<const DType> dtypes);

}  // namespace rooflane::gemm
