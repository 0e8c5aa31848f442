// attention/hwy: what a plan hands to the per-target code, free of vector types. The two code paths
// for a task are in prefill-inl.h (vectors along the rows) and decode-inl.h (vectors along
// head_dim); the plan is in hwy.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/phases.hpp"
#include "kernels/attention/attention.hpp"

namespace rooflane::attention {

// How decode prefetches rows of K and V, the tunable `prefetch`: as prefetch-inl.h says of
// DistancePrefetch and LinearPrefetch (a single long row not at all), PagesPrefetch, AtUsePrefetch.
enum class DecodePrefetch { distance = 0, pages = 1, at_use = 2 };

// Queries of all heads of a group read the same keys, so they are worked on together, as the rows
// of one kv head: row r is query r / group of head r % group in the group. Neighbouring rows see
// nearly the same keys, which keeps causal blocks dense.
//
// A task is one block of rows of one kv head against one chunk of the keys that the block sees.
// With one chunk it writes o; with several it leaves unnormalised sums, which a merge task joins
// afterwards.
struct Job {
  explicit Job(const Sizes& sizes)
      : s(sizes), group(sizes.group()), scale(static_cast<float>(sizes.scale)) {}

  Sizes s;
  std::int64_t group;  // query heads that share a kv head
  float scale;
  Bound in;
  std::int64_t q_block = 0;   // rows per task
  std::int64_t kv_block = 0;  // keys per score tile
  // prefetch: a thread's share of the operands does not stay in its L2 from call to call, so rows
  // of q and o, and keys and values that no task saw before, are prefetched. prefetch_again: keys
  // and values of one head do not stay there from task to task, so every task prefetches them.
  bool prefetch = false, prefetch_again = false;
  DecodePrefetch decode_prefetch = DecodePrefetch::distance;
  std::int64_t row_blocks = 0, chunks = 1, chunk_len = 0;
  float* scratch = nullptr;  // scratch_floats per thread
  std::int64_t scratch_floats = 0;
  float* partial = nullptr;  // partial_floats per task when chunks > 1

  std::int64_t rows() const { return group * s.q_len; }
  // The most keys that the rows of a task see together, `sizes` being those of a row of the batch.
  std::int64_t most_keys(const Sizes& sizes) const {
    return sizes.most_keys((q_block + group - 2) / group + 1);
  }
  // Whole tiles of keys, so many that `chunks` of them hold all that a task sees.
  std::int64_t even_chunk(const Sizes& sizes) const {
    const std::int64_t per_chunk = kv_block * chunks;
    return std::max<std::int64_t>((most_keys(sizes) + per_chunk - 1) / per_chunk, 1) * kv_block;
  }
  // Whether rows of q and o are converted.
  bool converts_rows() const { return s.type != &float32; }
  // Whether tiles of K and V are made float32.
  bool converts() const { return s.kv_type != &float32; }
  // Whether scores need more than scale and the end of the keys that a row sees.
  bool adjusts_scores() const { return changes_scores() || s.window != 0; }
  bool changes_scores() const { return s.mask || s.softcap != 0; }
  // Per row: its sums over v [v_dim], its maximum, its sum of weights.
  std::int64_t partial_floats() const { return q_block * (s.v_dim + 2); }
  std::int64_t merge_tasks() const { return s.batch * s.kv_heads * row_blocks; }
  std::int64_t tasks() const { return merge_tasks() * chunks; }
  // A row of q or o, in its own format.
  std::byte* row_of(const StoredHeads& heads, std::int64_t batch, std::int64_t kv_head,
                    std::int64_t row) const {
    return heads.row(batch, kv_head * group + row % group, row / group);
  }
};

// Goes through rows in order without a division for each, which would count where heads are short.
class RowWalk {
 public:
  RowWalk() = default;
  RowWalk(std::int64_t group, std::int64_t row)
      : group_(group), query_(row / group), member_(row % group) {}

  void next() {
    if (++member_ == group_) {
      member_ = 0;
      ++query_;
    }
  }
  std::int64_t query() const { return query_; }
  // The row of q or o, `first` being query 0 of the group's first head; with a group of 1 a row of
  // k or v.
  template <class T>
  T* of(const Heads& heads, T* first) const {
    return first + member_ * heads.head_stride + query_ * heads.row_stride;
  }

 private:
  std::int64_t group_ = 1, query_ = 0, member_ = 0;
};

// What rows of a kv head see of a cache: keys [first_key(row),end_key(row)), as in Sizes.
struct VisibleKeys {
  Sizes s;  // of this row of the batch
  std::int64_t group;

  std::int64_t first_key(std::int64_t row) const { return s.first_key(row / group); }
  std::int64_t end_key(std::int64_t row) const { return s.end_key(row / group); }
};

// One task, spelt out.
struct Task {
  Task(const Job& job, std::int64_t number) : index(number), visible{job.s, job.group} {
    const std::int64_t chunk = number % job.chunks;
    number /= job.chunks;
    // Causal blocks get longer towards the end: the longest first leaves the short ones to fill up
    // the threads' last moments.
    const std::int64_t block = job.row_blocks - 1 - number % job.row_blocks;
    number /= job.row_blocks;
    kv_head = number % job.s.kv_heads;
    batch = number / job.s.kv_heads;
    first_row = block * job.q_block;
    first_use = block == job.row_blocks - 1;
    rows = std::min(job.q_block, job.rows() - first_row);
    chunk_len = job.chunk_len;
    if (job.in.lengths != nullptr) {
      visible.s = job.in.sizes_of(job.s, batch);
      chunk_len = job.even_chunk(visible.s);
    }
    first_key = visible.first_key(first_row) + chunk * chunk_len;
    last_key = std::min(first_key + chunk_len, visible.end_key(first_row + rows - 1));
    if (job.chunks > 1) {
      const std::int64_t blocks = job.row_blocks;
      partial = job.partial +
                (((batch * job.s.kv_heads + kv_head) * blocks + block) * job.chunks + chunk) *
                    job.partial_floats();
    }
  }

  std::int64_t index, batch, kv_head, first_row, rows;
  VisibleKeys visible;
  std::int64_t chunk_len;
  bool first_use;                    // of these keys, in the order of tasks
  std::int64_t first_key, last_key;  // keys [first_key,last_key) that some row of the block sees
  float* partial = nullptr;

  bool prefetches_keys(const Job& job) const {
    // Converting reads them in order, which the hardware prefetches.
    if (job.converts()) return false;
    return job.prefetch_again || (job.prefetch && (first_use || job.s.window != 0));
  }
  float* partial_sums(const Job& job) const { return partial + 2 * job.q_block; }
  float* partial_max() const { return partial; }
  float* partial_weight(const Job& job) const { return partial + job.q_block; }
};

// The least multiply-adds of a task that times its phases: at two vectors of 16 a cycle it takes
// 16384 cycles, and four readings of the clock are a hundredth of that.
inline constexpr std::int64_t least_timed = std::int64_t{1} << 19;
// The calling thread's log; null: the task is too short.
inline PhaseLog* log_of(const Job& job, const Task& task) {
  const std::int64_t keys = task.last_key - task.first_key;
  const std::int64_t multiply_adds = task.rows * keys * (job.s.head_dim + job.s.v_dim);
  return multiply_adds >= least_timed ? phase_log : nullptr;
}

}  // namespace rooflane::attention
