// The units of AVX-512 and AMX. `amx`, too, multiplies few rows of a by vectors, with b as it lies:
// every CPU with tiles has these instructions.
#pragma once

#include <cstdint>

#include "core/variant.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

inline constexpr std::int64_t skinny_rows = 8;  // at most

template <class Element>
inline constexpr std::int64_t lane_elements = word_bytes /
                                              static_cast<std::int64_t>(sizeof(Element));

// avx512.cpp
Unit avx512_bfloat16_unit();
Unit avx512_integer_unit();     // a is unsigned
FewRows avx512_few_bfloat16();  // vdpbf16ps
FewRows avx512_few_integers();  // vpdpbusd
// avx512_blocks.cpp: of a b in blocks.
Unit avx512_block_unit(const Problem& problem);
// amx.cpp
Unit amx_unit(const Problem& problem, const Environment& env);

}  // namespace rooflane::gemm
