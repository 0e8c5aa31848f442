// Rows of short floats, and rows with what is added to them, by way of a block of float32. See
// converted_rows.hpp.
#include "kernels/common/converted_rows.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <type_traits>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/rows_schedule.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/converted_rows.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::common {
namespace HWY_NAMESPACE {

// to = shrink·(scale·x + added), shrink a power of two; null: nothing is added. False: a sum of
// finite numbers overflowed.
template <class T>
HWY_INLINE bool Sum(const T* x, double scale, const T* added, double shrink, float* to,
                    std::size_t n) {
  namespace hn = vectors::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, static_cast<float>(scale * shrink)),
          weight = hn::Set(d, static_cast<float>(shrink)), zero = hn::Zero(d);
  V bad = zero;  // NaN where a result is not finite
  const auto noted = [&](V v) ROOFLANE_LAMBDA {
    bad = hn::MulAdd(v, zero, bad);
    return v;
  };
  const auto scaled = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return noted(hn::Mul(factor, LoadElements(d, x + i, fill)));
  };
  const auto sum = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const V further = LoadElements(d, added + i, fill);
    return noted(hn::MulAdd(factor, LoadElements(d, x + i, fill), hn::Mul(weight, further)));
  };
  if (added == nullptr) {
    WriteElements<false>(d, to, n, scaled);
  } else {
    WriteElements<false>(d, to, n, sum);
  }
  if (HWY_LIKELY(hn::AllTrue(d, hn::Eq(bad, bad)))) return true;
  // Infinities are ordinary in a mask: whether all results that are not finite come from inputs
  // that are not.
  V lost = zero;  // NaN where a finite sum overflowed
  const auto look = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    V inputs = hn::Mul(LoadElements(d, x + i, fill), zero);
    if (added != nullptr) inputs = hn::MulAdd(LoadElements(d, added + i, fill), zero, inputs);
    const V results = hn::Mul(LoadElements(d, to + i, fill), zero);
    lost = hn::Add(lost, hn::IfThenElseZero(hn::Eq(inputs, inputs), results));
  };
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) look(i, Whole());
  if (i < n) look(i, Part{n - i});
  return hn::AllTrue(d, hn::Eq(lost, lost));
}
bool SumFloat32(const float* x, double scale, const float* added, double shrink, float* to,
                std::size_t n) {
  return Sum(x, scale, added, shrink, to, n);
}
bool SumFloat16(const Float16* x, double scale, const Float16* added, double shrink, float* to,
                std::size_t n) {
  return Sum(x, scale, added, shrink, to, n);
}
bool SumBFloat16(const BFloat16* x, double scale, const BFloat16* added, double shrink, float* to,
                 std::size_t n) {
  return Sum(x, scale, added, shrink, to, n);
}

// float32 as it is: vectors of the norm's operands into the plan's own, and rows back.
void CopyFloat32(const float* from, float* to, std::size_t n, bool stream) {
  const vectors::HWY_NAMESPACE::ScalableTag<float> d;
  const auto same = [&](std::size_t i, auto fill)
                        ROOFLANE_LAMBDA { return LoadElements(d, from + i, fill); };
  stream ? WriteElements<true>(d, to, n, same) : WriteElements<false>(d, to, n, same);
}
void WidenFloat32(const float* from, float* to, std::size_t n) { CopyFloat32(from, to, n, false); }

void WidenFloat16(const Float16* from, float* to, std::size_t n) { Widen(from, to, n); }
void WidenBFloat16(const BFloat16* from, float* to, std::size_t n) { Widen(from, to, n); }
void NarrowFloat16(const float* from, Float16* to, std::size_t n, bool stream) {
  Narrow(from, to, n, stream);
}
void NarrowBFloat16(const float* from, BFloat16* to, std::size_t n, bool stream) {
  Narrow(from, to, n, stream);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::common
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::common {
namespace {

HWY_EXPORT(SumFloat32);
HWY_EXPORT(SumFloat16);
HWY_EXPORT(SumBFloat16);
HWY_EXPORT(CopyFloat32);
HWY_EXPORT(WidenFloat32);
HWY_EXPORT(WidenFloat16);
HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(NarrowFloat16);
HWY_EXPORT(NarrowBFloat16);

// The functions of an element type, of a target.
template <class T>
struct Conversion {
  void (*widen)(const T*, float*, std::size_t);
  void (*narrow)(const float*, T*, std::size_t, bool);
  bool (*sum)(const T*, double, const T*, double, float*, std::size_t);
};
template <class T>
Conversion<T> conversion_of(std::int64_t target) {
  if constexpr (std::is_same_v<T, float>) {
    return {ROOFLANE_HWY_FUNCTION(WidenFloat32, target), ROOFLANE_HWY_FUNCTION(CopyFloat32, target),
            ROOFLANE_HWY_FUNCTION(SumFloat32, target)};
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {ROOFLANE_HWY_FUNCTION(WidenFloat16, target),
            ROOFLANE_HWY_FUNCTION(NarrowFloat16, target),
            ROOFLANE_HWY_FUNCTION(SumFloat16, target)};
  } else {
    return {ROOFLANE_HWY_FUNCTION(WidenBFloat16, target),
            ROOFLANE_HWY_FUNCTION(NarrowBFloat16, target),
            ROOFLANE_HWY_FUNCTION(SumBFloat16, target)};
  }
}

// A block of float32 takes half of a small L1, so that it stays there with what is converted.
constexpr std::int64_t block_bytes = 16384;
// Of tensors that are added.
constexpr const char* residual_name = "residual";
constexpr const char* mask_name = "mask";

bool is_set(const Problem& problem, const char* flag) {
  return find_param(problem.kernel(), flag) != nullptr && problem.flag(flag);
}
double scale_of(const Problem& problem) {
  return find_param(problem.kernel(), "scale") != nullptr ? problem.value("scale") : 1;
}

template <class T>
class ConvertedRows final : public Plan {
 public:
  ConvertedRows(const Problem& problem, const Tuning& tuning, const Environment& env,
                FloatRowsPlan float_rows)
      : Plan(problem),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        split_(tuning.get("split", 0) != 0),
        stream_(tuning.get("stream", 0) != 0),
        threads_(RowSchedule(tuning).threads),
        pool_(env.pool),
        tuning_(tuning),
        scale_(scale_of(problem)),
        added_name_(is_set(problem, residual_name) ? residual_name
                    : is_set(problem, mask_name)   ? mask_name
                                                   : nullptr),
        convert_(conversion_of<T>(resolve_isa(env.isa))) {
    const std::int64_t row_bytes = cols_ * static_cast<std::int64_t>(sizeof(float));
    block_rows_ = split_ ? 1 : std::clamp<std::int64_t>(block_bytes / row_bytes, 1, 64);
    for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
      if (tensor.axes.size() != 1) continue;
      vectors_.push_back({tensor.name, nullptr, Buffer(static_cast<std::size_t>(row_bytes))});
    }
    Environment inner = env;
    inner.threads = split_ ? threads_ : 1;
    const std::int64_t rest = rows_ % block_rows_;
    for (int thread = 0; thread < (split_ ? 1 : threads_); ++thread) {
      Block& block = blocks_.emplace_back();
      block.memory = Buffer(static_cast<std::size_t>(block_rows_ * row_bytes));
      block.whole = plan_block(block, block_rows_, inner, float_rows);
      if (rest > 0) block.rest = plan_block(block, rest, inner, float_rows);
    }
  }

  void run() override {
    if (rows_ == 0) return;
    for (Vector& vector : vectors_) {
      convert_.widen(vector.from, vector.values.f32(), static_cast<std::size_t>(cols_));
    }
    if (split_) {
      for (std::int64_t row = 0; row < rows_; ++row) run_shared(row);
      return;
    }
    const std::int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
    parallel_for_static(pool_, threads_, blocks, [&](std::int64_t index, int thread) {
      run_block(index * block_rows_, blocks_[static_cast<std::size_t>(thread)]);
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts = blocks_.front().whole->facts();
    facts.tuning = tuning_;
    facts.workspace_bytes *= blocks_.size();
    for (const Block& block : blocks_) facts.workspace_bytes += block.memory.bytes();
    for (const Vector& vector : vectors_) facts.workspace_bytes += vector.values.bytes();
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = TypedRows<T>(operands);
    if (added_name_ != nullptr) {
      const View& added = operands.at(added_name_);
      added_ = added.as<T>();
      added_stride_ = added.strides[0];
      added_rows_ = std::max<std::int64_t>(added.rows(), 1);
    }
    for (Vector& vector : vectors_) vector.from = operands.at(vector.name).template as<T>();
  }

 private:
  struct Vector {
    std::string name;
    const T* from;
    Buffer values;
  };
  // Rows of float32 and the plans that work on them, on all of them and on the last rows.
  struct Block {
    Buffer memory;
    std::unique_ptr<Plan> whole, rest;
  };

  std::unique_ptr<Plan> plan_block(const Block& block, std::int64_t rows, const Environment& env,
                                   FloatRowsPlan float_rows) const {
    Problem problem = this->problem();
    problem.set("rows", static_cast<double>(rows));
    problem.set("type", float32.short_name);
    if (added_name_ != nullptr) problem.set(added_name_, 0.0);
    if (scale_ != 1) problem.set("scale", 1.0);
    const Tuning in_cache = {
        {"stream", 0}, {"split", split_}, {"prefetch", 0}, {"threads", env.threads}};
    auto plan = float_rows(problem, in_cache, env);
    Operands operands;
    for (const Vector& vector : vectors_) {
      operands.set(vector.name, contiguous_view(vector.values.data(), Shape{cols_}));
    }
    const View view = contiguous_view(block.memory.data(), Shape{rows, cols_});
    operands.set("x", view);
    operands.set("y", view);
    plan->bind(operands);
    return plan;
  }

  // x, scaled and with what is added, of columns from `from` on, times `shrink`. False: a sum
  // overflowed.
  bool load(std::int64_t row, std::int64_t from, std::size_t cols, double shrink, float* to) const {
    const T* x = io_.x + row * io_.x_stride + from;
    if (added_name_ != nullptr) {
      const T* added = added_ + row % added_rows_ * added_stride_ + from;
      return convert_.sum(x, scale_, added, shrink, to, cols);
    }
    if (scale_ != 1) return convert_.sum(x, scale_, nullptr, shrink, to, cols);
    convert_.widen(x, to, cols);
    return true;
  }

  // Calls load(shrink) with the greatest power of two with which no sum overflows: among elements
  // near the end of the range no eps shows, nor any difference but which of them is the greatest.
  template <class Load>
  static void load_in_range(const Load& load) {
    double shrink = 1;
    while (!load(shrink)) shrink /= 4;
  }

  void run_block(std::int64_t first, Block& block) const {
    const std::int64_t rows = std::min(block_rows_, rows_ - first);
    const auto cols = static_cast<std::size_t>(cols_);
    for (std::int64_t i = 0; i < rows; ++i) {
      load_in_range([&](double shrink) {
        return load(first + i, 0, cols, shrink, block.memory.f32() + i * cols_);
      });
    }
    (rows == block_rows_ ? block.whole : block.rest)->run();
    for (std::int64_t i = 0; i < rows; ++i) {
      convert_.narrow(block.memory.f32() + i * cols_, io_.y + (first + i) * io_.y_stride, cols,
                      stream_);
    }
    if (stream_) hwy::FlushStream();
  }

  // One row by all threads, which convert a part each.
  void run_shared(std::int64_t row) {
    Block& block = blocks_.front();
    const auto parts = [&](auto&& body) {
      parallel_for(pool_, threads_, threads_, [&](std::int64_t part, int) {
        const Slice slice = slice_of_row(cols_, static_cast<int>(part), threads_);
        if (slice.begin < slice.end) body(slice);
      });
    };
    load_in_range([&](double shrink) {
      std::atomic<bool> fits = true;
      parts([&](const Slice& slice) {
        float* to = block.memory.f32() + slice.begin;
        if (!load(row, slice.begin, slice.count(), shrink, to)) fits = false;
      });
      return fits.load();
    });
    block.whole->run();
    parts([&](const Slice& slice) {
      convert_.narrow(block.memory.f32() + slice.begin, io_.y + row * io_.y_stride + slice.begin,
                      slice.count(), stream_);
      if (stream_) hwy::FlushStream();
    });
  }

  std::int64_t rows_, cols_;
  bool split_, stream_;
  int threads_;
  Pool* pool_;
  Tuning tuning_;
  double scale_;
  const char* added_name_;  // null: nothing is added
  const T* added_ = nullptr;
  std::int64_t added_stride_ = 0, added_rows_ = 1;
  Conversion<T> convert_;
  std::int64_t block_rows_ = 1;
  std::vector<Vector> vectors_;
  std::vector<Block> blocks_;
  TypedRows<T> io_;
};

}  // namespace

std::unique_ptr<Plan> converted_rows(const Problem& problem, const Tuning& tuning,
                                     const Environment& env, FloatRowsPlan float_rows) {
  if (problem.dtype("type") == &float32) {
    return std::make_unique<ConvertedRows<float>>(problem, tuning, env, float_rows);
  }
  if (problem.dtype("type") == &float16) {
    return std::make_unique<ConvertedRows<Float16>>(problem, tuning, env, float_rows);
  }
  return std::make_unique<ConvertedRows<BFloat16>>(problem, tuning, env, float_rows);
}

// Rows that lie in a block are not prefetched, so that streaming pays past the caches only. Of
// numbers shorter than float32 a row is narrowed at once, so that stores past the caches wait for
// one another (a Zen 4).
std::vector<Tuning> converted_row_tunings(const Problem& problem, const Environment& env,
                                          const RowWork& work) {
  const bool streams = problem.dtype("type") == &float32 &&
                       operand_bytes(problem) > 0.75 * static_cast<double>(machine().l3_bytes);
  std::vector<Tuning> tunings, streamed;
  for (Tuning tuning : row_tunings(problem, env, work)) {
    tuning.set("prefetch", 0);
    const bool later = tuning.get("stream", 0) != 0 && !streams;
    std::vector<Tuning>& list = later ? streamed : tunings;
    if (std::find(list.begin(), list.end(), tuning) == list.end()) list.push_back(tuning);
  }
  tunings.insert(tunings.end(), streamed.begin(), streamed.end());
  return tunings;
}

}  // namespace rooflane::common
#endif  // HWY_ONCE
