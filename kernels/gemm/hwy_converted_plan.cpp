// The plan of GEMM `hwy` with operands that are decoded to float32. See hwy_converted.hpp; the
// vector code and how it works: hwy_converted.cpp.
#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/float16.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gate_product.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_converted.hpp"
#include "kernels/gemm/hwy_converted_job.hpp"
#include "kernels/gemm/hwy_epilogue.hpp"

namespace rooflane::gemm {

std::string fma_path(std::int64_t target) {
  std::string isa = isa_name(target);
  if (isa == "SCALAR" || isa == "EMU128") return "scalar";
  if (isa.starts_with("AVX3")) return "avx512-fma";
  if (isa == "AVX2") return "avx2-fma";
  if (isa.starts_with("NEON")) return "neon-fma";
  // SSE4, SSSE3 and SSE2 have no fused multiply-add to name.
  std::transform(isa.begin(), isa.end(), isa.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return isa;
}

namespace {

using std::int64_t;

int64_t round_up(int64_t x, int64_t y) { return (x + y - 1) / y * y; }

// Rows of a matrix as stored: row r of a batch begins at data + batch·batch_bytes + r·row_bytes.
struct StoredRows {
  DType type = &float32;
  const std::uint8_t* data = nullptr;
  int64_t batch_bytes = 0, row_bytes = 0;
  StoredRows() = default;
  explicit StoredRows(const View& view)
      : type(view.dtype),
        data(static_cast<const std::uint8_t*>(view.data)),
        batch_bytes(static_cast<int64_t>(view.dtype->bytes(view.strides[0]))),
        row_bytes(static_cast<int64_t>(view.dtype->bytes(view.strides[1]))) {}
  const std::uint8_t* row(int64_t batch, int64_t r) const {
    return data + batch * batch_bytes + r * row_bytes;
  }
};

class ConvertedPlan final : public Plan {
 public:
  ConvertedPlan(const Problem& problem, const Environment& env, const Operands& constants)
      : Plan(problem),
        g_(problem),
        env_(env),
        target_(resolve_isa(env.isa)),
        functions_(converted_functions(target_)),
        threads_(std::max(env.threads, 1)),
        skinny_(g_.trans_b && g_.m <= most_converted_rows),
        epilogue_(g_.has_epilogue() ? epilogue_function(target_) : nullptr),
        epilogue_job_(g_) {
    if (g_.gate) {
      gate_.emplace(problem, constants, [&](const Problem& product, const Operands& of_product) {
        return std::make_unique<ConvertedPlan>(product, env, of_product);
      });
    }
    if (g_.prepack) keep_b(constants);
    if (g_.empty() || !g_.reads_ab()) return;
    if (skinny_) {
      allocate_skinny();
    } else {
      allocate_blocks();
    }
  }

  void run() override {
    if (g_.empty()) return;
    if (gate_) gate_->run();
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      if (!g_.reads_ab()) {
        store({batch, 0, 0, g_.m, g_.n}, nullptr, 0, thread_row(0));
      } else if (skinny_) {
        run_skinny(batch);
      } else {
        run_blocks(batch);
      }
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
    facts.isa = isa_name(target_);
    facts.path = fma_path(target_);
    facts.packed_bytes = kept_.bytes();
    facts.workspace_bytes = a_rows_.bytes() + scratch_.bytes() + rows_.size() * sizeof(float) +
                            kept_scale_.size() * sizeof(float);
    for (const auto& block : blocks_) facts.workspace_bytes += block->facts().workspace_bytes;
    if (gate_) gate_->add_to(facts);
    return facts;
  }

 private:
  // prepack=1: b without gaps, in its own format, which is what is read fastest.
  void keep_b(const Operands& constants) {
    const View b = own_part_of_b(g_, constants.at("b"));
    if (constants.has("b_scale")) {
      const float* const scale = constants.at("b_scale").f32();
      kept_scale_.assign(scale, scale + g_.n);
      scale_ = kept_scale_.data();
    }
    b_ = StoredRows(b);
    if (b.empty()) return;
    const auto bytes = static_cast<int64_t>(b.dtype->bytes(b.cols()));
    kept_ = Buffer(static_cast<std::size_t>(b.rows() * bytes));
    for (int64_t row = 0; row < b.rows(); ++row) {
      std::copy_n(b.row(row), bytes, static_cast<std::byte*>(kept_.data()) + row * bytes);
    }
    b_.data = static_cast<const std::uint8_t*>(kept_.data());
    b_.row_bytes = bytes;
    b_.batch_bytes = b.shape[1] * bytes;
  }

  void allocate_skinny() {
    lda_ = round_up(g_.k, q8_0.block);
    a_rows_ = Buffer(static_cast<std::size_t>(g_.m * lda_) * sizeof(float));
    std::fill_n(a_rows_.f32(), g_.m * lda_, 0.0f);
    tile_floats_ = most_converted_rows * skinny_columns;
    allocate_scratch();
    if (g_.trans_a) rows_.resize(static_cast<std::size_t>(g_.k * g_.m));
  }

  // Columns of b that, decoded, take half of L2; a block per thread at least.
  int64_t columns_together() const {
    const auto l2 = static_cast<int64_t>(std::max<std::size_t>(machine().l2_bytes, 256 << 10));
    constexpr int64_t vector = 32;
    const int64_t fitting = l2 / 2 / (g_.k * static_cast<int64_t>(sizeof(float)));
    const int64_t of_thread = round_up((g_.n + threads_ - 1) / threads_, vector);
    const int64_t columns = std::clamp(fitting / vector * vector, vector, 1024L);
    return std::min({columns, of_thread, g_.n});
  }

  void allocate_blocks() {
    width_ = columns_together();
    a_in_place_ = problem().dtype("a_type") == &float32 && g_.batch == 1;
    if (!a_in_place_) a_rows_ = Buffer(static_cast<std::size_t>(g_.m * g_.k) * sizeof(float));
    tile_floats_ = round_up(width_ * (g_.k + g_.m), 1024);
    allocate_scratch();
    Problem block(problem().kernel());
    const auto set = [&](const char* name, double value) { block.set(name, value); };
    set("m", static_cast<double>(g_.m));
    set("n", static_cast<double>(width_));
    set("k", static_cast<double>(g_.k));
    set("trans_a", g_.trans_a ? 1 : 0);
    set("trans_b", g_.trans_b ? 1 : 0);
    Environment one = env_;
    one.threads = 1;
    one.math = fp32.name;
    for (int thread = 0; thread < threads_; ++thread) {
      blocks_.push_back(make_plan(hwy, block, {}, one, {}));
    }
    if (!a_in_place_) bind_blocks(a_view(a_rows_.f32(), g_.trans_a ? g_.m : g_.k));
  }

  // A row of c behind the blocks of each thread, and one of the residual.
  void allocate_scratch() {
    scratch_ =
        Buffer(static_cast<std::size_t>((tile_floats_ + rows_floats()) * threads_) * sizeof(float));
  }
  int64_t row_floats() const { return round_up(std::max(g_.n, width_), 16); }
  int64_t rows_floats() const { return epilogue_ != nullptr ? 2 * row_floats() : row_floats(); }
  float* thread_tile(int thread) const {
    return scratch_.f32() + thread * (tile_floats_ + rows_floats());
  }
  float* thread_row(int thread) {
    if (scratch_.bytes() == 0) allocate_scratch();
    return thread_tile(thread) + tile_floats_;
  }

  View a_view(float* data, int64_t ld) const {
    const Shape shape = g_.trans_a ? Shape{1, g_.k, g_.m} : Shape{1, g_.m, g_.k};
    View view = contiguous_view(data, shape);
    view.strides[1] = ld;
    return view;
  }

  void bind_blocks(const View& a) {
    for (int thread = 0; thread < threads_; ++thread) {
      float* const tile = thread_tile(thread);
      const Shape b = g_.trans_b ? Shape{1, width_, g_.k} : Shape{1, g_.k, width_};
      const Shape c = {1, g_.m, width_};
      Operands operands;
      operands.set("a", a);
      operands.set("b", contiguous_view(tile, b));
      operands.set("c", contiguous_view(tile + width_ * g_.k, c));
      blocks_[static_cast<std::size_t>(thread)]->bind(operands);
    }
  }

  void on_bind(const Operands& operands) override {
    const View& a = operands.at("a");
    a_ = StoredRows(a);
    if (!g_.prepack) {
      b_ = StoredRows(own_part_of_b(g_, operands.at("b")));
      if (operands.has("b_scale")) scale_ = operands.at("b_scale").f32();
    }
    c_ = operands.at("c");
    if (g_.reads_c0()) c0_ = operands.at("c0");
    if (gate_) {
      gate_->bind(operands);
      epilogue_job_.gate = gate_->sums();
    }
    if (g_.epilogue.has(Epilogue::Op::add)) residual_ = operands.at("residual");
    if (epilogue_ != nullptr) epilogue_job_.bind(operands);
    if (!blocks_.empty() && a_in_place_) bind_blocks(a_view(a.f32(), a.strides[1]));
    if (scratch_.bytes() == 0) allocate_scratch();
  }

  // Rows of a, as stored, into float32.
  void decode_a(int64_t batch, int64_t first, int64_t count, float* to, int64_t ld) const {
    const int64_t length = g_.trans_a ? g_.m : g_.k;
    functions_.decode(
        {a_.type, a_.row(batch, first), a_.row_bytes, count, length, nullptr, to, ld});
  }

  void run_skinny(int64_t batch) {
    if (g_.trans_a) {
      decode_a(batch, 0, g_.k, rows_.data(), g_.m);
      for (int64_t p = 0; p < g_.k; ++p) {
        for (int64_t i = 0; i < g_.m; ++i) a_rows_.f32()[i * lda_ + p] = rows_[p * g_.m + i];
      }
    } else {
      decode_a(batch, 0, g_.m, a_rows_.f32(), lda_);
    }
    const int64_t tasks = (g_.n + skinny_columns - 1) / skinny_columns;
    // In static chunks: a thread prefetches what its next task reads.
    parallel_for_static(env_.pool, threads_, tasks, [&](int64_t task, int thread) {
      const int64_t col = task * skinny_columns, cols = std::min(skinny_columns, g_.n - col);
      float* const sums = thread_tile(thread);
      functions_.multiply_skinny({b_.type, a_rows_.f32(), lda_, g_.m, b_.row(batch, col),
                                  b_.row_bytes, scale_ != nullptr ? scale_ + col : nullptr, g_.k,
                                  cols, sums, skinny_columns, b_.row(batch, g_.n)});
      store({batch, 0, col, g_.m, cols}, sums, skinny_columns, thread_row(thread));
    });
  }

  void run_blocks(int64_t batch) {
    if (!a_in_place_) {
      const int64_t rows = g_.trans_a ? g_.k : g_.m, length = g_.trans_a ? g_.m : g_.k;
      parallel_for(env_.pool, threads_, rows, [&](int64_t row, int) {
        decode_a(batch, row, 1, a_rows_.f32() + row * length, length);
      });
    }
    const int64_t tasks = (g_.n + width_ - 1) / width_;
    parallel_for(env_.pool, threads_, tasks, [&](int64_t task, int thread) {
      // The last block is whole and begins within the one before, whose columns it leaves alone.
      const int64_t col = task * width_, from = std::min(col, g_.n - width_);
      float* const tile = thread_tile(thread);
      decode_b(batch, from, tile);
      blocks_[static_cast<std::size_t>(thread)]->run();
      const PhaseTimer timer(RunPhase::store);
      const float* const sums = tile + width_ * g_.k + (col - from);
      store({batch, 0, col, g_.m, from + width_ - col}, sums, width_, thread_row(thread));
    });
  }

  void decode_b(int64_t batch, int64_t col, float* to) const {
    const PhaseTimer timer(RunPhase::pack);
    const float* const scale = scale_ != nullptr ? scale_ + col : nullptr;
    if (g_.trans_b) {
      functions_.decode({b_.type, b_.row(batch, col), b_.row_bytes, width_, g_.k, scale, to, g_.k});
      return;
    }
    const auto offset = static_cast<int64_t>(b_.type->bytes(col));
    functions_.decode(
        {b_.type, b_.row(batch, 0) + offset, b_.row_bytes, g_.k, width_, nullptr, to, width_});
    if (scale == nullptr) return;
    for (int64_t p = 0; p < g_.k; ++p) {
      for (int64_t j = 0; j < width_; ++j) to[p * width_ + j] *= scale[j];
    }
  }

  static std::byte* element(const View& view, const Rectangle& at, int64_t i) {
    const int64_t place = at.batch * view.strides[0] + (at.row + i) * view.strides[1] + at.col;
    return static_cast<std::byte*>(view.data) + view.dtype->bytes(place);
  }

  // A rectangle of c, and what the epilogue makes of it while it is in L1 or L2; no sums: zeros.
  // c of 16 bits is formed in `row`, row by row.
  void store(const Rectangle& at, const float* sums, int64_t ld, float* row) const {
    const bool direct = c_.dtype == &float32;
    for (int64_t i = 0; i < at.rows; ++i) {
      float* const to = direct ? reinterpret_cast<float*>(element(c_, at, i)) : row;
      form_row(at, i, sums != nullptr ? sums + i * ld : nullptr, to);
      if (direct) continue;
      if (epilogue_ != nullptr) follow_row(at, i, row);
      functions_.narrow(c_.dtype, row, element(c_, at, i), at.cols);
    }
    if (direct && epilogue_ != nullptr) epilogue_(epilogue_job_, at);
  }

  // alpha·sums + beta·c0 for a row of the rectangle; no sums: zeros.
  void form_row(const Rectangle& at, int64_t i, const float* sums, float* to) const {
    if (sums == nullptr) {
      std::fill_n(to, at.cols, 0.0f);
    } else {
      for (int64_t j = 0; j < at.cols; ++j) to[j] = g_.alpha * sums[j];
    }
    if (!g_.reads_c0()) return;
    with_float_type(c0_.dtype, [&](auto type) {
      const auto* const from = reinterpret_cast<const decltype(type)*>(element(c0_, at, i));
      for (int64_t j = 0; j < at.cols; ++j) to[j] += g_.beta * static_cast<float>(from[j]);
    });
  }

  // The epilogue on a row of float32, with the residual decoded behind it.
  void follow_row(const Rectangle& at, int64_t i, float* row) const {
    EpilogueJob job = epilogue_job_;
    job.c = {row - at.col, 0, 0};
    if (g_.epilogue.has(Epilogue::Op::add)) {
      float* const residual = row + row_floats();
      functions_.decode({residual_.dtype,
                         reinterpret_cast<const std::uint8_t*>(element(residual_, at, i)), 0, 1,
                         at.cols, nullptr, residual, at.cols});
      job.residual = {residual - at.col, 0, 0};
    }
    epilogue_(job, {at.batch, at.row + i, at.col, 1, at.cols});
  }

  // Rows of b of a task where a is skinny.
  static constexpr int64_t skinny_columns = 64;

  const Gemm g_;
  const Environment env_;
  const int64_t target_;
  const ConvertedFunctions functions_;
  const int threads_;
  const bool skinny_;
  const EpilogueFunction epilogue_;  // null: there is none
  EpilogueJob epilogue_job_;
  std::optional<GateProduct<ConvertedPlan>> gate_;
  bool a_in_place_ = false;
  int64_t width_ = 0;  // columns of a block
  int64_t lda_ = 0, tile_floats_ = 0;
  StoredRows a_, b_;
  const float* scale_ = nullptr;
  View c_, c0_, residual_;
  Buffer kept_, a_rows_, scratch_;
  std::vector<float> kept_scale_, rows_;
  std::vector<std::unique_ptr<Plan>> blocks_;
};

}  // namespace

std::unique_ptr<Plan> converted_plan(const Problem& problem, const Environment& env,
                                     const Operands& constants) {
  return std::make_unique<ConvertedPlan>(problem, env, constants);
}

}  // namespace rooflane::gemm
