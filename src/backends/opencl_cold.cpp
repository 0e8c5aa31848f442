// Copies of operands, used in rotation. See opencl_cold.hpp.
#include "backends/opencl_cold.hpp"

#include <algorithm>

namespace rooflane::opencl {
namespace {

// Rotating through more would cost more memory objects than it is worth.
constexpr std::size_t most_copies = 64;

constexpr const char* read_source = R"(
__kernel void read_all(__global const float4* x, __global float* sink, int count) {
  float4 sum = 0.0f;
  for (int i = get_global_id(0); i < count; i += get_global_size(0)) sum += x[i];
  if (sum.x + sum.y + sum.z + sum.w == -1.0f) sink[0] = sum.x;
})";

}  // namespace

ColdCopies::ColdCopies(Context& context, cl_command_queue queue,
                       std::span<const DeviceBuffer* const> originals, std::size_t cache_bytes)
    : context_(context), queue_(queue) {
  std::size_t bytes = 0;
  for (const DeviceBuffer* original : originals) {
    originals_.push_back(original->get());
    bytes += original->bytes();
  }
  const std::size_t wanted = 4 * cache_bytes;
  const std::size_t count = (wanted + bytes - 1) / std::max<std::size_t>(bytes, 1);
  // Half of the free memory: other workers of the group hold operands too.
  const bool has_room =
      bytes <= available_bytes(context.info()) / 2 / std::max<std::size_t>(count, 2);
  if (count <= most_copies && has_room) {
    copies_.resize(std::max<std::size_t>(count, 2) - 1);
    for (std::vector<DeviceBuffer>& copies : copies_) {
      for (const DeviceBuffer* original : originals) {
        DeviceBuffer& copy = copies.emplace_back(context, original->bytes());
        if (original->bytes() == 0) continue;
        context.check(clEnqueueCopyBuffer(queue, original->get(), copy.get(), 0, 0,
                                          original->bytes(), 0, nullptr, nullptr),
                      "clEnqueueCopyBuffer");
      }
    }
  } else {
    const std::size_t most =
        std::min(context.info().max_buffer_bytes, available_bytes(context.info()) / 2);
    scratch_ = DeviceBuffer(context, std::min(2 * cache_bytes, most));
    sink_ = DeviceBuffer(context, sizeof(float));
    read_ = KernelCall(context, context.program(read_source, ""), "read_all");
    read_.set_args(context, scratch_.get(), sink_.get(),
                   static_cast<cl_int>(scratch_.bytes() / (4 * sizeof(float))));
    // Pages never written may all be the same page.
    const cl_float zero = 0;
    context.check(
        clEnqueueFillBuffer(queue, scratch_.get(), &zero, sizeof zero, 0,
                            scratch_.bytes() / sizeof zero * sizeof zero, 0, nullptr, nullptr),
        "clEnqueueFillBuffer");
  }
  context.check(clFinish(queue), "clFinish");
}

void ColdCopies::turn() {
  if (displaces()) {
    displace();
  } else {
    turn_ = (turn_ + 1) % count();
  }
}

void ColdCopies::displace() {
  const std::size_t group = std::min<std::size_t>(256, context_.info().max_work_group);
  const std::size_t global = group * 16 * static_cast<std::size_t>(context_.compute_units());
  context_.check(
      clEnqueueNDRangeKernel(queue_, read_.get(), 1, nullptr, &global, &group, 0, nullptr, nullptr),
      "clEnqueueNDRangeKernel");
  context_.check(clFinish(queue_), "clFinish");
}

cl_mem ColdCopies::at(cl_mem original) const {
  if (turn_ == 0) return original;
  const auto place = std::find(originals_.begin(), originals_.end(), original);
  if (place == originals_.end()) return original;
  return copies_[turn_ - 1][static_cast<std::size_t>(place - originals_.begin())].get();
}

}  // namespace rooflane::opencl
