// Addition with Highway: vectors of both inputs, one store, past the caches where y will not be
// found there. How elements are shared among threads: kernels/common/elements.hpp.
#include <memory>

#include "backends/highway.hpp"
#include "core/float16.hpp"
#include "generated_catalogue.hpp"
#include "kernels/add/add.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add/hwy.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/elements-inl.h"
#include "kernels/common/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::add {
namespace HWY_NAMESPACE {

namespace hn = vectors::HWY_NAMESPACE;
namespace hc = common::HWY_NAMESPACE;

template <class T>
void Add(const common::Chunk& at) {
  const hn::ScalableTag<float> d;
  const auto* x = static_cast<const T*>(at.x);
  const auto* r = static_cast<const T*>(at.second);
  const auto value = [&](std::size_t i, auto fill) ROOFLANE_LAMBDA {
    return hn::Add(hc::LoadElements(d, x + i, fill), hc::LoadElements(d, r + i, fill));
  };
  auto* y = static_cast<T*>(at.y);
  if (at.stream) return hc::WriteElements<true>(d, y, at.count, value);
  hc::WriteElements<false>(d, y, at.count, value);
}

void AddFloat32(const common::Chunk& at) { Add<float>(at); }
void AddFloat16(const common::Chunk& at) { Add<Float16>(at); }
void AddBFloat16(const common::Chunk& at) { Add<BFloat16>(at); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::add
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rooflane::add {
namespace {

HWY_EXPORT(AddFloat32);
HWY_EXPORT(AddFloat16);
HWY_EXPORT(AddBFloat16);

class HwyPlan final : public common::ElementsPlan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env)
      : ElementsPlan(problem, tuning, env, "r", least_share), target_(resolve_isa(env.isa)) {
    const DType type = problem.dtype("type");
    add_ = type == &float32   ? ROOFLANE_HWY_FUNCTION(AddFloat32, target_)
           : type == &float16 ? ROOFLANE_HWY_FUNCTION(AddFloat16, target_)
                              : ROOFLANE_HWY_FUNCTION(AddBFloat16, target_);
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning();
    return facts;
  }

 private:
  void compute(const common::Chunk& at) const override { add_(at); }

  std::int64_t target_;
  decltype(&HWY_STATIC_DISPATCH(AddFloat32)) add_;
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

}  // namespace rooflane::add
#endif  // HWY_ONCE
