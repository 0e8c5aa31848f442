// The hwy kernels' building blocks (micro-kernels of every size, packing, exp), as a program
// without the lab around them, for the one ISA target that the compiler's flags name:
// `scripts/arm.sh
// --short` compiles it for NEON and for SVE, and runs it under qemu-user. What all kernels compute
// there is the full form's matter.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "hwy/highway.h"
#include "kernels/common/exp-inl.h"
#include "kernels/common/reduce-inl.h"
#include "kernels/gemm/hwy_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {
namespace {

int failures = 0;
int checks = 0;

void check(bool good, const char* what, std::int64_t a, std::int64_t b, std::int64_t c) {
  ++checks;
  if (good) return;
  if (++failures <= 20) std::printf("FAILED %s %ld %ld %ld\n", what, long{a}, long{b}, long{c});
}

float value_of(std::int64_t i) {
  return static_cast<float>(static_cast<double>(i * 2654435761 % 2048) / 1024 - 1);
}
std::vector<float> values(std::int64_t count, std::int64_t seed) {
  std::vector<float> list(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) list[static_cast<std::size_t>(i)] = value_of(i + seed);
  return list;
}

constexpr float guard = 1234.5f;

// rows × cols of c by one micro-kernel, every element against sums in double; what lies beside c in
// its rows stays as it was. b's micro-panel is padded to whole vectors as the packed path has it.
template <bool kPacked>
void CheckMicroTile(std::int64_t rows, std::int64_t vectors, std::int64_t cols, std::int64_t k,
                    float beta) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
  const std::int64_t ldb = kPacked ? vectors * lanes : cols + 3, ldc = cols + 5;
  const std::vector<float> a = values(rows * k, 1), b = values(k * ldb + lanes, 7),
                           c0 = values(rows * ldc, 31);
  std::vector<float> c(static_cast<std::size_t>(rows * ldc), guard);
  PrefetchQueue queues[2];
  MicroKernelArgs t;
  t.a = a.data();
  t.a_outer = kPacked ? 1 : k, t.a_inner = kPacked ? rows : 1;
  t.b = b.data(), t.ldb = ldb, t.k = k, t.cols = cols;
  t.c0 = c0.data(), t.ldc0 = ldc, t.c = c.data(), t.ldc = ldc;
  t.alpha = 0.5f, t.beta = beta;
  t.queues = queues;
  MicroKernelFor<kPacked, 0>(rows, vectors)(t);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < ldc; ++j) {
      const float got = c[static_cast<std::size_t>(i * ldc + j)];
      if (j >= cols) {
        check(got == guard, "guard: rows, cols, column", rows, cols, j);
        continue;
      }
      double sum = 0, magnitude = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const double product = double{a[static_cast<std::size_t>(i * t.a_outer + p * t.a_inner)]} *
                               b[static_cast<std::size_t>(p * ldb + j)];
        sum += product, magnitude += std::fabs(product);
      }
      const double start = double{beta} * c0[static_cast<std::size_t>(i * ldc + j)];
      const double bound = (8 + std::sqrt(static_cast<double>(k))) * std::ldexp(1.0, -24) *
                           (0.5 * magnitude + std::fabs(start));
      check(std::fabs(got - (0.5 * sum + start)) <= bound, "micro-tile: rows, vectors, cols", rows,
            vectors, cols);
    }
  }
}

void CheckMicroTiles() {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(DF()));
  for (std::int64_t vectors = 1; vectors <= kMaxNv; ++vectors) {
    for (std::int64_t last = 1; last <= lanes; last += last == 1 ? 1 : 2) {
      const std::int64_t cols = (vectors - 1) * lanes + last;
      for (std::int64_t rows = 1; rows <= TallRows(static_cast<int>(vectors)); ++rows) {
        CheckMicroTile<false>(rows, vectors, cols, 13, rows % 2 == 0 ? 0.0f : 0.25f);
        if (rows > kMr || vectors > kNv) continue;
        CheckMicroTile<true>(rows, vectors, cols, 21, rows % 2 == 0 ? 0.25f : 0.0f);
      }
    }
  }
}

void CheckTransposes() {
  for (std::int64_t rows = 1; rows <= 35; rows += 2) {
    for (std::int64_t cols = 1; cols <= 35; cols += 3) {
      const std::vector<float> from = values(rows * (cols + 2), 3);
      std::vector<float> to(static_cast<std::size_t>(cols * rows + 16), guard);
      PackTransposed(from.data(), cols + 2, rows, cols, to.data(), rows);
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const std::int64_t r = i % rows, c = i / rows;
        check(to[static_cast<std::size_t>(i)] == from[static_cast<std::size_t>(r * (cols + 2) + c)],
              "transpose: rows, cols, element", rows, cols, i);
      }
      check(to[static_cast<std::size_t>(rows * cols)] == guard, "transpose: guard", rows, cols, 0);
    }
  }
}

// Partial vectors, sums across lanes, and exp within 3 units in the last place.
void CheckRows() {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t count = 0; count < lanes; ++count) {
    const std::vector<float> x = values(static_cast<std::int64_t>(lanes), 11);
    std::vector<float> y(lanes, guard);
    const hc::Part part{count};
    hc::StoreRow(hc::LoadRow(d, x.data(), part), d, y.data(), part);
    double sum = 0;
    for (std::size_t i = 0; i < lanes; ++i) {
      check(y[i] == (i < count ? x[i] : guard), "part: lanes, lane", std::int64_t(count),
            std::int64_t(i), 0);
      sum += i < count ? double{x[i]} : 0;
    }
    check(std::fabs(hc::SumLanes(d, hc::LoadRow(d, x.data(), part)) - sum) < 1e-5, "sum: lanes",
          std::int64_t(count), 0, 0);
  }
  std::vector<float> in(lanes), out(lanes);
  for (float x = -87; x <= 0; x += 0.0137f * static_cast<float>(lanes)) {
    for (std::size_t i = 0; i < lanes; ++i) in[i] = std::fmin(0, x + 0.0137f * float(i));
    hn::StoreU(hc::ExpNonPositive(d, hn::LoadU(d, in.data())), d, out.data());
    for (std::size_t i = 0; i < lanes; ++i) {
      const double exact = std::exp(double{in[i]});
      check(std::fabs(out[i] - exact) <= 3 * std::ldexp(1.0, -23) * exact, "exp: -x·1000",
            std::int64_t(-1000 * in[i]), 0, 0);
    }
  }
}

}  // namespace

int RunAll() {
  CheckMicroTiles();
  CheckTransposes();
  CheckRows();
  std::printf("%s, %ld lanes: %d checks, %d failed\n", hwy::TargetName(HWY_TARGET),
              long(hn::Lanes(DF())), checks, failures);
  return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

int main() { return rooflane::gemm::HWY_NAMESPACE::RunAll(); }
