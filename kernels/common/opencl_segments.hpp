// The opencl variants of segment_sum and segment_softmax, which differ in their kernel only: the
// plan finds the order of the edges on the device by the kernels of segments.cl, then runs the
// room's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/opencl_plan.hpp"
#include "kernels/common/opencl_items.hpp"

namespace rooflane::common {

// Their records' `unsupported` and `tunings`.
std::optional<std::string> segments_unsupported(const Problem& problem, const Environment& env);
std::vector<Tuning> segments_tunings(const Problem& problem, const Environment& env);

class SegmentPlan final : public opencl::DevicePlan {
 public:
  // `source` holds segments.cl and the room's kernel, which has the room's name.
  SegmentPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
              const char* source);

 private:
  struct Pass {
    opencl::KernelCall count, scan, place;
  };

  void enqueue() override;
  opencl::KernelCall room_kernel(const char* name) { return kernel(source_, options_, name); }
  // Edges segment by segment; where they come so it is not read, and something else.
  cl_mem order() const { return order_ != nullptr ? order_ : start_; }
  cl_int ordered() const { return order_ != nullptr ? 1 : 0; }

  const char* source_;
  std::string options_;
  cl_int edges_, segments_;
  cl_int chunks_, scan_;
  cl_mem order_ = nullptr;
  cl_mem start_ = nullptr;  // [segments+1]
  std::vector<Pass> passes_;
  opencl::KernelCall starts_;
  opencl::Launch size_;
  opencl::KernelCall call_;
};

}  // namespace rooflane::common
