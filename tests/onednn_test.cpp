// oneDNN's own faults, tried on this version and CPU: those that the variant refuses are still
// there, and there are no others among layouts like theirs.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backends/onednn.hpp"

using namespace rooflane;
using std::int64_t;

namespace {

constexpr float guard_value = -12345.5F;
constexpr int64_t guard = 64;  // elements before and behind c: more than a vector

std::vector<float> filled(int64_t count, int64_t step) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(i * step % 17 - 8) / 8;
  }
  return values;
}

// c = a·b, [batch,m,k]·[batch,k,n], with `gap` elements between rows, or columns where transposed.
struct Product {
  int64_t batch, m, n, k;
  bool trans_a;
  int64_t gap_a, gap_c;

  onednn::Matmul matmul() const {
    onednn::set_threads(1);
    const int64_t b_dims[] = {batch, k, n}, b_strides[] = {k * n, n, 1};
    return {*describe(src_dims(), src_strides()),
            *onednn::describe(skipped(b_dims), skipped(b_strides)),
            *describe(dst_dims(), dst_strides())};
  }
  // Whether c came out wrong or anything outside it was written.
  bool goes_wrong(onednn::Matmul& matmul) const {
    const std::vector<float> a = filled(batch * a_size(), 3), b = filled(batch * k * n, 5);
    std::vector<float> memory(static_cast<std::size_t>(2 * guard + batch * m * (n + gap_c)),
                              guard_value);
    float* const c = memory.data() + guard;
    for_each_element([&](int64_t at, double) { c[at] = std::numeric_limits<float>::quiet_NaN(); },
                     a, b);
    matmul.call.set(DNNL_ARG_SRC, a.data());
    matmul.call.set(DNNL_ARG_WEIGHTS, b.data());
    matmul.call.set(DNNL_ARG_DST, c);
    matmul.call.run();
    bool wrong = false;
    for_each_element(
        [&](int64_t at, double expected) {
          wrong = wrong || !(std::abs(c[at] - expected) < 1e-3);
          c[at] = guard_value;
        },
        a, b);
    for (const float value : memory) wrong = wrong || value != guard_value;
    return wrong;
  }
  bool is_refused(const onednn::Matmul& matmul) const {
    return onednn::matmul_fault(matmul, src_dims(), src_strides(), dst_dims(), dst_strides())
        .has_value();
  }

 private:
  using Lengths = std::vector<int64_t>;
  int64_t lda() const { return (trans_a ? m : k) + gap_a; }
  int64_t a_size() const { return (trans_a ? k : m) * lda(); }
  Lengths skipped(std::span<const int64_t, 3> all) const {
    return {all.begin() + (batch == 1 ? 1 : 0), all.end()};
  }
  Lengths src_dims() const { return skipped(std::array{batch, m, k}); }
  Lengths src_strides() const {
    return trans_a ? skipped(std::array{a_size(), int64_t{1}, lda()})
                   : skipped(std::array{a_size(), lda(), int64_t{1}});
  }
  Lengths dst_dims() const { return skipped(std::array{batch, m, n}); }
  Lengths dst_strides() const {
    return skipped(std::array{m * (n + gap_c), n + gap_c, int64_t{1}});
  }
  static std::optional<onednn::Desc> describe(const Lengths& dims, const Lengths& strides) {
    return onednn::describe(dims, strides);
  }
  // body(place in c, exact value)
  template <class F>
  void for_each_element(F&& body, const std::vector<float>& a, const std::vector<float>& b) const {
    for (int64_t i = 0; i < batch * m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) {
          const int64_t row = i % m;
          const int64_t a_at = i / m * a_size() + (trans_a ? p * lda() + row : row * lda() + p);
          sum += static_cast<double>(a[static_cast<std::size_t>(a_at)]) *
                 static_cast<double>(b[static_cast<std::size_t>((i / m * k + p) * n + j)]);
        }
        body(i * (n + gap_c) + j, sum);
      }
    }
  }
};

}  // namespace

TEST_CASE("a product that oneDNN gets wrong is refused, and one that it gets right is not") {
  int right = 0;
  for (const int64_t batch : {1, 3}) {
    for (const int64_t m : {1, 2, 31, 257}) {
      for (const int64_t n : {1, 2, 17}) {
        for (const int64_t k : {1, 7, 131}) {
          for (const bool trans_a : {false, true}) {
            for (const int64_t gap_a : {0, 5}) {
              for (const int64_t gap_c : {0, 5}) {
                const Product product{batch, m, n, k, trans_a, gap_a, gap_c};
                onednn::Matmul matmul = product.matmul();
                INFO(onednn::description(), " ", matmul.implementation, ": ", batch, " times ", m,
                     "x", n, "x", k, ", trans_a ", trans_a, ", gaps in a ", gap_a, ", in c ",
                     gap_c);
                const bool is_wrong = product.goes_wrong(matmul);
                CHECK(product.is_refused(matmul) == is_wrong);
                right += is_wrong ? 0 : 1;
              }
            }
          }
        }
      }
    }
  }
  CHECK(right > 300);  // of 576: it computes most products correctly
}

TEST_CASE("8-bit products are refused where their sums saturate, and nowhere else") {
  constexpr int64_t m = 128, n = 64, k = 512;
  const std::vector<std::uint8_t> a(m * k, 255);
  const std::vector<std::int8_t> b(k * n, 127);
  std::vector<std::int32_t> c(m * n, 0);
  onednn::set_threads(1);
  const auto rows = [](int64_t count, int64_t length, DType type) {
    return *onednn::describe(std::array{count, length}, std::array{length, int64_t{1}}, type);
  };
  onednn::Matmul matmul(rows(m, k, &uint8), rows(k, n, &int8), rows(m, n, &int32));
  matmul.call.set(DNNL_ARG_SRC, a.data());
  matmul.call.set(DNNL_ARG_WEIGHTS, b.data());
  matmul.call.set(DNNL_ARG_DST, c.data());
  matmul.call.run();
  INFO(onednn::description(), " ", matmul.implementation);
  const bool is_exact =
      std::all_of(c.begin(), c.end(), [](std::int32_t sum) { return sum == 255 * 127 * k; });
  CHECK(is_exact == !onednn::integers_fault().has_value());
}
