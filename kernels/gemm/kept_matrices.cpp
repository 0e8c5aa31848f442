// See kept_matrices.hpp.
#include "kernels/gemm/kept_matrices.hpp"

#include <cstring>

namespace rooflane::gemm {
namespace {

// A Buffer of at least 2 MiB lies in huge pages by itself. Below 128 KiB a matrix stays in the
// caches' reach of its pages, and a huge page would be filled with zeros for little.
constexpr std::size_t least = std::size_t{128} << 10, most = std::size_t{2} << 20;
constexpr std::size_t block_bytes = std::size_t{16} << 20, line_bytes = 64;

}  // namespace

std::shared_ptr<std::byte> KeptMatrices::keep(const std::byte* source,
                                              const std::shared_ptr<std::byte>& packed,
                                              std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  const std::pair key(source, bytes);
  const auto [first, last] = known_.equal_range(key);
  for (auto each = first; each != last; ++each) {
    std::shared_ptr<std::byte> other = each->second.lock();
    if (other != nullptr && std::memcmp(other.get(), packed.get(), bytes) == 0) {
      return other;
    }
  }
  std::shared_ptr<std::byte> kept = in_huge_pages(packed, bytes);
  known_.emplace(key, kept);
  return kept;
}

std::shared_ptr<std::byte> KeptMatrices::in_huge_pages(const std::shared_ptr<std::byte>& packed,
                                                       std::size_t bytes) {
  if (bytes < least || bytes >= most) return packed;
  std::shared_ptr<Buffer> block = block_.lock();
  if (block == nullptr || block->bytes() - used_ < bytes) {
    block = std::make_shared<Buffer>(block_bytes);
    block_ = block;
    used_ = 0;
  }
  std::shared_ptr<std::byte> kept(block, static_cast<std::byte*>(block->data()) + used_);
  std::memcpy(kept.get(), packed.get(), bytes);
  used_ += (bytes + line_bytes - 1) / line_bytes * line_bytes;
  return kept;
}

}  // namespace rooflane::gemm
