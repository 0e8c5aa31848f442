// RMSNorm: what the variants of this room share. The record and the reference are in reference.cpp.
//
//   ms[r] = sum_j x[r,j]² / cols          y[r,i] = x[r,i] / sqrt(ms[r] + eps) · gamma[i]
//
// x, y: [rows,cols]; gamma: [cols]. (Zhang & Sennrich, arXiv 1910.07467.) LayerNorm without the
// mean. residual=1: x is everywhere x + residual, a second input like it, which is added where the
// row is read; 1 flop an element more, and 2u·|y| to the tolerance. y may be x.
// Values: NaN in a row makes the whole row NaN; an infinity becomes NaN and everything beside it 0;
// a row of zeros is NaN when eps is 0 (0/0). Wherever the result is a number in double, it is one
// here too: if the squares leave float32, the row is computed in double (common/double_row-inl.h).
// Cost: 4 flops an element (square, add; scale, gamma), 8 bytes an element and 4 a column for
// gamma; half of the bytes for float16 and bfloat16 (all tensors have one type; the sums are
// float32). Tolerance: |error| <= (8 + sqrt(cols))·u·|y| + 2^-126, u = 2^-24: roundings of a sum of
// cols terms grow like sqrt(cols), and the root halves them; root, quotient and two products share
// the 8; results below the smallest normal float may be flushed, as OpenCL devices do. Plain
// float32 sums may lose as much again.
//
// hwy: a row that stays in L2 is visited once from memory: squares are summed, then the row is read
// again and written. Past the caches, while a row is summed and the next one prefetched, the row
// before it is written; a long row is shared by all threads; several short rows share a vector.
#pragma once

#include "core/variant.hpp"
