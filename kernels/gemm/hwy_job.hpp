// What one run of the hwy variant needs, resolved by its plan: operands, path, blocks, memory.
// Shared by all ISA targets; no vector code. Next: hwy_tiles-inl.h, hwy_paths-inl.h, hwy.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/parallel.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

// How a problem is computed; hwy.cpp's choose() is the table that picks one.
enum class Path : std::int64_t {
  scale = 0,   // no product: c = beta·c0
  dot = 1,     // one side has few rows, the other is contiguous along k: dot products, read once
  stream = 2,  // one side has few rows, the other is contiguous across k: row updates, read once
  direct = 3,  // small: register tiles read a and b where they lie
  packed = 4,  // register tiles over packed blocks
};

// The register tile of an ISA target.
struct TileShape {
  std::int64_t lanes;  // floats in a vector
  std::int64_t mr;     // most rows of a tile
  std::int64_t nv;     // most vectors of a tile along n
  std::int64_t nr() const { return lanes * nv; }
};

// How n columns are cut into strips, each as wide as a register tile: full strips of nv vectors,
// and rather 2 + 2 vectors at the end than 3 + 1, because a single vector of accumulators leaves
// the FMA units waiting for loads. The last vector of the last strip may be partial.
class Strips {
 public:
  Strips(std::int64_t n, const TileShape& tile) : n_(n), nr_(tile.nr()) {
    count_ = (n + nr_ - 1) / nr_;
    const std::int64_t vectors = (n + tile.lanes - 1) / tile.lanes;
    const bool split = tile.nv == 3 && count_ > 1 && vectors % 3 == 1;
    last_begin_ = std::max<std::int64_t>(0, count_ - 1) * nr_ - (split ? tile.lanes : 0);
  }
  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t strip) const {
    return strip >= count_ ? n_ : std::min(strip * nr_, strip + 1 == count_ ? last_begin_ : n_);
  }
  std::int64_t width(std::int64_t strip) const { return begin(strip + 1) - begin(strip); }

 private:
  std::int64_t n_, nr_, count_, last_begin_;
};

// Part `index` of `parts` nearly equal shares of `total` items.
inline std::int64_t share(std::int64_t total, std::int64_t parts, std::int64_t index) {
  return total / parts * index + std::min(index, total % parts);
}

struct Job {
  explicit Job(const Gemm& gemm) : g(gemm) {}

  Gemm g;
  Path path = Path::scale;
  bool flip = false;    // dot, stream: b is the side with few rows (columns of op(b)), not a
  bool pack_a = false;  // packed: copy blocks of a; else tiles read a where it lies
  // packed: a block of a is mc × kc; b is packed kb × nc at a time (kb a multiple of kc, or k), for
  // batch_group batches together. stream: nc columns of the wide side at a time, kc deep. dot: kc
  // deep, nc rows of the long side a task.
  std::int64_t mc = 0, kc = 0, nc = 0, kb = 0, batch_group = 1;
  // Tasks of one phase, per batch: equal shares of rows times equal shares of strips.
  std::int64_t row_parts = 1, col_parts = 1;

  int threads = 1;
  Pool* pool = nullptr;

  Side a, b;
  Matrix<const float> c0;
  Matrix<float> c;

  const float* prepacked = nullptr;  // b of prepack=1: strips, or rows [n,k] where flip
  float* shared = nullptr;           // packed b of one phase
  float* scratch = nullptr;          // `scratch_floats` for each thread
  std::int64_t scratch_floats = 0;
};

// The functions that each ISA target exports.
using RunFunction = void (*)(const Job&);
using PackFunction = void (*)(const Job&, const Side& b, float* to);
using ShapeFunction = TileShape (*)();

}  // namespace rooflane::gemm
