// A unit multiplies two micro-panels. Highway's float32 multiply-adds, pmaddwd, vdpbf16ps,
// vpdpbusd with and without a scale for each block of k, AMX tiles. A unit is a record of sizes and
// functions; what is the same for all (blocks, threads, packing, sums that become c) is
// unit_product.hpp and store.hpp. A new unit is one such record and a line in units.cpp.
//
// k is cut into steps of `depth` elements; the last step is padded with zeros. A step of one row or
// column takes `words` words of 32 bits in its micro-panel:
//   B micro-panel  [steps][nr · words], or as many words as the unit says
//   A micro-panel  [steps][rows · words]; its rows are mr, or fewer in the last one
// How a step's words lie is the unit's own affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "core/dtype.hpp"

namespace rooflane::gemm {

inline constexpr std::int64_t word_bytes = 4;

// As the tunable `unit` has them, on every CPU the same.
enum class UnitKind : std::int64_t {
  fma = 0,      // float32 multiply-adds at any ISA target
  pmaddwd = 1,  // pairs of int16, or what an ISA target has instead
  vdpbf16ps = 2,
  vpdpbusd = 3,
  block_vpdpbusd = 4,  // with a scale for each block of k
  amx = 5,
};

// to[rows][nr], float or int32, `to_ld` apart, = (add: sums +) A micro-panel · B micro-panel; only
// the vectors of the first `cols` columns need be right. What is beyond them is left alone where
// `to` may be any part of c (Unit::into_c). Otherwise than with IntoC::whole, `to` is `sums`.
struct MicroCall {
  std::int64_t steps;
  const std::uint32_t *a, *b;
  // An operand is read where it is stored (Unit::a_in_place, b_in_place): words from one row of a
  // to the next, and from one step to the next.
  bool a_in_place, b_in_place;
  std::int64_t a_row, a_step, b_step;
  std::int64_t rows, cols;
  std::uint32_t *sums, *to;
  std::int64_t ld, to_ld;
  bool add;
  // To be fetched while products are formed, by units that have time for it: sums of the next call,
  // mr · nr words (null: they are at hand), and what later calls read of b: cache lines of a
  // micro-panel, or of a b in place the columns beside these.
  const std::uint32_t* next_sums;
  const std::uint32_t* later;
  std::int64_t later_lines;
};

// Vectors along k become a micro-panel, or a piece of one, which begins at a whole step.
struct PackCall {
  DType type;                 // as they are stored
  const std::byte* from;      // element 0 of vector 0
  std::int64_t outer, inner;  // elements from one vector to the next, and along k; one of them is 1
  std::int64_t k;             // elements there are
  std::int64_t count, width;  // vectors there are, and the panel's: the others are zeros
  std::int64_t steps;         // of the piece
  std::uint32_t xor_mask;     // bits of each word that change: s8 becomes u8 + 128
  std::uint32_t* to;
};

// sums[rows][cols] of few rows of a and rows of b as they are stored, along k: each row of b is
// read once for all rows of a.
struct FewRowsCall {
  DType type;              // of b
  const std::uint32_t* a;  // as `pack` left it
  std::int64_t rows;
  const std::byte* b;
  std::int64_t row_bytes;
  std::int64_t k, cols;
  std::uint32_t* sums;
  std::int64_t ld;
  std::int32_t* column_sums;  // of b; null: not asked for
  const std::byte* end;       // of b
};

struct FewRows {
  std::string path;       // the instruction
  std::int64_t limit;     // most rows of a; 0: the unit has no such function
  std::int64_t together;  // `cols` is a multiple of so many
  bool shifts_a;          // s8 a is packed as u8, 128 larger
  std::int64_t (*words)(std::int64_t rows, std::int64_t k);  // that `pack` writes
  void (*pack)(const PackCall&);                             // all rows of a
  void (*multiply)(const FewRowsCall&);
  std::int64_t rows_a_visit = 0;  // rows of a that share a visit of b; 0: all
};

// body(std::integral_constant<int, count>()), of a count from 1 to `most`: a kernel for each.
template <int most, class Body>
void with_constant(std::int64_t count, const Body& body) {
  [&]<int... less>(std::integer_sequence<int, less...>) {
    ((count == less + 1 ? body(std::integral_constant<int, less + 1>()) : void()), ...);
  }
  (std::make_integer_sequence<int, most>());
}

// Which micro-tiles of sums may be c itself.
enum class IntoC {
  none,
  whole,  // of nr columns and all rows of the A micro-panel, for the last block of k
  any,    // nothing beyond the sums is written
};

struct Unit {
  UnitKind kind;
  std::string path;  // the instruction, as rows name it
  std::string isa;   // Highway's target, or empty
  std::int64_t mr, nr;
  std::int64_t depth, words;    // of a step
  std::int64_t b_words;         // of a step of a whole B micro-panel; 0: nr · words
  std::int64_t k_together;      // a block of k is a multiple of so many elements
  bool whole_panels;            // the last A micro-panel, too, has mr rows
  bool a_in_place, b_in_place;  // need not be packed; of b, columns that lie side by side
  bool integers;                // sums are int32
  IntoC into_c;
  bool loads_first;  // products wait for all of their operands: loads overlap nothing
  bool shifts_a;     // s8 a is packed as u8, 128 larger
  // What a becomes before it is packed: bfloat16, to which float32 is rounded, or float32 side by
  // side along k. Math int8-dynamic with a scale for a whole row: int8, or uint8 with 128 added.
  // Null: as it is stored.
  DType a_converted, a_quantised;
  void (*micro)(const MicroCall&);
  void (*pack_a)(const PackCall&);
  void (*pack_b)(const PackCall&);
  // Adds up each of the nr columns of so many steps of a B micro-panel of s8.
  void (*column_sums)(const std::uint32_t* panel, std::int64_t steps, std::int32_t* to);
  FewRows few;
  std::int64_t b_step_words() const { return b_words > 0 ? b_words : nr * words; }
  // Around each task on its thread; null: nothing.
  void (*begin)();
  void (*end)();
  // The unit of c's transpose, where a and b change places; null: it is not formed.
  std::shared_ptr<const Unit> swapped;
};

}  // namespace rooflane::gemm
