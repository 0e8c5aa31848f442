// How the opencl variants of kernels that move or add rows (embed, segment_sum, segment_softmax,
// im2patch) lay items over them: LX neighbouring items to a row, V floats each at a time, LY rows
// to a group.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/opencl_plan.hpp"
#include "core/variant.hpp"

namespace rooflane::common {

inline constexpr Tunable item_tunables[] = {
    {"v", "floats per vector: 1, 2, 4, 8 or 16", 1, 16},
    {"lx", "work-items of a group that share a row, a power of two", 1, 1024},
    {"ly", "rows that a group works on side by side, a power of two", 1, 1024},
};

// What is wrong with the complete tuning on this device; nothing when it will run.
std::optional<std::string> item_defect(const Problem& problem, const Tuning& tuning,
                                       const Environment& env);

// The search space for rows of so many floats, the model's first guess at the front.
std::vector<Tuning> item_tunings(std::int64_t cols, const Environment& env);

// Groups for so many rows.
opencl::Launch item_launch(std::int64_t rows, const Tuning& tuning);

}  // namespace rooflane::common
