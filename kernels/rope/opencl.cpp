// Rotary position embedding, variant `opencl`: rope.cl; how pairs are laid over work-items in
// kernels/common/opencl_elements.hpp. The table of cosines and sines is written to the device while
// planning.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generated_catalogue.hpp"
#include "kernels/common/opencl_elements.hpp"
#include "kernels/rope/rope.hpp"
#include "rope_cl.hpp"

namespace rooflane::rope {
namespace {

class OpenclPlan final : public common::OpenclElementsPlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : OpenclElementsPlan(problem, tuning, env) {
    const Sizes sizes(problem);
    Table table(sizes);
    const cl_mem cos = on_device(table.cos), sin = on_device(table.sin);
    const cl_long pairs = sizes.batch * sizes.heads * sizes.len * sizes.half();
    const std::string options =
        fmt::format(" -DNEIGHBOURS={:d} -DWHOLE={:d}", sizes.style == Style::interleaved,
                    sizes.half() % this->tuning().get("v", 1) == 0);
    prepare(rope_cl, "rope", options, pairs, copy_of("x"), cos, sin, copy_of("y"), pairs,
            static_cast<cl_long>(sizes.len), static_cast<cl_long>(sizes.half()),
            static_cast<cl_long>(sizes.heads), static_cast<cl_long>(sizes.rotated));
  }

 private:
  cl_mem on_device(std::vector<float>& values) {
    if (values.empty()) values.push_back(0);  // no position: a buffer cannot be empty
    const cl_mem memory = workspace(values.size() * sizeof(float));
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    write_now(memory, contiguous_view(values.data(), shape));
    return memory;
  }
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  const Sizes sizes(problem);
  const double table = 8.0 * static_cast<double>(sizes.len) * static_cast<double>(sizes.half());
  return opencl::unsupported_anywhere(problem, env, table);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(opencl, problem, env, tuning);
  return std::make_unique<OpenclPlan>(problem, complete_tuning(opencl, problem, env, tuning), env);
}

}  // namespace

const Variant opencl = {.name = "opencl",
                        .kernel = &kernel,
                        .backend = &opencl::backend,
                        .threads = Threads::device,
                        .tunables = common::opencl_element_tunables,
                        .unsupported = unsupported,
                        .tunings = common::opencl_element_tunings,
                        .plan = plan,
                        .tuning_defect = common::opencl_element_defect,
                        .dtypes = float_types};

}  // namespace rooflane::rope
