// GEMM, variant `blas`: one product (blas_products.hpp) per batch of a CBLAS library opened at run
// time: sgemm or sgemv, with MKL also of bfloat16 numbers and of 8-bit integers. prepack=1: MKL's
// packed GEMM; other libraries have none. The rest is code of our own: copying c0 into c, the cases
// without a product, and the epilogue. Each of its functions is a pass over c, by vectors and on
// all threads, so that the difference to `hwy` is the gain of fusing it. gate=1: two products.
// Next: hwy.cpp.
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
#include "kernels/gemm/epilogue_passes.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// One operand as BLAS takes it: `rows` × `cols` as stored, and a leading dimension it accepts.
struct Stored {
  const std::byte* data = nullptr;
  std::size_t element = 0;  // bytes
  int64_t batch_stride = 0;
  int64_t rows = 0, cols = 0;
  int64_t ld = 1;
  Buffer gathered;  // used only when the view's rows overlap, which BLAS cannot express

  void set(const View& view) {
    data = static_cast<const std::byte*>(view.data);
    element = size_of(view.dtype);
    batch_stride = view.strides[0];
    rows = view.shape[1];
    cols = view.shape[2];
    ld = view.strides[1];
  }
  const void* of_batch(int64_t batch) const {
    return data + batch * batch_stride * static_cast<int64_t>(element);
  }
  bool rows_overlap() const { return rows > 1 && ld < cols; }
  // A single row has no stride of its own: any ld >= cols is the truth.
  int valid_ld() const {
    return static_cast<int>(rows > 1 ? std::max(ld, int64_t{1}) : std::max(cols, int64_t{1}));
  }
};

class BlasPlan final : public Plan {
 public:
  BlasPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        g_(problem),
        library_(cblas::open(env.library)),
        product_(make_product(problem, *library_)),
        threads_(env.threads),
        passes_(g_, env.threads, env.pool, epilogue_function()) {
    if (g_.gate) plan_gate(problem, env, constants);
    clear_first_ = !g_.reads_c0() && g_.reads_ab() && product_->keeps_nan();
    if (!g_.prepack) return;
    const View b = part_of_b(constants.at("b"));
    if (!g_.reads_ab() || g_.empty()) return;
    Stored stored;
    View view;
    bind_input(b, stored, view);
    gather(stored, view);
    library_->set_num_threads(threads_);
    const ProductCall sizes = call_of(0);
    packed_stride_ = (product_->packed_bytes(sizes.m, sizes.n, sizes.k) + 63) / 64 * 64;
    packed_ = Buffer(packed_stride_ * static_cast<std::size_t>(g_.batch));
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      ProductCall call = sizes;
      call.b = stored.of_batch(batch);
      call.ldb = stored.valid_ld();
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
    if (gate_ != nullptr) gate_->run();
    passes_.run();
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    for (const BlasPlan* plan : {this, static_cast<const BlasPlan*>(gate_.get())}) {
      if (plan == nullptr || plan->packed_.bytes() == 0) continue;
      list.push_back({static_cast<const std::byte*>(plan->packed_.data()), plan->packed_.bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.library = library_->description;
    facts.workspace_bytes = a_.gathered.bytes() + b_.gathered.bytes() + gate_sums_.bytes();
    facts.packed_bytes = packed_.bytes();
    if (gate_ != nullptr) {
      const PlanFacts further = gate_->facts();
      facts.workspace_bytes += further.workspace_bytes;
      facts.packed_bytes += further.packed_bytes;
    }
    return facts;
  }

 private:
  // gate=1: the first product by a plan of its own.
  void plan_gate(Problem product, const Environment& env, const Operands& constants) {
    product.set("gate", 0.0);
    Operands of_gate;
    if (g_.prepack) of_gate.set("b", half_of_b(constants.at("b"), g_.trans_b, 0));
    gate_ = std::make_unique<BlasPlan>(product, env, of_gate);
    gate_sums_ = Buffer(static_cast<std::size_t>(g_.batch * g_.m * g_.n) * sizeof(float));
  }
  View gate_view() const { return contiguous_view(gate_sums_.data(), Shape{g_.batch, g_.m, g_.n}); }
  View part_of_b(const View& b) const { return g_.gate ? half_of_b(b, g_.trans_b, 1) : b; }
  void bind_epilogue(const Operands& operands) {
    passes_.bind(operands);
    if (gate_ == nullptr) return;
    passes_.bind(operands, const_matrix(gate_view()));
    Operands of_gate;
    of_gate.set("a", operands.at("a"));
    if (!g_.prepack) of_gate.set("b", half_of_b(operands.at("b"), g_.trans_b, 0));
    of_gate.set("c", gate_view());
    gate_->bind(of_gate);
  }

  void products() {
    gather(a_, a_view_);
    if (!g_.prepack) gather(b_, b_view_);
    library_->set_num_threads(threads_);
    if (g_.reads_c0()) {
      copy_rows(c0_, c_);
    } else if (clear_first_) {
      clear_c();
    }
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      const ProductCall call = call_of(batch);
      if (g_.prepack) {
        product_->multiply_packed(call);
      } else {
        product_->multiply(call);
      }
    }
  }
  ProductCall call_of(int64_t batch) const {
    ProductCall call = {.trans_a = g_.trans_a,
                        .trans_b = g_.trans_b,
                        .m = static_cast<int>(g_.m),
                        .n = static_cast<int>(g_.n),
                        .k = static_cast<int>(g_.k),
                        .alpha = g_.alpha,
                        .beta = g_.beta,
                        .a = a_.of_batch(batch),
                        .lda = a_.valid_ld(),
                        .b = b_.of_batch(batch),
                        .ldb = b_.valid_ld(),
                        .c = nullptr,
                        .ldc = static_cast<int>(g_.m > 1 ? c_.strides[1] : g_.n)};
    if (c_.data != nullptr) call.c = c_.row(batch * g_.m);
    if (g_.prepack && packed_.bytes() > 0) {
      call.b = packed_of(batch);
      call.ldb = static_cast<int>(g_.trans_b ? g_.k : g_.n);
    }
    return call;
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
    bind_input(operands.at("a"), a_, a_view_);
    if (!g_.prepack) bind_input(part_of_b(operands.at("b")), b_, b_view_);
    bind_epilogue(operands);
    if (g_.reads_c0()) c0_ = operands.at("c0");
    c_ = operands.at("c");
    const int64_t largest =
        std::max({a_.rows > 1 ? a_.ld : 0, b_.rows > 1 ? b_.ld : 0, g_.m > 1 ? c_.strides[1] : 0});
    if (largest > INT_MAX) {
      throw unavailable_error(
          fmt::format("gemm: a row stride of {} exceeds CBLAS's 32-bit integers", largest));
    }
  }

  void bind_input(const View& view, Stored& stored, View& remembered) {
    stored.set(view);
    remembered = view;
    if (view.empty() || !stored.rows_overlap()) {
      stored.gathered = Buffer();
      return;
    }
    stored.gathered = Buffer(view.dtype->bytes(view.elements()));
    stored.data = static_cast<const std::byte*>(stored.gathered.data());
    stored.ld = stored.cols;
    stored.batch_stride = stored.rows * stored.cols;
  }

  static void gather(const Stored& stored, const View& view) {
    if (stored.gathered.bytes() == 0) return;
    const Shape shape(view.shape.begin(), view.shape.begin() + view.rank);
    copy_rows(view, contiguous_view(stored.gathered.data(), shape, view.dtype));
  }

  const Gemm g_;
  const std::shared_ptr<const cblas::Library> library_;
  const std::unique_ptr<const Product> product_;
  const int threads_;
  EpiloguePasses passes_;
  std::unique_ptr<BlasPlan> gate_;  // of the first product of gate=1
  Buffer gate_sums_;
  bool clear_first_ = false;
  Buffer packed_;
  std::size_t packed_stride_ = 0;  // bytes from one batch's matrix to the next
  Stored a_, b_;
  View a_view_, b_view_;
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
  return std::make_unique<BlasPlan>(problem, env, constants);
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
