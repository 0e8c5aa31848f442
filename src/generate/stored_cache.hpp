// Caches of keys and values in another format than float32: a rewrite of a model with calls that
// write float32, and the rows that go from there into the cache. Attention reads them in place.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parallel.hpp"
#include "core/tensor.hpp"
#include "model/instance.hpp"

namespace rooflane::generate {

// Behind call `call` of a phase: `from`, float32, is stored as `to`, of the same shape.
struct CacheStore {
  std::size_t call = 0;
  model::Strided from, to;
};

struct StoredCaches {
  model::Instance instance;
  std::vector<std::vector<CacheStore>> stores;  // of each phase, in the order of calls
};

// Every state that attention reads as k or v, in `dtype`: what a phase writes of it is written to a
// buffer in float32 instead, and stored behind the last call that works on it. &float32: the
// instance as it is. Throws Error(argument) where heads are no whole blocks.
StoredCaches with_stored_caches(const model::Instance& instance, DType dtype);

// to = from, rounded as NumberFormat::encode does but from float32; of q8_0 the scale is that of
// the format, max|x| / 127 rounded to float16.
void store_rows(const View& from, const View& to, Pool* pool, int threads);

}  // namespace rooflane::generate
