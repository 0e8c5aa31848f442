// The attention room: sizes, operands and cost of o = softmax(scale·q·kᵀ)·v per head, as typed C++.
// The record and the double reference are in reference.cpp; scalar.cpp is the plainest code.
//
// Maths, for query i of head h, which reads kv head g = h / (heads / kv_heads) and sees the keys
// j < visible(i):
//   s_j = scale · Σ_d q[h,i,d]·k[g,j,d],  m = max_j s_j,  w_j = exp(s_j - m),
//   o[h,i,:] = Σ_j w_j·v[g,j,:] / Σ_j w_j.
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
// Values: a query with no visible key gives zeros; one whose visible scores are all -inf gives NaN;
// a key that a query may not see has no influence on it, whatever k and v hold there. So masking
// selects, and a product 0·v of an invisible key is never formed (0·inf is NaN).
//
// The ladder of opencl (attention_ladder.cl), for a GPU: 0 naive, an item per query; 1 group, a
// group per query, its weights in local memory, blocks of keys joined online; 2 tiled, 16 queries
// share tiles of keys. opencl goes on with tiles in registers and, when decoding, splits over the
// keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/problem.hpp"
#include "core/tensor.hpp"
#include "core/variant.hpp"

namespace rooflane::attention {

// The ladders of hwy (ladder.cpp) and opencl (opencl_ladder.cpp).
extern const Rung ladder[4];
extern const Rung opencl_ladder[3];

// A complete problem's parameters.
struct Sizes {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, head_dim;
  bool causal;
  double scale;

  explicit Sizes(const Problem& problem)
      : batch(problem.size("batch")),
        heads(problem.size("heads")),
        kv_heads(problem.size("kv_heads")),
        q_len(problem.size("q_len")),
        kv_len(problem.size("kv_len")),
        head_dim(problem.size("head_dim")),
        causal(problem.flag("causal")),
        scale(problem.value("scale")) {}

  // Query heads that share one kv head.
  std::int64_t group() const { return heads / kv_heads; }
  // How many keys query i sees; they are the first ones. Causal masking is aligned to the end: the
  // last query sees every key.
  std::int64_t visible(std::int64_t i) const {
    return causal ? std::clamp<std::int64_t>(i + 1 + kv_len - q_len, 0, kv_len) : kv_len;
  }
};

// q, k, v or o: one matrix [len,head_dim] per batch and head, rows `row_stride` elements apart.
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

struct Bound {
  Heads q, k, v, o;

  Bound() = default;
  explicit Bound(const Operands& operands)
      : q(operands.at("q")), k(operands.at("k")), v(operands.at("v")), o(operands.at("o")) {}
};

}  // namespace rooflane::attention
