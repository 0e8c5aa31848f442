// Rotary position embedding with Highway: both elements of a vector of pairs from registers,
// cosines and sines from a table that was planned. See rope.hpp for the maths and the order of
// rows.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "backends/highway.hpp"
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/common/rows.hpp"
#include "kernels/common/rows_schedule.hpp"
#include "kernels/rope/rope.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::rope {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;

// Bytes of a vector of stored elements, from which on stores past the caches are to be had.
template <class T>
HWY_INLINE bool Streams() {
  return hn::Lanes(Tag()) * sizeof(T) >= 16;
}
template <class T>
bool CanStream(const void* y, std::size_t pairs) {
  const std::size_t lanes = hn::Lanes(Tag());
  return Streams<T>() && pairs % lanes == 0 &&
         reinterpret_cast<std::uintptr_t>(y) % (lanes * sizeof(T)) == 0;
}

template <bool kStream, class T, class Fill>
HWY_INLINE void Store(hn::Vec<Tag> v, T* to, Fill fill) {
  const Tag d;
  if constexpr (!kStream || std::is_same_v<Fill, hc::Part>) {
    hc::StoreElements(v, d, to, fill);
  } else if constexpr (std::is_same_v<T, float>) {
    hn::Stream(v, d, to);
  } else {
    const hn::Rebind<std::uint16_t, Tag> d16;
    hn::Stream(hc::Short<T>::Rounded(d, d16, v), d16, reinterpret_cast<std::uint16_t*>(to));
  }
}

// Both halves are read before either is written: y may be x.
template <bool kStream, class T>
HWY_INLINE void RotateHalves(const Rotation& row) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d), n = row.pairs;
  const T* x = static_cast<const T*>(row.x);
  T* y = static_cast<T*>(row.y);
  const auto rotate = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const auto first = hc::LoadElements(d, x + i, fill);
    const auto second = hc::LoadElements(d, x + n + i, fill);
    const auto cos = hc::LoadElements(d, row.cos + i, fill);
    const auto sin = hc::LoadElements(d, row.sin + i, fill);
    Store<kStream>(hn::NegMulAdd(second, sin, hn::Mul(first, cos)), y + i, fill);
    Store<kStream>(hn::MulAdd(first, sin, hn::Mul(second, cos)), y + n + i, fill);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) rotate(i, hc::Whole());
  if (i < n) rotate(i, hc::Part{n - i});
}

template <bool kStream, class T>
HWY_INLINE void RotateNeighbours(const Rotation& row) {
  const std::size_t n = 2 * row.pairs;
  const T* x = static_cast<const T*>(row.x);
  T* y = static_cast<T*>(row.y);
#if HWY_TARGET == HWY_SCALAR  // one lane has no neighbour
  for (std::size_t i = 0; i < n; i += 2) {
    const float first = x[i], second = x[i + 1];
    y[i] = static_cast<T>(first * row.cos[i] + second * row.sin[i]);
    y[i + 1] = static_cast<T>(second * row.cos[i + 1] + first * row.sin[i + 1]);
  }
#else
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const auto rotate = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const auto own = hc::LoadElements(d, x + i, fill);
    const auto straight = hn::Mul(own, hc::LoadElements(d, row.cos + i, fill));
    const auto sin = hc::LoadElements(d, row.sin + i, fill);
    Store<kStream>(hn::MulAdd(hn::Reverse2(d, own), sin, straight), y + i, fill);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) rotate(i, hc::Whole());
  if (i < n) rotate(i, hc::Part{n - i});
#endif
}

template <class T>
HWY_INLINE void Rotate(Style style, const Rotation& row) {
  const bool stream = row.stream && CanStream<T>(row.y, row.pairs);
  if (style == Style::half) {
    stream ? RotateHalves<true, T>(row) : RotateHalves<false, T>(row);
  } else {
    stream ? RotateNeighbours<true, T>(row) : RotateNeighbours<false, T>(row);
  }
}

// Rows `count`, one position after the other from the first one on; strides in elements.
template <class T>
HWY_INLINE void RotateRows(Style style, Rotation row, std::int64_t x_stride, std::int64_t y_stride,
                           std::int64_t count) {
  const std::size_t entries = style == Style::half ? row.pairs : 2 * row.pairs;
  for (std::int64_t i = 0; i < count; ++i) {
    Rotate<T>(style, row);
    row.x = static_cast<const T*>(row.x) + x_stride;
    row.y = static_cast<T*>(row.y) + y_stride;
    row.cos += entries;
    row.sin += entries;
  }
}

void RotateFloat32(Style style, const Rotation& first, std::int64_t x_stride, std::int64_t y_stride,
                   std::int64_t count) {
  RotateRows<float>(style, first, x_stride, y_stride, count);
}
void RotateFloat16(Style style, const Rotation& first, std::int64_t x_stride, std::int64_t y_stride,
                   std::int64_t count) {
  RotateRows<Float16>(style, first, x_stride, y_stride, count);
}
void RotateBFloat16(Style style, const Rotation& first, std::int64_t x_stride,
                    std::int64_t y_stride, std::int64_t count) {
  RotateRows<BFloat16>(style, first, x_stride, y_stride, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::rope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::rope {
namespace {

HWY_EXPORT(RotateFloat32);
HWY_EXPORT(RotateFloat16);
HWY_EXPORT(RotateBFloat16);

constexpr Tunable tunables[] = {
    {"stream", "1: write y with non-temporal stores, past the caches", 0, 1},
    {"block", "positions of a head that are rotated before those of the next", 1, 4096},
};

// Elements worth a thread: 2 to 4 µs of one core in cache, what starting threads takes.
constexpr std::int64_t least_share = 65536;
// A thread's pieces, so that one that was held up is helped out.
constexpr std::int64_t most_pieces = 8;

using RotateFunction = decltype(&HWY_STATIC_DISPATCH(RotateFloat32));

RotateFunction function_of(DType type, std::int64_t target) {
  if (type == &float16) return ROOFLANE_HWY_FUNCTION(RotateFloat16, target);
  if (type == &bfloat16) return ROOFLANE_HWY_FUNCTION(RotateBFloat16, target);
  return ROOFLANE_HWY_FUNCTION(RotateFloat32, target);
}

template <class T>
class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : Plan(problem),
        sizes_(problem),
        entries_(sizes_.style == Style::half ? sizes_.half() : sizes_.head_dim),
        pool_(env.pool),
        tuning_(tuning),
        target_(resolve_isa(env.isa)),
        rotate_(function_of(problem.dtype("type"), target_)) {
    const Table table(sizes_);
    const bool is_half = sizes_.style == Style::half;
    for (std::size_t i = 0; i < table.cos.size(); ++i) {
      cos_.insert(cos_.end(), is_half ? 1 : 2, table.cos[i]);
      if (!is_half) sin_.push_back(-table.sin[i]);
      sin_.push_back(table.sin[i]);
    }
    const std::int64_t elements = sizes_.batch * sizes_.heads * sizes_.len * sizes_.head_dim;
    threads_ = static_cast<int>(
        std::clamp<std::int64_t>(elements / least_share, 1, std::max(env.threads, 1)));
  }

  void run() override {
    const std::int64_t units = sizes_.batch * blocks_ * sizes_.heads;
    const std::int64_t pieces = std::min(units, most_pieces * threads_);
    if (sizes_.len == 0 || units == 0) return;
    parallel_for_static(pool_, threads_, pieces, [&](std::int64_t piece, int) {
      for (std::int64_t unit = units * piece / pieces; unit < units * (piece + 1) / pieces;
           ++unit) {
        work(unit);
      }
      if (stream_) hwy::FlushStream();
    });
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_;
    facts.workspace_bytes = (cos_.size() + sin_.size()) * sizeof(float);
    return facts;
  }

 protected:
  void on_bind(const Operands& operands) override {
    io_ = RopeOperands<T>(operands);
    // In place the line is in cache already, and an ordinary store costs no further read.
    stream_ = tuning_.get("stream", 0) != 0 && io_.x != io_.y;
    // Heads of a position side by side: then memory is walked through in order so.
    const bool heads_inside = io_.x_strides[1] < io_.x_strides[2];
    block_ = heads_inside ? 1 : tuning_.get("block", 1);
    blocks_ = (sizes_.len + block_ - 1) / block_;
  }

 private:
  // A unit: a block of positions of one head. Heads follow each other, then blocks.
  void work(std::int64_t unit) const {
    const std::int64_t head = unit % sizes_.heads, block = unit / sizes_.heads % blocks_;
    const std::int64_t batch = unit / sizes_.heads / blocks_;
    const std::int64_t first = block * block_, count = std::min(block_, sizes_.len - first);
    if (head >= sizes_.rotated) return copy(batch, head, first, first + count);
    const Rotation row = {.x = io_.x_row(batch, head, first),
                          .y = io_.y_row(batch, head, first),
                          .cos = cos_.data() + first * entries_,
                          .sin = sin_.data() + first * entries_,
                          .pairs = static_cast<std::size_t>(sizes_.half()),
                          .stream = stream_};
    rotate_(sizes_.style, row, io_.x_strides[2], io_.y_strides[2], count);
  }

  void copy(std::int64_t batch, std::int64_t head, std::int64_t first, std::int64_t last) const {
    if (io_.x == io_.y) return;  // in place
    for (std::int64_t position = first; position < last; ++position) {
      std::copy_n(io_.x_row(batch, head, position), sizes_.head_dim,
                  io_.y_row(batch, head, position));
    }
  }

  Sizes sizes_;
  std::int64_t entries_;  // of the table for a position
  int threads_ = 1;
  Pool* pool_;
  Tuning tuning_;
  std::int64_t target_;
  RotateFunction rotate_;
  std::vector<float> cos_, sin_;
  RopeOperands<T> io_;
  bool stream_ = false;
  std::int64_t block_ = 1, blocks_ = 0;
};

// A block's part of the table takes half of a small L1.
std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Sizes sizes(problem);
  const std::int64_t rows = sizes.batch * sizes.heads * sizes.len;
  const int threads = common::useful_threads(env.threads, rows, sizes.head_dim);
  const auto written = static_cast<double>(problem.dtype("type")->bytes(rows * sizes.head_dim));
  const bool stream =
      common::worth_streaming(operand_bytes(problem) - written, written, threads, env);
  const std::int64_t bytes = sizes.head_dim * static_cast<std::int64_t>(sizeof(float)) *
                             (sizes.style == Style::half ? 1 : 2);
  const std::int64_t block = std::clamp<std::int64_t>(16384 / bytes, 1, 4096);
  std::vector<Tuning> list;
  for (const bool streamed : {stream, !stream}) {
    list.push_back({{"stream", streamed}, {"block", block}});
  }
  if (block > 1) list.push_back({{"stream", stream}, {"block", 1}});
  if (block < 4096)
    list.push_back({{"stream", stream}, {"block", std::min<std::int64_t>(4096, 8 * block)}});
  return list;
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands&) {
  const Tuning complete = complete_tuning(hwy, problem, env, tuning);
  return with_float_type(problem.dtype("type"), [&](auto type) -> std::unique_ptr<Plan> {
    return std::make_unique<HwyPlan<decltype(type)>>(problem, complete, env);
  });
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
    .dtypes = float_types,
};

}  // namespace rooflane::rope
#endif  // HWY_ONCE
