// Sum by segment, variant `opencl`. The kernel is in segment_sum.cl, how items are laid over
// segments in kernels/common/opencl_items.hpp, how edges are put in order in opencl_segments.hpp.
#include <memory>

#include "generated_catalogue.hpp"
#include "kernels/common/opencl_segments.hpp"
#include "kernels/segment_sum/segment_sum.hpp"
#include "segment_sum_cl.hpp"

namespace rooflane::segment_sum {
namespace {

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(opencl, problem, env, tuning);
  return std::make_unique<common::SegmentPlan>(
      problem, complete_tuning(opencl, problem, env, tuning), env, segment_sum_cl);
}

}  // namespace

const Variant opencl = {.name = "opencl",
                        .kernel = &kernel,
                        .backend = &opencl::backend,
                        .threads = Threads::device,
                        .tunables = common::item_tunables,
                        .unsupported = common::segments_unsupported,
                        .tunings = common::segments_tunings,
                        .plan = plan,
                        .tuning_defect = common::item_defect,
                        .dtypes = operand_types};

}  // namespace rooflane::segment_sum
