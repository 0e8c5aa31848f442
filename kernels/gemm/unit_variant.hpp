// What a variant whose products are a unit's says of itself: the functions of its record, by the
// function that chooses the unit for a problem.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "kernels/gemm/driver.hpp"
#include "kernels/gemm/unit_schedule.hpp"

namespace rooflane::gemm {

using UnitOf = Unit (*)(const Problem&, const Environment&);

inline constexpr const Math* unit_maths[] = {&math_bf16, &math_int8, &math_int8_dynamic};

// Formats that no unit of AVX-512 or AMX takes with a math.
std::optional<std::string> unit_unsupported(const Problem& problem, const Environment& env);

template <UnitOf unit_of>
std::vector<Tuning> unit_tunings(const Problem& problem, const Environment& env) {
  std::vector<Tuning> list;
  const Unit unit = unit_of(problem, env);
  for (const Schedule& schedule : unit_candidates({problem, env, unit})) {
    list.push_back(tuning_of(schedule));
  }
  return list;
}

template <UnitOf unit_of>
std::unique_ptr<Plan> unit_plan_of(const Problem& problem, const Tuning& tuning,
                                   const Environment& env, const Operands& constants) {
  const Unit unit = unit_of(problem, env);
  const UnitProblem of(problem, env, unit);
  const Schedule schedule = unit_schedule(of, tuning);
  if (const auto defect = defect_of(schedule, of)) {
    throw argument_error("tuning: " + *defect);
  }
  return unit_plan(problem, schedule, env, constants, unit);
}

template <UnitOf unit_of>
std::optional<std::string> unit_tuning_defect(const Problem& problem, const Tuning& tuning,
                                              const Environment& env) {
  const Unit unit = unit_of(problem, env);
  const UnitProblem of(problem, env, unit);
  return defect_of(unit_schedule(of, tuning), of);
}

template <UnitOf unit_of>
double unit_predicted_seconds(const Problem& problem, const Tuning& tuning,
                              const Environment& env) {
  const Unit unit = unit_of(problem, env);
  const UnitProblem of(problem, env, unit);
  const Schedule schedule = unit_schedule(of, tuning);
  return predict(schedule, of, traits_for(unit, schedule.threads));
}

template <UnitOf unit_of>
Tuning unit_complete(const Problem& problem, const Tuning& given, const Environment& env) {
  const Unit unit = unit_of(problem, env);
  return tuning_of(unit_schedule({problem, env, unit}, given));
}

}  // namespace rooflane::gemm
