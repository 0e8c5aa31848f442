// GEMM, variant `blas`: one sgemm (or sgemv, where a matrix has one row or column) per batch of a
// CBLAS library opened at run time. prepack=1: MKL's packed GEMM; other libraries have none. What
// is not BLAS: copying c0 into c, the cases without a product, and the epilogue, each function of
// which is a pass over c, by vectors and on all threads: what fusing it saves is the difference to
// `hwy`. gate=1: two products. Next: hwy.cpp for our own.
#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "backends/cblas.hpp"
#include "core/buffer.hpp"
#include "core/error.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/gemm/epilogue_passes.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

// True when the library lets what c held survive beta = 0 as NaN (0·NaN) on one of its paths: small
// and blocked sgemm, and sgemv both ways. BLAS forbids it; a plan clears c first if it happens.
bool keeps_nan(const cblas::Library& library) {
  constexpr int sizes[] = {1, 3, 17, 96};
  for (const int size : sizes) {
    const std::vector<float> ones(static_cast<std::size_t>(size) * size, 1.0f);
    std::vector<float> c(ones.size());
    const auto spoil = [&] {
      std::fill(c.begin(), c.end(), std::numeric_limits<float>::quiet_NaN());
    };
    const auto spoiled = [&](std::size_t count) {
      return std::any_of(c.begin(), c.begin() + static_cast<std::ptrdiff_t>(count),
                         [](float x) { return std::isnan(x); });
    };
    for (const int trans : {cblas::no_trans, cblas::trans}) {
      spoil();
      library.sgemm(cblas::row_major, cblas::no_trans, trans, size, size, size, 1, ones.data(),
                    size, ones.data(), size, 0, c.data(), size);
      if (spoiled(c.size())) return true;
      spoil();
      library.sgemv(cblas::row_major, trans, size, size, 1, ones.data(), size, ones.data(), 1, 0,
                    c.data(), 1);
      if (spoiled(static_cast<std::size_t>(size))) return true;
    }
  }
  return false;
}

// One operand as BLAS takes it: `rows` × `cols` as stored, and a leading dimension it accepts.
struct Stored {
  const float* data = nullptr;
  int64_t batch_stride = 0;
  int64_t rows = 0, cols = 0;
  int64_t ld = 1;
  Buffer gathered;  // used only when the view's rows overlap, which BLAS cannot express

  void set(const View& view) {
    data = view.f32();
    batch_stride = view.strides[0];
    rows = view.shape[1];
    cols = view.shape[2];
    ld = view.strides[1];
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
        threads_(env.threads),
        passes_(g_, env.threads, env.pool, epilogue_function()) {
    if (g_.gate) plan_gate(problem, env, constants);
    clear_first_ = !g_.reads_c0() && g_.reads_ab() && keeps_nan(*library_);
    if (!g_.prepack) return;
    const View b = part_of_b(constants.at("b"));
    if (!g_.reads_ab() || g_.empty()) return;
    Stored stored;
    View view;
    bind_input(b, stored, view);
    gather(stored, view);
    const int m = static_cast<int>(g_.m), n = static_cast<int>(g_.n), k = static_cast<int>(g_.k);
    library_->set_num_threads(threads_);
    packed_stride_ = (library_->sgemm_pack_get_size(cblas::b_matrix, m, n, k) + 63) / 64 * 64;
    packed_ = Buffer(packed_stride_ * static_cast<std::size_t>(g_.batch));
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      library_->sgemm_pack(
          cblas::row_major, cblas::b_matrix, g_.trans_b ? cblas::trans : cblas::no_trans, m, n, k,
          g_.alpha, stored.data + batch * stored.batch_stride, stored.valid_ld(), packed_of(batch));
    }
  }

  void run() override {
    if (g_.empty()) return;
    if (!g_.reads_ab()) {
      scale_only(g_, c0_, c_);
    } else {
      products();
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
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      if (g_.reads_c0()) {
        for (int64_t i = 0; i < g_.m; ++i) {
          std::copy_n(c0_.row(batch, i), g_.n, c_.row(batch, i));
        }
      } else if (clear_first_) {
        for (int64_t i = 0; i < g_.m; ++i) std::fill_n(c_.row(batch, i), g_.n, 0.0f);
      }
      const float* a = a_.data + batch * a_.batch_stride;
      if (g_.prepack) {
        library_->sgemm_compute(cblas::row_major, g_.trans_a ? cblas::trans : cblas::no_trans,
                                cblas::packed, static_cast<int>(g_.m), static_cast<int>(g_.n),
                                static_cast<int>(g_.k), a, a_.valid_ld(), packed_of(batch),
                                static_cast<int>(g_.trans_b ? g_.k : g_.n), g_.beta,
                                c_.row(batch, 0), ldc());
        continue;
      }
      multiply(a, b_.data + batch * b_.batch_stride, c_.row(batch, 0));
    }
  }

  float* packed_of(int64_t batch) const {
    return packed_.f32() + static_cast<std::size_t>(batch) * packed_stride_ / sizeof(float);
  }
  int ldc() const { return static_cast<int>(g_.m > 1 ? c_.ld : g_.n); }

  void on_bind(const Operands& operands) override {
    bind_input(operands.at("a"), a_, a_view_);
    if (!g_.prepack) bind_input(part_of_b(operands.at("b")), b_, b_view_);
    bind_epilogue(operands);
    if (g_.reads_c0()) c0_ = const_matrix(operands.at("c0"));
    c_ = matrix(operands.at("c"));
    const int64_t largest =
        std::max({a_.rows > 1 ? a_.ld : 0, b_.rows > 1 ? b_.ld : 0, g_.m > 1 ? c_.ld : 0});
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
    stored.gathered = Buffer(static_cast<std::size_t>(view.elements()) * sizeof(float));
    stored.data = stored.gathered.f32();
    stored.ld = stored.cols;
    stored.batch_stride = stored.rows * stored.cols;
  }

  static void gather(const Stored& stored, const View& view) {
    if (stored.gathered.bytes() > 0) copy_rows(view, stored.gathered.f32());
  }

  static void copy_rows(const View& view, float* to) {
    for (int64_t batch = 0; batch < view.shape[0]; ++batch) {
      for (int64_t i = 0; i < view.shape[1]; ++i) {
        const float* row = view.f32() + batch * view.strides[0] + i * view.strides[1];
        to = std::copy_n(row, view.shape[2], to);
      }
    }
  }

  // c = alpha·op(a)·op(b) + beta·c for one batch, m, n, k > 0.
  void multiply(const float* a, const float* b, float* c) const {
    const auto transpose = [](bool flag) { return flag ? cblas::trans : cblas::no_trans; };
    const int lda = a_.valid_ld();
    const int ldb = b_.valid_ld();
    if (g_.n == 1) {
      // A column of c: op(a) times the one column of op(b).
      library_->sgemv(cblas::row_major, transpose(g_.trans_a), static_cast<int>(a_.rows),
                      static_cast<int>(a_.cols), g_.alpha, a, lda, b, g_.trans_b ? 1 : ldb, g_.beta,
                      c, ldc());
      return;
    }
    if (g_.m == 1) {
      // A row of c: op(b)ᵀ times the one row of op(a).
      library_->sgemv(cblas::row_major, transpose(!g_.trans_b), static_cast<int>(b_.rows),
                      static_cast<int>(b_.cols), g_.alpha, b, ldb, a, g_.trans_a ? lda : 1, g_.beta,
                      c, 1);
      return;
    }
    library_->sgemm(cblas::row_major, transpose(g_.trans_a), transpose(g_.trans_b),
                    static_cast<int>(g_.m), static_cast<int>(g_.n), static_cast<int>(g_.k),
                    g_.alpha, a, lda, b, ldb, g_.beta, c, ldc());
  }

  const Gemm g_;
  const std::shared_ptr<const cblas::Library> library_;
  const int threads_;
  EpiloguePasses passes_;
  std::unique_ptr<BlasPlan> gate_;  // of the first product of gate=1
  Buffer gate_sums_;
  bool clear_first_ = false;
  Buffer packed_;
  std::size_t packed_stride_ = 0;  // bytes from one batch's matrix to the next
  Stored a_, b_;
  View a_view_, b_view_;
  Matrix<const float> c0_;
  Matrix<float> c_;
};

std::optional<std::string> unsupported(const Problem& problem, const Environment& env) {
  for (const char* name : {"m", "n", "k"}) {
    if (problem.size(name) > INT_MAX) {
      return fmt::format("{}={} exceeds CBLAS's 32-bit integers", name, problem.size(name));
    }
  }
  if (auto reason = cblas::unsupported_anywhere(problem, env)) return reason;
  const auto library = cblas::open(env.library);
  if (problem.flag("prepack") && !library->packs()) {
    return fmt::format("prepack=1: {} has no GEMM that keeps b packed", library->description);
  }
  return std::nullopt;
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
                      .plan = plan};

}  // namespace rooflane::gemm
