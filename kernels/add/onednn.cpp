// Addition, variant `onednn`: one binary primitive, on oneDNN's own threads. Nothing else is
// computed here; inputs with gaps between rows are copied first. Next: hwy.cpp for our own.
#include "generated_catalogue.hpp"
#include "kernels/add/add.hpp"
#include "kernels/common/onednn_rows.hpp"

namespace rooflane::add {
namespace {

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands&) {
  return std::make_unique<common::OnednnRowPlan>(problem, env, [&](const onednn::Desc& rows) {
    const std::int64_t rows_of_r = problem.flag("broadcast") ? 1 : problem.size("rows");
    const onednn::Desc r = onednn::Rows(rows_of_r, problem.size("cols")).layout();
    return common::OnednnCalls{.call = onednn::binary(dnnl::algorithm::binary_add, rows, r),
                               .second = "r"};
  });
}

}  // namespace

const Variant onednn = {
    .name = "onednn",
    .kernel = &kernel,
    .backend = &onednn::backend,
    .threads = Threads::many,
    .tunables = {},
    .unsupported = onednn::unsupported_anywhere,
    .tunings = no_tunings,
    .plan = plan,
};

}  // namespace rooflane::add
