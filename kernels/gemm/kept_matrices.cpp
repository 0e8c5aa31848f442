// See kept_matrices.hpp.
#include "kernels/gemm/kept_matrices.hpp"

namespace rooflane::gemm {
namespace {

// A Buffer of at least 2 MiB is in huge pages by itself. Below 128 KiB the TLB keeps all 32 pages
// of a matrix, and a huge page would be filled with zeros for little.
constexpr std::size_t least = std::size_t{128} << 10, most = std::size_t{2} << 20;
constexpr std::size_t block_bytes = std::size_t{16} << 20, line_bytes = 64;

}  // namespace

std::vector<KeptMatrices::Memory> KeptMatrices::packed_from(const std::byte* source,
                                                            std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Memory> living;
  const auto [first, last] = known_.equal_range({source, bytes});
  for (auto each = first; each != last; ++each) {
    if (Memory memory = each->second.lock()) living.push_back(std::move(memory));
  }
  return living;
}

KeptMatrices::Memory KeptMatrices::allocate(std::size_t bytes) {
  const auto part_of = [](const std::shared_ptr<Buffer>& buffer, std::size_t offset) {
    return Memory(buffer, static_cast<std::byte*>(buffer->data()) + offset);
  };
  if (bytes < least || bytes >= most) return part_of(std::make_shared<Buffer>(bytes), 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Buffer> block = block_.lock();
  if (block == nullptr || block->bytes() - used_ < bytes) {
    block = std::make_shared<Buffer>(block_bytes);
    block_ = block;
    used_ = 0;
  }
  const std::size_t offset = used_;
  used_ += (bytes + line_bytes - 1) / line_bytes * line_bytes;
  return part_of(block, offset);
}

void KeptMatrices::add(const std::byte* source, std::size_t bytes, const Memory& packed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  known_.emplace(std::pair(source, bytes), packed);
}

}  // namespace rooflane::gemm
