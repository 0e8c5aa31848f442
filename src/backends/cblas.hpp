// A CBLAS library opened at run time (RTLD_LOCAL), held as a table of functions, never linked.
// One library per process for OpenBLAS core types to take effect: OPENBLAS_CORETYPE is read when
// the library is opened, so workers are started with it set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/variant.hpp"

namespace rooflane::cblas {

extern const Backend backend;

// CBLAS's own constants.
enum Order : int { row_major = 101 };
enum Transpose : int { no_trans = 111, trans = 112 };
// MKL's.
enum Packing : int { packed = 151, b_matrix = 162 };
enum Offset : int { fix_offset = 173 };

// MKL's product of other formats than float32: one call, or with b kept packed. Null in other
// libraries. T: the type of operands in its interface; Function: of the product.
template <class T, class Function>
struct PackedFamily {
  Function* multiply = nullptr;
  std::size_t (*pack_get_size)(int matrix, int m, int n, int k) = nullptr;
  void (*pack)(int order, int matrix, int trans, int m, int n, int k, const T* from, int ld,
               T* to) = nullptr;
  Function* compute = nullptr;  // takes b as `pack` wrote it
  bool packs() const { return pack_get_size && pack && compute; }
};
using Bfloat16Gemm = void(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                          const std::uint16_t* a, int lda, const std::uint16_t* b, int ldb,
                          float beta, float* c, int ldc);
using IntegerGemm = void(int order, int trans_a, int trans_b, int offset_c, int m, int n, int k,
                         float alpha, const void* a, int lda, std::int8_t a_offset, const void* b,
                         int ldb, std::int8_t b_offset, float beta, std::int32_t* c, int ldc,
                         const std::int32_t* c_offset);

struct Library {
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  void (*sgemv)(int order, int trans, int m, int n, float alpha, const float* a, int lda,
                const float* x, int incx, float beta, float* y, int incy);
  float (*sdot)(int n, const float* x, int incx, const float* y, int incy);
  float (*sasum)(int n, const float* x, int incx);
  void (*sscal)(int n, float alpha, float* x, int incx);
  void (*saxpy)(int n, float alpha, const float* x, int incx, float* y, int incy);
  void (*scopy)(int n, const float* x, int incx, float* y, int incy);
  // MKL's packed GEMM; null in other libraries. alpha goes into the packed matrix.
  std::size_t (*sgemm_pack_get_size)(int matrix, int m, int n, int k) = nullptr;
  void (*sgemm_pack)(int order, int matrix, int trans, int m, int n, int k, float alpha,
                     const float* from, int ld, float* to) = nullptr;
  void (*sgemm_compute)(int order, int trans_a, int trans_b, int m, int n, int k, const float* a,
                        int lda, const float* b, int ldb, float beta, float* c, int ldc) = nullptr;
  bool packs() const { return sgemm_pack_get_size && sgemm_pack && sgemm_compute; }
  PackedFamily<std::uint16_t, Bfloat16Gemm> bf16;
  PackedFamily<void, IntegerGemm> integers;
  // Never empty; does nothing when the library has no threads of its own. Call it on the thread
  // that will call the functions above: an OpenMP build keeps the count per calling thread.
  std::function<void(int threads)> set_num_threads;
  std::string path;         // as opened
  std::string description;  // "OpenBLAS 0.3.21 SkylakeX": name, version, core type in use
};

// Empty path: OpenBLAS where Debian, Ubuntu and others install it, its OpenMP build first. Symbols
// are looked up as `cblas_sgemm`, then `scipy_cblas_sgemm`; integers have 32 bits. Cached per path.
// Throws Error: the file is not such a CBLAS (argument), no default library on this machine
// (unavailable).
std::shared_ptr<const Library> open(const std::string& path);

// Why the library at `path` (empty: the default) cannot be opened; nothing when it can. Opens it.
std::optional<std::string> absent_reason(const std::string& path);

// Why no plan can work with env's library: it cannot be opened.
std::optional<std::string> unsupported_anywhere(const Problem& problem, const Environment& env);

// Environment with which a process must be started so that the library at `path` runs at its best:
// for OpenBLAS the core type that was fastest when each one of the build was timed once in a child
// process (cached on disk per CPU and library), whatever OPENBLAS_CORETYPE the caller was started
// with; for BLIS its architecture, in the same way. Empty for other libraries and for a file that
// is not a CBLAS; `open` says why. Throws Error when the file does not exist. How the children
// work: cblas_environment.cpp.
std::vector<std::pair<std::string, std::string>> best_environment(const std::string& path);

}  // namespace rooflane::cblas
