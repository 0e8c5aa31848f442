// Kernels that compute each element of y from those in the same place: how their elements are
// shared among threads, and when y goes past the caches. Holds no arithmetic: a vector's value is
// said in the rooms, how vectors are read and written in elements-inl.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/variant.hpp"

namespace rooflane::common {

// Neighbouring elements of the tensors, all of one type. `second` may be null.
struct Chunk {
  const void* x;
  const void* second;
  void* y;
  std::size_t count;
  bool stream;  // y past the caches
};

inline constexpr Tunable element_tunables[] = {
    {"stream", "1: write y with non-temporal stores, past the caches", 0, 1},
};
// The model's guess at the front: past the caches from as many bytes on as the row kernels.
std::vector<Tuning> element_tunings(const Problem& problem, const Environment& env);

// x, y and `second` are [rows,cols] of the problem's `type`, or `second` [cols], added to each row.
class ElementsPlan : public Plan {
 public:
  // `second`: name of the further input, or empty. `least_share`: elements worth a thread.
  ElementsPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
               std::string second, std::int64_t least_share);
  void run() final;

 protected:
  virtual void compute(const Chunk& chunk) const = 0;
  const Tuning& tuning() const { return tuning_; }

 private:
  struct Rows {
    std::byte* at = nullptr;
    std::int64_t stride = 0;  // bytes
  };
  void on_bind(const Operands& operands) final;
  void work(std::int64_t begin, std::int64_t end) const;

  std::int64_t rows_, cols_;
  std::int64_t element_bytes_;
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  std::string second_name_;
  std::int64_t pieces_;
  std::int64_t length_ = 0;  // of a row; rows without gaps are one
  bool stream_ = false;
  Rows x_, second_, y_;
};

}  // namespace rooflane::common
