// See blas_products.hpp. Sources: BLAS's reference for sgemm and sgemv; oneMKL's developer
// reference, "BLAS-like extensions", for cblas_gemm_bf16bf16f32 and cblas_gemm_s8u8s32.
#include "kernels/gemm/blas_products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/float16.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

int transposed(bool flag) { return flag ? cblas::trans : cblas::no_trans; }

// Small and blocked products, and those with a vector both ways, of matrices of `one`.
template <class T>
bool nan_survives(const CblasProduct& product, T one) {
  constexpr int sizes[] = {1, 3, 17, 96};
  for (const int size : sizes) {
    const std::vector<T> ones(static_cast<std::size_t>(size) * size, one);
    const auto survives = [&](int m, int n, bool trans_b) {
      std::vector<float> c(static_cast<std::size_t>(m) * n,
                           std::numeric_limits<float>::quiet_NaN());
      product.multiply({false, trans_b, m, n, size, 1, 0, ones.data(), size, ones.data(),
                        trans_b ? size : n, c.data(), n});
      return std::any_of(c.begin(), c.end(), [](float x) { return std::isnan(x); });
    };
    for (const bool trans_b : {false, true}) {
      if (survives(size, size, trans_b) || survives(size, 1, trans_b) ||
          survives(1, size, trans_b)) {
        return true;
      }
    }
  }
  return false;
}

class Float32Product final : public CblasProduct {
 public:
  using CblasProduct::CblasProduct;

  void multiply(const ProductCall& p) const override {
    const auto* const a = static_cast<const float*>(p.a);
    const auto* const b = static_cast<const float*>(p.b);
    auto* const c = static_cast<float*>(p.c);
    if (p.n == 1) {
      // A column of c: op(a) times the one column of op(b).
      library_.sgemv(cblas::row_major, transposed(p.trans_a), p.trans_a ? p.k : p.m,
                     p.trans_a ? p.m : p.k, p.alpha, a, p.lda, b, p.trans_b ? 1 : p.ldb, p.beta, c,
                     p.ldc);
      return;
    }
    if (p.m == 1) {
      // A row of c: op(b)ᵀ times the one row of op(a).
      library_.sgemv(cblas::row_major, transposed(!p.trans_b), p.trans_b ? p.n : p.k,
                     p.trans_b ? p.k : p.n, p.alpha, b, p.ldb, a, p.trans_a ? p.lda : 1, p.beta, c,
                     1);
      return;
    }
    library_.sgemm(cblas::row_major, transposed(p.trans_a), transposed(p.trans_b), p.m, p.n, p.k,
                   p.alpha, a, p.lda, b, p.ldb, p.beta, c, p.ldc);
  }
  std::size_t packed_bytes(int m, int n, int k) const override {
    return library_.sgemm_pack_get_size(cblas::b_matrix, m, n, k);
  }
  void pack(const ProductCall& p, void* to) const override {
    library_.sgemm_pack(cblas::row_major, cblas::b_matrix, transposed(p.trans_b), p.m, p.n, p.k,
                        p.alpha, static_cast<const float*>(p.b), p.ldb, static_cast<float*>(to));
  }
  void multiply_packed(const ProductCall& p) const override {
    library_.sgemm_compute(cblas::row_major, transposed(p.trans_a), cblas::packed, p.m, p.n, p.k,
                           static_cast<const float*>(p.a), p.lda, static_cast<const float*>(p.b),
                           p.ldb, p.beta, static_cast<float*>(p.c), p.ldc);
  }
  bool keeps_nan() const override { return nan_survives(*this, 1.0f); }
};

// MKL's bfloat16 numbers: with b as given, or as it keeps it packed.
void call(cblas::Bfloat16Gemm* gemm, int trans_b, const ProductCall& p) {
  const auto number = [](const void* data) { return static_cast<const std::uint16_t*>(data); };
  gemm(cblas::row_major, transposed(p.trans_a), trans_b, p.m, p.n, p.k, p.alpha, number(p.a), p.lda,
       number(p.b), p.ldb, p.beta, static_cast<float*>(p.c), p.ldc);
}
// Its integers. Row-major its a is u8 and its b is s8, the other way round than its name.
void call(cblas::IntegerGemm* gemm, int trans_b, const ProductCall& p) {
  constexpr std::int32_t no_offset = 0;
  gemm(cblas::row_major, transposed(p.trans_a), trans_b, cblas::fix_offset, p.m, p.n, p.k, 1, p.a,
       p.lda, 0, p.b, p.ldb, 0, 0, static_cast<std::int32_t*>(p.c), p.ldc, &no_offset);
}

// By a family of MKL's functions. T: the type of its operands.
template <auto family, class T>
class PackedFamilyProduct final : public CblasProduct {
 public:
  using CblasProduct::CblasProduct;

  void multiply(const ProductCall& p) const override {
    call((library_.*family).multiply, transposed(p.trans_b), p);
  }
  std::size_t packed_bytes(int m, int n, int k) const override {
    return (library_.*family).pack_get_size(cblas::b_matrix, m, n, k);
  }
  void pack(const ProductCall& p, void* to) const override {
    (library_.*family)
        .pack(cblas::row_major, cblas::b_matrix, transposed(p.trans_b), p.m, p.n, p.k,
              static_cast<const T*>(p.b), p.ldb, static_cast<T*>(to));
  }
  void multiply_packed(const ProductCall& p) const override {
    call((library_.*family).compute, cblas::packed, p);
  }
  bool keeps_nan() const override {
    if constexpr (std::is_void_v<T>)
      return false;  // an integer is none
    else
      return nan_survives(*this, BFloat16::Format::bits_of(1));
  }
};

}  // namespace

std::optional<std::string> product_fault(const Problem& problem, const Environment& env,
                                         const cblas::Library& library) {
  const DType a = problem.dtype("a_type"), b = problem.dtype("b_type"), c = problem.dtype("c_type");
  const auto none = [&](const char* what) {
    return fmt::format("math {}: {} has no product of {} and {} as {}{}", env.math,
                       library.description, a->short_name, b->short_name, c->short_name, what);
  };
  bool packs = library.packs();
  if (env.math == math_int8.name) {
    if (!library.integers.multiply || a != &uint8) return none("");
    packs = library.integers.packs();
  } else if (env.math == math_bf16.name) {
    if (!library.bf16.multiply || a != &bfloat16 || b != &bfloat16 || c != &float32)
      return none("");
    packs = library.bf16.packs();
  } else if (a != &float32 || b != &float32 || c != &float32) {
    return none("");
  }
  if (problem.flag("gate") && env.math != fp32.name) return none(" with gate=1");
  if (problem.flag("prepack") && !packs) {
    return fmt::format("prepack=1: {} has no GEMM that keeps b packed", library.description);
  }
  return std::nullopt;
}

std::unique_ptr<CblasProduct> make_product(const Problem& problem, const cblas::Library& library) {
  using cblas::Library;
  if (problem.dtype("a_type") == &bfloat16) {
    return std::make_unique<PackedFamilyProduct<&Library::bf16, std::uint16_t>>(library);
  }
  if (problem.dtype("a_type") == &uint8) {
    return std::make_unique<PackedFamilyProduct<&Library::integers, void>>(library);
  }
  return std::make_unique<Float32Product>(library);
}

}  // namespace rooflane::gemm
