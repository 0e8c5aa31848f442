// attention/hwy: Highway with run-time dispatch; FlashAttention's tiled online softmax, which never
// holds more scores than kv_block keys × one Q micro-panel per thread. Here: the plan and its first
// guesses. The loops: prefill-inl.h (vectors along the rows), decode-inl.h (along head_dim).
#include "kernels/attention/hwy.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/attention/decode-inl.h"
#include "kernels/attention/prefill-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::attention {
namespace HWY_NAMESPACE {

std::int64_t Lanes() { return LaneCount(); }
bool IsDecode(const Sizes& s) { return DecodeIsFaster(s); }
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
#include "generated_catalogue.hpp"

namespace rooflane::attention {

HWY_EXPORT(Lanes);
HWY_EXPORT(IsDecode);
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
};
// A task's keys are split among threads only into chunks of this many tiles or more, so that
// joining them stays below a few per cent of the work.
constexpr std::int64_t least_tiles_per_chunk = 4;
// Tasks per thread that even out a shared machine's jitter.
constexpr std::int64_t tasks_per_thread = 4;

std::int64_t divide_up(std::int64_t x, std::int64_t by) { return (x + by - 1) / by; }

std::int64_t l1d_bytes() {
  return static_cast<std::int64_t>(std::max<std::size_t>(machine().l1d_bytes, 32 << 10));
}
std::int64_t l2_bytes() {
  return static_cast<std::int64_t>(std::max<std::size_t>(machine().l2_bytes, 256 << 10));
}

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        tuning_(tuning),
        target_(resolve_isa(env.isa)),
        threads_(env.threads),
        pool_(env.pool),
        run_task_(ROOFLANE_HWY_FUNCTION(RunTask, target_)),
        merge_task_(ROOFLANE_HWY_FUNCTION(MergeTask, target_)),
        job_(Sizes(problem)) {
    const Sizes& s = job_.s;
    const bool decode = ROOFLANE_HWY_FUNCTION(IsDecode, target_)(s);
    const std::int64_t rows = std::max<std::int64_t>(job_.rows(), 1);
    job_.q_block = decode ? rows : std::min(tuning.get("q_block", 1), rows);
    job_.kv_block = tuning.get("kv_block", 1);
    job_.decode_prefetch = static_cast<DecodePrefetch>(tuning.get("prefetch", 0));
    const std::int64_t float_bytes = sizeof(float);
    const std::int64_t width = s.head_dim + s.v_dim;
    const auto kv_bytes = static_cast<std::int64_t>(s.kv_type->bytes(s.keys_seen() * width));
    const std::int64_t qo_bytes = s.group() * s.q_len * width * float_bytes;
    job_.prefetch_again = kv_bytes >= l2_bytes() / 2;
    // Where a thread's share stays in its L2, prefetches only take load slots from the products,
    // and where half of it does they gain nothing.
    job_.prefetch = s.batch * s.kv_heads * (kv_bytes + qo_bytes) >= 2 * threads_ * l2_bytes();
    job_.row_blocks = divide_up(job_.rows(), job_.q_block);
    const std::int64_t most_keys = job_.most_keys(s);
    job_.chunk_len = std::max<std::int64_t>(most_keys, 1);
    const std::int64_t wanted = tasks_per_thread * threads_;
    if (threads_ > 1 && job_.merge_tasks() > 0 && job_.merge_tasks() < wanted) {
      const std::int64_t tiles = divide_up(most_keys, job_.kv_block);
      const std::int64_t chunks =
          std::min(divide_up(wanted, job_.merge_tasks()), tiles / least_tiles_per_chunk);
      if (chunks > 1) {
        job_.chunk_len = divide_up(tiles, chunks) * job_.kv_block;
        job_.chunks = divide_up(most_keys, job_.chunk_len);
      }
    }
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

// Four pages in turn for keys and values that one core's L2 does not hold, where L3 latency is
// high. Rows just before their use where they come from memory (beyond three quarters of L3, which
// neighbours share) to a core whose L1 has no room for the prefetch distance.
DecodePrefetch guess_decode_prefetch(double kv_bytes, bool can_page) {
  const Machine& m = machine();
  if (l3_latency_is_high(m)) {
    const bool beyond_l2 = kv_bytes > 2.0 * static_cast<double>(l2_bytes());
    return beyond_l2 && can_page ? DecodePrefetch::pages : DecodePrefetch::distance;
  }
  const bool beyond_l3 = kv_bytes > static_cast<double>(m.l3_bytes) * 3 / 4;
  return beyond_l3 && l1_is_below_48k(m) ? DecodePrefetch::at_use : DecodePrefetch::distance;
}

// Prefill: a score tile of kv_block × a Q micro-panel of 3 vectors fills half of L1, the rest is
// for Qᵀ and what is read of K and V. Decode: tiles of K and V, and the next of K, fill a quarter
// of L2; where rows come from memory just before their use, tiles of K and V half of it, as each
// change from one to the other waits for memory.
std::int64_t guess_kv_block(const Sizes& s, bool decode, DecodePrefetch prefetch,
                            std::int64_t lanes) {
  const std::int64_t share = prefetch == DecodePrefetch::at_use ? 4 : 12;
  // What decode converts stays in L1: of K in half of it, then of V.
  const bool in_l2 = decode && s.kv_type == &float32;
  const std::int64_t bytes = in_l2 ? l2_bytes() / share : l1d_bytes() / 2;
  const std::int64_t width = decode ? std::max(s.head_dim, s.v_dim) : 3 * lanes;
  const std::int64_t key_bytes = width * sizeof(float);
  return std::clamp<std::int64_t>(bytes / key_bytes / 16 * 16, 16, 512);
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const std::int64_t target = resolve_isa(env.isa);
  const Sizes s(problem);
  const std::int64_t lanes = ROOFLANE_HWY_FUNCTION(Lanes, target)();
  const bool decode = ROOFLANE_HWY_FUNCTION(IsDecode, target)(s);
  const std::int64_t q_panel = 3 * lanes;
  std::vector<Tuning> space;
  const double kv_bytes =
      static_cast<double>(s.batch * s.kv_heads) *
      static_cast<double>(s.kv_type->bytes(s.keys_seen() * (s.head_dim + s.v_dim)));
  const bool can_page =
      decode && s.kv_type == &float32 && s.head_dim % lanes == 0 && s.v_dim == s.head_dim;
  const DecodePrefetch prefetch = guess_decode_prefetch(kv_bytes, can_page);
  const std::int64_t kv_guess = guess_kv_block(s, decode, prefetch, lanes);
  const auto add = [&](std::int64_t q_block, std::int64_t kv_block) {
    const Tuning tuning = {
        {"q_block", q_block}, {"kv_block", kv_block}, {"prefetch", static_cast<int>(prefetch)}};
    if (std::find(space.begin(), space.end(), tuning) == space.end()) space.push_back(tuning);
  };
  if (decode) {
    const std::int64_t rows = std::max<std::int64_t>(s.group() * s.q_len, 1);
    add(rows, kv_guess);
    for (std::int64_t kv_block : {16, 32, 64, 128, 256}) add(rows, kv_block);
    for (const DecodePrefetch other :
         {DecodePrefetch::distance, DecodePrefetch::pages, DecodePrefetch::at_use}) {
      if (other == prefetch || (other == DecodePrefetch::pages && !can_page)) continue;
      space.push_back(space.front());
      space.back().set("prefetch", static_cast<int>(other));
    }
    return space;
  }
  // Two Q micro-panels per task halve what is read of K and V where they come from beyond L2.
  add(2 * q_panel, kv_guess);
  for (std::int64_t q_panels : {1, 2, 4}) {
    for (std::int64_t kv_block : {64, 128, 192, 256}) add(q_panels * q_panel, kv_block);
  }
  return space;
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
    .ladder = ladder,
    .dtypes = all_with_lengths,
};

}  // namespace rooflane::attention
#endif  // HWY_ONCE
