// The units of a variant (unit.hpp) and the functions of its record: which units take a problem
// here, the schedules of each, and the choice among all by prediction. `hwy` has every unit,
// `avx512` and `amx` those of their instructions.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/variant.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/hwy_schedule.hpp"
#include "kernels/gemm/unit.hpp"

namespace rooflane::gemm {

// A bit for each UnitKind.
using UnitSet = unsigned;
constexpr UnitSet operator|(UnitKind x, UnitKind y) {
  return 1u << static_cast<unsigned>(x) | 1u << static_cast<unsigned>(y);
}
constexpr UnitSet operator|(UnitSet set, UnitKind kind) {
  return set | 1u << static_cast<unsigned>(kind);
}

// Of AVX-512 and AMX (units_x86.cpp): why this CPU lacks a unit, and its record. Without them in
// the build (units_none.cpp) all are lacking.
std::optional<std::string> absence_of_x86(UnitKind kind);
Unit x86_unit(UnitKind kind, const Problem& problem, const Environment& env);

// As a record's functions (core/variant.hpp), for the units of a set.
namespace unit_set {
std::optional<std::string> unsupported(UnitSet set, const Problem&, const Environment&);
std::vector<Tuning> tunings(UnitSet set, const Problem&, const Environment&);
std::unique_ptr<Plan> plan(UnitSet set, const Problem&, const Tuning&, const Environment&,
                           const Operands& constants);
std::optional<std::string> tuning_defect(UnitSet set, const Problem&, const Tuning&,
                                         const Environment&);
double predicted_seconds(UnitSet set, const Problem&, const Tuning&, const Environment&);
Tuning complete(UnitSet set, const Problem&, const Tuning& given, const Environment&);
}  // namespace unit_set

template <UnitSet set>
Variant unit_variant(const char* name, const Backend* backend, std::span<const Math* const> maths,
                     std::span<const DType> dtypes) {
  return {.name = name,
          .kernel = &kernel,
          .backend = backend,
          .threads = Threads::many,
          .tunables = schedule_tunables,
          .unsupported =
              [](const Problem& problem, const Environment& env) {
                return unit_set::unsupported(set, problem, env);
              },
          .tunings = [](const Problem& problem,
                        const Environment& env) { return unit_set::tunings(set, problem, env); },
          .plan =
              [](const Problem& problem, const Tuning& tuning, const Environment& env,
                 const Operands& constants) {
                return unit_set::plan(set, problem, tuning, env, constants);
              },
          .tuning_defect =
              [](const Problem& problem, const Tuning& tuning, const Environment& env) {
                return unit_set::tuning_defect(set, problem, tuning, env);
              },
          .predicted_seconds =
              [](const Problem& problem, const Tuning& tuning, const Environment& env) {
                return unit_set::predicted_seconds(set, problem, tuning, env);
              },
          .complete =
              [](const Problem& problem, const Tuning& given, const Environment& env) {
                return unit_set::complete(set, problem, given, env);
              },
          .maths = maths,
          .dtypes = dtypes};
}

}  // namespace rooflane::gemm
