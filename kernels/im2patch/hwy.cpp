// Patches with Highway: each row of a patch is a vector or a few, read from the image and written
// behind the one before. Patches are shared among threads. See im2patch.hpp.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/rows_schedule.hpp"
#include "kernels/im2patch/im2patch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/im2patch/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/row-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::im2patch {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

// A row of a patch, n elements; streamed only where every row is whole aligned vectors.
template <bool kStream>
HWY_INLINE void CopyRow(const float* from, float* to, std::size_t n) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if constexpr (kStream) {
      hn::Stream(hn::LoadU(d, from + i), d, to + i);
    } else {
      hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    }
  }
  if (i < n) {
    const hc::Part rest{n - i};
    hc::StoreRow(hc::LoadRow(d, from + i, rest), d, to + i, rest);
  }
}

template <bool kStream>
void Patches(const Image& io, std::int64_t begin, std::int64_t end) {
  const auto n = static_cast<std::size_t>(io.patch);
  for (std::int64_t index = begin; index < end; ++index) {
    float* to = io.to(index);
    for (std::int64_t c = 0; c < io.channels; ++c) {
      const float* from = io.from(index) + c * io.channel_stride;
      for (std::int64_t i = 0; i < io.patch; ++i, from += io.row_stride, to += n) {
        CopyRow<kStream>(from, to, n);
      }
    }
  }
  if constexpr (kStream) hwy::FlushStream();
}

// Patches [begin,end), counted over the images of a batch.
void CopyPatches(const Image& io, std::int64_t begin, std::int64_t end, bool stream) {
  const std::size_t lanes = hn::Lanes(Tag());
  const bool aligned = reinterpret_cast<std::uintptr_t>(io.patches) % (4 * lanes) == 0 &&
                       static_cast<std::size_t>(io.out_stride) % lanes == 0 &&
                       static_cast<std::size_t>(io.out_batch_stride) % lanes == 0 &&
                       static_cast<std::size_t>(io.patch) % lanes == 0;
  return stream && aligned ? Patches<true>(io, begin, end) : Patches<false>(io, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::im2patch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::im2patch {

HWY_EXPORT(CopyPatches);

namespace {

constexpr Tunable tunables[] = {
    {"stream",
     "1: write patches with non-temporal stores, past the caches, where their rows are whole "
     "aligned vectors",
     0, 1},
};

// Patches of all images, and the elements of one.
std::int64_t patches_of(const Problem& problem) {
  const std::int64_t patch = problem.size("patch");
  return problem.size("batch") * (problem.size("height") / patch) * (problem.size("width") / patch);
}
std::int64_t elements_of(const Problem& problem) {
  const std::int64_t patch = problem.size("patch");
  return problem.size("channels") * patch * patch;
}

int threads_for(const Problem& problem, const Environment& env) {
  return common::useful_threads(env.threads, patches_of(problem), elements_of(problem));
}

// Streamed where image and patches outgrow the caches.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const double written =
      sizeof(float) * static_cast<double>(patches_of(problem) * elements_of(problem));
  const bool stream = common::worth_streaming(operand_bytes(problem) - written, written,
                                              threads_for(problem, env), env);
  return {{{"stream", stream}}, {{"stream", !stream}}};
}

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        patches_(patches_of(problem)),
        elements_(elements_of(problem)),
        threads_(threads_for(problem, env)),
        pool_(env.pool),
        tuning_(tuning),
        target_(resolve_isa(env.isa)),
        copy_(ROOFLANE_HWY_FUNCTION(CopyPatches, target_)) {}

  void run() override {
    const bool stream = tuning_.get("stream", 0) != 0;
    if (threads_ == 1) return copy_(io_, 0, patches_, stream);
    common::for_rows(pool_, threads_, patches_, elements_, 1,
                     [&](common::RowRange rows, int) { copy_(io_, rows.begin, rows.end, stream); });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override { io_ = Image(problem(), operands); }

 private:
  std::int64_t patches_, elements_;
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(CopyPatches)) copy_;
  Image io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  return std::make_unique<HwyPlan>(problem, complete_tuning(hwy, problem, env, tuning), env);
}

}  // namespace

const Variant hwy = {.name = "hwy",
                     .kernel = &kernel,
                     .backend = &highway::backend,
                     .threads = Threads::many,
                     .tunables = tunables,
                     .unsupported = nullptr,
                     .tunings = tunings,
                     .plan = plan};

}  // namespace rooflane::im2patch
#endif  // HWY_ONCE
