// Activation functions with Highway: a vector at a time, one store, past the caches where y will
// not be found there. The functions are in kernels/common/activation-inl.h and tanh-inl.h; how
// elements are shared among threads in kernels/common/elements.hpp.
#include <memory>

#include "backends/highway.hpp"
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/activation/activation.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/activation-inl.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/tanh-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::activation {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

template <Kind kind, class D, class V = hn::Vec<D>>
HWY_INLINE V Activated(D d, V x) {
  if constexpr (kind == Kind::relu) return hc::Relu(d, x);
  if constexpr (kind == Kind::gelu) return hc::Gelu(d, x);
  if constexpr (kind == Kind::gelu_tanh) return hc::GeluTanh(d, x);
  if constexpr (kind == Kind::silu) return hc::Silu(d, x);
  if constexpr (kind == Kind::tanh) return hc::Tanh(d, x);
}

template <class T, Kind kind, bool gated>
HWY_NOINLINE void Walk(const common::Chunk& at) {
  const hn::ScalableTag<float> d;
  const auto* x = static_cast<const T*>(at.x);
  const auto* g = static_cast<const T*>(at.second);
  const auto value = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    const auto y = Activated<kind>(d, hc::LoadElements(d, x + i, fill));
    if constexpr (gated) {
      return hn::Mul(y, hc::LoadElements(d, g + i, fill));
    } else {
      return y;
    }
  };
  auto* y = static_cast<T*>(at.y);
  if (at.stream) return hc::WriteElements<true>(d, y, at.count, value);
  hc::WriteElements<false>(d, y, at.count, value);
}

template <class T, Kind kind>
HWY_INLINE void WalkWith(const common::Chunk& at) {
  at.second != nullptr ? Walk<T, kind, true>(at) : Walk<T, kind, false>(at);
}

template <class T>
HWY_INLINE void Activate(Kind kind, const common::Chunk& at) {
  switch (kind) {
    case Kind::relu:
      return WalkWith<T, Kind::relu>(at);
    case Kind::gelu:
      return WalkWith<T, Kind::gelu>(at);
    case Kind::gelu_tanh:
      return WalkWith<T, Kind::gelu_tanh>(at);
    case Kind::silu:
      return WalkWith<T, Kind::silu>(at);
    case Kind::tanh:
      return WalkWith<T, Kind::tanh>(at);
  }
}

void ActivateFloat32(Kind kind, const common::Chunk& at) { Activate<float>(kind, at); }
void ActivateFloat16(Kind kind, const common::Chunk& at) { Activate<Float16>(kind, at); }
void ActivateBFloat16(Kind kind, const common::Chunk& at) { Activate<BFloat16>(kind, at); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::activation
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::activation {
namespace {

HWY_EXPORT(ActivateFloat32);
HWY_EXPORT(ActivateFloat16);
HWY_EXPORT(ActivateBFloat16);

class HwyPlan final : public common::ElementsPlan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : ElementsPlan(problem, tuning, env, problem.flag("gate") ? "g" : "",
                     least_share(kind_of(problem))),
        kind_(kind_of(problem)),
        target_(resolve_isa(env.isa)) {
    const DType type = problem.dtype("type");
    activate_ = type == &float32   ? ROOFLANE_HWY_FUNCTION(ActivateFloat32, target_)
                : type == &float16 ? ROOFLANE_HWY_FUNCTION(ActivateFloat16, target_)
                                   : ROOFLANE_HWY_FUNCTION(ActivateBFloat16, target_);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning();
    return facts;
  }

 private:
  void compute(const common::Chunk& at) const override { activate_(kind_, at); }

  Kind kind_;
  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(ActivateFloat32)) activate_;
};

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
    .tunables = common::element_tunables,
    .unsupported = nullptr,
    .tunings = common::element_tunings,
    .plan = plan,
    .dtypes = float_types,
};

}  // namespace rooflane::activation
#endif  // HWY_ONCE
