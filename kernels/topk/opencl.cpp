// The largest elements, variant `opencl`: sorted lists of parts of rows, then their merging. The
// kernels are in topk.cl.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "backends/opencl_plan.hpp"
#include "generated_catalogue.hpp"
#include "kernels/topk/topk.hpp"
#include "topk_cl.hpp"

namespace rooflane::topk {
namespace {

constexpr Tunable tunables[] = {
    {"v", "floats per vector: 1, 2, 4, 8 or 16", 1, 16},
    {"parts", "work-items that share a row, each with a list of its own", 1, 4096},
    {"group", "work-items of a group, a power of two", 1, 1024},
};

std::int64_t group_limit(const Environment& env) {
  return static_cast<std::int64_t>(std::bit_floor(opencl::device(env.device).max_work_group));
}

opencl::Launch items(std::int64_t count, std::int64_t group) {
  return {static_cast<std::size_t>((count + group - 1) / group), static_cast<std::size_t>(group)};
}

class OpenclPlan final : public opencl::DevicePlan {
 public:
  OpenclPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : DevicePlan(problem, tuning, env) {
    const cl_long rows = problem.size("rows"), cols = problem.size("cols");
    const auto k = static_cast<cl_int>(problem.size("k"));
    const auto parts = static_cast<cl_int>(tuning.get("parts", 1));
    const std::string options = fmt::format(" -DV={}", tuning.get("v", 1));
    parts_ = kernel(topk_cl, options, "topk_parts");
    merge_ = kernel(topk_cl, options, "topk_merge");
    const auto lists = static_cast<std::size_t>(rows * parts);
    const auto found = lists * static_cast<std::size_t>(k);
    cl_mem values = workspace(found * sizeof(cl_float));
    cl_mem ids = workspace(found * sizeof(cl_int));
    cl_mem heads = workspace(lists * sizeof(cl_int));
    parts_.set_args(context(), copy_of("x"), values, ids, rows, cols, k, parts);
    merge_.set_args(context(), values, ids, heads, copy_of("values"), copy_of("ids"), rows, k,
                    parts);
    const std::int64_t group = tuning.get("group", 1);
    parts_size_ = items(rows * parts, group);
    merge_size_ = items(rows, group);
  }

 private:
  void enqueue() override {
    launch(parts_, parts_size_);
    launch(merge_, merge_size_);
  }

  opencl::KernelCall parts_, merge_;
  opencl::Launch parts_size_{}, merge_size_{};
};

// CPU devices: a row each for the units, or of few rows the parts. Others: as many items as fill a
// device, at least 64 elements and eight times the list for each.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const std::int64_t rows = std::max<std::int64_t>(problem.size("rows"), 1);
  const std::int64_t cols = problem.size("cols"), k = problem.size("k");
  if (info.kind == opencl::DeviceKind::cpu) {
    const std::int64_t units = env.threads > 0 ? env.threads : info.compute_units;
    constexpr std::int64_t least_part = 65536;  // as in hwy.cpp: a launch takes about 10 µs
    const std::int64_t parts =
        std::clamp<std::int64_t>(cols / least_part, 1, std::max<std::int64_t>(units / rows, 1));
    const std::int64_t v = std::clamp<std::int64_t>(info.vector_floats, 1, 16);
    return {{{"v", v}, {"parts", parts}, {"group", 1}}};
  }
  const std::int64_t least_part = std::max<std::int64_t>(64, 8 * k);
  const std::int64_t most = std::clamp<std::int64_t>(cols / least_part, 1, 1024);
  const std::int64_t parts = std::clamp<std::int64_t>(65536 / rows, 1, most);
  return {{{"v", 4}, {"parts", parts}, {"group", std::min<std::int64_t>(64, group_limit(env))}}};
}

std::optional<std::string> tuning_defect(const Problem&, const Tuning& t, const Environment& env) {
  const auto is_power = [&](const char* key) {
    return std::has_single_bit(static_cast<std::uint64_t>(t.get(key, 1)));
  };
  if (is_power("v") && is_power("group") && t.get("group", 1) <= group_limit(env)) {
    return std::nullopt;
  }
  return fmt::format("v and group must be powers of two, group at most {}", group_limit(env));
}

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = opencl::unsupported_anywhere(problem, env, 0)) return reason;
  const auto parts = static_cast<double>(tunings(problem, env).front().get("parts", 1));
  const double bytes = problem.value("rows") * parts * (8 * problem.value("k") + 4);
  return opencl::unsupported_anywhere(problem, env, bytes);
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
                        .tunables = tunables,
                        .unsupported = unsupported,
                        .tunings = tunings,
                        .plan = plan,
                        .tuning_defect = tuning_defect,
                        .dtypes = operand_types};

}  // namespace rooflane::topk
