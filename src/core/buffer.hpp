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

// Memory for an output between two guard zones, where nobody has a reason to write.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  explicit GuardedBuffer(std::size_t bytes);  // throws std::bad_alloc
  void* data() const { return static_cast<std::byte*>(whole_.data()) + zone_bytes; }
  // False when something wrote into a zone.
  bool guards_intact() const;

 private:
  // A page each: a whole row of a micro-tile that is written too far is seen, and the output keeps
  // its alignment.
  static constexpr std::size_t zone_bytes = 4096;
  Buffer whole_;
};

}  // namespace rooflane
