// GEMM, variant `blas`: one product (blas_products.hpp) per batch of a CBLAS library opened at run
// time: sgemm or sgemv, with MKL also of bfloat16 numbers and of 8-bit integers. prepack=1: MKL's
// packed GEMM; other libraries have none. The rest is code of our own: copying c0 into c, the cases
// without a product, and the epilogue (separate.hpp), so that the difference to `hwy` is the gain
// of fusing it. Next: hwy.cpp.
#include <algorithm>
#include <climits>
#include <memory>
#include <vector>

#include "backends/cblas.hpp"
#include "core/buffer.hpp"
#include "core/error.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/common/copy_rows.hpp"
#include "kernels/gemm/blas_products.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/separate.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// Rows that overlap are beyond BLAS's leading dimensions.
bool rows_overlap(const View& x) { return x.shape[1] > 1 && x.strides[1] < x.shape[2]; }
// A single row has no stride of its own: any ld >= cols is the truth.
int valid_ld(const View& x) {
  return static_cast<int>(std::max<int64_t>(x.shape[1] > 1 ? x.strides[1] : x.shape[2], 1));
}

class BlasPlan final : public Plan {
 public:
  BlasPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        g_(problem),
        library_(cblas::open(env.library)),
        product_(make_product(problem, *library_)),
        threads_(env.threads),
        clear_first_(!g_.reads_c0() && g_.reads_ab() && product_->keeps_nan()) {
    if (!g_.prepack || !g_.reads_ab() || g_.empty()) return;
    PeerInput b;
    bind_input(constants.at("b"), b);
    b.copy();
    library_->set_num_threads(threads_);
    ProductCall call = sizes();
    call.ldb = valid_ld(b.view());
    packed_stride_ = (product_->packed_bytes(call.m, call.n, call.k) + 63) / 64 * 64;
    packed_ = Buffer(packed_stride_ * static_cast<std::size_t>(g_.batch));
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      call.b = b.view().row(batch * b.view().shape[1]);
      product_->pack(call, packed_of(batch));
    }
  }

  void run() override {
    if (g_.empty()) return;
    if (g_.reads_ab()) {
      products();
    } else if (c_.dtype == &float32) {
      scale_only(g_, g_.reads_c0() ? const_matrix(c0_) : Matrix<const float>(), matrix(c_));
    } else {
      clear_c();  // integers have no c0
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (packed_.bytes() > 0) {
      list.push_back({static_cast<const std::byte*>(packed_.data()), packed_.bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = library_->description;
    facts.workspace_bytes = a_.bytes() + b_.bytes();
    facts.packed_bytes = packed_.bytes();
    return facts;
  }

 private:
  void products() {
    a_.copy();
    if (!g_.prepack) b_.copy();
    library_->set_num_threads(threads_);
    if (g_.reads_c0()) {
      copy_rows(c0_, c_);
    } else if (clear_first_) {
      clear_c();
    }
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      ProductCall call = sizes();
      call.a = a_.view().row(batch * a_.view().shape[1]);
      call.lda = valid_ld(a_.view());
      call.c = c_.row(batch * g_.m);
      call.ldc = static_cast<int>(g_.m > 1 ? c_.strides[1] : g_.n);
      if (g_.prepack) {
        call.b = packed_of(batch);
        call.ldb = static_cast<int>(g_.trans_b ? g_.k : g_.n);
        product_->multiply_packed(call);
      } else {
        call.b = b_.view().row(batch * b_.view().shape[1]);
        call.ldb = valid_ld(b_.view());
        product_->multiply(call);
      }
    }
  }
  // Without operands.
  ProductCall sizes() const {
    return {.trans_a = g_.trans_a,
            .trans_b = g_.trans_b,
            .m = static_cast<int>(g_.m),
            .n = static_cast<int>(g_.n),
            .k = static_cast<int>(g_.k),
            .alpha = g_.alpha,
            .beta = g_.beta,
            .a = nullptr,
            .lda = 1,
            .b = nullptr,
            .ldb = 1,
            .c = nullptr,
            .ldc = 1};
  }
  void clear_c() const {
    for (int64_t row = 0; row < c_.rows(); ++row) {
      std::fill_n(c_.row(row), c_.dtype->bytes(g_.n), std::byte{0});
    }
  }
  void* packed_of(int64_t batch) const {
    return static_cast<std::byte*>(packed_.data()) +
           static_cast<std::size_t>(batch) * packed_stride_;
  }

  void on_bind(const Operands& operands) override {
    bind_input(operands.at("a"), a_);
    if (!g_.prepack) bind_input(operands.at("b"), b_);
    if (g_.reads_c0()) c0_ = operands.at("c0");
    c_ = operands.at("c");
    int64_t largest = g_.m > 1 ? c_.strides[1] : 0;
    for (const PeerInput* const input : {&a_, &b_}) {
      if (input->view().shape[1] > 1) largest = std::max(largest, input->view().strides[1]);
    }
    if (largest > INT_MAX) {
      throw unavailable_error(
          fmt::format("gemm: a row stride of {} exceeds CBLAS's 32-bit integers", largest));
    }
  }
  static void bind_input(const View& view, PeerInput& input) {
    input.bind(view, !view.empty() && rows_overlap(view));
  }

  const Gemm g_;
  const std::shared_ptr<const cblas::Library> library_;
  const std::unique_ptr<const CblasProduct> product_;
  const int threads_;
  const bool clear_first_;
  Buffer packed_;
  std::size_t packed_stride_ = 0;  // bytes from one batch's matrix to the next
  PeerInput a_, b_;
  View c0_, c_;
};

constexpr DType types[] = {&float32, &bfloat16, &int8, &uint8, &int32};
constexpr const Math* maths[] = {&fp32, &math_bf16, &math_int8};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  for (const char* name : {"m", "n", "k"}) {
    if (problem.size(name) > INT_MAX) {
      return fmt::format("{}={} exceeds CBLAS's 32-bit integers", name, problem.size(name));
    }
  }
  if (auto reason = cblas::unsupported_anywhere(problem, env)) return reason;
  return product_fault(problem, env, *cblas::open(env.library));
}

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning&, const Environment& env,
                           const Operands& constants) {
  const auto product = [&](const Problem& alone, const Operands& of_product) {
    return std::make_unique<BlasPlan>(alone, env, of_product);
  };
  if (!Gemm(problem).has_epilogue()) return product(problem, constants);
  return separate_plan(problem, {}, env, epilogue_function(), constants, product);
}

}  // namespace

const Variant blas = {.name = "blas",
                      .kernel = &kernel,
                      .backend = &cblas::backend,
                      .threads = Threads::many,
                      .tunables = {},
                      .unsupported = unsupported,
                      .tunings = no_tunings,
                      .plan = plan,
                      .maths = maths,
                      .dtypes = types};

}  // namespace rooflane::gemm
