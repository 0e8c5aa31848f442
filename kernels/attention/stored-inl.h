// Operands of other formats than float32: a tile of rows of K and V, or the rows of q of a Q
// micro-panel, become float32 where both code paths then read them, in cache; a head's operands
// come from memory in their own format, once. Rows of o are rounded as they are written.

// Highway's per-target include guard: this file is compiled once for every target.
#if defined(ROOFLANE_KERNELS_ATTENTION_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOFLANE_KERNELS_ATTENTION_STORED_INL_H_
#undef ROOFLANE_KERNELS_ATTENTION_STORED_INL_H_
#else
#define ROOFLANE_KERNELS_ATTENTION_STORED_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "core/float16.hpp"
#include "hwy/highway.h"
#include "kernels/attention/hwy.hpp"
#include "kernels/attention/lanes-inl.h"
#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

// A float16 scale, then 32 integers (core/dtype.hpp).
inline constexpr std::int64_t kBlock = 32;
inline constexpr std::int64_t kBlockBytes = 34;

// n elements, a multiple of a block.
HWY_INLINE void WidenBlocks(const std::byte* from, float* HWY_RESTRICT to, std::int64_t n) {
  const D d;
  const hn::Rebind<std::int32_t, D> words;
  const hn::Rebind<std::int8_t, D> bytes;
  for (std::int64_t at = 0; at < n; at += kBlock, from += kBlockBytes) {
    Float16 half;
    std::memcpy(&half.bits, from, sizeof half.bits);
    const V scale = hn::Set(d, static_cast<float>(half));
    const auto* const values = reinterpret_cast<const std::int8_t*>(from + sizeof half.bits);
    // Vectors have 16, 8, 4 or 1 elements.
    for (std::int64_t i = 0; i < kBlock; i += LaneCount()) {
      const auto integers = hn::PromoteTo(words, hn::LoadU(bytes, values + i));
      hn::StoreU(hn::Mul(hn::ConvertTo(d, integers), scale), d, to + at + i);
    }
  }
}

// A row of n elements.
inline void WidenRow(DType dtype, const std::byte* row, float* HWY_RESTRICT to, std::int64_t n) {
  namespace hc = common::HWY_NAMESPACE;
  const auto count = static_cast<std::size_t>(n);
  if (dtype == &float32) {
    std::memcpy(to, row, count * sizeof(float));
  } else if (dtype == &float16) {
    hc::Widen(reinterpret_cast<const Float16*>(row), to, count);
  } else if (dtype == &bfloat16) {
    hc::Widen(reinterpret_cast<const BFloat16*>(row), to, count);
  } else {
    WidenBlocks(row, to, n);
  }
}

// The same back, to the formats of o.
inline void NarrowRow(DType dtype, const float* HWY_RESTRICT from, std::byte* row, std::int64_t n) {
  namespace hc = common::HWY_NAMESPACE;
  const auto count = static_cast<std::size_t>(n);
  if (dtype == &float32) {
    std::memcpy(row, from, count * sizeof(float));
  } else if (dtype == &float16) {
    hc::Narrow(from, reinterpret_cast<Float16*>(row), count);
  } else {
    hc::Narrow(from, reinterpret_cast<BFloat16*>(row), count);
  }
}

// Rows [first,first+count) of a matrix of `heads`, `width` elements each, one after another.
inline void WidenRows(const StoredHeads& heads, std::int64_t batch, std::int64_t head,
                      std::int64_t first, std::int64_t count, std::int64_t width,
                      float* HWY_RESTRICT to) {
  for (std::int64_t j = 0; j < count; ++j, to += width) {
    WidenRow(heads.dtype, heads.row(batch, head, first + j), to, width);
  }
}

// A tile of keys as both code paths read it.
struct KeyRows {
  const float *k = nullptr, *v = nullptr;  // of key `first`
  std::int64_t k_stride = 0, v_stride = 0;
  std::int64_t first = 0;
};

// Keys [first,first+count) of the task's kv head, converted into `scratch` where need be.
inline KeyRows RowsOf(const Job& job, std::int64_t batch, std::int64_t kv_head, std::int64_t first,
                      std::int64_t count, float* scratch) {
  const std::int64_t head_dim = job.s.head_dim, v_dim = job.s.v_dim;
  if (!job.converts()) {
    const Heads &k = job.in.k, &v = job.in.v;
    return {k.matrix(batch, kv_head) + first * k.row_stride,
            v.matrix(batch, kv_head) + first * v.row_stride, k.row_stride, v.row_stride, first};
  }
  float* const values = scratch + job.kv_block * head_dim;
  WidenRows(job.in.stored_k, batch, kv_head, first, count, head_dim, scratch);
  WidenRows(job.in.stored_v, batch, kv_head, first, count, v_dim, values);
  return {scratch, values, head_dim, v_dim, first};
}

// Floats of that scratch, whole cache lines.
inline std::int64_t ConvertedFloats(const Job& job) {
  if (!job.converts()) return 0;
  return hwy::RoundUpTo(job.kv_block * (job.s.head_dim + job.s.v_dim), 16);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
