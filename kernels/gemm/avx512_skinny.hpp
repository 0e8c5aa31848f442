// Products of few rows of a with b as it lies, by vectors: what `amx`, too, uses there, as every
// CPU with tiles has these instructions. See avx512.cpp.
#pragma once

#include "kernels/gemm/dot_unit.hpp"

namespace rooflane::gemm {

SkinnyProducts avx512_skinny_bfloat16();  // vdpbf16ps
SkinnyProducts avx512_skinny_integers();  // vpdpbusd: a is unsigned

}  // namespace rooflane::gemm
