// Few rows of a against rows of b as they are stored. See unit_product.hpp.
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/unit_product.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

class FewProduct final : public UnitProduct {
 public:
  FewProduct(const Problem& problem, const Schedule& schedule, const Environment& env,
             const Unit& unit, const ProductOperands& constants)
      : UnitProduct(problem, schedule, env, unit, unit.few.shifts_a, constants) {
    const FewRows& few = unit_.few;
    row_words_ = round_up(few.words(g_.m, g_.k), 16);
    pack_together(row_words_ + div_up(g_.n * g_.k, 4));
    a_rows_ = workspace(together_ * row_words_);
    if (needs_column_sums()) column_sums_ = workspace(s_.threads * (s_.nc + store_slack));
    allocate_scratch(few.limit * (s_.nc + few.together), g_.m);
    if (g_.n % few.together != 0) {
      // One for each thread: the last rows of several batches may be multiplied at once.
      end_words_ = round_up(
          div_up(few.together * static_cast<int64_t>(b_type_->bytes(g_.k)), word_bytes), 16);
      rows_at_end_ = workspace(end_words_ * s_.threads);
      std::fill_n(at(rows_at_end_, 0), end_words_ * s_.threads, 0u);
    }
    // Without gaps b is read fastest.
    if (g_.prepack) b_ = keep_as_stored(constants);
  }

 private:
  const std::string& path() const override { return unit_.few.path; }

  void run_batches(int64_t first, int64_t count) override {
    // Threads take longer to start than so many elements to be packed.
    constexpr int64_t of_one_thread = 16384;
    const int threads = count * g_.m * g_.k > of_one_thread ? s_.threads : 1;
    parallel_for(env_.pool, threads, count, [&](int64_t place, int thread) {
      const PhaseTimer timer(RunPhase::pack);
      PackCall call = rows_of_a(first + place, 0, g_.m, thread);
      call.width = g_.m;
      call.to = at(a_rows_, place * row_words_);
      unit_.few.pack(call);
    });
    const int64_t tasks = div_up(g_.n, s_.nc);
    // In static chunks: a thread prefetches what its next task reads.
    parallel_for_static(env_.pool, s_.threads, count * tasks, [&](int64_t task, int thread) {
      const int64_t place = task / tasks, col = task % tasks * s_.nc;
      multiply(first + place, at(a_rows_, place * row_words_), col, std::min(s_.nc, g_.n - col),
               thread);
    });
  }

  void multiply(int64_t batch, const std::uint32_t* a, int64_t col, int64_t cols,
                int thread) const {
    const FewRows& few = unit_.few;
    FewRowsCall call{};
    call.type = b_type_;
    call.a = a;
    call.rows = g_.m;
    call.b = b_.at(batch, col);
    call.row_bytes = static_cast<int64_t>(b_type_->bytes(b_.outer));
    call.k = g_.k;
    call.cols = cols / few.together * few.together;
    call.sums = scratch(thread);
    call.ld = s_.nc + few.together;
    if (needs_column_sums()) {
      call.column_sums =
          static_cast<std::int32_t*>(column_sums_.data()) + thread * (s_.nc + store_slack);
    }
    call.end = b_.at(batch, g_.n - 1) + b_type_->bytes(g_.k);
    if (call.cols > 0) few.multiply(call);
    if (call.cols < cols) multiply_last(batch, call, col + call.cols, thread);
    store({batch, 0, col, g_.m, cols}, scratch(thread), call.ld, call.column_sums);
  }

  // The last rows of b, fewer than are read together, with zeros behind them.
  void multiply_last(int64_t batch, FewRowsCall call, int64_t first, int thread) const {
    const auto bytes = static_cast<int64_t>(b_type_->bytes(g_.k));
    auto* const to = reinterpret_cast<std::byte*>(at(rows_at_end_, thread * end_words_));
    for (int64_t j = first; j < g_.n; ++j) {
      std::copy_n(b_.at(batch, j), bytes, to + (j - first) * bytes);
    }
    call.sums += call.cols;
    if (call.column_sums != nullptr) call.column_sums += call.cols;
    call.b = call.end = to;
    call.row_bytes = bytes;
    call.cols = unit_.few.together;
    unit_.few.multiply(call);
  }

  int64_t row_words_ = 0, end_words_ = 0;
  Buffer a_rows_, column_sums_, rows_at_end_;
};

}  // namespace

std::unique_ptr<Product> few_product(const Problem& problem, const Schedule& schedule,
                                     const Environment& env, const Unit& unit,
                                     const ProductOperands& constants) {
  return std::make_unique<FewProduct>(problem, schedule, env, unit, constants);
}

}  // namespace rooflane::gemm
