// The operation of LayerNorm and RMSNorm on Highway, an Op of row_plan.hpp. Its loops:
// norm_rows-inl.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/buffer.hpp"
#include "core/variant.hpp"
#include "kernels/common/norms.hpp"
#include "kernels/common/row_plan.hpp"

namespace rooflane::common {

// The loops of a norm over an element type, for a target.
struct NormLoops {
  // Whole rows [begin,end) of cols elements.
  void (*rows)(const AnyRows&, std::int64_t begin, std::int64_t end, std::int64_t cols, double eps,
               const RowAccess&);
  // The moments of a part of a row, and what that becomes by those of the whole.
  Moments (*part)(const AnyRows&, std::int64_t row, const Slice&, double eps, bool pages);
  void (*finish)(const AnyRows&, std::int64_t row, const Slice&, double mean, double scale,
                 bool stream);
  // n elements of the type as float32.
  void (*widen)(const void* from, float* to, std::size_t n);
};

// `Room`: `loops(target, type, summed)`, NormLoops; `work`, RowWork; `groups`, whether long rows
// are better worked on four together.
template <class Room>
class NormOp {
 public:
  using Part = Moments;
  static constexpr RowWork work = Room::work;

  explicit NormOp(const RowSettings& settings)
      : cols_(settings.problem.size("cols")),
        eps_(settings.problem.value("eps")),
        residual_(settings.problem.flag("residual")),
        group_(Room::groups && settings.problem.dtype("type") == &float32 &&
                       grouped(static_cast<std::size_t>(cols_) * sizeof(float))
                   ? 4
                   : 1),
        loops_(Room::loops(settings.target, settings.problem.dtype("type"), residual_)) {
    if (settings.problem.dtype("type") == &float32) return;
    widened_ = Buffer(2 * static_cast<std::size_t>(cols_) * sizeof(float));
  }

  void bind(const Operands& operands) {
    io_ = AnyRows(operands, residual_, 1, residual_ ? "residual" : nullptr);
    vectors_ = {operands.at("gamma").data,
                operands.has("beta") ? operands.at("beta").data : nullptr};
    const auto values = [&](std::size_t i) -> const float* {
      if (vectors_[i] == nullptr) return nullptr;
      return widened_.bytes() == 0 ? static_cast<const float*>(vectors_[i]) : widened(i);
    };
    io_.gamma = values(0);
    io_.beta = values(1);
  }
  void start() {
    if (widened_.bytes() == 0) return;
    for (std::size_t i = 0; i < vectors_.size(); ++i) {
      if (vectors_[i] != nullptr) {
        loops_.widen(vectors_[i], widened(i), static_cast<std::size_t>(cols_));
      }
    }
  }
  const AnyRows& io() const { return io_; }
  std::size_t workspace_bytes() const { return widened_.bytes(); }
  std::int64_t group() const { return group_; }

  void rows(RowRange rows, int, const RowAccess& access) const {
    loops_.rows(io_, rows.begin, rows.end, cols_, eps_, access);
  }
  Moments part(std::int64_t row, const Slice& slice, const RowAccess& access) const {
    return loops_.part(io_, row, slice, eps_, access.prefetch == Prefetch::pages);
  }
  static Moments merge(const Moments& a, const Moments& b) { return common::merge(a, b); }
  void finish(std::int64_t row, const Slice& slice, const Moments&, const Moments& whole,
              const RowAccess& access) const {
    loops_.finish(io_, row, slice, whole.mean, scale_of(whole, eps_), access.stream);
  }

 private:
  float* widened(std::size_t i) const {
    return widened_.f32() + i * static_cast<std::size_t>(cols_);
  }

  std::int64_t cols_;
  double eps_;
  bool residual_;
  std::int64_t group_;
  NormLoops loops_;
  std::array<const void*, 2> vectors_ = {};  // gamma and beta as they are given; null: none
  Buffer widened_;                           // and as float32, unless they are
  AnyRows io_;
};

}  // namespace rooflane::common
