// GEMM, variant `hwy`: Highway's best ISA target at run time, threads from core/parallel.hpp. The
// scheme is that of Goto & van de Geijn, "Anatomy of high-performance matrix multiplication"
// (2008), in the words of BLIS: an MR×NR micro-kernel computes a micro-tile of c from an A
// micro-panel and a B micro-panel; a macro-kernel calls it over an mc×kc block of a and nc columns
// of b; packing makes blocks of micro-panels. c is row-major, so vectors lie along n. Unlike there,
// an operand that lies well is multiplied where it is, and what the next micro-kernels read is
// prefetched meanwhile.
//
// Other number formats than float32 are units of driver.cpp: hwy_units.cpp. Here: float32's plan
// and its memory. The map, with the fields of a schedule where they act:
//   hwy_schedule.hpp, .cpp  what a schedule may be: its fields, their text, which are legal
//   hwy_candidates.cpp      which schedules a problem has, and the choice of one
//   hwy_cost.hpp, .cpp      the time that each is predicted to take
//   hwy_job.hpp             what one run needs: a schedule, operands, memory; tasks (batch_parts)
//   hwy_loops.cpp           path
//   hwy_loops-inl.h         unpacked and packed: the loops over nc, kb, kc and mc; pack_b, share_a;
//                           static, m_parts, n_parts, k_parts
//   shared_pieces.hpp       who packs which piece of what threads share, and when it is done
//   hwy_macro-inl.h         the macro-kernel: order, mr; pack_a; prefetching
//   hwy_micro-inl.h         the micro-kernel: mr, nr, stream; packing micro-panels
//   hwy_dot-inl.h           dot products: mr, kc, nc, order, pack_a (the skinny operand)
//   hwy_outer-inl.h         outer products: kc, nc, order
//   hwy_transpose-inl.h     transposed: what is packed or stored transposed
//   hwy_part-inl.h          partial vectors at the edges
//   hwy_epilogue.hpp, .cpp  epilogue= and gate=, on what was just stored
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/gemm/hwy_job.hpp"

// hwy_loops.cpp has them, in units of their own.
HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

void Run(const Job& job);
// b of prepack=1, [batch] times k·n floats: rows [n,k] where b is the skinny operand, else blocks
// of kc rows in B micro-panels, as the packed path reads them.
void Pack(const Job& job, const Side& b, float* to);
MicroTile MicroTileOfTarget();

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <memory>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/traits.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gate_product.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_cost.hpp"
#include "kernels/gemm/hwy_units.hpp"
#include "kernels/gemm/operands_refusal.hpp"
#include "kernels/gemm/unit_variant.hpp"

namespace rooflane::gemm {

HWY_EXPORT(Run);
HWY_EXPORT(Pack);
HWY_EXPORT(MicroTileOfTarget);

namespace {

using std::int64_t;

MicroTile tile_at(std::int64_t target) {
  return ROOFLANE_HWY_FUNCTION(MicroTileOfTarget, target)();
}

// A tuning that names all fields is a schedule; else the best one that agrees, with what it names.
Schedule schedule_of(const Gemm& g, const MicroTile& tile, const Environment& env,
                     const Tuning& tuning) {
  const bool whole = tuning.values().size() >= schedule_tunables.size();
  const Schedule base = whole ? Schedule() : best_schedule(g, tile, env, tuning);
  return rounded(with(base, tuning), g, tile);
}

bool is_of_floats(const Problem& problem, const Environment& env) {
  return env.math == fp32.name && dtype_text(problem) == float32.name;
}

// Other formats and maths are a unit's (unit.hpp).
Unit unit_of(const Problem&, const Environment& env) {
  const bool integers = env.math == math_int8.name || env.math == math_int8_dynamic.name;
  return (integers ? pair_unit : fma_unit)(resolve_isa(env.isa));
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  if (!is_of_floats(problem, env)) return unit_tunings<unit_of>(problem, env);
  const Gemm g = as_row(Gemm(problem));
  std::vector<Tuning> list;
  const MicroTile tile = tile_at(resolve_isa(env.isa));
  for (const Schedule& schedule : candidates(g, tile, env)) {
    list.push_back(tuning_of(schedule));
  }
  return list;
}

double predicted_seconds(const Problem& problem, const Tuning& tuning, const Environment& env) {
  if (!is_of_floats(problem, env)) return unit_predicted_seconds<unit_of>(problem, tuning, env);
  const Gemm g = as_row(Gemm(problem));
  const std::int64_t target = resolve_isa(env.isa);
  const MicroTile tile = tile_at(target);
  const Schedule schedule = schedule_of(g, tile, env, tuning);
  const double products = g.gate ? 2 : 1;
  return products * predict(schedule, g, tile, traits(isa_name(target), schedule.threads));
}

Tuning complete(const Problem& problem, const Tuning& given, const Environment& env) {
  if (!is_of_floats(problem, env)) return unit_complete<unit_of>(problem, given, env);
  const MicroTile tile = tile_at(resolve_isa(env.isa));
  return tuning_of(schedule_of(as_row(Gemm(problem)), tile, env, given));
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env) {
  if (!is_of_floats(problem, env)) return unit_tuning_defect<unit_of>(problem, tuning, env);
  const Gemm g = as_row(Gemm(problem));
  const MicroTile tile = tile_at(resolve_isa(env.isa));
  const Schedule schedule = schedule_of(g, tile, env, tuning);
  if (schedule.threads > std::max(1, env.threads)) {
    return fmt::format("threads={} of {}", schedule.threads, std::max(1, env.threads));
  }
  return defect_of(schedule, g, tile);
}

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
          const Operands& constants, bool columns_as_rows = true)
      : Plan(problem),
        target_(resolve_isa(env.isa)),
        job_(columns_as_rows ? as_row(Gemm(problem)) : Gemm(problem)),
        column_(columns_as_rows && is_column(Gemm(problem))),
        env_(env) {
    const Gemm& g = job_.g;
    run_ = ROOFLANE_HWY_FUNCTION(Run, target_);
    tile_ = tile_at(target_);
    static_cast<Schedule&>(job_) = schedule_of(g, tile_, env, tuning);
    if (const auto defect = defect_of(job_, g, tile_)) throw argument_error("tuning: " + *defect);
    job_.pool = env.pool;
    const bool swapped = job_.path == Path::packed && job_.transposed;
    job_.rows = swapped ? g.n : g.m;
    job_.cols = swapped ? g.m : g.n;
    if (job_.path == Path::unpacked) {
      job_.b_panels = MicroPanels(job_.cols, job_.nr, tile_.lanes);
    }
    if (job_.path == Path::packed) {
      job_.batch_group = div_up(g.batch, job_.batch_parts);
      job_.pieces = PackedPieces(job_, g, tile_);
      packing_ = SharedPieces(job_.pieces.all());
      job_.packing = &packing_;
    }
    allocate();
    if (g.has_epilogue()) job_.epilogue = epilogue_function(target_);
    if (column_) job_.epilogue_job.bias_step = 0;
    if (g.prepack) pack(own_part_of_b(Gemm(problem), constants.at("b")));
    if (!g.gate) return;
    gate_.emplace(problem, constants, [&](const Problem& product, const Operands& of_product) {
      return std::make_unique<HwyPlan>(product, tuning_of(job_), env, of_product, column_);
    });
  }

  void run() override {
    if (has_gaps_) {
      with_gaps_->run();
      return;
    }
    if (gate_) gate_->run();
    run_(job_);
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    for (const HwyPlan* plan : {this, gate_ ? &gate_->plan() : nullptr}) {
      if (plan == nullptr || plan->packed_.bytes() == 0) continue;
      list.push_back({static_cast<const std::byte*>(plan->packed_.data()), plan->packed_.bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.path = fma_path(target_);
    facts.tuning = tuning_of(job_);
    facts.workspace_bytes = workspace_.bytes() + packed_.bytes() - packed_bytes_;
    facts.packed_bytes = packed_bytes_;
    if (has_gaps_) facts.workspace_bytes += with_gaps_->facts().workspace_bytes;
    if (gate_) gate_->add_to(facts);
    return facts;
  }

 private:
  void allocate() {
    const Workspace w = workspace_of(job_, job_.g, tile_);
    job_.scratch_floats = w.of_thread;
    if (job_.pack_a && !job_.share_a && job_.path == Path::packed) {
      job_.scratch_a = round_up(
          std::min(job_.mc, round_up(job_.rows, tile_.mr)) * std::min(job_.kc, job_.g.k), 16);
    }
    workspace_ = Buffer(static_cast<std::size_t>(w.bytes(job_.threads)));
    job_.shared = workspace_.f32();
    job_.shared_a = job_.shared + w.shared - w.shared_a;
    job_.scratch = job_.shared + w.shared;
  }

  void pack(const View& b) {
    const Gemm& g = job_.g;
    packed_bytes_ = static_cast<std::size_t>(g.batch * g.k * g.n * float_bytes);
    if (packed_bytes_ == 0 || job_.path == Path::scale) {
      packed_bytes_ = 0;
      return;
    }
    // Whole vectors are loaded past the end here, too.
    packed_ = Buffer(packed_bytes_ + static_cast<std::size_t>(tile_.lanes * float_bytes));
    std::fill_n(packed_.f32() + packed_bytes_ / sizeof(float), tile_.lanes, 0.0f);
    ROOFLANE_HWY_FUNCTION(Pack, target_)(job_, side_b(g, b), packed_.f32());
    if (job_.transposed) {  // dot; the packed path takes no prepacked b transposed
      job_.b = {packed_.f32(), g.n * g.k, g.k, 1};
    } else {
      job_.prepacked = packed_.f32();
    }
  }

  void on_bind(const Operands& operands) override {
    const Gemm& g = job_.g;
    const auto gaps = [&](const char* name) { return operands.at(name).strides[1] != 1; };
    has_gaps_ = column_ && (gaps("c") || (g.reads_c0() && gaps("c0")) ||
                            (g.epilogue.has(Epilogue::Op::add) && gaps("residual")));
    if (has_gaps_) {
      if (with_gaps_ == nullptr) {
        with_gaps_ = std::make_unique<HwyPlan>(problem(), Tuning(), env_, Operands(), false);
      }
      with_gaps_->bind(operands);
      return;
    }
    if (g.prepack) {
      job_.a = side_a(g, operands.at("a"));
    } else {
      const View b = own_part_of_b(Gemm(problem()), operands.at("b"));
      job_.a = side_a(g, column_ ? b : operands.at("a"));
      job_.b = side_b(g, column_ ? operands.at("a") : b);
    }
    if (gate_) {
      gate_->bind(operands);
      job_.epilogue_job.gate = gate_->sums();
    }
    if (g.has_epilogue()) job_.epilogue_job.bind(operands);
    if (job_.path == Path::packed && job_.transposed) std::swap(job_.a, job_.b);
    if (g.reads_c0()) job_.c0 = const_matrix(operands.at("c0"));
    job_.c = matrix(operands.at("c"));
    job_.stream_c = job_.stream && !g.reads_c0() && job_.epilogue == nullptr &&
                    job_.c.ld % tile_.lanes == 0 && job_.c.batch_stride % tile_.lanes == 0 &&
                    reinterpret_cast<std::uintptr_t>(job_.c.data) %
                            static_cast<std::uintptr_t>(tile_.lanes * float_bytes) ==
                        0;
  }

  const int64_t target_;
  MicroTile tile_{};
  RunFunction run_ = nullptr;
  Job job_;
  SharedPieces packing_;
  Buffer workspace_;
  Buffer packed_;
  std::size_t packed_bytes_ = 0;
  const bool column_;  // job_ computes a single column of c as a row
  // Where that column, or c0's, has gaps: another plan, which computes it as a column.
  bool has_gaps_ = false;
  std::unique_ptr<HwyPlan> with_gaps_;
  std::optional<GateProduct<HwyPlan>> gate_;
  const Environment env_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands& constants) {
  if (!is_of_floats(problem, env)) return unit_plan_of<unit_of>(problem, tuning, env, constants);
  return std::make_unique<HwyPlan>(problem, tuning, env, constants);
}

std::optional<std::string> unfused_epilogue(const Problem& problem, const Environment& env) {
  const std::string epilogue = epilogue_text(problem);
  if (epilogue.empty() || env.math != math_int8_dynamic.name) return std::nullopt;
  return fmt::format("{}: math {} computes the product alone", epilogue, env.math);
}

// What is decoded to float32 multiplies as bf16 and f16 do when both operands have that format.
std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  if (auto reason = unfused_epilogue(problem, env)) return reason;
  const DType b = problem.dtype("b_type");
  if (env.math == math_int8_dynamic.name && b != &int8_per_channel) {
    return fmt::format("math {}: b_type={}, computed is s8c", env.math, b->short_name);
  }
  return unrounded_operands(problem, env);
}

constexpr const Math* maths[] = {&fp32, &math_bf16, &math_f16, &math_int8, &math_int8_dynamic};

}  // namespace

const Variant hwy = {.name = "hwy",
                     .kernel = &kernel,
                     .backend = &highway::backend,
                     .threads = Threads::many,
                     .tunables = schedule_tunables,
                     .unsupported = unsupported,
                     .tunings = tunings,
                     .plan = plan,
                     .tuning_defect = tuning_defect,
                     .predicted_seconds = predicted_seconds,
                     .complete = complete,
                     .ladder = ladder,
                     .maths = maths,
                     .dtypes = all_types};

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
