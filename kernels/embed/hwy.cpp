// Embedding with Highway: whole vectors are copied from a row of the table to one of y. The next
// row is prefetched meanwhile, since hardware cannot predict its address: only its id gives it.
// Rows are shared among threads. See embed.hpp.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/rows_schedule.hpp"
#include "kernels/embed/embed.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embed/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::embed {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

// y = a row of the table, n elements.
template <bool kStream>
HWY_INLINE void WriteRow(const float* row, float* y, std::size_t n) {
  const Tag d;
  hc::WriteElements<kStream>(d, y, n, [=](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return hc::LoadRow(d, row + i, fill);
  });
}
template <bool kStream>
HWY_INLINE void WriteRow(const Float16* row, float* y, std::size_t n) {
  hc::Widen(row, y, n);
}
template <bool kStream>
HWY_INLINE void WriteRow(const BFloat16* row, float* y, std::size_t n) {
  hc::Widen(row, y, n);
}

HWY_INLINE float ScaleOf(const BlockQ8& block) {
  const hn::CappedTag<float, 1> one;
  const hn::Rebind<std::uint16_t, decltype(one)> bits;
  return hn::GetLane(hc::Short<Float16>::Load(one, bits, &block.scale));
}

template <bool kStream>
HWY_INLINE void WriteRow(const BlockQ8* block, float* y, std::size_t n) {
  const Tag d;
  const hn::Rebind<std::int32_t, Tag> wide;
  const hn::Rebind<std::int8_t, Tag> narrow;
  for (const float* const end = y + n; y < end; y += BlockQ8::length, ++block) {
    const auto scale = hn::Set(d, ScaleOf(*block));
    // Vectors have 16, 8, 4 or 1 elements.
    for (std::size_t i = 0; i < BlockQ8::length; i += hn::Lanes(d)) {
      const auto values = hn::PromoteTo(wide, hn::LoadU(narrow, block->values + i));
      hn::StoreU(hn::Mul(hn::ConvertTo(d, values), scale), d, y + i);
    }
  }
}

HWY_INLINE void Prefetch(const std::byte* row, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) hwy::Prefetch(row + at);
}

// Rows [begin,end) of y.
template <class T, bool kStream>
void Rows(const Gather& io, std::int64_t begin, std::int64_t end, std::size_t row_bytes) {
  // 2 KiB on their way, 32 lines: about as many as a core waits for at a time.
  const auto ahead = static_cast<std::int64_t>(1 + 2047 / row_bytes);
  for (std::int64_t i = begin; i < end; ++i) {
    if (i + ahead < end) Prefetch(io.row_of(i + ahead), row_bytes);
    WriteRow<kStream>(reinterpret_cast<const T*>(io.row_of(i)), io.y + i * io.y_stride,
                      static_cast<std::size_t>(io.cols));
  }
  if constexpr (kStream) hwy::FlushStream();
}

// `type`: place in table_types. Only float32 is streamed.
void GatherRows(const Gather& io, std::int64_t begin, std::int64_t end, std::int64_t type,
                bool stream) {
  const std::size_t bytes = table_types[type]->bytes(io.cols);
  switch (type) {
    case 0:
      return stream ? Rows<float, true>(io, begin, end, bytes)
                    : Rows<float, false>(io, begin, end, bytes);
    case 1:
      return Rows<Float16, false>(io, begin, end, bytes);
    case 2:
      return Rows<BFloat16, false>(io, begin, end, bytes);
    default:
      return Rows<BlockQ8, false>(io, begin, end, bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::embed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::embed {

HWY_EXPORT(GatherRows);

namespace {

constexpr Tunable tunables[] = {
    {"stream", "1: write y with non-temporal stores, past the caches; float32 tables only", 0, 1},
};

bool may_stream(const Problem& problem) { return problem.dtype("table_type") == &float32; }

int threads_for(const Problem& problem, const Environment& env) {
  return common::useful_threads(env.threads, problem.size("n"), problem.size("cols"));
}

// Streamed where the rows that are read and those that are written outgrow the caches.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  if (!may_stream(problem)) return {{{"stream", 0}}};
  const double bytes = sizeof(float) * problem.value("n") * problem.value("cols");
  const bool stream = common::worth_streaming(bytes, bytes, threads_for(problem, env), env);
  return {{{"stream", stream}}, {{"stream", !stream}}};
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment&) {
  if (tuning.get("stream", 0) == 0 || may_stream(problem)) return std::nullopt;
  return "stream=1 takes a table of float32";
}

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        threads_(threads_for(problem, env)),
        pool_(env.pool),
        tuning_(tuning),
        target_(resolve_isa(env.isa)),
        gather_(ROOFLANE_HWY_FUNCTION(GatherRows, target_)),
        type_(static_cast<std::int64_t>(problem.value("table_type"))) {}

  void run() override {
    const bool stream = tuning_.get("stream", 0) != 0;
    common::for_rows(pool_, threads_, rows_, io_.cols, 1, [&](common::RowRange rows, int) {
      gather_(io_, rows.begin, rows.end, type_, stream);
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = Gather(operands);
    rows_ = operands.at("y").rows();
  }

 private:
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(GatherRows)) gather_;
  std::int64_t type_;
  std::int64_t rows_ = 0;
  Gather io_;
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  require_tuning(hwy, problem, env, tuning);
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
                     .plan = plan,
                     .tuning_defect = tuning_defect,
                     .dtypes = operand_types};

}  // namespace rooflane::embed
#endif  // HWY_ONCE
