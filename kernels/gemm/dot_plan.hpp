// GEMM on a dot-product unit (dot_unit.hpp): the plan that variants `avx512` and `amx` share. a and
// b are packed whole into micro-panels, in parallel; then blocks of mc × nc elements of c are
// handed out, whose sums stay in L2 over the blocks of kc along k, and c is stored once. Few rows
// of a against b as it lies along k are not packed.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/variant.hpp"
#include "kernels/gemm/dot_unit.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

inline constexpr Tunable dot_tunables[] = {
    {"mc", "rows of a block of c", 1, 1 << 20},
    {"nc", "columns of a block of c", 1, 1 << 20},
    {"kc", "elements of k between two visits of a block's sums", 1, 1 << 24}};
inline constexpr const Math* dot_maths[] = {&math_bf16, &math_int8, &math_int8_dynamic};
inline constexpr DType dot_types[] = {&float32, &bfloat16, &int8,
                                      &uint8,   &int32,    &int8_per_channel};

// Formats that no unit takes with a math.
std::optional<std::string> dot_unsupported(const Problem& problem, const Environment& env);
std::vector<Tuning> dot_tunings(const Problem& problem, const Environment& env,
                                const DotUnit& unit);
std::unique_ptr<Plan> dot_plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                               const Operands& constants, const DotUnit& unit);

}  // namespace rooflane::gemm
