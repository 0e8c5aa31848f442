// See units.hpp. A unit is chosen only if it keeps the math's promise: bf16 lets subnormal numbers
// count as zero, as vdpbf16ps and AMX do, fp32 does not; integers are exact by every unit.
#include "kernels/gemm/units.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "backends/highway.hpp"
#include "core/error.hpp"
#include "core/text.hpp"
#include "core/traits.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/gemm/driver.hpp"
#include "kernels/gemm/hwy_cost.hpp"
#include "kernels/gemm/hwy_floats.hpp"
#include "kernels/gemm/hwy_units.hpp"
#include "kernels/gemm/operands_refusal.hpp"
#include "kernels/gemm/planned.hpp"
#include "kernels/gemm/unit_product.hpp"
#include "kernels/gemm/unit_schedule.hpp"

namespace rooflane::gemm {
namespace {

constexpr UnitKind all_kinds[] = {UnitKind::fma,      UnitKind::pmaddwd,        UnitKind::vdpbf16ps,
                                  UnitKind::vpdpbusd, UnitKind::block_vpdpbusd, UnitKind::amx};

bool has(UnitSet set, UnitKind kind) { return (set | kind) == set; }
bool is_highways(UnitKind kind) { return kind == UnitKind::fma || kind == UnitKind::pmaddwd; }
int number(UnitKind kind) { return static_cast<int>(kind); }

// float32 has loops and schedules of its own.
bool is_of_floats(UnitSet set, const Problem& problem, const Environment& env) {
  return has(set, UnitKind::fma) && env.math == fp32.name && dtype_text(problem) == float32.name;
}

bool knows(UnitKind kind, std::string_view math) {
  switch (kind) {
    case UnitKind::fma:
      return math == fp32.name || math == math_f16.name || math == math_bf16.name;
    case UnitKind::pmaddwd:
    case UnitKind::vpdpbusd:
      return math == math_int8.name || math == math_int8_dynamic.name;
    case UnitKind::vdpbf16ps:
      return math == math_bf16.name;
    case UnitKind::block_vpdpbusd:
      return math == math_int8_dynamic.name;
    case UnitKind::amx:
      return math == math_bf16.name || math == math_int8.name || math == math_int8_dynamic.name;
  }
  return false;
}

// Why a unit that knows the math does not take the formats.
std::optional<std::string> format_defect(UnitKind kind, const Problem& problem,
                                         const Environment& env) {
  const auto needs = [&](const char* name, const std::string& what) {
    return fmt::format("math {}: {}={}, computed is {}", env.math, name,
                       problem.dtype(name)->short_name, what);
  };
  if (kind == UnitKind::fma) return unrounded_operands(problem, env);
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type");
  const bool floats = a == &float32 || a == &bfloat16;
  if (env.math == math_bf16.name) {
    if (!floats) return needs("a_type", "f32 or bf16");
    if (b != &bfloat16) return needs("b_type", "bf16");
  }
  if (env.math == math_int8_dynamic.name) {
    const bool in_blocks = kind == UnitKind::block_vpdpbusd;
    if (in_blocks && !floats) return needs("a_type", "f32 or bf16");
    if (in_blocks && b->block == 1) return needs("b_type", "in blocks");
    if (!in_blocks && b != &int8_per_channel) return needs("b_type", "s8c");
  }
  return std::nullopt;
}

// Why this CPU, or the ISA target asked for, has not got a unit.
std::optional<std::string> absence_of(UnitKind kind, const Environment& env) {
  if (is_highways(kind)) return std::nullopt;
  if (!env.isa.empty() && !isa_name(resolve_isa(env.isa)).starts_with("AVX3")) {
    return fmt::format("isa {}: without the units of AVX-512 and AMX", env.isa);
  }
  return absence_of_x86(kind);
}

Unit unit_of(UnitSet set, UnitKind kind, const Problem& problem, const Environment& env) {
  const std::int64_t target = resolve_isa(env.isa);
  if (kind == UnitKind::fma)
    return fma_unit(problem.dtype("a_type"), problem.dtype("b_type"), target);
  if (kind == UnitKind::pmaddwd) return pair_unit(target);
  Unit unit = x86_unit(kind, problem, env);
  // Rows of hwy say which target stores the sums.
  if (has(set, UnitKind::fma)) unit.isa = isa_name(target);
  return unit;
}

// Variants of one instruction set do not depend on Highway's target.
Environment own_environment(UnitSet set, Environment env) {
  if (!has(set, UnitKind::fma)) env.isa.clear();
  return env;
}

// Those of the set that take the problem; `anywhere`: on any CPU that has them.
std::vector<UnitKind> kinds_for(UnitSet set, const Problem& problem, const Environment& env,
                                bool anywhere) {
  std::vector<UnitKind> list;
  for (const UnitKind kind : all_kinds) {
    if (!has(set, kind) || !knows(kind, env.math) || format_defect(kind, problem, env)) continue;
    if (anywhere || !absence_of(kind, env)) list.push_back(kind);
  }
  return list;
}

// Why no unit of the set takes a problem here; nothing when one does.
std::optional<std::string> reasons_against(UnitSet set, const Problem& problem,
                                           const Environment& env) {
  std::vector<std::string> reasons;
  for (const UnitKind kind : all_kinds) {
    if (!has(set, kind) || !knows(kind, env.math)) continue;
    auto reason = format_defect(kind, problem, env);
    if (!reason) reason = absence_of(kind, env);
    if (!reason) return std::nullopt;
    if (std::find(reasons.begin(), reasons.end(), *reason) == reasons.end()) {
      reasons.push_back(*std::move(reason));
    }
  }
  return join(reasons, "; ");
}

// A unit with a schedule.
struct Choice {
  Unit unit;
  Schedule schedule;
  double seconds;
};

double seconds_of(const Schedule& schedule, const UnitProblem& of) {
  return predict(schedule, of, traits_for(of.unit, schedule.threads));
}

// The one of these units that is predicted to be fastest, with the values that the tuning gives.
Choice fastest(UnitSet set, std::vector<UnitKind> kinds, const Problem& problem,
               const Tuning& tuning, const Environment& env) {
  std::optional<Choice> best;
  std::reverse(kinds.begin(), kinds.end());  // the fastest one first: less is predicted of others
  for (const UnitKind kind : kinds) {
    Unit unit = unit_of(set, kind, problem, env);
    const UnitProblem of(problem, env, unit);
    const auto schedule =
        best ? unit_schedule(of, tuning, best->seconds) : unit_schedule(of, tuning);
    if (!schedule) continue;
    const double seconds = kinds.size() > 1 ? seconds_of(*schedule, of) : 0;
    if (!best || seconds < best->seconds) best = {std::move(unit), *schedule, seconds};
  }
  return *std::move(best);
}

// The choice of the unit that the tuning names, whether or not this CPU has it; else of the
// fastest.
Choice choose(UnitSet set, const Problem& problem, const Tuning& tuning, const Environment& env) {
  // Predictions for variants of one instruction set are made on any CPU.
  const std::vector<UnitKind> known = kinds_for(set, problem, env, true);
  std::vector<UnitKind> kinds =
      has(set, UnitKind::fma) ? kinds_for(set, problem, env, false) : known;
  const auto named = tuning.find("unit");
  for (const UnitKind kind : known) {
    if (named == number(kind)) kinds = {kind};
  }
  if (kinds.empty()) throw unavailable_error(*reasons_against(set, problem, env));
  if (tuning.values().empty()) {
    static Planned<Choice> planned;
    const std::array<DType, 3> types = {problem.dtype("a_type"), problem.dtype("b_type"),
                                        problem.dtype("c_type")};
    return planned.of(PlannedFor(Gemm(problem), env, types, set),
                      [&] { return fastest(set, kinds, problem, tuning, env); });
  }
  Choice choice = fastest(set, std::move(kinds), problem, tuning, env);
  if (named) choice.schedule.unit = static_cast<UnitKind>(*named);
  return choice;
}

std::optional<std::string> defect_of(UnitSet set, const Choice& choice, const Problem& problem,
                                     const Environment& env) {
  const std::vector<UnitKind> kinds = kinds_for(set, problem, env, false);
  if (std::find(kinds.begin(), kinds.end(), choice.schedule.unit) == kinds.end()) {
    std::vector<std::string> names;
    for (const UnitKind kind : kinds) names.push_back(std::to_string(number(kind)));
    return fmt::format("unit={}: allowed here {} {}", number(choice.schedule.unit),
                       names.size() > 1 ? "are" : "is", join(names, ", "));
  }
  return defect_of(choice.schedule, UnitProblem(problem, env, choice.unit));
}

std::optional<std::string> defect_of_floats(const Schedule& schedule, const Gemm& g,
                                            const Environment& env) {
  const int most = std::max(1, env.threads);
  if (schedule.threads > most) return fmt::format("threads={} of {}", schedule.threads, most);
  return defect_of(schedule, g, micro_tile_at(resolve_isa(env.isa)));
}

// ---- the functions of a variant's record, core/variant.hpp

template <UnitSet set>
std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  return reasons_against(set, problem, own_environment(set, env));
}

template <UnitSet set>
std::vector<Tuning> tunings(const Problem& problem, const Environment& given) {
  const Environment env = own_environment(set, given);
  std::vector<Tuning> list;
  if (is_of_floats(set, problem, env)) {
    const MicroTile tile = micro_tile_at(resolve_isa(env.isa));
    for (const Schedule& schedule : candidates(as_row(Gemm(problem)), tile, env)) {
      list.push_back(tuning_of(schedule));
    }
    return list;
  }
  const bool anywhere = !has(set, UnitKind::fma);
  const std::vector<UnitKind> kinds = kinds_for(set, problem, env, anywhere);
  // If there are several units, fewer schedules of each.
  const std::size_t most = kinds.size() > 1 ? 20 : 40;
  std::vector<std::pair<double, Tuning>> ranked;
  for (const UnitKind kind : kinds) {
    const Unit unit = unit_of(set, kind, problem, env);
    const UnitProblem of(problem, env, unit);
    std::vector<Schedule> schedules = unit_candidates(of);
    schedules.resize(std::min(most, schedules.size()));
    for (const Schedule& schedule : schedules) {
      ranked.emplace_back(seconds_of(schedule, of), tuning_of(schedule));
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  for (auto& [seconds, tuning] : ranked) list.push_back(std::move(tuning));
  return list;
}

template <UnitSet set>
std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& given,
                           const Operands& constants) {
  const Environment env = own_environment(set, given);
  const auto check = [](const std::optional<std::string>& defect) {
    if (defect) throw argument_error("tuning: " + *defect);
  };
  if (is_of_floats(set, problem, env)) {
    const Gemm g = as_row(Gemm(problem));
    const Schedule schedule = float_schedule(g, env, tuning);
    check(defect_of(schedule, g, micro_tile_at(resolve_isa(env.isa))));
    return driver_plan(problem, env, constants,
                       [&](const Problem& product, const ProductOperands& of_product) {
                         return float_product(product, schedule, env, of_product);
                       });
  }
  if (auto reason = reasons_against(set, problem, env)) throw unavailable_error(*reason);
  const Choice choice = choose(set, problem, tuning, env);
  check(defect_of(set, choice, problem, env));
  return driver_plan(problem, env, constants,
                     [&](const Problem& product, const ProductOperands& of_product) {
                       return unit_product(product, choice.schedule, env, choice.unit, of_product);
                     });
}

template <UnitSet set>
std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& given) {
  const Environment env = own_environment(set, given);
  if (is_of_floats(set, problem, env)) {
    const Gemm g = as_row(Gemm(problem));
    return defect_of_floats(float_schedule(g, env, tuning), g, env);
  }
  return defect_of(set, choose(set, problem, tuning, env), problem, env);
}

template <UnitSet set>
double predicted_seconds(const Problem& problem, const Tuning& tuning, const Environment& given) {
  const Environment env = own_environment(set, given);
  if (is_of_floats(set, problem, env)) {
    const Gemm g = as_row(Gemm(problem));
    const std::int64_t target = resolve_isa(env.isa);
    const Schedule schedule = float_schedule(g, env, tuning);
    return (g.gate ? 2 : 1) *
           predict(schedule, g, micro_tile_at(target), traits(isa_name(target), schedule.threads));
  }
  const Choice choice = choose(set, problem, tuning, env);
  return seconds_of(choice.schedule, UnitProblem(problem, env, choice.unit));
}

template <UnitSet set>
Tuning complete(const Problem& problem, const Tuning& given, const Environment& asked) {
  const Environment env = own_environment(set, asked);
  if (is_of_floats(set, problem, env)) {
    return tuning_of(float_schedule(as_row(Gemm(problem)), env, given));
  }
  return tuning_of(choose(set, problem, given, env).schedule);
}

}  // namespace

template <UnitSet set>
Variant unit_variant(const char* name, const Backend* backend, std::span<const Math* const> maths,
                     std::span<const DType> dtypes) {
  return {.name = name,
          .kernel = &kernel,
          .backend = backend,
          .threads = Threads::many,
          .tunables = schedule_tunables,
          .unsupported = unsupported<set>,
          .tunings = tunings<set>,
          .plan = plan<set>,
          .tuning_defect = tuning_defect<set>,
          .predicted_seconds = predicted_seconds<set>,
          .complete = complete<set>,
          .maths = maths,
          .dtypes = dtypes};
}
#define ROOFLANE_UNIT_VARIANT(set)                                                              \
  template Variant unit_variant<set>(const char*, const Backend*, std::span<const Math* const>, \
                                     std::span<const DType>)
ROOFLANE_UNIT_VARIANT(every_unit);
ROOFLANE_UNIT_VARIANT(units_of_avx512);
ROOFLANE_UNIT_VARIANT(units_of_amx);
#undef ROOFLANE_UNIT_VARIANT

}  // namespace rooflane::gemm
