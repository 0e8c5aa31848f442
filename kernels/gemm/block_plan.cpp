// The plan of GEMM with weights in blocks. See block_plan.hpp.
#include "kernels/gemm/block_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "kernels/gemm/gate_product.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

int64_t div_up(int64_t x, int64_t y) { return (x + y - 1) / y; }
int64_t round_up(int64_t x, int64_t y) { return div_up(x, y) * y; }

class BlockPlan final : public Plan {
 public:
  BlockPlan(const Problem& problem, const Environment& env, const Operands& constants,
            const BlockUnit& unit, DotOutput::Finish finish)
      : Plan(problem),
        g_(problem),
        env_(env),
        unit_(unit),
        blocks_(g_.k / weights_per_block),
        row_bytes_(blocks_ * static_cast<int64_t>(unit.type->block_bytes)),
        threads_(std::max(env.threads, 1)),
        skinny_(g_.m <= unit.skinny_rows),
        output_(g_, finish) {
    if (g_.gate) {
      gate_.emplace(problem, constants, [&](const Problem& product, const Operands& of_product) {
        return std::make_unique<BlockPlan>(product, env, of_product, unit, finish);
      });
    }
    if (g_.empty() || !g_.reads_ab()) return;
    allocate();
    if (g_.prepack) keep_b(constants.at("b"));
  }

  void run() override {
    if (g_.empty()) return;
    if (gate_) gate_->run();
    if (!g_.reads_ab()) {
      output_.store_zeros();
      return;
    }
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      quantise(batch);
      const int64_t tasks = div_up(g_.n, width_);
      parallel_for_static(env_.pool, threads_, tasks, [&](int64_t task, int thread) {
        const int64_t col = task * width_, cols = std::min(width_, g_.n - col);
        if (skinny_) {
          multiply_skinny(batch, col, cols, thread);
        } else {
          multiply(batch, col, cols, thread);
        }
      });
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    for (const Buffer* kept : {&kept_, gate_ ? &gate_->plan().kept_ : nullptr}) {
      if (kept == nullptr || kept->bytes() == 0) continue;
      list.push_back({static_cast<const std::byte*>(kept->data()), kept->bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.path = unit_.path;
    facts.packed_bytes = kept_.bytes();
    facts.workspace_bytes =
        a_panels_.bytes() + b_panels_.bytes() + rows_at_end_.bytes() + sums_.bytes();
    if (gate_) gate_->add_to(facts);
    return facts;
  }

 private:
  int64_t panel_words(int64_t vectors) const { return vectors * words_per_block * blocks_; }
  int64_t columns_together() const { return skinny_ ? unit_.group_columns : unit_.nr; }

  void allocate() {
    const auto words = [](int64_t count) {
      return Buffer(static_cast<std::size_t>(count) * sizeof(std::uint32_t));
    };
    a_panels_ = words(panel_words(g_.m));
    width_ = skinny_ ? skinny_columns : columns_in_l2();
    // Whole pages, so that threads share none.
    constexpr int64_t page = 1024;
    sums_words_ = round_up(skinny_ ? unit_.skinny_rows * width_ : unit_.mr * unit_.nr, page);
    sums_ = words(sums_words_ * threads_);
    if (!skinny_) {
      panels_words_ = round_up(panel_words(width_), page);
      b_panels_ = words(panels_words_ * threads_);
    }
    if (g_.n % columns_together() == 0) return;
    rows_at_end_ = Buffer(static_cast<std::size_t>(columns_together() * row_bytes_));
    std::fill_n(static_cast<std::byte*>(rows_at_end_.data()), rows_at_end_.bytes(), std::byte{0});
  }

  // Columns whose B micro-panels take half of L2, and so few that threads end together.
  int64_t columns_in_l2() const {
    const auto l2 = static_cast<int64_t>(std::max<std::size_t>(machine().l2_bytes, 256 << 10));
    const int64_t of_column = panel_words(1) * static_cast<int64_t>(sizeof(std::uint32_t));
    const int64_t fitting = l2 / 2 / of_column, of_task = div_up(g_.n, 4 * threads_);
    return std::max(unit_.nr, std::min(fitting, of_task) / unit_.nr * unit_.nr);
  }

  // prepack=1: b without gaps, in its own format, which is what is read fastest.
  void keep_b(const View& all_of_b) {
    const View b = own_part_of_b(g_, all_of_b);
    kept_ = Buffer(static_cast<std::size_t>(b.rows() * row_bytes_));
    for (int64_t row = 0; row < b.rows(); ++row) {
      std::copy_n(b.row(row), row_bytes_, static_cast<std::byte*>(kept_.data()) + row * row_bytes_);
    }
    b_ = static_cast<const std::uint8_t*>(kept_.data());
    b_row_bytes_ = row_bytes_;
    b_batch_bytes_ = g_.n * row_bytes_;
  }

  void on_bind(const Operands& operands) override {
    a_ = operands.at("a");
    if (!g_.prepack) {
      const View b = own_part_of_b(g_, operands.at("b"));
      b_ = static_cast<const std::uint8_t*>(b.data);
      b_row_bytes_ = static_cast<int64_t>(b.dtype->bytes(b.strides[1]));
      b_batch_bytes_ = static_cast<int64_t>(b.dtype->bytes(b.strides[0]));
    }
    if (gate_) gate_->bind(operands);
    output_.bind(operands, gate_ ? gate_->sums() : Matrix<const float>());
  }

  std::uint32_t* a_panel(int64_t first_row) const {
    return static_cast<std::uint32_t*>(a_panels_.data()) + panel_words(first_row);
  }
  // Rows of the A micro-panel that begins there.
  int64_t rows_from(int64_t first) const {
    return skinny_ ? g_.m : std::min(unit_.mr, g_.m - first);
  }

  void quantise(int64_t batch) const {
    const auto size = static_cast<int64_t>(size_of(a_.dtype));
    const int64_t outer = g_.trans_a ? 1 : a_.strides[1], inner = g_.trans_a ? a_.strides[1] : 1;
    const auto* const from = static_cast<const std::byte*>(a_.data) + batch * a_.strides[0] * size;
    const auto row = [&](int64_t i, int) {
      const PhaseTimer timer(RunPhase::pack);
      const int64_t first = skinny_ ? 0 : i / unit_.mr * unit_.mr;
      unit_.quantise({from + i * outer * size, a_.dtype == &bfloat16, inner, blocks_, i - first,
                      rows_from(first), a_panel(first)});
    };
    // Threads take longer to start than so many elements to be quantised.
    constexpr int64_t of_one_thread = 16384;
    parallel_for(env_.pool, g_.m * g_.k > of_one_thread ? threads_ : 1, g_.m, row);
  }

  const std::uint8_t* row_of_b(int64_t batch, int64_t j) const {
    return b_ + batch * b_batch_bytes_ + j * b_row_bytes_;
  }
  // Behind the last row of b.
  const std::uint8_t* end_of_b(int64_t batch) const {
    return row_of_b(batch, g_.n - 1) + row_bytes_;
  }
  // The last rows of b, fewer than are read together, with zeros behind them.
  const std::uint8_t* last_rows(int64_t batch, int64_t first) const {
    auto* const to = static_cast<std::uint8_t*>(rows_at_end_.data());
    for (int64_t j = first; j < g_.n; ++j) {
      std::copy_n(row_of_b(batch, j), row_bytes_, to + (j - first) * row_bytes_);
    }
    return to;
  }

  float* sums_of(int thread) const { return sums_.f32() + thread * sums_words_; }
  void store(int64_t batch, const Output& out, int64_t row, int64_t rows, int64_t col, int64_t cols,
             const float* sums, int64_t ld) const {
    output_.store(batch,
                  {&out, row, rows, col, cols, reinterpret_cast<const std::uint32_t*>(sums), ld});
  }

  void multiply_skinny(int64_t batch, int64_t col, int64_t cols, int thread) const {
    float* const sums = sums_of(thread);
    const int64_t together = unit_.group_columns, whole = cols / together;
    const SkinnyBlocksCall call{a_panel(0),      g_.m,    row_of_b(batch, col),
                                b_row_bytes_,    blocks_, whole,
                                end_of_b(batch), sums,    width_};
    unit_.skinny(call);
    if (const int64_t done = whole * together; done < cols) {
      SkinnyBlocksCall rest = call;
      rest.b = rest.end = last_rows(batch, col + done);
      rest.row_bytes = row_bytes_;
      rest.groups = 1;
      rest.sums = sums + done;
      unit_.skinny(rest);
    }
    store(batch, output_.of(batch), 0, g_.m, col, cols, sums, width_);
  }

  void multiply(int64_t batch, int64_t col, int64_t cols, int thread) const {
    auto* const panels = static_cast<std::uint32_t*>(b_panels_.data()) + thread * panels_words_;
    pack(batch, col, cols, panels);
    const Output out = output_.of(batch);
    float* const sums = sums_of(thread);
    for (int64_t i = 0; i < g_.m; i += unit_.mr) {
      const int64_t rows = rows_from(i);
      for (int64_t j = 0; j < cols; j += unit_.nr) {
        unit_.tile({a_panel(i), rows, panels + panel_words(j), blocks_, sums, unit_.nr});
        store(batch, out, i, rows, col + j, std::min(unit_.nr, cols - j), sums, unit_.nr);
      }
    }
  }

  void pack(int64_t batch, int64_t col, int64_t cols, std::uint32_t* to) const {
    const PhaseTimer timer(RunPhase::pack);
    for (int64_t j = 0; j < cols; j += unit_.nr) {
      const bool whole = j + unit_.nr <= cols;
      unit_.pack({whole ? row_of_b(batch, col + j) : last_rows(batch, col + j),
                  whole ? b_row_bytes_ : row_bytes_, blocks_, to + panel_words(j)});
    }
  }

  // Rows of b of a task where a is skinny.
  static constexpr int64_t skinny_columns = 64;

  const Gemm g_;
  const Environment env_;
  const BlockUnit& unit_;
  const int64_t blocks_, row_bytes_;  // of a row of b
  const int threads_;
  const bool skinny_;
  DotOutput output_;
  std::optional<GateProduct<BlockPlan>> gate_;
  int64_t width_ = 1;  // columns of a task
  int64_t sums_words_ = 0, panels_words_ = 0;
  Buffer a_panels_, b_panels_, rows_at_end_, sums_, kept_;
  View a_;
  const std::uint8_t* b_ = nullptr;
  int64_t b_row_bytes_ = 0, b_batch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Plan> block_plan(const Problem& problem, const Environment& env,
                                 const Operands& constants, const BlockUnit& unit,
                                 DotOutput::Finish finish) {
  return std::make_unique<BlockPlan>(problem, env, constants, unit, finish);
}

}  // namespace rooflane::gemm
