// Rows of float16 and bfloat16, and rows with a residual, a scale or a mask, by a kernel of float32
// rows: some rows are converted, scaled, what is asked for added, into a block that stays in cache,
// the kernel works on it in place, and the results are converted back. Memory sees half of the
// bytes, and nothing of the sums; the cache two more walks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/variant.hpp"
#include "kernels/common/rows_schedule.hpp"

namespace rooflane::common {

// Makes a plan for the same kernel with float32 tensors; its output may be its input.
using FloatRowsPlan = std::unique_ptr<Plan> (*)(const Problem& float_problem, const Tuning&,
                                                const Environment&);

// For a problem with a parameter `type`, and x and y of it, [rows,cols], and where it has a flag
// `residual` that is set a tensor `residual` like x, with a flag `mask` a tensor `mask`
// [mask_rows,cols] whose row r mod mask_rows belongs to row r of x, which `scale` is a factor of;
// further inputs are vectors of `cols` and
// converted at the start of each run. `tuning`: one of converted_row_tunings.
std::unique_ptr<Plan> converted_rows(const Problem& problem, const Tuning& tuning,
                                     const Environment& env, FloatRowsPlan float_rows);

// Tunables `stream` and `split` of rows.hpp; `prefetch` is 0.
std::vector<Tuning> converted_row_tunings(const Problem& problem, const Environment& env,
                                          const RowWork& work);

}  // namespace rooflane::common
