// Chains of functions on vectors of c, for every ISA target: loaded once, through all functions in
// registers, stored once. The chain is interpreted, not compiled in: a branch for each function and
// four vectors, which is predicted, while an instance of each micro-kernel for each chain would
// multiply the build. See hwy_epilogue.hpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy_epilogue.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/common/activation-inl.h"
#include "kernels/gemm/hwy_epilogue.hpp"
#include "kernels/gemm/hwy_part-inl.h"
#undef ROOFLANE_LOWER_PART

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

using std::int64_t;
using Op = Epilogue::Op;

// Where a vector of c lies, and what is read beside it.
struct Place {
  float* c;
  const float* bias;
  const float* residual;
  const float* gate;
};

class Epilogues {
 public:
  explicit Epilogues(const EpilogueJob& job)
      : job_(job),
        slope_(hn::Set(DF(), job.chain.slope)),
        low_(hn::Set(DF(), job.chain.low)),
        high_(hn::Set(DF(), job.chain.high)) {}

  // The place of a row's first vector. Fields that the chain does not read have no meaning.
  HWY_INLINE Place At(const Rectangle& at, int64_t i) const {
    const int64_t row = at.row + i;
    float* const c = job_.c.row(at.batch, row) + at.col;
    return {c, job_.bias != nullptr ? job_.bias + job_.bias_step * at.col : c,
            job_.residual.data != nullptr ? job_.residual.row(at.batch, row) + at.col : c,
            job_.gate.data != nullptr ? job_.gate.row(at.batch, row) + at.col : c};
  }
  HWY_INLINE Place Beyond(const Place& first, int64_t j) const {
    return {first.c + j, first.bias + job_.bias_step * j, first.residual + j, first.gate + j};
  }

  // Vectors at several places at once, as one chain of dependent operations would wait.
  template <class Loader, class... Places>
  HWY_INLINE void Apply(const Loader& loader, const Places&... at) const {
    const DF d;
    Chain(loader, {loader.Load(d, at.c)...}, at...);
  }

 private:
  template <class Loader, class... Places>
  HWY_INLINE void Chain(const Loader& loader, VF (&&v)[sizeof...(Places)],
                        const Places&... at) const {
    const auto all = std::make_index_sequence<sizeof...(Places)>();
    const Place places[] = {at...};
    if (job_.gates) Gate(loader, v, places, all);
    for (const Op op : job_.chain.ops()) One(op, loader, v, places, all);
    Store(loader, v, places, all);
  }
  template <class Loader, std::size_t N, std::size_t... I>
  HWY_INLINE void Gate(const Loader& loader, VF (&v)[N], const Place (&at)[N],
                       std::index_sequence<I...>) const {
    const DF d;
    ((v[I] = hn::Mul(hc::Silu(d, loader.Load(d, at[I].gate)), v[I])), ...);
  }
  template <class Loader, std::size_t N, std::size_t... I>
  HWY_INLINE void Store(const Loader& loader, VF (&v)[N], const Place (&at)[N],
                        std::index_sequence<I...>) const {
    (loader.Store(v[I], DF(), at[I].c), ...);
  }
  template <class Loader>
  HWY_INLINE VF Bias(const Loader& loader, const float* from) const {
    return job_.bias_step == 0 ? VF(hn::Set(DF(), *from)) : loader.Load(DF(), from);
  }
  // All of an array's elements by folds, so that it stays in registers.
  template <class Loader, std::size_t N, std::size_t... I>
  HWY_INLINE void One(Op op, const Loader& loader, VF (&v)[N], const Place (&at)[N],
                      std::index_sequence<I...>) const {
    const DF d;
    switch (op) {
      case Op::bias:
        ((v[I] = hn::Add(v[I], Bias(loader, at[I].bias))), ...);
        break;
      case Op::relu:
        ((v[I] = hc::Relu(d, v[I])), ...);
        break;
      case Op::leaky_relu:
        ((v[I] = hn::IfThenElse(hn::Lt(v[I], hn::Zero(d)), hn::Mul(slope_, v[I]), v[I])), ...);
        break;
      case Op::gelu:
        ((v[I] = hc::Gelu(d, v[I])), ...);
        break;
      case Op::gelu_tanh:
        ((v[I] = hc::GeluTanh(d, v[I])), ...);
        break;
      case Op::silu:
        ((v[I] = hc::Silu(d, v[I])), ...);
        break;
      case Op::add:
        ((v[I] = hn::Add(v[I], loader.Load(d, at[I].residual))), ...);
        break;
      case Op::clamp:
        // By comparisons, which leave a NaN alone.
        ((v[I] = hn::IfThenElse(hn::Lt(v[I], low_), low_,
                                hn::IfThenElse(hn::Gt(v[I], high_), high_, v[I]))),
         ...);
        break;
    }
  }

  const EpilogueJob& job_;
  const VF slope_, low_, high_;
};

void ApplyEpilogue(const EpilogueJob& job, const Rectangle& at) {
  const Epilogues epilogues(job);
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t i = 0;
  // Four rows of a micro-tile, else four vectors of a row.
  for (; i + 4 <= at.rows; i += 4) {
    const Place r0 = epilogues.At(at, i), r1 = epilogues.At(at, i + 1),
                r2 = epilogues.At(at, i + 2), r3 = epilogues.At(at, i + 3);
    ForVectors(at.cols, [&](int64_t j, const auto& loader) HWY_ATTR {
      epilogues.Apply(loader, epilogues.Beyond(r0, j), epilogues.Beyond(r1, j),
                      epilogues.Beyond(r2, j), epilogues.Beyond(r3, j));
    });
  }
  for (; i < at.rows; ++i) {
    const Place row = epilogues.At(at, i);
    const auto vector = [&](int64_t j) HWY_ATTR { return epilogues.Beyond(row, j); };
    int64_t j = 0;
    for (; j + 4 * lanes <= at.cols; j += 4 * lanes) {
      epilogues.Apply(Whole(), vector(j), vector(j + lanes), vector(j + 2 * lanes),
                      vector(j + 3 * lanes));
    }
    for (; j + lanes <= at.cols; j += lanes) epilogues.Apply(Whole(), vector(j));
    if (j < at.cols) {
      epilogues.Apply(Part(DF(), static_cast<std::size_t>(at.cols - j)), vector(j));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "backends/highway.hpp"

namespace rooflane::gemm {

HWY_EXPORT(ApplyEpilogue);

void EpilogueJob::bind(const Operands& operands) {
  using Op = Epilogue::Op;
  if (chain.has(Op::bias)) bias = operands.at("bias").f32();
  if (operands.at("c").dtype != &float32) return;
  c = matrix(operands.at("c"));
  if (chain.has(Op::add)) residual = const_matrix(operands.at("residual"));
}

EpilogueFunction epilogue_function(std::int64_t target) {
  return ROOFLANE_HWY_FUNCTION(ApplyEpilogue, target);
}
EpilogueFunction epilogue_function() { return epilogue_function(resolve_isa("")); }

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
