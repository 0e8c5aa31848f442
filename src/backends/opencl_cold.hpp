// Operands that no cache of a device can still hold, for cold samples: the host cannot evict them,
// so each run uses the next copy. Plans use it (opencl_plan.hpp); CPU devices are evicted by
// address.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/opencl.hpp"

namespace rooflane::opencl {

// Large operands get so many copies that a run uses one again only after the others filled four
// times the largest last-level cache. Small ones would need thousands of copies: they keep one, and
// a read of twice that cache displaces them.
class ColdCopies {
 public:
  // The last-level cache of a GPU at most: 256 MiB of AMD's MI300; NVIDIA's have up to 126 MiB.
  static constexpr std::size_t most_cache_bytes = std::size_t{256} << 20;

  // Copies hold what the originals hold now. The originals, context and queue must live as long.
  // Throws DeviceError.
  ColdCopies(Context& context, cl_command_queue queue,
             std::span<const DeviceBuffer* const> originals,
             std::size_t cache_bytes = most_cache_bytes);

  // Goes on to the next copies; waits until the device has displaced the small operands.
  void turn();
  // The copy of an original that this run uses; `original` itself where it has no copies.
  cl_mem at(cl_mem original) const;
  // Copies of every operand, the original among them.
  std::size_t count() const { return copies_.size() + 1; }
  bool displaces() const { return scratch_.get() != nullptr; }

 private:
  void displace();

  Context& context_;
  cl_command_queue queue_;
  std::vector<cl_mem> originals_;
  std::vector<std::vector<DeviceBuffer>> copies_;
  std::size_t turn_ = 0;  // 0: the originals
  DeviceBuffer scratch_, sink_;
  KernelCall read_;
};

}  // namespace rooflane::opencl
