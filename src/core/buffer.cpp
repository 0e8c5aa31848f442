// Owned aligned memory. See buffer.hpp.
#include "buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "shared_memory.hpp"

namespace rooflane {

namespace {

constexpr std::size_t line_bytes = 64;
// x86-64's and most ARM systems' huge page; smaller buffers stay on ordinary pages.
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (buffers_are_shared()) {
    data_ = map_shared(bytes);
    return;
  }
  const std::size_t alignment = bytes >= huge_page_bytes ? huge_page_bytes : line_bytes;
  const std::size_t capacity = round_up(bytes, alignment);
  if (capacity < bytes) throw std::bad_alloc();
  data_ = std::aligned_alloc(alignment, capacity);
  if (data_ == nullptr) throw std::bad_alloc();
  // Advice only: systems without transparent huge pages answer with an error that changes nothing.
  if (alignment == huge_page_bytes) madvise(data_, capacity, MADV_HUGEPAGE);
}

Buffer Buffer::in_huge_pages(std::size_t bytes) {
  // Below 128 KiB the TLB keeps all 32 pages, and a huge page would be filled with zeros for
  // little.
  constexpr std::size_t least = std::size_t{128} << 10, block_bytes = std::size_t{16} << 20;
  if (bytes < least || bytes >= huge_page_bytes) return Buffer(bytes);
  static std::mutex mutex;
  static std::weak_ptr<const Buffer> filling;
  static std::size_t used = 0;
  const std::lock_guard lock(mutex);
  Buffer part;
  part.block_ = filling.lock();
  if (part.block_ == nullptr || block_bytes - used < bytes) {
    part.block_ = std::make_shared<const Buffer>(block_bytes);
    filling = part.block_;
    used = 0;
  }
  part.data_ = static_cast<std::byte*>(part.block_->data()) + used;
  part.bytes_ = bytes;
  used += round_up(bytes, line_bytes);
  return part;
}

Buffer::~Buffer() {
  if (block_ != nullptr) return;
  if (buffers_are_shared()) {
    unmap_shared(data_);
  } else {
    std::free(data_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      block_(std::move(other.block_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(block_, other.block_);
  return *this;
}

namespace {

constexpr std::byte guard_pattern{0xa5};

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes) : whole_(bytes + 2 * zone_bytes) {
  auto* const memory = static_cast<std::byte*>(whole_.data());
  std::fill_n(memory, zone_bytes, guard_pattern);
  std::fill_n(memory + zone_bytes + bytes, zone_bytes, guard_pattern);
}

bool GuardedBuffer::guards_intact() const {
  if (whole_.bytes() == 0) return true;
  const auto* const memory = static_cast<const std::byte*>(whole_.data());
  const auto holds = [](const std::byte* zone) {
    return std::all_of(zone, zone + zone_bytes, [](std::byte b) { return b == guard_pattern; });
  };
  return holds(memory) && holds(memory + whole_.bytes() - zone_bytes);
}

}  // namespace rooflane
