// Sums of units become c, and rows of op(a) what a unit multiplies, at every ISA target. See
// store.hpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_store.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include <algorithm>
#include <cstdint>

#include "core/float16.hpp"
#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/gemm/hwy_transpose-inl.h"
#include "kernels/gemm/quantised_rows.hpp"
#include "kernels/gemm/store.hpp"
#undef ROOFLANE_LOWER_PART

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;
using DI = hn::RebindToSigned<DF>;

// Elements [j,…) of a row of `type` as floats.
template <class Loader>
HWY_INLINE VF LoadReals(DType type, const std::byte* row, int64_t j, const Loader& loader,
                        int64_t count) {
  const DF d;
  if (type == &float32) return loader.Load(d, reinterpret_cast<const float*>(row) + j);
  const hn::Rebind<std::uint16_t, DF> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* from = reinterpret_cast<const std::uint16_t*>(row) + j;
  HWY_ALIGN std::uint16_t padded[hn::MaxLanes(DF())] = {};
  if (count - j < lanes) {
    std::copy_n(from, count - j, padded);
    from = padded;
  }
  return type == &float16 ? VF(hc::Short<Float16>::Load(d, d16, from))
                          : VF(hc::Short<BFloat16>::Load(d, d16, from));
}

// Floats of a tile of c of 16 bits that lie in L1 together.
constexpr int64_t kShortTile = 2048;

// Rows of a tile that become floats: [first,last), columns [j0,j0+cols).
struct Rows {
  int64_t first, last, j0, cols;
  float* to;
  int64_t ld;
};

// Integer sums from column `col` of row i on, less 128 times those of b's columns.
HWY_INLINE hn::Vec<DI> SumsAt(const SumTile& tile, int64_t i, int64_t col) {
  const DI di;
  const auto sums =
      hn::LoadU(di, reinterpret_cast<const std::int32_t*>(tile.sums) + i * tile.ld + col);
  if (tile.column_sums == nullptr) return sums;
  return hn::Sub(sums, hn::ShiftLeft<7>(hn::LoadU(di, tile.column_sums + col)));
}

// alpha · sums + beta · c0. What there is of these is known to the compiler: rows have but a few
// vectors.
template <bool has_sums, bool integers, bool scaled, bool adds>
void FormRowsOf(const StoreJob& job, const SumTile& tile, const Rows& rows) {
  const DF d;
  const VF alpha = hn::Set(d, job.alpha), beta = hn::Set(d, job.beta), one = hn::Set(d, 1.0f);
  const int64_t j0 = rows.j0, cols = rows.cols;
  const float* const column_scale = tile.column_scale;
  const DType c0_type = job.c0.dtype;
  for (int64_t i = rows.first; i < rows.last; ++i) {
    const std::byte* const c0 = adds ? row_of(job.c0, tile.at, i) : nullptr;
    float* const to = rows.to + (i - rows.first) * rows.ld;
    const bool by_row = scaled && integers && tile.row_scale != nullptr;
    const VF row_scale = by_row ? VF(hn::Set(d, tile.row_scale[i])) : one;
    ForVectors(cols, [&](int64_t j, const auto& loader) HWY_ATTR {
      const int64_t col = j0 + j;
      VF value = hn::Zero(d);
      if constexpr (integers) {
        value = hn::ConvertTo(d, SumsAt(tile, i, col));
      } else if constexpr (has_sums) {
        value = hn::LoadU(d, reinterpret_cast<const float*>(tile.sums) + i * tile.ld + col);
      }
      if constexpr (scaled) {
        const VF scale = column_scale != nullptr ? VF(loader.Load(d, column_scale + col)) : one;
        value = hn::Mul(value, hn::Mul(row_scale, scale));
      }
      if constexpr (has_sums) value = hn::Mul(alpha, value);
      if constexpr (adds) {
        const VF before = LoadReals(c0_type, c0, col, loader, j0 + cols);
        value = hn::Add(value, hn::Mul(beta, before));
      }
      loader.Store(value, d, to + j);
    });
  }
}

template <bool adds>
void FormRows(const StoreJob& job, const SumTile& tile, const Rows& rows) {
  if (tile.sums == nullptr) return FormRowsOf<false, false, false, adds>(job, tile, rows);
  if (!tile.integers) {
    const auto form = tile.column_scale != nullptr ? FormRowsOf<true, false, true, adds>
                                                   : FormRowsOf<true, false, false, adds>;
    return form(job, tile, rows);
  }
  const bool scaled = tile.column_scale != nullptr || tile.row_scale != nullptr;
  const auto form =
      scaled ? FormRowsOf<true, true, true, adds> : FormRowsOf<true, true, false, adds>;
  form(job, tile, rows);
}
void FormRows(const StoreJob& job, const SumTile& tile, const Rows& rows) {
  job.c0.data != nullptr ? FormRows<true>(job, tile, rows) : FormRows<false>(job, tile, rows);
}

void StoreIntegers(const StoreJob& job, const SumTile& tile) {
  for (int64_t i = 0; i < tile.at.rows; ++i) {
    auto* const c = const_cast<std::byte*>(row_of(job.c, tile.at, i));
    if (tile.sums == nullptr) {
      std::fill_n(reinterpret_cast<std::int32_t*>(c), tile.at.cols, 0);
      continue;
    }
    // Modulo 2^32, in which sums that pass through more than int32 holds come back.
    ForVectors(tile.at.cols, [&](int64_t j, const auto& loader) HWY_ATTR {
      loader.Store(hn::BitCast(DF(), SumsAt(tile, i, j)), DF(), reinterpret_cast<float*>(c) + j);
    });
  }
}

// The address of element (0, 0) of a matrix, if its element at `place` is values[0]. No element is
// there, so it is computed as an integer and not as a pointer.
template <class T>
T* ElementZero(T* values, int64_t place) {
  const auto bytes = static_cast<std::uintptr_t>(place) * sizeof(T);
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(values) - bytes);
}

// The epilogue of rows that are float32 beside c.
void FollowFloats(const StoreJob& job, const SumTile& tile, const Rows& rows) {
  float residual[kShortTile];
  EpilogueJob epilogue = job.epilogue;
  const Rectangle at{tile.at.batch, tile.at.row + rows.first, tile.at.col + rows.j0,
                     rows.last - rows.first, rows.cols};
  const int64_t place = at.row * rows.ld + at.col;
  epilogue.c = {ElementZero(rows.to, place), 0, rows.ld};
  if (job.residual.data != nullptr) {
    for (int64_t i = 0; i < at.rows; ++i) {
      const std::byte* const from = row_of(job.residual, tile.at, rows.first + i);
      ForVectors(at.cols, [&](int64_t j, const auto& loader) HWY_ATTR {
        const VF value =
            LoadReals(job.residual.dtype, from, rows.j0 + j, loader, rows.j0 + at.cols);
        loader.Store(value, DF(), residual + i * rows.ld + j);
      });
    }
    epilogue.residual = {ElementZero(residual, place), 0, rows.ld};
  }
  job.apply(epilogue, at);
}

// c of 16 bits: rows are formed and followed as float32 in L1, and rounded once.
template <class T>
void StoreShort(const StoreJob& job, const SumTile& tile) {
  const auto row_of_c = [&](int64_t i) {
    return reinterpret_cast<T*>(const_cast<std::byte*>(row_of(job.c, tile.at, i)));
  };
  if (tile.sums != nullptr && !tile.integers && tile.column_scale == nullptr && job.alpha == 1 &&
      job.c0.data == nullptr && !job.has_epilogue) {  // sums as they are
    for (int64_t i = 0; i < tile.at.rows; ++i) {
      hc::Narrow(reinterpret_cast<const float*>(tile.sums) + i * tile.ld, row_of_c(i),
                 static_cast<std::size_t>(tile.at.cols));
    }
    return;
  }
  HWY_ALIGN float values[kShortTile];
  // Columns at a time: all rows, or runs of at least 128.
  const int64_t most = std::max<int64_t>(128, kShortTile / tile.at.rows / 16 * 16);
  const int64_t ld = std::min(most, (tile.at.cols + 15) / 16 * 16), together = kShortTile / ld;
  for (int64_t i0 = 0; i0 < tile.at.rows; i0 += together) {
    const int64_t last = std::min(tile.at.rows, i0 + together);
    for (int64_t j0 = 0; j0 < tile.at.cols; j0 += most) {
      const Rows rows{i0, last, j0, std::min(most, tile.at.cols - j0), values, ld};
      FormRows(job, tile, rows);
      if (job.has_epilogue) FollowFloats(job, tile, rows);
      for (int64_t i = i0; i < last; ++i) {
        hc::Narrow(values + (i - i0) * ld, row_of_c(i) + j0, static_cast<std::size_t>(rows.cols));
      }
    }
  }
}

void StoreTile(const StoreJob& job, const SumTile& tile) {
  if (job.c.dtype == &int32) return StoreIntegers(job, tile);
  if (job.c.dtype == &float16) return StoreShort<Float16>(job, tile);
  if (job.c.dtype == &bfloat16) return StoreShort<BFloat16>(job, tile);
  auto* const c = reinterpret_cast<float*>(const_cast<std::byte*>(row_of(job.c, tile.at, 0)));
  FormRows(job, tile, {0, tile.at.rows, 0, tile.at.cols, c, job.c.strides[1]});
  if (job.has_epilogue) job.apply(job.epilogue, tile.at);
}

// ---- rows of op(a)

// Rows that are converted together, and elements along k of rows across memory that are transposed
// together: they stay in L1.
constexpr int64_t kRows = 32, kAcross = 64;

// Elements [first, first + count) of a row, which lie side by side.
struct RowPiece {
  int64_t row, first, count;
  DType type;
  const std::byte* from;
};

// body(piece) until all rows of the call, kRows at most, have been there.
template <class Body>
void ForPieces(const ConvertCall& c, const Body& body) {
  const auto size = static_cast<int64_t>(c.type->block_bytes);
  if (c.inner == 1) {
    for (int64_t i = 0; i < c.rows; ++i) {
      body(RowPiece{i, 0, c.count, c.type, c.from + i * c.outer * size});
    }
    return;
  }
  HWY_ALIGN float columns[kAcross * kRows], rows[kRows * kAcross];
  for (int64_t first = 0; first < c.count; first += kAcross) {
    const int64_t here = std::min(kAcross, c.count - first);
    for (int64_t p = 0; p < here; ++p) {
      const std::byte* const from = c.from + (first + p) * c.inner * size;
      ForVectors(c.rows, [&](int64_t i, const auto& loader) HWY_ATTR {
        loader.Store(LoadReals(c.type, from, i, loader, c.rows), DF(), columns + p * kRows + i);
      });
    }
    PackTransposed(columns, kRows, here, c.rows, rows, kAcross);
    for (int64_t i = 0; i < c.rows; ++i) {
      const auto* const row = reinterpret_cast<const std::byte*>(rows + i * kAcross);
      body(RowPiece{i, first, here, &float32, row});
    }
  }
}

// body(place in the row, vector, lanes of it that count) for a piece of a row; the other lanes are
// zeros.
template <class Body>
HWY_INLINE void ForReals(const RowPiece& s, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  ForVectors(s.count, [&](int64_t j, const auto& loader) HWY_ATTR {
    const VF value = LoadReals(s.type, s.from, j, loader, s.count);
    body(s.first + j, value, std::min(lanes, s.count - j));
  });
}

template <class V, class D>
HWY_INLINE void StoreFirst(V v, D d, int64_t count, hn::TFromD<D>* to) {
  if (count == static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(v, d, to);
  HWY_ALIGN hn::TFromD<D> all[hn::MaxLanes(D())];
  hn::StoreU(v, d, all);
  std::copy_n(all, count, to);
}

void Quantise(const ConvertCall& c) {
  const DF d;
  const DI di;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<std::uint8_t, DF> d8;
  std::uint32_t largest[kRows] = {};
  ForPieces(c, [&](const RowPiece& s) HWY_ATTR {
    auto most = hn::Zero(du);
    ForReals(s, [&](int64_t, VF value, int64_t) HWY_ATTR {
      most = hn::Max(most, hn::And(hn::BitCast(du, value), hn::Set(du, 0x7FFFFFFFu)));
    });
    HWY_ALIGN std::uint32_t each[hn::MaxLanes(DF())];
    hn::Store(most, du, each);
    largest[s.row] = std::max(largest[s.row], *std::max_element(each, each + hn::Lanes(du)));
  });
  // 1.5·2^23 leaves no bits behind the point: adding it rounds to nearest, ties to even.
  const VF shift = hn::Set(d, 0x1.8p23f);
  const std::uint32_t offset = c.to_type == &uint8 ? 128 : 0;
  ForPieces(c, [&](const RowPiece& s) HWY_ATTR {
    const QuantisationStep by = quantisation_step(largest[s.row]);
    c.steps[s.row] = by.step;
    const VF inverse = hn::Set(d, by.inverse);
    auto* const to = static_cast<std::uint8_t*>(c.to) + s.row * c.count;
    ForReals(s, [&](int64_t j, VF value, int64_t here) HWY_ATTR {
      const VF scaled = by.finite ? VF(hn::Mul(value, inverse)) : VF(hn::Zero(d));
      const auto bits = hn::BitCast(du, hn::Add(scaled, shift));
      const auto bytes = hn::And(hn::Add(bits, hn::Set(du, offset)), hn::Set(du, 0xFFu));
      const auto narrow = hn::DemoteTo(d8, hn::BitCast(di, bytes));
      StoreFirst(narrow, d8, here, to + j);
    });
  });
}

void ConvertRows(const ConvertCall& c) {
  if (c.to_type != &float32 && c.to_type != &bfloat16) return Quantise(c);
  const DF d;
  const hn::Rebind<std::uint16_t, DF> d16;
  ForPieces(c, [&](const RowPiece& s) HWY_ATTR {
    auto* const words = static_cast<float*>(c.to) + s.row * c.count;
    auto* const halves = static_cast<std::uint16_t*>(c.to) + s.row * c.count;
    ForReals(s, [&](int64_t j, VF value, int64_t here) HWY_ATTR {
      if (c.to_type == &float32) return StoreFirst(value, d, here, words + j);
      StoreFirst(hc::Short<BFloat16>::Rounded(d, d16, value), d16, here, halves + j);
    });
  });
}

void Convert(const ConvertCall& call) {
  for (int64_t first = 0; first < call.rows; first += kRows) {
    ConvertCall c = call;
    c.rows = std::min(kRows, call.rows - first);
    c.from += first * call.outer * static_cast<int64_t>(call.type->block_bytes);
    c.to = static_cast<std::byte*>(call.to) +
           first * call.count * static_cast<int64_t>(call.to_type->block_bytes);
    if (call.steps != nullptr) c.steps += first;
    ConvertRows(c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "backends/highway.hpp"

namespace rooflane::gemm {

HWY_EXPORT(StoreTile);
HWY_EXPORT(Convert);

void StoreJob::bind(const Operands& operands, Matrix<const float> gate) {
  c = operands.at("c");
  if (beta != 0) c0 = operands.at("c0");
  if (epilogue.chain.has(Epilogue::Op::add)) residual = operands.at("residual");
  epilogue.bind(operands);
  epilogue.gate = gate;
}

StoreFunction store_function(std::int64_t target) {
  return ROOFLANE_HWY_FUNCTION(StoreTile, target);
}
ConvertFunction convert_function(std::int64_t target) {
  return ROOFLANE_HWY_FUNCTION(Convert, target);
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
