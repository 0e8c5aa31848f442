// Matrices that the plans of this process keep packed (prepack=1). Plans that packed the same bytes
// from the same place share them, and small ones lie together in huge pages.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/buffer.hpp"

namespace rooflane::gemm {

class KeptMatrices {
 public:
  // What a plan that packed these bytes from `source` is to keep: those of another plan if they are
  // the same, else its own, perhaps moved.
  std::shared_ptr<std::byte> keep(const std::byte* source, const std::shared_ptr<std::byte>& packed,
                                  std::size_t bytes);

 private:
  std::shared_ptr<std::byte> in_huge_pages(const std::shared_ptr<std::byte>& packed,
                                           std::size_t bytes);

  std::mutex mutex_;
  // By source and size. Whether they are the same is decided by the bytes: the caller may have
  // changed what lies at the source.
  std::multimap<std::pair<const std::byte*, std::size_t>, std::weak_ptr<std::byte>> known_;
  std::weak_ptr<Buffer> block_;  // that is being filled
  std::size_t used_ = 0;
};

}  // namespace rooflane::gemm
