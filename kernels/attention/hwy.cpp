// attention/hwy: Highway with run-time dispatch; FlashAttention's tiled online softmax, which never
// holds more scores than kv_block keys × one Q micro-panel per thread. Here: the plan and its first
// guesses. The loops: prefill-inl.h (vectors along the rows), decode-inl.h (along head_dim).
#include "kernels/attention/hwy.hpp"

#include "kernels/attention/hwy_cost.hpp"
#include "kernels/common/rows_schedule.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/attention/decode-inl.h"
#include "kernels/attention/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

CodePath PathOf(const Sizes& s) { return {LaneCount(), kTile, DecodeIsFaster(s)}; }
std::int64_t ScratchFloats(const Job& job) {
  return DecodeIsFaster(job.s) ? DecodeScratch(job) : PrefillScratch(job);
}
void RunTask(const Job& job, std::int64_t index, int thread) {
  const Task task(job, index);
  float* scratch = job.scratch + thread * job.scratch_floats;
  if (DecodeIsFaster(job.s)) {
    Decode(job, task, scratch);
  } else {
    Prefill(job, task, scratch);
  }
}
void MergeTask(const Job& job, std::int64_t index) {
  MergeBlock(job, Task(job, index * job.chunks));
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/traits.hpp"
#include "generated_catalogue.hpp"

namespace rooflane::attention {

HWY_EXPORT(PathOf);
HWY_EXPORT(ScratchFloats);
HWY_EXPORT(RunTask);
HWY_EXPORT(MergeTask);

namespace {

constexpr Tunable tunables[] = {
    {"q_block", "rows (queries × heads that share a kv head) per task", 1, 4096},
    {"kv_block", "keys per score tile", 1, 4096},
    {"prefetch",
     "decode: rows of K and V are prefetched 16 KiB before their use, a single long row not at all "
     "(0), a line from each of four pages in turn if they are whole vectors without gaps, else as "
     "with 0 (1), or in order just before their use (2)",
     0, 2},
    {"threads", "threads that share the tasks", 1, 1 << 16},
};

std::int64_t divide_up(std::int64_t x, std::int64_t by) { return (x + by - 1) / by; }

std::int64_t l2_bytes() {
  return static_cast<std::int64_t>(std::max<std::size_t>(machine().l2_bytes, 256 << 10));
}

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        tuning_(tuning),
        target_(resolve_isa(env.isa)),
        threads_(Schedule(tuning).threads),
        pool_(env.pool),
        run_task_(ROOFLANE_HWY_FUNCTION(RunTask, target_)),
        merge_task_(ROOFLANE_HWY_FUNCTION(MergeTask, target_)),
        job_(Sizes(problem)) {
    const Sizes& s = job_.s;
    const bool decode = ROOFLANE_HWY_FUNCTION(PathOf, target_)(s).decode;
    const std::int64_t rows = std::max<std::int64_t>(job_.rows(), 1);
    Schedule schedule(tuning);
    schedule.q_block = decode ? rows : std::min(schedule.q_block, rows);
    job_.q_block = schedule.q_block;
    job_.kv_block = schedule.kv_block;
    job_.decode_prefetch = schedule.prefetch;
    const std::int64_t width = s.head_dim + s.v_dim;
    const auto kv_bytes = static_cast<std::int64_t>(s.kv_type->bytes(s.keys_seen() * width));
    const auto qo_bytes = static_cast<std::int64_t>(s.type->bytes(s.group() * s.q_len * width));
    job_.prefetch_again = kv_bytes >= l2_bytes() / 2;
    // Where a thread's share stays in its L2, prefetches only take load slots from the products,
    // and where half of it does they gain nothing.
    job_.prefetch = s.batch * s.kv_heads * (kv_bytes + qo_bytes) >= 2 * threads_ * l2_bytes();
    job_.row_blocks = divide_up(job_.rows(), job_.q_block);
    const KeyChunks chunks = key_chunks(s, schedule);
    job_.chunks = chunks.count;
    job_.chunk_len = chunks.length;
    job_.scratch_floats = ROOFLANE_HWY_FUNCTION(ScratchFloats, target_)(job_);
    job_.scratch_floats = divide_up(job_.scratch_floats, 16) * 16;  // threads on their own lines
    scratch_ = Buffer(static_cast<std::size_t>(job_.scratch_floats * threads_) * sizeof(float));
    job_.scratch = scratch_.f32();
    if (job_.chunks > 1) {
      partial_ =
          Buffer(static_cast<std::size_t>(job_.tasks() * job_.partial_floats()) * sizeof(float));
      job_.partial = partial_.f32();
    }
  }

  void run() override {
    parallel_for_static(pool_, threads_, job_.tasks(),
                        [this](std::int64_t task, int thread) { run_task_(job_, task, thread); });
    if (job_.chunks > 1) {
      parallel_for(pool_, threads_, job_.merge_tasks(), [this](std::int64_t task, int) {
        const PhaseTimer timer(RunPhase::reduce);
        merge_task_(job_, task);
      });
    }
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = scratch_.bytes() + partial_.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { job_.in = Bound(operands, job_.s); }

 private:
  Tuning tuning_;
  std::int64_t target_;
  int threads_;
  Pool* pool_;
  void (*run_task_)(const Job&, std::int64_t, int);
  void (*merge_task_)(const Job&, std::int64_t);
  Job job_;
  Buffer scratch_;  // [threads][scratch_floats]
  Buffer partial_;  // [tasks][partial_floats] when keys are split
};

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const std::int64_t target = resolve_isa(env.isa);
  const std::string isa = isa_name(target);
  const Sizes s(problem);
  std::vector<Tuning> space;
  for (const Schedule& schedule :
       schedules(s, ROOFLANE_HWY_FUNCTION(PathOf, target)(s), env.threads,
                 [&](int threads) -> const Traits& { return traits(isa, threads); })) {
    space.push_back(schedule.tuning());
  }
  return space;
}

double predicted_seconds(const Problem& problem, const Tuning& tuning, const Environment& env) {
  const std::int64_t target = resolve_isa(env.isa);
  const Sizes s(problem);
  const Schedule schedule(tuning);
  return predict(schedule, s, ROOFLANE_HWY_FUNCTION(PathOf, target)(s),
                 traits(isa_name(target), schedule.threads));
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return std::make_unique<HwyPlan>(problem, complete_tuning(hwy, problem, env, tuning), env);
}

}  // namespace

const Variant hwy = {
    .name = "hwy",
    .kernel = &kernel,
    .backend = &highway::backend,
    .threads = Threads::many,
    .tunables = tunables,
    .unsupported = nullptr,
    .tunings = tunings,
    .plan = plan,
    .tuning_defect = common::threads_defect,
    .predicted_seconds = predicted_seconds,
    .ladder = ladder,
    .dtypes = all_with_lengths,
};

}  // namespace rooflane::attention
#endif  // HWY_ONCE
