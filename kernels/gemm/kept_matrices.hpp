// Matrices that the plans of this process keep packed (prepack=1). Plans that packed the same bytes
// from the same place share them, and small ones lie together in huge pages.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/buffer.hpp"

namespace rooflane::gemm {

class KeptMatrices {
 public:
  using Memory = std::shared_ptr<std::byte>;

  // Memory of this size that living plans packed from `source`, which may have held other values.
  std::vector<Memory> packed_from(const std::byte* source, std::size_t bytes);
  // Memory to pack into; add() makes it known once it is packed.
  Memory allocate(std::size_t bytes);
  void add(const std::byte* source, std::size_t bytes, const Memory& packed);

 private:
  std::mutex mutex_;
  std::multimap<std::pair<const std::byte*, std::size_t>, std::weak_ptr<std::byte>> known_;
};

}  // namespace rooflane::gemm
