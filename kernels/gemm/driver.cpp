// See driver.hpp.
#include "kernels/gemm/driver.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "kernels/gemm/gate_product.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/matrix_view.hpp"
#include "kernels/gemm/shared_pieces.hpp"
#include "kernels/gemm/store.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t page_words = 1024;

Buffer words(int64_t count) { return Buffer(static_cast<std::size_t>(count * word_bytes)); }

// Batches that are packed together: as many as make 32 MiB. Starting a region costs nothing beside
// packing that much.
int64_t batches_together(const Gemm& g, int64_t words_of_batch) {
  const int64_t bytes = std::max<int64_t>(words_of_batch * word_bytes, 1);
  return std::clamp<int64_t>((int64_t{32} << 20) / bytes, 1, std::max<int64_t>(g.batch, 1));
}

class UnitPlan final : public Plan {
 public:
  UnitPlan(const Problem& problem, const Schedule& schedule, const Environment& env,
           const Operands& constants, const Unit& unit)
      : Plan(problem),
        g_(problem),
        s_(schedule),
        env_(env),
        unit_(unit),
        few_(s_.path == Path::few_rows),
        a_type_(problem.dtype("a_type")),
        b_type_(problem.dtype("b_type")),
        a_taken_(taken(env)),
        shifts_((few_ ? unit.few.shifts_a : unit.shifts_a) && a_type_ == &int8),
        steps_(div_up(g_.k, unit.depth)),
        steps_of_block_(std::max<int64_t>(1, div_up(s_.kc, unit.depth))),
        store_(store_function(resolve_isa(unit.isa))),
        convert_(convert_function(resolve_isa(unit.isa))),
        store_job_(g_, g_.has_epilogue() ? epilogue_function(resolve_isa(unit.isa)) : nullptr) {
    if (g_.gate) {
      gate_.emplace(problem, constants, [&](const Problem& product, const Operands& of_product) {
        return std::make_unique<UnitPlan>(product, schedule, env, of_product, unit);
      });
    }
    if (g_.empty() || !g_.reads_ab()) return;
    if (few_) {
      allocate_few();
    } else {
      allocate_packed();
    }
    if (g_.prepack) prepack(constants);
  }

  void run() override {
    if (g_.empty()) return;
    if (gate_) gate_->run();
    if (!g_.reads_ab()) {
      for (int64_t batch = 0; batch < g_.batch; ++batch) {
        store_(store_job_,
               {{batch, 0, 0, g_.m, g_.n}, nullptr, 0, false, nullptr, nullptr, nullptr});
      }
      return;
    }
    for (int64_t first = 0; first < g_.batch; first += together_) {
      const int64_t count = std::min(together_, g_.batch - first);
      if (few_) {
        run_few(first, count);
      } else {
        run_packed(first, count);
      }
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (!g_.prepack) return list;
    for (const UnitPlan* const plan : {this, gate_ ? &gate_->plan() : nullptr}) {
      if (plan == nullptr) continue;
      const Buffer& kept = plan->few_ ? plan->kept_ : plan->b_panels_;
      if (kept.bytes() == 0) continue;
      list.push_back({static_cast<const std::byte*>(kept.data()), kept.bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.isa = unit_.isa;
    facts.path = few_ ? unit_.few.path : unit_.path;
    facts.tuning = tuning_of(s_);
    facts.packed_bytes = kept_.bytes() + (g_.prepack ? b_panels_.bytes() : 0);
    facts.workspace_bytes = a_panels_.bytes() + scratch_.bytes() + steps_of_rows_.bytes() +
                            column_sums_.bytes() + kept_scale_.size() * sizeof(float) +
                            rows_at_end_.bytes() + (g_.prepack ? 0 : b_panels_.bytes());
    if (gate_) gate_->add_to(facts);
    return facts;
  }

 private:
  // What a row of op(a) becomes before it is packed; null: nothing.
  DType taken(const Environment& env) const {
    if (env.math == math_int8_dynamic.name) return unit_.a_quantised;
    return unit_.a_rounded != nullptr && a_type_ == &float32 ? unit_.a_rounded : nullptr;
  }
  bool quantised() const { return a_taken_ != nullptr && a_taken_ == unit_.a_quantised; }
  // a is packed 128 larger.
  bool needs_column_sums() const { return shifts_ || (quantised() && a_taken_ == &uint8); }
  std::uint32_t xor_mask() const { return shifts_ ? 0x80808080u : 0; }
  int64_t a_panels() const { return div_up(g_.m, unit_.mr); }
  int64_t b_panels() const { return div_up(g_.n, unit_.nr); }
  int64_t n_padded() const { return b_panels() * unit_.nr; }
  int64_t k_blocks() const { return div_up(steps_, steps_of_block_); }

  // ---- memory

  void allocate_packed() {
    const int64_t of_a = a_panels() * unit_.mr * unit_.words * steps_;
    const int64_t of_b = n_padded() * unit_.words * steps_;
    together_ = batches_together(g_, of_a + of_b);
    own_a_ = !s_.share_a;
    if (own_a_) {
      own_a_words_ = round_up(s_.mc * unit_.words * steps_, page_words);
      a_panels_ = words(own_a_words_ * s_.threads);
    } else {
      a_panels_ = words(together_ * of_a);
      a_pieces_ = SharedPieces(together_ * a_panels());
    }
    owned_.resize(static_cast<std::size_t>(s_.threads));
    own_b_ = s_.pack_b && !g_.prepack;
    if (own_b_) {
      own_b_words_ = round_up(s_.nc * unit_.words * steps_, page_words);
      b_panels_ = words(own_b_words_ * s_.threads);
    } else {
      b_panels_ = words((g_.prepack ? g_.batch : together_) * of_b);
      // Pieces of at least so many words: claiming one costs little beside packing it.
      constexpr int64_t least_words = 2048;
      const int64_t of_panel = unit_.nr * unit_.words * std::min(steps_, steps_of_block_);
      panels_of_piece_ = std::max<int64_t>(1, least_words / of_panel);
      b_pieces_ = SharedPieces(together_ * b_pieces() * k_blocks());
    }
    if (needs_column_sums()) {
      const int64_t places = g_.prepack ? g_.batch : own_b_ ? s_.threads : together_;
      column_sums_ = words(places * k_blocks() * n_padded());
    }
    if (quantised()) steps_of_rows_ = words(g_.batch * g_.m);
    sums_words_ = k_blocks() > 1 ? s_.mc * s_.nc : unit_.mr * unit_.nr;
    totals_at_ = round_up(sums_words_ + store_slack, 16);
    rows_at_ = totals_at_ + round_up(unit_.nr, 16) + store_slack;
    const int64_t of_rows = a_taken_ != nullptr ? div_up(unit_.mr * g_.k * 2, word_bytes) : 0;
    // Whole pages, so that threads share none.
    scratch_words_ = round_up(rows_at_ + of_rows, page_words);
    scratch_ = words(scratch_words_ * s_.threads);
  }

  void allocate_few() {
    const FewRows& few = unit_.few;
    row_words_ = round_up(few.words(g_.m, g_.k), 16);
    together_ = batches_together(g_, row_words_ + div_up(g_.n * g_.k, 4));
    a_panels_ = words(together_ * row_words_);
    if (quantised()) steps_of_rows_ = words(g_.batch * g_.m);
    if (needs_column_sums()) column_sums_ = words(s_.threads * (s_.nc + store_slack));
    sums_words_ = few.limit * (s_.nc + few.together);
    rows_at_ = sums_words_ + store_slack;
    const int64_t of_rows = a_taken_ != nullptr ? div_up(g_.m * g_.k * 2, word_bytes) : 0;
    scratch_words_ = round_up(rows_at_ + of_rows, page_words);
    scratch_ = words(scratch_words_ * s_.threads);
    if (g_.n % few.together == 0) return;
    // Of each thread: the last rows of several batches may be multiplied at once.
    end_bytes_ = round_up(few.together * static_cast<int64_t>(b_type_->bytes(g_.k)), 64);
    rows_at_end_ = Buffer(static_cast<std::size_t>(end_bytes_ * s_.threads));
    std::fill_n(static_cast<std::byte*>(rows_at_end_.data()), rows_at_end_.bytes(), std::byte{0});
  }

  void prepack(const Operands& constants) {
    const View b = own_part_of_b(g_, constants.at("b"));
    b_ = MatrixView(b, g_.trans_b);
    if (constants.has("b_scale")) {
      const float* const scale = constants.at("b_scale").f32();
      kept_scale_.assign(scale, scale + g_.n);
      b_scale_ = kept_scale_.data();
    }
    if (few_) return keep_rows(b);
    parallel_for(env_.pool, s_.threads, g_.batch * b_panels(), [&](int64_t task, int) {
      for (int64_t block = 0; block < k_blocks(); ++block) {
        pack_b_panel(task / b_panels(), task / b_panels(), task % b_panels(), block);
      }
    });
  }

  // b without gaps, as it is stored, which is what is read fastest.
  void keep_rows(const View& b) {
    if (b.empty()) return;
    const auto bytes = static_cast<int64_t>(b.dtype->bytes(b.cols()));
    kept_ = Buffer(static_cast<std::size_t>(b.rows() * bytes));
    for (int64_t row = 0; row < b.rows(); ++row) {
      std::copy_n(b.row(row), bytes, static_cast<std::byte*>(kept_.data()) + row * bytes);
    }
    View kept = contiguous_view(kept_.data(), Shape{g_.batch, g_.n, g_.k}, b.dtype);
    b_ = MatrixView(kept, true);
  }

  void on_bind(const Operands& operands) override {
    a_ = MatrixView(operands.at("a"), !g_.trans_a);
    if (!g_.prepack) {
      b_ = MatrixView(own_part_of_b(g_, operands.at("b")), g_.trans_b);
      if (operands.has("b_scale")) b_scale_ = operands.at("b_scale").f32();
    }
    if (gate_) gate_->bind(operands);
    store_job_.bind(operands, gate_ ? gate_->sums() : Matrix<const float>());
    to_c_ = unit_.stores_to_c && operands.at("c").dtype == &float32 && g_.alpha == 1 &&
            !g_.reads_c0() && b_scale_ == nullptr;
  }

  std::uint32_t* at(const Buffer& buffer, int64_t place) const {
    return static_cast<std::uint32_t*>(buffer.data()) + place;
  }
  std::uint32_t* scratch(int thread) const { return at(scratch_, thread * scratch_words_); }
  float* steps_of(int64_t batch, int64_t row) const {
    return quantised() ? steps_of_rows_.f32() + batch * g_.m + row : nullptr;
  }

  // ---- packing

  // Rows [first,first+count) of op(a) as the unit takes them: as they are, or converted at `to`.
  PackCall rows_of_a(int64_t batch, int64_t first, int64_t count, std::uint32_t* to) const {
    PackCall call{};
    call.k = g_.k;
    call.count = count;
    call.xor_mask = xor_mask();
    if (a_taken_ == nullptr) {
      call.type = a_.type, call.from = a_.at(batch, first);
      call.outer = a_.outer, call.inner = a_.inner;
      return call;
    }
    const auto size = static_cast<int64_t>(size_of(a_taken_));
    auto* const rows = reinterpret_cast<std::byte*>(to);
    for (int64_t i = 0; i < count; ++i) {
      convert_({a_.type, a_.at(batch, first + i), a_.inner, g_.k, a_taken_, rows + i * g_.k * size,
                steps_of(batch, first + i)});
    }
    call.type = a_taken_, call.from = rows;
    call.outer = g_.k, call.inner = 1;
    return call;
  }

  int64_t width_of(int64_t panel) const {
    return unit_.whole_panels ? unit_.mr : std::min(unit_.mr, g_.m - panel * unit_.mr);
  }
  std::uint32_t* shared_a(int64_t place, int64_t panel) const {
    return at(a_panels_, (place * a_panels() + panel) * unit_.mr * unit_.words * steps_);
  }
  void pack_a(int64_t batch, int64_t panel, int thread, std::uint32_t* to) const {
    const PhaseTimer timer(RunPhase::pack);
    const int64_t first = panel * unit_.mr, count = std::min(unit_.mr, g_.m - first);
    PackCall call = rows_of_a(batch, first, count, scratch(thread) + rows_at_);
    call.width = width_of(panel);
    call.steps = steps_;
    call.to = to;
    unit_.pack_a(call);
  }

  int64_t b_pieces() const { return div_up(b_panels(), panels_of_piece_); }
  // Words of a micro-panel of b: all of k.
  int64_t panel_words() const { return unit_.nr * unit_.words * steps_; }
  int64_t block_offset(int64_t block) const {
    return block * steps_of_block_ * unit_.nr * unit_.words;
  }
  std::int32_t* sums_of_columns(int64_t place, int64_t block, int64_t panel) const {
    return static_cast<std::int32_t*>(column_sums_.data()) +
           (place * k_blocks() + block) * n_padded() + panel * unit_.nr;
  }
  // A block of k of a micro-panel of b.
  void pack_b(int64_t batch, int64_t panel, int64_t block, std::uint32_t* to,
              std::int32_t* column_sums) const {
    const int64_t first = panel * unit_.nr, step = block * steps_of_block_;
    PackCall call{};
    call.type = b_.type;
    call.from = b_.at(batch, first, step * unit_.depth);
    call.outer = b_.outer, call.inner = b_.inner;
    call.steps = std::min(steps_of_block_, steps_ - step);
    call.k = std::min(call.steps * unit_.depth, g_.k - step * unit_.depth);
    call.count = std::min(unit_.nr, g_.n - first);
    call.width = unit_.nr;
    call.to = to;
    unit_.pack_b(call);
    if (column_sums != nullptr) unit_.column_sums(to, call.steps, column_sums);
  }
  void pack_b_panel(int64_t batch, int64_t place, int64_t panel, int64_t block) const {
    pack_b(batch, panel, block,
           at(b_panels_, (place * b_panels() + panel) * panel_words() + block_offset(block)),
           needs_column_sums() ? sums_of_columns(place, block, panel) : nullptr);
  }

  // ---- packed

  // A share of c: of batch `batch`, which is the `place`-th of those that are packed together.
  struct Share {
    int64_t batch, place;
    int64_t panel0, panel1;  // of a
    int64_t col0, col1;      // micro-panels of b
    int thread;
  };

  void run_packed(int64_t first, int64_t count) {
    a_pieces_.begin();
    b_pieces_.begin();
    std::fill(owned_.begin(), owned_.end(), Owned());
    const int64_t parts = s_.m_parts * s_.n_parts;
    const auto hand_out = s_.fixed ? parallel_for_static : parallel_for;
    hand_out(env_.pool, s_.threads, count * parts, [&](int64_t task, int thread) {
      Share share{};
      share.place = task / parts;
      share.batch = first + share.place;
      share.thread = thread;
      const int64_t row_part = task % s_.m_parts, col_part = task % parts / s_.m_parts;
      share.panel0 = gemm::share(a_panels(), s_.m_parts, row_part);
      share.panel1 = gemm::share(a_panels(), s_.m_parts, row_part + 1);
      share.col0 = gemm::share(b_panels(), s_.n_parts, col_part);
      share.col1 = gemm::share(b_panels(), s_.n_parts, col_part + 1);
      if (unit_.begin != nullptr) unit_.begin();
      multiply(share);
      if (unit_.end != nullptr) unit_.end();
    });
  }

  // Blocks of c, mc × nc, each with all of k. A thread's own micro-panels of a serve all columns,
  // its own ones of b all rows.
  void multiply(const Share& share) {
    const int64_t rows = s_.mc / unit_.mr, cols = s_.nc / unit_.nr;
    const auto block = [&](int64_t i, int64_t j) {
      Share c = share;
      c.panel0 = i, c.panel1 = std::min(share.panel1, i + rows);
      c.col0 = j, c.col1 = std::min(share.col1, j + cols);
      multiply_block(c);
    };
    if (own_a_) {
      for (int64_t i = share.panel0; i < share.panel1; i += rows) {
        for (int64_t j = share.col0; j < share.col1; j += cols) block(i, j);
      }
    } else {
      for (int64_t j = share.col0; j < share.col1; j += cols) {
        for (int64_t i = share.panel0; i < share.panel1; i += rows) block(i, j);
      }
    }
  }

  void multiply_block(const Share& c) {
    if (own_a_) {
      pack_own_a(c);
    } else {
      need_a(c);
    }
    if (own_b_) pack_own_b(c);
    for (int64_t block = 0; block < k_blocks(); ++block) {
      if (!own_b_ && !g_.prepack) need_b(c, block);
      multiply_k(c, block);
    }
  }

  // Threads that need the same pieces begin with different ones.
  int64_t start(const Share& c, int64_t pieces) const { return c.thread * pieces / s_.threads; }

  // Shared micro-panels of a.
  void need_a(const Share& c) {
    const int64_t place = c.place * a_panels();
    a_pieces_.finish(place + c.panel0, place + c.panel1, start(c, c.panel1 - c.panel0),
                     [&](int64_t piece) {
                       const int64_t panel = piece - place;
                       pack_a(c.batch, panel, c.thread, shared_a(c.place, panel));
                     });
  }

  // Shared micro-panels of b, for a block of k.
  void need_b(const Share& c, int64_t block) {
    const int64_t first = c.col0 / panels_of_piece_, last = div_up(c.col1, panels_of_piece_);
    const int64_t place = (c.place * k_blocks() + block) * b_pieces();
    b_pieces_.finish(place + first, place + last, start(c, last - first), [&](int64_t piece) {
      const PhaseTimer timer(RunPhase::pack);
      const int64_t panel = (piece - place) * panels_of_piece_;
      const int64_t end = std::min(b_panels(), panel + panels_of_piece_);
      for (int64_t p = panel; p < end; ++p) {
        pack_b_panel(c.batch, c.place, p, block);
      }
    });
  }

  // The thread's own micro-panels, unless it has them from the block of c before.
  void pack_own_a(const Share& c) {
    Own& own = owned_[static_cast<std::size_t>(c.thread)].a;
    if (own == Own{c.batch, c.panel0, c.panel1}) return;
    own = {c.batch, c.panel0, c.panel1};
    for (int64_t panel = c.panel0; panel < c.panel1; ++panel) {
      pack_a(c.batch, panel, c.thread, const_cast<std::uint32_t*>(a_panel(c, panel)));
    }
  }
  void pack_own_b(const Share& c) {
    Own& own = owned_[static_cast<std::size_t>(c.thread)].b;
    if (own == Own{c.batch, c.col0, c.col1}) return;
    own = {c.batch, c.col0, c.col1};
    const PhaseTimer timer(RunPhase::pack);
    for (int64_t panel = c.col0; panel < c.col1; ++panel) {
      auto* const to = const_cast<std::uint32_t*>(b_panel(c, panel));
      for (int64_t block = 0; block < k_blocks(); ++block) {
        pack_b(c.batch, panel, block, to + block_offset(block),
               needs_column_sums() ? sums_of_columns(c.thread, block, panel) : nullptr);
      }
    }
  }

  const std::uint32_t* a_panel(const Share& c, int64_t panel) const {
    if (!own_a_) return shared_a(c.place, panel);
    return at(a_panels_,
              c.thread * own_a_words_ + (panel - c.panel0) * unit_.mr * unit_.words * steps_);
  }
  const std::uint32_t* b_panel(const Share& c, int64_t panel) const {
    if (own_b_) return at(b_panels_, c.thread * own_b_words_ + (panel - c.col0) * panel_words());
    return at(b_panels_, ((g_.prepack ? c.batch : c.place) * b_panels() + panel) * panel_words());
  }

  // A block of c, a block of k. An A micro-panel stays in L1 while those of b stream.
  void multiply_k(const Share& c, int64_t block) const {
    for (int64_t i = c.panel0; i < c.panel1; ++i) {
      for (int64_t j = c.col0; j < c.col1; ++j) micro_tile(c, block, i, j);
    }
  }

  void micro_tile(const Share& c, int64_t block, int64_t i, int64_t j) const {
    const int64_t step = block * steps_of_block_, width = width_of(i);
    const bool in_parts = k_blocks() > 1, last = block + 1 == k_blocks();
    const int64_t row = i * unit_.mr, rows = std::min(unit_.mr, g_.m - row);
    const int64_t col = j * unit_.nr, cols = std::min(unit_.nr, g_.n - col);
    MicroCall call{};
    call.steps = std::min(steps_of_block_, steps_ - step);
    call.a = a_panel(c, i) + step * width * unit_.words;
    call.b = b_panel(c, j) + block_offset(block);
    call.rows = width, call.cols = cols;
    call.add = block > 0;
    if (to_c_) {
      const EpilogueJob& job = store_job_.epilogue;
      call.sums = reinterpret_cast<std::uint32_t*>(job.c.row(c.batch, row) + col);
      call.ld = job.c.ld;
      unit_.micro(call);
      if (last && store_job_.has_epilogue) store_job_.apply(job, {c.batch, row, col, rows, cols});
      return;
    }
    // Sums of a micro-tile lie side by side; the next micro-tile's follow those of this one.
    const int64_t tile = unit_.mr * unit_.nr;
    call.sums = scratch(c.thread);
    if (in_parts) {
      call.sums += tile * ((i - c.panel0) * (c.col1 - c.col0) + j - c.col0);
      call.next_sums = call.sums + tile;
    }
    call.ld = unit_.nr;
    unit_.micro(call);
    if (!last) return;
    store({c.batch, row, col, rows, cols}, call.sums, call.ld,
          needs_column_sums() ? totals(c, j) : nullptr);
  }

  // Of the sums of a tile.
  void store(const Rectangle& at, const std::uint32_t* sums, int64_t ld,
             const std::int32_t* column_sums) const {
    store_(store_job_, {at, sums, ld, unit_.integers, column_sums, steps_of(at.batch, at.row),
                        b_scale_ != nullptr ? b_scale_ + at.col : nullptr});
  }

  // Sums of the columns of a micro-panel of b over all of k.
  const std::int32_t* totals(const Share& c, int64_t panel) const {
    const int64_t place = own_b_ ? c.thread : g_.prepack ? c.batch : c.place;
    if (k_blocks() == 1) return sums_of_columns(place, 0, panel);
    auto* const to = reinterpret_cast<std::int32_t*>(scratch(c.thread) + totals_at_);
    std::copy_n(sums_of_columns(place, 0, panel), unit_.nr, to);
    for (int64_t block = 1; block < k_blocks(); ++block) {
      const std::int32_t* const more = sums_of_columns(place, block, panel);
      for (int64_t j = 0; j < unit_.nr; ++j) to[j] += more[j];
    }
    return to;
  }

  // ---- few rows

  void run_few(int64_t first, int64_t count) {
    // Threads take longer to start than so many elements to be packed.
    constexpr int64_t of_one_thread = 16384;
    const int threads = count * g_.m * g_.k > of_one_thread ? s_.threads : 1;
    parallel_for(env_.pool, threads, count, [&](int64_t place, int thread) {
      const PhaseTimer timer(RunPhase::pack);
      PackCall call = rows_of_a(first + place, 0, g_.m, scratch(thread) + rows_at_);
      call.width = g_.m;
      call.to = at(a_panels_, place * row_words_);
      unit_.few.pack(call);
    });
    const int64_t tasks = div_up(g_.n, s_.nc);
    // In static chunks: a thread prefetches what its next task reads.
    parallel_for_static(env_.pool, s_.threads, count * tasks, [&](int64_t task, int thread) {
      const int64_t place = task / tasks, col = task % tasks * s_.nc;
      multiply_few(first + place, at(a_panels_, place * row_words_), col,
                   std::min(s_.nc, g_.n - col), thread);
    });
  }

  void multiply_few(int64_t batch, const std::uint32_t* a, int64_t col, int64_t cols,
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
    auto* const to = static_cast<std::byte*>(rows_at_end_.data()) + thread * end_bytes_;
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

  // What a thread has packed for itself: micro-panels [first,last) of a batch.
  struct Own {
    int64_t batch = 0, first = 0, last = 0;
    bool operator==(const Own&) const = default;
  };
  struct alignas(64) Owned {
    Own a, b;
  };

  const Gemm g_;
  const Schedule s_;
  const Environment env_;
  const Unit unit_;
  const bool few_;
  const DType a_type_, b_type_;
  const DType a_taken_;
  const bool shifts_;  // a is s8, packed as u8
  const int64_t steps_, steps_of_block_;
  const StoreFunction store_;
  const ConvertFunction convert_;
  StoreJob store_job_;
  std::optional<GateProduct<UnitPlan>> gate_;
  bool own_a_ = false, own_b_ = false;
  bool to_c_ = false;  // sums need nothing to become c
  int64_t together_ = 1, panels_of_piece_ = 1;
  int64_t own_a_words_ = 0, own_b_words_ = 0, row_words_ = 0, end_bytes_ = 0;
  // A thread's scratch: sums, sums of columns, rows of a that were converted.
  int64_t sums_words_ = 0, totals_at_ = 0, rows_at_ = 0, scratch_words_ = 0;
  Buffer a_panels_, b_panels_, column_sums_, scratch_, steps_of_rows_, kept_, rows_at_end_;
  std::vector<Owned> owned_;
  SharedPieces a_pieces_, b_pieces_;
  std::vector<float> kept_scale_;
  MatrixView a_, b_;
  const float* b_scale_ = nullptr;
};

}  // namespace

std::unique_ptr<Plan> unit_plan(const Problem& problem, const Schedule& schedule,
                                const Environment& env, const Operands& constants,
                                const Unit& unit) {
  return std::make_unique<UnitPlan>(problem, schedule, env, constants, unit);
}

}  // namespace rooflane::gemm
