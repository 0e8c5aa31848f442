// Owned memory for operands and workspace: 64-byte aligned, in huge pages where the system grants
// them (madvise), for ours and peers alike.
#pragma once

#include <cstddef>

namespace rooflane {

class Buffer {
 public:
  Buffer() = default;
  // Pages are not touched: the first writer places them. Throws std::bad_alloc.
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::size_t bytes() const { return bytes_; }
  void* data() const { return data_; }
  float* f32() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace rooflane
