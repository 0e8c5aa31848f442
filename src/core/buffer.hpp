// Owned memory for operands and workspace: 64-byte aligned, in huge pages where the system grants
// them (madvise), for ours and peers alike.
#pragma once

#include <cstddef>
#include <memory>

namespace rooflane {

class Buffer {
 public:
  Buffer() = default;
  // Pages are not touched: the first writer places them. Throws std::bad_alloc.
  explicit Buffer(std::size_t bytes);
  // In huge pages even if it is smaller than one: from 128 KiB on, several lie in a block of 16
  // MiB, which is freed with the last of them. For memory that loops go over again and again.
  static Buffer in_huge_pages(std::size_t bytes);
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
  std::shared_ptr<const Buffer> block_;  // that it is a part of; null: it owns its memory
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
