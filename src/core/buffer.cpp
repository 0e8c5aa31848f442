// Owned aligned memory. See buffer.hpp.
#include "buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

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
  const std::size_t alignment = bytes >= huge_page_bytes ? huge_page_bytes : line_bytes;
  const std::size_t capacity = round_up(bytes, alignment);
  if (capacity < bytes) throw std::bad_alloc();
  data_ = std::aligned_alloc(alignment, capacity);
  if (data_ == nullptr) throw std::bad_alloc();
  // Advice only: systems without transparent huge pages answer with an error that changes nothing.
  if (alignment == huge_page_bytes) madvise(data_, capacity, MADV_HUGEPAGE);
}

Buffer::~Buffer() { std::free(data_); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace rooflane
