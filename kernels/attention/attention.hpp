// The attention room: sizes, operands and cost of o = softmax(scale·q·kᵀ)·v per head, as typed C++.
// The record and the double reference are in reference.cpp; scalar.cpp is the plainest code.
//
// Maths, for query i of head h, which reads kv head g = h / (heads / kv_heads) and sees the keys
// first_key(i) <= j < end_key(i):
//   s_j = scale · Σ_d q[h,i,d]·k[g,j,d],  m = max_j s_j,  w_j = exp(s_j - m),
//   o[h,i,:] = Σ_j w_j·v[g,j,:] / Σ_j w_j.
// Options, in the order in which they act: window=W, the last W of those keys alone (Longformer,
// Beltagy et al., arXiv 2004.05150); softcap=C, C·tanh(s_j / C) in place of s_j (Gemma 2, arXiv
// 2408.00118); mask=1, s_j + mask[i,j] in place of that. v and o are v_dim wide, head_dim unless
// said otherwise.
// Online softmax (Milakov & Gimelshein, arXiv 1805.02867) computes m and the sums in one pass over
// blocks of keys: when a block raises the maximum from m to m', all sums so far are multiplied by
// exp(m - m'). FlashAttention (Dao et al., arXiv 2205.14135; version 2: arXiv 2307.08691) tiles
// that, so that scores live only in cache, and divides by Σ w once, at the end.
//
// The ladder: ideas from the plainest on, as ladder.cpp has them and `bench --ladder -k attention`
// measures them. Figures are times over the rung before on one core of a Zen 5 (AVX-512), for 4
// heads of 512 queries and keys, head_dim 64.
//   0 naive       The whole score matrix of a head, softmax of its rows, weights times v; a dot
//                 product per element.
//   1 vectorised  Vectors along head_dim for both products, vectors of exp: 8 times. Each dot
//                 product ends in a sum across lanes.
//   2 tiled       Tiles of queries by keys with a query per lane: no sum across lanes, both
//                 products from registers, scores that never leave L1, the online softmax to join
//                 tiles: 4.4 times, 3.5 with a causal mask.
//   3 threaded    Tiles of all heads shared among threads: 1.8 times on two.
//   hwy           Larger tiles for the registers there are, query heads that share k and v worked
//                 on together, masks on diagonal tiles alone, where each vector of queries leaves
//                 out the keys that none of them sees; decode by vectors along head_dim, keys
//                 split among threads; what is read and written beyond L2 is prefetched while
//                 products keep the core busy.
// Dead ends. A query per lane where there is one query (decoding): 0.15 times the rung before,
// since all other lanes repeat it, hence decode-inl.h with its vectors along head_dim.
//
// Values: a query with no visible key gives zeros. If all visible scores of a query are -inf, it
// gives NaN. A key that a query may not see has no influence on it, whatever k, v and the mask
// contain there. So masking selects, and a product 0·v of an invisible key is never formed (0·inf
// is NaN). A key with a mask of -inf is visible and weighs 0, as in NumPy. The softcap of an
// infinite score is ±C.
//
// A cache that grows needs no kernel of its own: k and v are views, so attention reads rows of
// buffers [batch,kv_heads,capacity,head_dim], and the code that computes the rows of a new token
// writes them there (a view of one row per head). type is the format of q and o: f32, f16 or bf16;
// kv_type that of k and v, the same unless said otherwise: one of these or q8_0, blocks of 32 along
// head_dim and v_dim. All else is float32, and a stored number counts exactly as the number it
// encodes. Under math f16 and bf16 weights are rounded to that format before they meet v. Either
// kv_len is the number of keys, and each length has its own plan; or kv_len is the capacity and
// lengths=1 adds an input: row b of the batch has lengths[b] keys, 0 to kv_len, and the results are
// those of kv_len=lengths[b]. One plan then serves while the cache grows. Rows beyond lengths[b]
// have no influence.
//
// The ladder of opencl (attention_ladder.cl), for a GPU: 0 naive, an item per query; 1 group, a
// group per query, its weights in local memory, blocks of keys joined online; 2 tiled, 16 queries
// share tiles of keys. opencl goes on with tiles in registers and, when decoding, splits over the
// keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/problem.hpp"
#include "core/tensor.hpp"
#include "core/variant.hpp"

namespace rooflane::attention {

// The ladders of hwy (ladder.cpp) and opencl (opencl_ladder.cpp).
extern const Rung ladder[4];
extern const Rung opencl_ladder[3];

// A complete problem's parameters.
struct Sizes {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, v_dim;
  bool causal, mask, lengths;
  DType type, kv_type;    // of q and o; of k and v
  std::int64_t window;    // 0: none
  double scale, softcap;  // softcap 0: none

  explicit Sizes(const Problem& problem)
      : batch(problem.size("batch")),
        heads(problem.size("heads")),
        kv_heads(problem.size("kv_heads")),
        q_len(problem.size("q_len")),
        kv_len(problem.size("kv_len")),
        head_dim(problem.size("head_dim")),
        v_dim(problem.size("v_dim")),
        causal(problem.flag("causal")),
        mask(problem.flag("mask")),
        lengths(problem.flag("lengths")),
        type(problem.dtype("type")),
        kv_type(problem.dtype("kv_type")),
        window(problem.size("window")),
        scale(problem.value("scale")),
        softcap(problem.value("softcap")) {}

  // The same with a cache that holds so many keys.
  Sizes with_keys(std::int64_t count) const {
    Sizes s = *this;
    s.kv_len = count;
    return s;
  }
  // Query heads that share one kv head.
  std::int64_t group() const { return heads / kv_heads; }
  // Query i sees keys [first_key(i),end_key(i)); neither shrinks with i, and the latter is 0 where
  // it sees none. Causal masking is aligned to the end: the last query sees the last key.
  std::int64_t end_key(std::int64_t i) const {
    return causal ? std::clamp<std::int64_t>(i + 1 + kv_len - q_len, 0, kv_len) : kv_len;
  }
  std::int64_t first_key(std::int64_t i) const {
    return window == 0 ? 0 : std::max<std::int64_t>(end_key(i) - window, 0);
  }
  // Keys from the first to the last that any query sees.
  std::int64_t keys_seen() const { return q_len == 0 ? kv_len : end_key(q_len - 1) - first_key(0); }
  // What a query sees on average, without a window.
  double mean_keys() const {
    const auto keys = static_cast<double>(kv_len), queries = static_cast<double>(q_len);
    if (!causal) return keys;
    return queries <= keys ? keys - queries / 2 : keys * keys / (2 * queries);
  }
  // The most that any `queries` neighbours see together.
  std::int64_t most_keys(std::int64_t queries) const {
    return window == 0 ? kv_len : std::min(kv_len, window + (causal ? queries - 1 : 0));
  }
};

// Formats of variants that take lengths.
inline constexpr DType float32_with_lengths[] = {&float32, &int32};
inline constexpr DType floats_with_lengths[] = {&float32, &float16, &bfloat16, &int32};
// What keys and values are stored in, and what a variant meets that takes all of it.
inline constexpr DType kv_types[] = {&float32, &float16, &bfloat16, &q8_0};
inline constexpr DType all_with_lengths[] = {&float32, &float16, &bfloat16, &q8_0, &int32};

inline constexpr const Math* kernel_maths[] = {&fp32, &math_3xtf32, &math_f16, &math_bf16};

// Why code that knows none of the options, and of formats this one alone, cannot serve the problem;
// nothing when it can.
std::optional<std::string> option_refusal(const Problem& problem, DType type = &float32);
// For a ladder's rung: throws Error(unavailable) with that reason.
void require_no_options(const Problem& problem, const Tuning& step);

// q, k, v or o in float32: one matrix [len,width] per batch and head, rows `row_stride` elements
// apart.
struct Heads {
  float* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  Heads() = default;
  explicit Heads(const View& view)
      : data(view.f32()),
        batch_stride(view.strides[0]),
        head_stride(view.strides[1]),
        row_stride(view.strides[2]) {}

  float* matrix(std::int64_t batch, std::int64_t head) const {
    return data + batch * batch_stride + head * head_stride;
  }
};

// q, k, v or o in any format; strides in elements.
struct StoredHeads {
  std::byte* data = nullptr;
  DType dtype = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  StoredHeads() = default;
  explicit StoredHeads(const View& view)
      : data(static_cast<std::byte*>(view.data)),
        dtype(view.dtype),
        batch_stride(view.strides[0]),
        head_stride(view.strides[1]),
        row_stride(view.strides[2]) {}

  std::byte* row(std::int64_t batch, std::int64_t head, std::int64_t index) const {
    return data + dtype->bytes(batch * batch_stride + head * head_stride + index * row_stride);
  }
};

// The mask [q_len,kv_len], rows `row_stride` elements apart; no data: there is none.
struct MaskRows {
  const float* data = nullptr;
  std::int64_t row_stride = 0;

  MaskRows() = default;
  MaskRows(const Operands& inputs, const Sizes& s) {
    if (!s.mask) return;
    const View& view = inputs.at("mask");
    data = view.f32();
    row_stride = view.strides[0];
  }
  const float* row(std::int64_t query) const { return data + query * row_stride; }
};

// What attention reads.
struct Inputs {
  Heads q, k, v;  // where they are float32
  StoredHeads stored_q, stored_k, stored_v;
  MaskRows mask;
  const std::int32_t* lengths = nullptr;  // [batch]; null: every row holds kv_len keys

  Inputs() = default;
  Inputs(const Operands& operands, const Sizes& s)
      : stored_q(operands.at("q")),
        stored_k(operands.at("k")),
        stored_v(operands.at("v")),
        mask(operands, s),
        lengths(s.lengths ? operands.at("lengths").as<std::int32_t>() : nullptr) {
    if (stored_q.dtype == &float32) q = Heads(operands.at("q"));
    if (stored_k.dtype == &float32) k = Heads(operands.at("k"));
    if (stored_v.dtype == &float32) v = Heads(operands.at("v"));
  }

  // The sizes of one row of the batch.
  Sizes sizes_of(const Sizes& s, std::int64_t batch) const {
    return lengths == nullptr ? s : s.with_keys(lengths[batch]);
  }
};

struct Bound : Inputs {
  Heads o;  // where it is float32
  StoredHeads stored_o;

  Bound() = default;
  Bound(const Operands& operands, const Sizes& s)
      : Inputs(operands, s), stored_o(operands.at("o")) {
    if (stored_o.dtype == &float32) o = Heads(operands.at("o"));
  }
};

}  // namespace rooflane::attention
