// How the rows of softmax, LayerNorm and RMSNorm are shared among threads, and what their schedules
// say. Holds no arithmetic: that is in row-inl.h and in the rooms. Which schedule is best:
// rows_schedule.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/machine.hpp"
#include "core/variant.hpp"
#include "kernels/common/prefetch.hpp"

namespace rooflane::common {

// Elements of a row that are worked on at a time: x and y of a block are 64 KiB together and stay
// in L2, which every CPU of interest has with 256 KiB or more; x alone stays in a 48 KiB L1.
inline constexpr std::int64_t row_block = 8192;

// Elements after which the work on one row moves to its neighbours: 2 KiB, so that the stores of a
// step (32 lines) fit the store buffer of today's cores (56 to 112 entries) and drain meanwhile.
inline constexpr std::size_t row_step = 512;

// Rows of fewer elements end so often that memory is not what they wait for first (a Sapphire
// Rapids, LayerNorm row by row in steps: 200 elements 3 % slower, 256 6 to 12 % faster).
inline constexpr std::int64_t short_row = 256;

// Elements from one scratch row to the next: whole cache lines, and room to place it.
inline std::size_t scratch_stride(std::size_t cols) { return (cols + 15) / 16 * 16 + 1024; }
// The address in that room that is half a page away from x, modulo pages: a load waits for an older
// store if both addresses end in the same 12 bits.
inline float* scratch_row(float* room, const void* x) {
  const auto away = reinterpret_cast<std::uintptr_t>(x) - reinterpret_cast<std::uintptr_t>(room);
  return room + (away + 2048) % 4096 / 64 * 16;
}

// True when x and y of a row of so many elements stay in L2, so that visiting them again is cheap.
inline bool resident(std::int64_t cols) {
  return cols <= row_block ||
         8.0 * static_cast<double>(cols) <= static_cast<double>(machine().l2_bytes);
}

// True when four rows, two of x and two of terms (softmax) or gamma and beta (LayerNorm), take no
// more than half of L2.
inline bool keeps_four_rows(std::int64_t cols) {
  return 4.0 * sizeof(float) * static_cast<double>(cols) <=
         0.5 * static_cast<double>(machine().l2_bytes);
}

// One thread's least share, for kernels without a cost model: starting threads costs 2 to 6 µs, and
// in that time one core computes about 32 Ki elements of a row kernel in cache.
inline constexpr std::int64_t least_share = 16384;

inline constexpr Tunable row_tunables[] = {
    {"stream", "1: write y with non-temporal stores, past the caches", 0, 1},
    {"split", "1: all threads share each row, 0: each thread takes whole rows", 0, 1},
    {"prefetch",
     "with stream=1: x is prefetched in order into L1 (0), a line from each of four pages in turn "
     "(1) "
     "or in order into L2 (2), where rows of that length can be: else as with 0",
     0, 2},
    {"threads", "threads that share the rows", 1, 1 << 16},
};

enum class Prefetch { into_l1 = 0, pages = 1, into_l2 = 2 };

// The tunable's value.
inline Prefetch prefetch_asked(const Tuning& tuning) {
  return static_cast<Prefetch>(tuning.get("prefetch", 0));
}

// The same, but in order where that is pages and much lies between the rows.
inline Prefetch prefetch_of(const Tuning& tuning, std::int64_t rows, std::int64_t cols,
                            std::int64_t x_stride) {
  const Prefetch asked = prefetch_asked(tuning);
  const bool apart = rows != 1 && x_stride > cols + cols / 8;
  return asked == Prefetch::pages && apart ? Prefetch::into_l1 : asked;
}

// True if three rows (of x, y or scratch) stay in L1.
inline bool keeps_three_rows_in_l1(const Machine& machine, std::int64_t cols) {
  return 3.0 * sizeof(float) * static_cast<double>(cols) <= static_cast<double>(machine.l1d_bytes);
}

// From an element to that of the same column so many rows on that 16 KiB lie between: what memory
// delivers in its own latency of 300 to 450 ns. In bytes, of rows and strides in bytes.
inline std::int64_t prefetch_distance(std::size_t row, std::int64_t stride) {
  return static_cast<std::int64_t>((16384 + row - 1) / row) * stride;
}

// Threads worth starting for so many elements.
inline int useful_threads(int threads, std::int64_t rows, std::int64_t cols) {
  const double shares = static_cast<double>(rows) * static_cast<double>(cols) / least_share;
  return static_cast<int>(std::clamp(shares, 1.0, static_cast<double>(std::max(threads, 1))));
}

// Rows [begin,end).
struct RowRange {
  std::int64_t begin;
  std::int64_t end;
};

// Into how many pieces rows are cut, for body of for_rows.
inline std::int64_t row_pieces(int threads, std::int64_t rows, std::int64_t cols,
                               std::int64_t group) {
  const std::int64_t share = rows * cols / threads;
  const std::int64_t most = std::min(share / 16384, rows / threads / group);
  return std::min(rows, threads * std::clamp<std::int64_t>(most, 1, 8));
}

// body(RowRange, thread) over all rows. A thread's share is handed out in up to eight pieces of at
// least 16384 elements (1 to 4 µs, more than threads are apart at the start), so that a thread that
// was held up is helped out and none is robbed otherwise: rows that change cores cost more than the
// wait. Where the body is better at `group` rows than at fewer, pieces have as many. They begin at
// multiples of 64 rows where rows are shorter than 64 elements, because those are worked on in
// groups, and lines of y are then written by one thread.
template <class Body>
void for_rows(Pool* pool, int threads, std::int64_t rows, std::int64_t cols, std::int64_t group,
              const Body& body) {
  const std::int64_t pieces = row_pieces(threads, rows, cols, group);
  const std::int64_t together = cols < 64 ? 64 : 1;
  const auto start = [&](std::int64_t piece) {
    return piece == pieces ? rows : rows * piece / pieces / together * together;
  };
  parallel_for_static(pool, threads, pieces, [&](std::int64_t piece, int thread) {
    const RowRange range = {start(piece), start(piece + 1)};
    if (range.begin < range.end) body(range, thread);
  });
}

// Columns [begin,end) of part `part` of `parts`, cut at multiples of 16 elements (64 bytes).
struct Slice {
  std::int64_t begin;
  std::int64_t end;
  std::size_t count() const { return static_cast<std::size_t>(end - begin); }
};
inline Slice slice_of_row(std::int64_t cols, int part, int parts) {
  const std::int64_t lines = (cols + 15) / 16;
  return {std::min(cols, lines * part / parts * 16),
          std::min(cols, lines * (part + 1) / parts * 16)};
}

// x and y of a row kernel: [rows,cols] with row strides in elements.
template <class T>
struct TypedRows {
  const T* x = nullptr;
  std::int64_t x_stride = 0;
  T* y = nullptr;
  std::int64_t y_stride = 0;

  TypedRows() = default;
  explicit TypedRows(const Operands& operands)
      : x(operands.at("x").as<T>()),
        x_stride(operands.at("x").strides[0]),
        y(operands.at("y").as<T>()),
        y_stride(operands.at("y").strides[0]) {}
};

using RowOperands = TypedRows<float>;

// Operands of hwy's row kernels, of any type, strides in elements. If `summed`, row r is
// factor · x[r] + added[r mod added_rows]; `added`, [added_rows,cols], may be null.
struct AnyRows {
  const void* x = nullptr;
  std::int64_t x_stride = 0;
  void* y = nullptr;
  std::int64_t y_stride = 0;
  bool summed = false;
  float factor = 1;
  const void* added = nullptr;
  std::int64_t added_stride = 0, added_rows = 1;
  const float *gamma = nullptr, *beta = nullptr;  // of a norm

  AnyRows() = default;
  // `added_name`: null for none.
  AnyRows(const Operands& operands, bool is_summed, double scale, const char* added_name)
      : x(operands.at("x").data),
        x_stride(operands.at("x").strides[0]),
        y(operands.at("y").data),
        y_stride(operands.at("y").strides[0]),
        summed(is_summed),
        factor(static_cast<float>(scale)) {
    if (added_name == nullptr) return;
    const View& view = operands.at(added_name);
    added = view.data;
    added_stride = view.strides[0];
    added_rows = std::max<std::int64_t>(view.rows(), 1);
  }
};

// A row of factor · x + added, from element `at` on.
template <class T>
struct SummedRow {
  const T* x;
  const T* added;  // null: nothing is added
  float factor;
  std::size_t at = 0;

  SummedRow operator+(std::size_t i) const { return {x, added, factor, at + i}; }
  // The address of x, for prefetches.
  operator const void*() const { return x + at; }  // NOLINT(google-explicit-constructor)
  float operator[](std::size_t i) const {
    const float scaled = factor * static_cast<float>(x[at + i]);
    return added == nullptr ? scaled : scaled + static_cast<float>(added[at + i]);
  }
};

// Operands as the loops over an element type take them. A row is a pointer to its elements, or,
// kSummed, what is used like one.
template <class T, bool kSummed>
struct RowsOf {
  using Element = T;
  using Row = std::conditional_t<kSummed, SummedRow<T>, const T*>;
  static constexpr bool is_summed = kSummed;
  // Whether x and y are float32 as they are: several short rows of those share a vector.
  static constexpr bool is_plain = !kSummed && std::is_same_v<T, float>;

  const T* x = nullptr;
  std::int64_t x_stride = 0;
  T* y = nullptr;
  std::int64_t y_stride = 0;
  const float *gamma = nullptr, *beta = nullptr;
  const T* added = nullptr;
  std::int64_t added_stride = 0, added_rows = 1;
  float factor = 1;

  RowsOf() = default;
  explicit RowsOf(const AnyRows& any)
      : x(static_cast<const T*>(any.x)),
        x_stride(any.x_stride),
        y(static_cast<T*>(any.y)),
        y_stride(any.y_stride),
        gamma(any.gamma),
        beta(any.beta),
        added(static_cast<const T*>(any.added)),
        added_stride(any.added_stride),
        added_rows(any.added_rows),
        factor(any.factor) {}

  Row x_row(std::int64_t row) const {
    const T* at = x + row * x_stride;
    if constexpr (kSummed) {
      return {at, added == nullptr ? added : added + row % added_rows * added_stride, factor};
    } else {
      return at;
    }
  }
  T* y_row(std::int64_t row) const { return y + row * y_stride; }
  // The last element of the rows before `end`.
  const void* last_before(std::int64_t end, std::size_t cols) const {
    return last_of(x + (end - 1) * x_stride, cols);
  }
  // From a row of x to the next, in bytes.
  std::int64_t x_bytes() const { return x_stride * static_cast<std::int64_t>(sizeof(T)); }
  // As prefetch_distance above has it, for rows of n elements.
  std::int64_t prefetch_distance(std::size_t n) const {
    return common::prefetch_distance(n * sizeof(T), x_bytes());
  }
};
using FloatRows = RowsOf<float, false>;

}  // namespace rooflane::common
