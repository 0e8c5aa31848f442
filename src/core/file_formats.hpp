// Number formats that files hold and no kernel takes. As those of dtype.hpp, in dtype.cpp.
#pragma once

#include "dtype.hpp"

namespace rooflane {

// Like q8_0, q4_0 and q4_1 with integers of 5 bits: the fifth bits come together before the others.
// Source: github.com/ggml-org/ggml, ggml-quants.c (block_q5_0, block_q5_1).
extern const NumberFormat q5_0, q5_1;

}  // namespace rooflane
