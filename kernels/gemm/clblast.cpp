// GEMM, variant `clblast`: CLBlast's GEMM on the OpenCL device, one call per batch, or its strided
// batched GEMM; its programs are built by `plan`. Not CLBlast's: copying c0 into c and c = 0.
// CLBlast keeps no packed b. Next: opencl.cpp for our own.
#include <clblast.h>
#include <fmt/format.h>

#include <memory>

#include "backends/opencl_plan.hpp"
#include "core/error.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

class ClblastPlan final : public opencl::DevicePlan {
 public:
  ClblastPlan(const Problem& problem, const Environment& env)
      : DevicePlan(problem, {}, env), g_(problem) {
    if (g_.empty() || !g_.reads_ab()) return;
    // CLBlast builds the programs of a device when they are first needed. The values do not matter.
    enqueue();
    wait_now();
  }

  PlanFacts facts() const override {
    PlanFacts facts = DevicePlan::facts();
    facts.library = fmt::format("CLBlast {}.{}.{}", CLBLAST_VERSION_MAJOR, CLBLAST_VERSION_MINOR,
                                CLBLAST_VERSION_PATCH);
    return facts;
  }

 private:
  void enqueue() override {
    const std::size_t bytes = static_cast<std::size_t>(g_.batch * g_.m * g_.n) * sizeof(float);
    cl_mem c = copy_of("c");
    if (g_.reads_c0()) {
      enqueue_call("clEnqueueCopyBuffer", [&](cl_command_queue* queue, cl_event* event) {
        return clEnqueueCopyBuffer(*queue, copy_of("c0"), c, 0, 0, bytes, 0, nullptr, event);
      });
    }
    if (!g_.reads_ab()) {
      scale(c, bytes);
      return;
    }
    const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
    const auto transpose = [](bool flag) {
      return flag ? ::clblast::Transpose::kYes : ::clblast::Transpose::kNo;
    };
    const std::size_t lda = size(g_.trans_a ? g_.m : g_.k), ldb = size(g_.trans_b ? g_.k : g_.n);
    enqueue_call("clblast::Gemm", [&](cl_command_queue* queue, cl_event* event) {
      const auto status =
          g_.batch == 1
              ? ::clblast::Gemm<float>(::clblast::Layout::kRowMajor, transpose(g_.trans_a),
                                       transpose(g_.trans_b), size(g_.m), size(g_.n), size(g_.k),
                                       g_.alpha, copy_of("a"), 0, lda, copy_of("b"), 0, ldb,
                                       g_.beta, c, 0, size(g_.n), queue, event)
              : ::clblast::GemmStridedBatched<float>(
                    ::clblast::Layout::kRowMajor, transpose(g_.trans_a), transpose(g_.trans_b),
                    size(g_.m), size(g_.n), size(g_.k), g_.alpha, copy_of("a"), 0, lda,
                    size(g_.m * g_.k), copy_of("b"), 0, ldb, size(g_.k * g_.n), g_.beta, c, 0,
                    size(g_.n), size(g_.m * g_.n), size(g_.batch), queue, event);
      return static_cast<cl_int>(status);
    });
  }

  // c = beta·c, or zeros.
  void scale(cl_mem c, std::size_t bytes) {
    if (g_.reads_c0()) {
      enqueue_call("clblast::Scal", [&](cl_command_queue* queue, cl_event* event) {
        return static_cast<cl_int>(
            ::clblast::Scal<float>(bytes / sizeof(float), g_.beta, c, 0, 1, queue, event));
      });
      return;
    }
    enqueue_call("clEnqueueFillBuffer", [&](cl_command_queue* queue, cl_event* event) {
      const float zero = 0;
      return clEnqueueFillBuffer(*queue, c, &zero, sizeof zero, 0, bytes, 0, nullptr, event);
    });
  }

  const Gemm g_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (problem.flag("prepack")) return "prepack=1: CLBlast has no GEMM that keeps b packed";
  if (const std::string epilogue = epilogue_text(problem); !epilogue.empty()) {
    return epilogue + ": CLBlast has the product alone";
  }
  return opencl::unsupported_anywhere(problem, env, 0);
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  return std::make_unique<ClblastPlan>(problem, env);
}

}  // namespace

const Variant clblast = {.name = "clblast",
                         .kernel = &kernel,
                         .backend = &opencl::backend,
                         .threads = Threads::device,
                         .tunables = {},
                         .unsupported = unsupported,
                         .tunings = no_tunings,
                         .plan = plan};

}  // namespace rooflane::gemm
