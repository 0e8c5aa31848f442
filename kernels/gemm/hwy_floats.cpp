// float32 by Highway's best ISA target at run time, threads from core/parallel.hpp. The scheme is
// that of Goto & van de Geijn, "Anatomy of high-performance matrix multiplication" (2008), in the
// words of BLIS: an MR×NR micro-kernel computes a micro-tile of c from an A micro-panel and a B
// micro-panel; a macro-kernel calls it over an mc×kc block of a and nc columns of b; packing makes
// blocks of micro-panels. c is row-major, so vectors lie along n. Unlike there, an operand that
// lies well is multiplied where it is, and what the next micro-kernels read is prefetched
// meanwhile.
//
// Here: the loops' operands and memory. The map, with the fields of a schedule where they act:
//   hwy_schedule.hpp, .cpp  what a schedule may be: its fields, their text, which are legal
//   hwy_candidates.cpp      which schedules a problem has, and the choice of one
//   hwy_cost.hpp, .cpp      the time that each is predicted to take
//   hwy_job.hpp             what one run needs: a schedule, operands, memory; tasks (batch_parts)
//   hwy_loops.cpp           path
//   hwy_loops-inl.h         unpacked and packed: the loops over nc, kb, kc and mc; pack_b, pack_a;
//                           static, m_parts, n_parts, k_parts
//   shared_pieces.hpp       who packs which piece of what threads share, and when it is done
//   hwy_macro-inl.h         the macro-kernel: mr; prefetching
//   hwy_micro-inl.h         the micro-kernel: mr, nr; packing micro-panels
//   hwy_dot-inl.h           dot products: mr, kc, nc, order, pack_a (the skinny operand)
//   hwy_outer-inl.h         outer products: kc, nc, order
//   hwy_transpose-inl.h     transposed: what is packed or stored transposed
//   hwy_part-inl.h          partial vectors at the edges
//   hwy_epilogue.hpp, .cpp  epilogue= and gate=, on what was just stored
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_floats.cpp"
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
void Pack(const Job& job, const MatrixView& b, float* to);
MicroTile MicroTileOfTarget();

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <utility>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "kernels/gemm/hwy_cost.hpp"
#include "kernels/gemm/hwy_floats.hpp"
#include "kernels/gemm/hwy_units.hpp"

namespace rooflane::gemm {

HWY_EXPORT(Run);
HWY_EXPORT(Pack);
HWY_EXPORT(MicroTileOfTarget);

MicroTile micro_tile_at(std::int64_t target) {
  return ROOFLANE_HWY_FUNCTION(MicroTileOfTarget, target)();
}

Schedule float_schedule(const Gemm& g, const Environment& env, const Tuning& tuning) {
  const MicroTile tile = micro_tile_at(resolve_isa(env.isa));
  const bool whole = tuning.values().size() >= schedule_tunables.size();
  const Schedule base = whole ? Schedule() : best_schedule(g, tile, env, tuning);
  return rounded(with(base, tuning), g, tile);
}

namespace {

using std::int64_t;

class FloatProduct final : public Product {
 public:
  FloatProduct(const Problem& problem, const Schedule& schedule, const Environment& env,
               const ProductOperands& constants, bool columns_as_rows)
      : problem_(problem),
        env_(env),
        target_(resolve_isa(env.isa)),
        tile_(micro_tile_at(target_)),
        run_(ROOFLANE_HWY_FUNCTION(Run, target_)),
        column_(columns_as_rows && is_column(Gemm(problem))),
        job_(columns_as_rows ? as_row(Gemm(problem)) : Gemm(problem)) {
    static_cast<Schedule&>(job_) = schedule;
    if (job_.path == Path::scale) return;
    const Gemm& g = job_.g;
    job_.pool = env.pool;
    const Gemm product = formed(job_, g);
    job_.rows = product.m;
    job_.cols = product.n;
    if (job_.path == Path::unpacked) {
      job_.b_panels = MicroPanels(job_.cols, job_.nr, tile_.lanes);
    }
    if (job_.path == Path::packed) {
      job_.batch_group = div_up(g.batch, job_.batch_parts);
      job_.pieces = PackedPieces(job_, product, tile_);
      packing_ = SharedPieces(job_.pieces.of_phase(), job_.threads, job_.pieces.phases);
      job_.packing = &packing_;
    }
    allocate();
    if (g.prepack) pack(constants.b);
  }

  void bind(const ProductOperands& operands, const StoreJob& store) override {
    const auto gaps = [](const View& view) { return view.data != nullptr && view.strides[1] != 1; };
    with_gaps_.reset();
    if (column_ && (gaps(store.c) || gaps(store.c0) || gaps(store.residual))) {
      const Schedule schedule = float_schedule(Gemm(problem_), env_, Tuning());
      with_gaps_ = std::make_unique<FloatProduct>(problem_, schedule, env_, operands, false);
      with_gaps_->bind(operands, store);
      return;
    }
    job_.a = operands.a;
    job_.b = job_.g.prepack ? packed_rows_ : operands.b;
    if (column_ != job_.transposed) std::swap(job_.a, job_.b);
    job_.epilogue = store.has_epilogue ? store.apply : nullptr;
    job_.epilogue_job = store.epilogue;
    if (column_) job_.epilogue_job.bias_step = 0;
    if (job_.g.reads_c0()) job_.c0 = const_matrix(store.c0);
    job_.c = matrix(store.c);
  }

  void run() override {
    if (with_gaps_ != nullptr) return with_gaps_->run();
    run_(job_);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.path = fma_path(target_);
    facts.tuning = tuning_of(job_);
    facts.packed_bytes = packed_bytes_;
    facts.workspace_bytes = workspace_.bytes() + packed_.bytes() - packed_bytes_ + packing_.bytes();
    if (with_gaps_ != nullptr) facts.workspace_bytes += with_gaps_->facts().workspace_bytes;
    return facts;
  }

  std::span<const std::byte> kept() const override {
    return {static_cast<const std::byte*>(packed_.data()), packed_.bytes()};
  }

 private:
  void allocate() {
    const Workspace w = workspace_of(job_, job_.g, tile_);
    job_.scratch_floats = w.of_thread;
    workspace_ =
        Buffer::in_huge_pages(static_cast<std::size_t>(w.floats(job_.threads)) * sizeof(float));
    job_.shared = workspace_.f32();
    job_.shared_a = job_.shared + w.shared - w.shared_a;
    job_.scratch = job_.shared + w.shared;
  }

  void pack(const MatrixView& b) {
    const Gemm& g = job_.g;
    packed_bytes_ = static_cast<std::size_t>(g.batch * g.k * g.n * float_bytes);
    // Whole vectors are loaded past the end here, too.
    packed_ = Buffer(packed_bytes_ + static_cast<std::size_t>(tile_.lanes * float_bytes));
    std::fill_n(packed_.f32() + packed_bytes_ / sizeof(float), tile_.lanes, 0.0f);
    ROOFLANE_HWY_FUNCTION(Pack, target_)(job_, b, packed_.f32());
    if (job_.transposed) {  // dot; the packed path takes no prepacked b transposed
      packed_rows_ = {packed_.f32(), g.n * g.k, g.k, 1};
    } else {
      job_.prepacked = packed_.f32();
    }
  }

  const Problem problem_;
  const Environment env_;
  const int64_t target_;
  const MicroTile tile_;
  const RunFunction run_;
  const bool column_;  // job_ computes a single column of c as a row
  Job job_;
  SharedPieces packing_;
  Buffer workspace_, packed_;
  MatrixView packed_rows_;  // b of prepack=1 where it is the skinny operand
  std::size_t packed_bytes_ = 0;
  // Where that column of c, or one that is added to it, has gaps: computes it as a column.
  std::unique_ptr<FloatProduct> with_gaps_;
};

}  // namespace

std::unique_ptr<Product> float_product(const Problem& problem, const Schedule& schedule,
                                       const Environment& env, const ProductOperands& constants) {
  return std::make_unique<FloatProduct>(problem, schedule, env, constants, true);
}

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
