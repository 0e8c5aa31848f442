// Streaming loops, compiled once per Highway target. See stream_loops.hpp.
#include "measure/stream_loops.hpp"

#include <cstdint>
#include <utility>

#include "measure/together.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure/stream_loops.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Integers: OR takes one cycle, so the reading loop waits for loads alone.
using D = hn::ScalableTag<std::uint32_t>;
using V = hn::Vec<D>;

// An iteration moves 8 vectors, whatever the number of streams: enough independent accesses to keep
// two load ports busy, with the loop's own instructions a small part.
using Vectors = std::make_index_sequence<8>;

// One array cut into kStreams segments, side by side; a block is what an iteration takes of each.
template <int kStreams>
struct Cut {
  static constexpr std::size_t kPerBlock = 8 / kStreams;
  std::size_t lanes = hn::Lanes(D());
  std::size_t block = kPerBlock * lanes;
  std::size_t segment;  // in elements

  HWY_INLINE explicit Cut(std::size_t bytes) {
    std::size_t blocks = bytes / sizeof(std::uint32_t) / kStreams / block;
    // An odd number of blocks, so that the streams do not meet in the same cache sets.
    if (kStreams > 1 && blocks > 1 && blocks % 2 == 0) --blocks;
    segment = blocks * block;
  }
  // The place of vector j of an iteration, from the position in the first segment.
  HWY_INLINE std::size_t offset(std::size_t j) const {
    return j / kPerBlock * segment + j % kPerBlock * lanes;
  }
  HWY_INLINE std::size_t bytes() const { return kStreams * segment * sizeof(std::uint32_t); }
};

// One pass over a cut, from either end: positions in the first segment, from `first` in steps of
// `step` until `end`. Both are variables, so that a pass backwards is the same code as one
// forwards: an addition and a comparison per iteration either way, no second copy of the loop, and
// nothing for the compiler to unroll differently. Backwards `step` and `end` are negative, modulo
// 2^64.
struct Pass {
  std::size_t first, step, end;
};

// The passes of an order over a cut, one after the other.
template <class C>
class Passes {
 public:
  HWY_INLINE Passes(const C& cut, PassOrder order)
      : cut_(cut),
        backward_(order == PassOrder::backward || order == PassOrder::back_and_there),
        alternates_(order == PassOrder::there_and_back || order == PassOrder::back_and_there) {}
  HWY_INLINE Pass next() {
    const bool backward = backward_;
    backward_ = backward_ != alternates_;
    if (backward) return {cut_.segment - cut_.block, 0 - cut_.block, 0 - cut_.block};
    return {0, cut_.block, cut_.segment};
  }

 private:
  const C& cut_;
  bool backward_, alternates_;
};

template <class C, std::size_t... J, class... Vs>
HWY_INLINE std::uint32_t ReadOn(const C& cut, const std::uint32_t* from, std::size_t passes,
                                PassOrder order, std::index_sequence<J...>, Vs... a) {
  const D d;
  Passes<C> way(cut, order);
  for (; passes > 0; --passes) {
    const Pass pass = way.next();
    for (std::size_t i = pass.first; i != pass.end; i += pass.step) {
      ((a = hn::Or(a, hn::Load(d, from + i + cut.offset(J)))), ...);
    }
  }
  V all = hn::Zero(d);
  ((all = hn::Or(all, a)), ...);
  return hn::GetLane(all);
}

template <int kStreams, std::size_t... J>
HWY_INLINE std::size_t ReadIn(const std::uint32_t* from, std::size_t bytes, std::size_t passes,
                              PassOrder order, std::index_sequence<J...> vectors) {
  const Cut<kStreams> cut(bytes);
  keep(ReadOn(cut, from, passes, order, vectors, hn::Set(D(), static_cast<std::uint32_t>(J))...));
  return cut.bytes();
}

template <bool kNonTemporal>
HWY_INLINE void Put(V value, std::uint32_t* to) {
  if constexpr (kNonTemporal) {
    hn::Stream(value, D(), to);
  } else {
    hn::Store(value, D(), to);
  }
}

template <int kStreams, bool kNonTemporal, std::size_t... J>
HWY_INLINE std::size_t WriteIn(std::uint32_t* to, std::size_t bytes, std::size_t passes,
                               PassOrder order, std::index_sequence<J...>) {
  const Cut<kStreams> cut(bytes);
  Passes<Cut<kStreams>> way(cut, order);
  for (; passes > 0; --passes) {
    const V value = hn::Set(D(), static_cast<std::uint32_t>(passes));
    const Pass pass = way.next();
    for (std::size_t i = pass.first; i != pass.end; i += pass.step) {
      (Put<kNonTemporal>(value, to + i + cut.offset(J)), ...);
    }
    keep(*to);  // each pass must reach memory before the next overwrites it
  }
  if (kNonTemporal) hwy::FlushStream();
  return cut.bytes();
}

template <int kStreams, bool kNonTemporal, std::size_t... J>
HWY_INLINE std::size_t CopyIn(const std::uint32_t* HWY_RESTRICT from,
                              std::uint32_t* HWY_RESTRICT to, std::size_t bytes, std::size_t passes,
                              PassOrder order, std::index_sequence<J...>) {
  const Cut<kStreams> cut(bytes);
  Passes<Cut<kStreams>> way(cut, order);
  for (; passes > 0; --passes) {
    const Pass pass = way.next();
    for (std::size_t i = pass.first; i != pass.end; i += pass.step) {
      (Put<kNonTemporal>(hn::Load(D(), from + i + cut.offset(J)), to + i + cut.offset(J)), ...);
    }
    keep(*to);
  }
  if (kNonTemporal) hwy::FlushStream();
  return cut.bytes();
}

std::size_t Read(const std::byte* from, std::size_t bytes, StreamMethod method, std::size_t passes,
                 PassOrder order) {
  const auto* x = reinterpret_cast<const std::uint32_t*>(from);
  if (method.streams == 8) return ReadIn<8>(x, bytes, passes, order, Vectors());
  if (method.streams == 4) return ReadIn<4>(x, bytes, passes, order, Vectors());
  return ReadIn<1>(x, bytes, passes, order, Vectors());
}

template <bool kNonTemporal>
std::size_t WriteWith(std::uint32_t* x, std::size_t bytes, int streams, std::size_t passes,
                      PassOrder order) {
  if (streams == 8) return WriteIn<8, kNonTemporal>(x, bytes, passes, order, Vectors());
  if (streams == 4) return WriteIn<4, kNonTemporal>(x, bytes, passes, order, Vectors());
  return WriteIn<1, kNonTemporal>(x, bytes, passes, order, Vectors());
}

std::size_t Write(std::byte* to, std::size_t bytes, StreamMethod method, std::size_t passes,
                  PassOrder order) {
  auto* x = reinterpret_cast<std::uint32_t*>(to);
  return method.non_temporal ? WriteWith<true>(x, bytes, method.streams, passes, order)
                             : WriteWith<false>(x, bytes, method.streams, passes, order);
}

template <bool kNonTemporal>
std::size_t CopyWith(const std::uint32_t* x, std::uint32_t* y, std::size_t bytes, int streams,
                     std::size_t passes, PassOrder order) {
  if (streams == 8) return CopyIn<8, kNonTemporal>(x, y, bytes, passes, order, Vectors());
  if (streams == 4) return CopyIn<4, kNonTemporal>(x, y, bytes, passes, order, Vectors());
  return CopyIn<1, kNonTemporal>(x, y, bytes, passes, order, Vectors());
}

std::size_t Copy(const std::byte* from, std::byte* to, std::size_t bytes, StreamMethod method,
                 std::size_t passes, PassOrder order) {
  const auto* x = reinterpret_cast<const std::uint32_t*>(from);
  auto* y = reinterpret_cast<std::uint32_t*>(to);
  return method.non_temporal ? CopyWith<true>(x, y, bytes, method.streams, passes, order)
                             : CopyWith<false>(x, y, bytes, method.streams, passes, order);
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/highway.hpp"

namespace rooflane {

HWY_EXPORT(Read);
HWY_EXPORT(Write);
HWY_EXPORT(Copy);

const StreamLoops& stream_loops() {
  static const StreamLoops best = [] {
    const std::int64_t target = resolve_isa("");
    return StreamLoops{ROOFLANE_HWY_FUNCTION(Read, target), ROOFLANE_HWY_FUNCTION(Write, target),
                       ROOFLANE_HWY_FUNCTION(Copy, target)};
  }();
  return best;
}

}  // namespace rooflane
#endif  // HWY_ONCE
