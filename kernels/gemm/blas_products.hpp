// Products of a CBLAS library by number format, behind one interface: sgemm and sgemv, which every
// library has, and MKL's products of bfloat16 numbers and of 8-bit integers. The plans in blas.cpp
// call them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "backends/cblas.hpp"
#include "core/variant.hpp"

namespace rooflane::gemm {

// c = alpha · op(a) · op(b) + beta · c, row-major; leading dimensions in elements.
struct ProductCall {
  bool trans_a, trans_b;
  int m, n, k;
  float alpha, beta;
  const void* a;
  int lda;
  const void* b;  // of multiply_packed: what pack() wrote
  int ldb;
  void* c;
  int ldc;
};

class CblasProduct {
 public:
  explicit CblasProduct(const cblas::Library& library) : library_(library) {}
  virtual ~CblasProduct() = default;
  CblasProduct(const CblasProduct&) = delete;
  CblasProduct& operator=(const CblasProduct&) = delete;

  virtual void multiply(const ProductCall& call) const = 0;
  // For prepack=1, which product_fault() refuses if the library has none: bytes of op(b) as the
  // library keeps it, the copy (which includes call.alpha if the product takes none later), and the
  // product with it.
  virtual std::size_t packed_bytes(int m, int n, int k) const = 0;
  virtual void pack(const ProductCall& call, void* to) const = 0;
  virtual void multiply_packed(const ProductCall& call) const = 0;
  // True when the library lets what c held survive beta = 0 as NaN (0·NaN) on one of its paths.
  // BLAS forbids it; a plan clears c first if it happens.
  virtual bool keeps_nan() const = 0;

 protected:
  const cblas::Library& library_;
};

// Why the library has no product of the problem's formats in this math, or none with packed
// weights; nothing where make_product() will work.
std::optional<std::string> product_fault(const Problem& problem, const Environment& env,
                                         const cblas::Library& library);
std::unique_ptr<CblasProduct> make_product(const Problem& problem, const cblas::Library& library);

}  // namespace rooflane::gemm
