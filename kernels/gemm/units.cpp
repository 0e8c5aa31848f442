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

bool is_highways(UnitKind kind) { return kind == UnitKind::fma || kind == UnitKind::pmaddwd; }
int number(UnitKind kind) { return static_cast<int>(kind); }

// A problem, and the units of the variant that is asked.
struct Asked {
  Asked(UnitSet units, const Problem& of, const Environment& given)
      : set(units), problem(of), env(given) {
    // Variants of one instruction set do not depend on Highway's target.
    if (!highway()) env.isa.clear();
  }
  bool has(UnitKind kind) const { return (set | kind) == set; }
  bool highway() const { return has(UnitKind::fma); }
  // float32 has loops and schedules of its own.
  bool floats() const {
    return highway() && env.math == fp32.name && dtype_text(problem) == float32.name;
  }
  UnitSet set;
  const Problem& problem;
  Environment env;
};

bool knows(UnitKind kind, std::string_view math) {
  const bool bf16 = math == math_bf16.name, dynamic = math == math_int8_dynamic.name;
  const bool integers = dynamic || math == math_int8.name;
  switch (kind) {
    case UnitKind::fma:
      return bf16 || math == fp32.name || math == math_f16.name;
    case UnitKind::pmaddwd:
    case UnitKind::vpdpbusd:
      return integers;
    case UnitKind::vdpbf16ps:
      return bf16;
    case UnitKind::block_vpdpbusd:
      return dynamic;
    case UnitKind::amx:
      return bf16 || integers;
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

Unit unit_of(const Asked& of, UnitKind kind) {
  const std::int64_t target = resolve_isa(of.env.isa);
  if (kind == UnitKind::fma)
    return fma_unit(of.problem.dtype("a_type"), of.problem.dtype("b_type"), target);
  if (kind == UnitKind::pmaddwd) return pair_unit(target);
  Unit unit = x86_unit(kind, of.problem, of.env);
  // Rows of hwy say which target stores the sums.
  if (of.highway()) unit.isa = isa_name(target);
  return unit;
}

// Those of the set that take the problem; `anywhere`: on any CPU that has them.
std::vector<UnitKind> kinds_for(const Asked& of, bool anywhere) {
  std::vector<UnitKind> list;
  for (const UnitKind kind : all_kinds) {
    if (!of.has(kind) || !knows(kind, of.env.math) || format_defect(kind, of.problem, of.env)) {
      continue;
    }
    if (anywhere || !absence_of(kind, of.env)) list.push_back(kind);
  }
  return list;
}

// Why no unit of the set takes a problem here; nothing when one does.
std::optional<std::string> reasons_against(const Asked& of) {
  std::vector<std::string> reasons;
  for (const UnitKind kind : all_kinds) {
    if (!of.has(kind) || !knows(kind, of.env.math)) continue;
    auto reason = format_defect(kind, of.problem, of.env);
    if (!reason) reason = absence_of(kind, of.env);
    if (!reason) return std::nullopt;
    if (std::find(reasons.begin(), reasons.end(), *reason) == reasons.end()) {
      reasons.push_back(*std::move(reason));
    }
  }
  return join(reasons, "; ");
}

// A unit with a schedule; without a unit float32's loops.
struct Choice {
  std::optional<Unit> unit;
  Schedule schedule;
  double seconds;
};

double seconds_of(const Schedule& schedule, const UnitProblem& of) {
  return predict(schedule, of, traits_for(of.unit, schedule.threads));
}
double seconds_of(const Asked& of, const Choice& choice) {
  const Schedule& s = choice.schedule;
  if (choice.unit) return seconds_of(s, UnitProblem(of.problem, of.env, *choice.unit));
  const Gemm g = as_row(Gemm(of.problem));
  const std::int64_t target = resolve_isa(of.env.isa);
  return (g.gate ? 2 : 1) *
         predict(s, g, micro_tile_at(target), traits(isa_name(target), s.threads));
}

// The one of these units that is predicted to be fastest, with the values that the tuning gives.
Choice fastest(const Asked& of, std::vector<UnitKind> kinds, const Tuning& tuning) {
  std::optional<Choice> best;
  std::reverse(kinds.begin(), kinds.end());  // the fastest one first: less is predicted of others
  for (const UnitKind kind : kinds) {
    Unit unit = unit_of(of, kind);
    const UnitProblem with_unit(of.problem, of.env, unit);
    const auto schedule =
        best ? unit_schedule(with_unit, tuning, best->seconds) : unit_schedule(with_unit, tuning);
    if (!schedule) continue;
    const double seconds = kinds.size() > 1 ? seconds_of(*schedule, with_unit) : 0;
    if (!best || seconds < best->seconds) best = {std::move(unit), *schedule, seconds};
  }
  return *std::move(best);
}

// The choice of the unit that the tuning names, whether or not this CPU has it; else of the
// fastest.
Choice choose(const Asked& of, const Tuning& tuning) {
  if (of.floats()) {
    return {std::nullopt, float_schedule(as_row(Gemm(of.problem)), of.env, tuning), 0};
  }
  // Predictions for variants of one instruction set are made on any CPU.
  const std::vector<UnitKind> known = kinds_for(of, true);
  std::vector<UnitKind> kinds = of.highway() ? kinds_for(of, false) : known;
  const auto named = tuning.find("unit");
  for (const UnitKind kind : known) {
    if (named == number(kind)) kinds = {kind};
  }
  if (kinds.empty()) throw unavailable_error(*reasons_against(of));
  if (tuning.values().empty()) {
    static Planned<Choice> planned;
    const std::array<DType, 3> types = {of.problem.dtype("a_type"), of.problem.dtype("b_type"),
                                        of.problem.dtype("c_type")};
    return planned.of(PlannedFor(Gemm(of.problem), of.env, types, of.set),
                      [&] { return fastest(of, kinds, tuning); });
  }
  Choice choice = fastest(of, std::move(kinds), tuning);
  if (named) choice.schedule.unit = static_cast<UnitKind>(*named);
  return choice;
}

std::optional<std::string> defect_of(const Asked& of, const Choice& choice) {
  const Schedule& s = choice.schedule;
  if (!choice.unit) {
    const int most = std::max(1, of.env.threads);
    if (s.threads > most) return fmt::format("threads={} of {}", s.threads, most);
    return defect_of(s, as_row(Gemm(of.problem)), micro_tile_at(resolve_isa(of.env.isa)));
  }
  const std::vector<UnitKind> kinds = kinds_for(of, false);
  if (std::find(kinds.begin(), kinds.end(), s.unit) == kinds.end()) {
    std::vector<std::string> names;
    for (const UnitKind kind : kinds) names.push_back(std::to_string(number(kind)));
    return fmt::format("unit={}: allowed here {} {}", number(s.unit),
                       names.size() > 1 ? "are" : "is", join(names, ", "));
  }
  return defect_of(s, UnitProblem(of.problem, of.env, *choice.unit));
}

// ---- the functions of a variant's record, core/variant.hpp

template <UnitSet set>
std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  return reasons_against(Asked(set, problem, env));
}

template <UnitSet set>
std::vector<Tuning> tunings(const Problem& problem, const Environment& given) {
  const Asked of(set, problem, given);
  std::vector<Tuning> list;
  if (of.floats()) {
    const MicroTile tile = micro_tile_at(resolve_isa(of.env.isa));
    for (const Schedule& schedule : candidates(as_row(Gemm(problem)), tile, of.env)) {
      list.push_back(tuning_of(schedule));
    }
    return list;
  }
  const std::vector<UnitKind> kinds = kinds_for(of, !of.highway());
  // If there are several units, fewer schedules of each.
  const std::size_t most = kinds.size() > 1 ? 20 : 40;
  std::vector<std::pair<double, Tuning>> ranked;
  for (const UnitKind kind : kinds) {
    const Unit unit = unit_of(of, kind);
    const UnitProblem with_unit(problem, of.env, unit);
    std::vector<Schedule> schedules = unit_candidates(with_unit);
    schedules.resize(std::min(most, schedules.size()));
    for (const Schedule& schedule : schedules) {
      ranked.emplace_back(seconds_of(schedule, with_unit), tuning_of(schedule));
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
  const Asked of(set, problem, given);
  if (auto reason = reasons_against(of)) throw unavailable_error(*reason);
  const Choice choice = choose(of, tuning);
  if (const auto defect = defect_of(of, choice)) throw argument_error("tuning: " + *defect);
  return driver_plan(
      problem, of.env, constants, [&](const Problem& product, const ProductOperands& of_product) {
        const Schedule& s = choice.schedule;
        return choice.unit ? unit_product(product, s, of.env, *choice.unit, of_product)
                           : float_product(product, s, of.env, of_product);
      });
}

template <UnitSet set>
std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  const Asked of(set, problem, env);
  return defect_of(of, choose(of, tuning));
}

template <UnitSet set>
double predicted_seconds(const Problem& problem, const Tuning& tuning, const Environment& env) {
  const Asked of(set, problem, env);
  return seconds_of(of, choose(of, tuning));
}

template <UnitSet set>
Tuning complete(const Problem& problem, const Tuning& given, const Environment& env) {
  return tuning_of(choose(Asked(set, problem, env), given).schedule);
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
