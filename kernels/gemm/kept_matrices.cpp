// See kept_matrices.hpp.
#include "kernels/gemm/kept_matrices.hpp"

namespace rooflane::gemm {

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
  const auto buffer = std::make_shared<Buffer>(Buffer::in_huge_pages(bytes));
  return Memory(buffer, static_cast<std::byte*>(buffer->data()));
}

void KeptMatrices::add(const std::byte* source, std::size_t bytes, const Memory& packed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  known_.emplace(std::pair(source, bytes), packed);
}

}  // namespace rooflane::gemm
