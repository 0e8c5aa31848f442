// Softmax with Highway: memory is visited once where a row fits the cache (maximum, exp and sum,
// scale, all on the cached row), twice where it does not (pieces merged online, then exp again).
// Short rows stay in registers, several to a vector. See softmax.hpp for the maths and the sources.
#include <cstddef>
#include <cstdint>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/row_plan.hpp"
#include "kernels/softmax/hwy_loops.hpp"
#include "kernels/softmax/softmax.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/softmax/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::softmax {
namespace HWY_NAMESPACE {

Loops LoopsFor(DType type, bool summed) {
  using common::RowsOf;
  if (type == &float16) {
    return summed ? LoopsOf<RowsOf<Float16, true>>() : LoopsOf<RowsOf<Float16, false>>();
  }
  if (type == &bfloat16) {
    return summed ? LoopsOf<RowsOf<BFloat16, true>>() : LoopsOf<RowsOf<BFloat16, false>>();
  }
  return summed ? LoopsOf<RowsOf<float, true>>() : LoopsOf<RowsOf<float, false>>();
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::softmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::softmax {
namespace {

HWY_EXPORT(LoopsFor);

class Op {
 public:
  using Part = Partial;
  // (A Zen 4, rows of 2048 and 4096: 1.75 and 1.3 times as fast into L2 as into L1, from pages 1.6
  // and 1.7 times.)
  static constexpr common::RowWork work = {
      .vector_ops = 12.8, .row_ops = 45, .short_ops = 2.4, .long_rows = common::Prefetch::pages};

  explicit Op(const common::RowSettings& settings)
      : cols_(settings.problem.size("cols")),
        scale_(settings.problem.value("scale")),
        masked_(settings.problem.flag("mask")),
        keeps_terms_(!summed() && settings.problem.dtype("type") == &float32),
        // A part that stays in L2 keeps its terms in y where it can, which spares it half of the
        // exps.
        part_stays_(common::resident((cols_ + settings.threads - 1) / settings.threads)),
        loops_(ROOFLANE_HWY_FUNCTION(LoopsFor, settings.target)(settings.problem.dtype("type"),
                                                                summed())) {
    const bool streams = settings.tuning.get("stream", 0) != 0 &&
                         streamed_by_scratch(common::prefetch_asked(settings.tuning));
    if (settings.split || !common::resident(cols_) || !(streams || !keeps_terms_)) return;
    scratch_stride_ =
        static_cast<std::int64_t>(2 * common::scratch_stride(static_cast<std::size_t>(cols_)));
    scratch_ = Buffer(static_cast<std::size_t>(settings.threads * scratch_stride_) * sizeof(float));
  }

  void bind(const Operands& operands) {
    io_ = common::AnyRows(operands, summed(), scale_, masked_ ? "mask" : nullptr);
  }
  const common::AnyRows& io() const { return io_; }
  void start() const {}
  std::size_t workspace_bytes() const { return scratch_.bytes(); }
  std::int64_t group() const { return 1; }

  void rows(common::RowRange rows, int thread, const common::RowAccess& access) {
    const bool uses_scratch = access.stream ? streamed_by_scratch(access.prefetch) : !keeps_terms_;
    float* scratch =
        uses_scratch && scratch_.bytes() != 0 ? scratch_.f32() + thread * scratch_stride_ : nullptr;
    loops_.rows(io_, rows.begin, rows.end, cols_, scratch, common::resident(cols_), access);
  }
  Partial part(std::int64_t row, const common::Slice& slice,
               const common::RowAccess& access) const {
    return loops_.part(io_, row, slice, part_stays_, !access.stream,
                       access.prefetch == common::Prefetch::pages);
  }
  static Partial merge(const Partial& a, const Partial& b) { return softmax::merge(a, b); }
  void finish(std::int64_t row, const common::Slice& slice, const Partial& part,
              const Partial& whole, const common::RowAccess& access) const {
    loops_.finish(io_, row, slice, part, whole, part_stays_ && !access.stream, access.stream);
  }

 private:
  bool summed() const { return masked_ || scale_ != 1; }
  // Whether the terms of two rows are kept, beside two of x, in cache. Long rows only where x is
  // not prefetched into L1; there it was not measured.
  bool streamed_by_scratch(common::Prefetch prefetch) const {
    return cols_ <= common::row_block ||
           (prefetch != common::Prefetch::into_l1 && common::keeps_four_rows(cols_));
  }

  std::int64_t cols_;
  double scale_;
  bool masked_;
  bool keeps_terms_;
  bool part_stays_;
  Loops loops_;
  std::int64_t scratch_stride_ = 0;  // elements of each thread
  Buffer scratch_;
  common::AnyRows io_;
};

}  // namespace

const Variant hwy = common::hwy_variant<Op, &kernel, &hwy>(ladder);

}  // namespace rooflane::softmax
#endif  // HWY_ONCE
