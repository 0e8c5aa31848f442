// Micro-panels of a and b, and blocks of them that a macro-kernel multiplies. See unit_product.hpp.
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/shared_pieces.hpp"
#include "kernels/gemm/unit_product.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

class PackedProduct final : public UnitProduct {
 public:
  PackedProduct(const Problem& problem, const Schedule& schedule, const Environment& env,
                const Unit& unit, const ProductOperands& constants)
      : UnitProduct(problem, schedule, env, unit, unit.shifts_a, constants),
        steps_(div_up(g_.k, unit.depth)),
        steps_of_block_(std::max<int64_t>(1, div_up(s_.kc, unit.depth))),
        k_blocks_(div_up(steps_, steps_of_block_)),
        a_panels_(div_up(g_.m, unit.mr)),
        b_panels_(div_up(g_.n, unit.nr)),
        tiles_stored_(k_blocks_ > 1 ? 1
                                    : std::max<int64_t>(1, stored_words / (unit.mr * unit.nr))) {
    if (s_.path == Path::scale) return;
    allocate();
    if (g_.prepack) keep(constants);
  }

  void bind(const ProductOperands& operands, const StoreJob& store) override {
    UnitProduct::bind(operands, store);
    const bool as_sums =
        unit_.integers ? store.c.dtype == &int32 : store.c.dtype == &float32 && b_scale_ == nullptr;
    // With several blocks of k, sums begin at 0 in scratch, not at what the 128 of a costs.
    const bool begins_there = k_blocks_ > 1 && unit_.into_c == IntoC::whole;
    to_c_ = !s_.transposed && unit_.into_c != IntoC::none &&
            !(begins_there && needs_column_sums()) && as_sums && g_.alpha == 1 && !g_.reads_c0();
  }

 private:
  // What a thread has packed for itself: micro-panels [first,last) of a batch.
  struct Own {
    int64_t batch = 0, first = 0, last = 0;
    bool operator==(const Own&) const = default;
  };
  struct alignas(64) Owned {
    Own a, b;
  };
  // A share of c: of batch `batch`, which is the `place`-th of those that are packed together.
  struct Share {
    int64_t batch, place;
    int64_t panel0, panel1;  // of a
    int64_t col0, col1;      // micro-panels of b
    int64_t next_col;        // where the next block of c begins; col0: with the same ones
    int thread;
  };

  const std::string& path() const override { return unit_.path; }
  int64_t n_padded() const { return b_panels_ * unit_.nr; }
  int64_t a_pieces() const { return div_up(a_panels_, a_panels_of_piece_); }
  int64_t b_pieces() const { return div_up(b_panels_, b_panels_of_piece_); }
  // Words of a micro-panel: all of k.
  int64_t a_panel_words() const { return unit_.mr * unit_.words * steps_; }
  int64_t b_panel_words() const { return unit_.b_step_words() * steps_; }
  int64_t block_offset(int64_t block) const {
    return block * steps_of_block_ * unit_.b_step_words();
  }

  // ---- memory

  void allocate() {
    const int64_t of_a = a_panels_ * a_panel_words(), of_b = b_panels_ * b_panel_words();
    pack_together((s_.pack_a && !s_.own_a() ? of_a : 0) + (packs_b_together() ? of_b : 0));
    if (!s_.pack_a) {
      // Rows are read where they are.
    } else if (s_.own_a()) {
      own_a_words_ = round_up(s_.mc * unit_.words * steps_, page_words);
      a_memory_ = workspace(own_a_words_ * s_.threads);
    } else {
      a_memory_ = workspace(together_ * of_a);
      if (shares_lines()) {
        constexpr int64_t two_lines = 128;
        const auto of_panel = unit_.mr * static_cast<int64_t>(size_of(a_type_));
        a_panels_of_piece_ = std::clamp<int64_t>(together_ * a_panels_ / (2 * s_.threads), 1,
                                                 div_up(two_lines, of_panel));
      }
      a_pieces_ = SharedPieces(together_ * a_pieces(), s_.threads);
    }
    owned_.resize(static_cast<std::size_t>(s_.threads));
    if (s_.own_b()) {
      own_b_words_ = round_up(div_up(s_.nc, unit_.nr) * b_panel_words(), page_words);
      b_memory_ = workspace(own_b_words_ * s_.threads);
    } else if (packs_b_together()) {
      b_memory_ = workspace(together_ * of_b);
      // Pieces of at least so many words: claiming one costs little beside packing it.
      constexpr int64_t least_words = 2048;
      const int64_t of_panel = unit_.b_step_words() * std::min(steps_, steps_of_block_);
      b_panels_of_piece_ = std::max<int64_t>(1, least_words / of_panel);
      b_pieces_ = SharedPieces(together_ * b_pieces() * k_blocks_, s_.threads);
    }
    workspace_bytes_ += a_pieces_.bytes() + b_pieces_.bytes();
    if (needs_column_sums()) {
      const int64_t places = g_.prepack ? g_.batch : s_.own_b() ? s_.threads : together_;
      column_sums_ = workspace(places * k_blocks_ * n_padded());
    }
    const int64_t sums = k_blocks_ > 1 ? s_.mc * s_.nc : unit_.mr * unit_.nr * tiles_stored_;
    totals_at_ = round_up(sums + store_slack, 16);
    allocate_scratch(totals_at_ + round_up(unit_.nr, 16), unit_.mr);
  }

  void keep(const ProductOperands& constants) {
    b_ = constants.b;
    keep_scale(constants.b_scale);
    keep_packed(constants.b.data, g_.batch * b_panels_, b_panel_words() * word_bytes,
                [&](int64_t piece, std::byte* to) {
                  const int64_t batch = piece / b_panels_, panel = piece % b_panels_;
                  for (int64_t block = 0; block < k_blocks_; ++block) {
                    pack_b(batch, panel, block,
                           reinterpret_cast<std::uint32_t*>(to) + block_offset(block),
                           needs_column_sums() ? sums_of_columns(batch, block, panel) : nullptr);
                  }
                });
  }

  // ---- packing

  int64_t width_of(int64_t panel) const {
    return unit_.whole_panels ? unit_.mr : std::min(unit_.mr, g_.m - panel * unit_.mr);
  }
  std::uint32_t* shared_a(int64_t place, int64_t panel) const {
    return at(a_memory_, (place * a_panels_ + panel) * a_panel_words());
  }
  // Whether A micro-panels are packed from parts of the same lines of memory.
  bool shares_lines() const { return a_taken_ == nullptr && g_.trans_a; }
  // Those that share lines by so many steps at a time, while the lines are in L1.
  template <class To>
  void pack_a(int64_t batch, int64_t first, int64_t last, int thread, const To& to) const {
    const PhaseTimer timer(RunPhase::pack);
    constexpr int64_t elements = 128;
    const int64_t together =
        shares_lines() ? round_up(elements, std::max(unit_.k_together, unit_.depth)) / unit_.depth
                       : steps_;
    for (int64_t step = 0; step < steps_; step += together) {
      const int64_t steps = std::min(together, steps_ - step);
      for (int64_t panel = first; panel < last; ++panel) {
        const int64_t row = panel * unit_.mr;
        PackCall call = rows_of_a(batch, row, std::min(unit_.mr, g_.m - row), thread);
        if (shares_lines()) {
          call.from = a_.at(batch, row, step * unit_.depth);
          call.k = std::min(steps * unit_.depth, g_.k - step * unit_.depth);
        }
        call.width = width_of(panel);
        call.steps = steps;
        call.to = to(panel) + step * call.width * unit_.words;
        unit_.pack_a(call);
      }
    }
  }

  std::int32_t* sums_of_columns(int64_t place, int64_t block, int64_t panel) const {
    return static_cast<std::int32_t*>(column_sums_.data()) +
           (place * k_blocks_ + block) * n_padded() + panel * unit_.nr;
  }
  bool packs_b_together() const { return !s_.own_b() && !s_.b_in_place() && !g_.prepack; }
  // Micro-panels of b that all threads share, of prepack=1 or of a run.
  std::uint32_t* shared_b() const {
    return g_.prepack ? reinterpret_cast<std::uint32_t*>(kept_.get()) : at(b_memory_, 0);
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
           shared_b() + (place * b_panels_ + panel) * b_panel_words() + block_offset(block),
           needs_column_sums() ? sums_of_columns(place, block, panel) : nullptr);
  }

  // ---- the product

  void run_batches(int64_t first, int64_t count) override {
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
      share.panel0 = gemm::share(a_panels_, s_.m_parts, row_part);
      share.panel1 = gemm::share(a_panels_, s_.m_parts, row_part + 1);
      share.col0 = gemm::share(b_panels_, s_.n_parts, col_part);
      share.col1 = gemm::share(b_panels_, s_.n_parts, col_part + 1);
      if (unit_.begin != nullptr) unit_.begin();
      multiply(share);
      if (unit_.end != nullptr) unit_.end();
    });
  }

  // Blocks of c, mc × nc, each with all of k. A thread's own micro-panels of a serve all columns,
  // its own ones of b all rows.
  void multiply(const Share& share) {
    const int64_t rows = s_.mc / unit_.mr, cols = s_.nc / unit_.nr;
    const auto block = [&](int64_t i, int64_t j, int64_t next) {
      Share c = share;
      c.panel0 = i, c.panel1 = std::min(share.panel1, i + rows);
      c.col0 = j, c.col1 = std::min(share.col1, j + cols);
      c.next_col = next < share.col1 ? next : j;
      multiply_block(c);
    };
    if (s_.own_a()) {
      for (int64_t i = share.panel0; i < share.panel1; i += rows) {
        for (int64_t j = share.col0; j < share.col1; j += cols) {
          const bool last = j + cols >= share.col1;
          block(i, j, !last ? j + cols : i + rows < share.panel1 ? share.col0 : j);
        }
      }
    } else {
      for (int64_t j = share.col0; j < share.col1; j += cols) {
        for (int64_t i = share.panel0; i < share.panel1; i += rows) {
          block(i, j, i + rows < share.panel1 ? j : j + cols);
        }
      }
    }
  }

  void multiply_block(const Share& c) {
    if (s_.own_a()) {
      pack_own_a(c);
    } else if (s_.pack_a) {
      need_a(c);
    }
    if (s_.own_b()) pack_own_b(c);
    for (int64_t block = 0; block < k_blocks_; ++block) {
      if (packs_b_together()) need_b(c, block);
      multiply_k(c, block);
    }
  }

  // Threads that need the same pieces begin with different ones.
  int64_t start(const Share& c, int64_t pieces) const { return c.thread * pieces / s_.threads; }

  // Shared micro-panels of a.
  void need_a(const Share& c) {
    const int64_t first = c.panel0 / a_panels_of_piece_,
                  last = div_up(c.panel1, a_panels_of_piece_), place = c.place * a_pieces();
    const auto pack = [&](int64_t piece) {
      const int64_t panel = (piece - place) * a_panels_of_piece_;
      pack_a(c.batch, panel, std::min(a_panels_, panel + a_panels_of_piece_), c.thread,
             [&](int64_t p) { return shared_a(c.place, p); });
    };
    a_pieces_.round().finish(place + first, place + last, start(c, last - first), pack);
  }

  // Shared micro-panels of b, for a block of k.
  void need_b(const Share& c, int64_t block) {
    const int64_t first = c.col0 / b_panels_of_piece_, last = div_up(c.col1, b_panels_of_piece_);
    const int64_t place = (c.place * k_blocks_ + block) * b_pieces();
    const auto pack = [&](int64_t piece) {
      const PhaseTimer timer(RunPhase::pack);
      const int64_t panel = (piece - place) * b_panels_of_piece_;
      const int64_t end = std::min(b_panels_, panel + b_panels_of_piece_);
      for (int64_t p = panel; p < end; ++p) {
        pack_b_panel(c.batch, c.place, p, block);
      }
    };
    b_pieces_.round().finish(place + first, place + last, start(c, last - first), pack);
  }

  // The thread's own micro-panels, unless it has them from the block of c before.
  void pack_own_a(const Share& c) {
    Own& own = owned_[static_cast<std::size_t>(c.thread)].a;
    if (own == Own{c.batch, c.panel0, c.panel1}) return;
    own = {c.batch, c.panel0, c.panel1};
    pack_a(c.batch, c.panel0, c.panel1, c.thread,
           [&](int64_t panel) { return const_cast<std::uint32_t*>(a_panel(c, panel)); });
  }
  void pack_own_b(const Share& c) {
    Own& own = owned_[static_cast<std::size_t>(c.thread)].b;
    if (own == Own{c.batch, c.col0, c.col1}) return;
    own = {c.batch, c.col0, c.col1};
    const PhaseTimer timer(RunPhase::pack);
    for (int64_t panel = c.col0; panel < c.col1; ++panel) {
      auto* const to = const_cast<std::uint32_t*>(b_panel(c, panel));
      for (int64_t block = 0; block < k_blocks_; ++block) {
        pack_b(c.batch, panel, block, to + block_offset(block),
               needs_column_sums() ? sums_of_columns(c.thread, block, panel) : nullptr);
      }
    }
  }

  const std::uint32_t* a_panel(const Share& c, int64_t panel) const {
    if (!s_.own_a()) return shared_a(c.place, panel);
    return at(a_memory_, c.thread * own_a_words_ + (panel - c.panel0) * a_panel_words());
  }
  // The place of b, and of its sums of columns, where threads share them.
  int64_t shared_place(const Share& c) const { return g_.prepack ? c.batch : c.place; }
  const std::uint32_t* b_panel(const Share& c, int64_t panel) const {
    if (s_.own_b()) {
      return at(b_memory_, c.thread * own_b_words_ + (panel - c.col0) * b_panel_words());
    }
    return shared_b() + (shared_place(c) * b_panels_ + panel) * b_panel_words();
  }

  // What the next block of c, or of k, reads of b: blocks `block` of k of the micro-panels from
  // `col` on. Each row of micro-tiles fetches `lines` of the `all` lines of each, from line `first`
  // on.
  struct Later {
    int64_t col = 0, block = 0, all = 0, lines = 0, first = 0;
  };
  // Where it is packed, but may lie beyond L2.
  Later later_of(const Share& c, int64_t block) const {
    Later later{.col = c.col0, .block = block + 1};
    if (later.block == k_blocks_) later = {.col = c.next_col};
    if (s_.own_b() || s_.b_in_place() || (later.col == c.col0 && later.block == block)) return {};
    if (!g_.prepack) {
      const int64_t place = (c.place * k_blocks_ + later.block) * b_pieces();
      const int64_t end = std::min(b_panels_, later.col + c.col1 - c.col0);
      if (!b_pieces_.round().done(place + later.col / b_panels_of_piece_,
                                  place + div_up(end, b_panels_of_piece_))) {
        return {};
      }
    }
    const int64_t steps = std::min(steps_of_block_, steps_ - later.block * steps_of_block_);
    later.all = steps * unit_.b_step_words() / words_of_line;
    later.lines = div_up(later.all, c.panel1 - c.panel0);
    return later;
  }

  // A block of c, a block of k. An A micro-panel stays in L1 while those of b stream.
  void multiply_k(const Share& c, int64_t block) const {
    Later later = later_of(c, block);
    for (int64_t i = c.panel0; i < c.panel1; ++i) {
      for (int64_t j = c.col0, end; j < c.col1; j = end) {
        end = std::min(c.col1, j + tiles_stored_);
        const int64_t whole = g_.n / unit_.nr;  // these may be c itself
        if (j < whole) end = std::min(end, whole);
        multiply_tiles(c, block, later, i, j, end);
      }
      later.first += later.lines;
    }
  }

  // Micro-tiles [first,last) of a row. Their sums become c together, as long rows take less time.
  void multiply_tiles(const Share& c, int64_t block, const Later& later, int64_t i, int64_t first,
                      int64_t last) const {
    const int64_t row = i * unit_.mr, rows = std::min(unit_.mr, g_.m - row);
    const int64_t col = first * unit_.nr, cols = std::min((last - first) * unit_.nr, g_.n - col);
    const bool final = block + 1 == k_blocks_, any = unit_.into_c == IntoC::any;
    const bool into_c =
        to_c_ && (any || (final && rows == width_of(i) && cols == (last - first) * unit_.nr));
    // Sums of micro-tiles that wait for the next block of k follow one another.
    const int64_t tile = unit_.mr * unit_.nr;
    std::uint32_t* sums = scratch(c.thread);
    if (k_blocks_ > 1) sums += tile * ((i - c.panel0) * (c.col1 - c.col0) + first - c.col0);
    const int64_t ld = (last - first) * unit_.nr;
    for (int64_t j = first; j < last; ++j) {
      micro_tile(c, block, later, i, j, into_c, sums + (j - first) * unit_.nr, ld);
    }
    if (!final) return;
    const Rectangle at{c.batch, row, col, rows, cols};
    if (!into_c) {
      store(at, sums, ld, needs_column_sums() ? totals(c, first) : nullptr);
    } else if (store_job_->has_epilogue) {
      store_job_->apply(store_job_->epilogue, at);
    }
  }

  // Rows of c and of the residual lie far apart, which the hardware prefetcher does not follow.
  template <bool writes>
  static void fetch(const View& view, const Rectangle& at) {
    if (view.data == nullptr) return;
    const int64_t bytes = at.cols * static_cast<int64_t>(size_of(view.dtype));
    for (int64_t i = 0; i < at.rows; ++i) {
      const std::byte* const row = row_of(view, at, i);
      for (int64_t b = 0; b < bytes; b += words_of_line * word_bytes) {
        __builtin_prefetch(row + b, writes);
      }
    }
  }

  void micro_tile(const Share& c, int64_t block, const Later& later, int64_t i, int64_t j,
                  bool into_c, std::uint32_t* sums, int64_t ld) const {
    const int64_t step = block * steps_of_block_, width = width_of(i);
    const bool in_parts = k_blocks_ > 1, any = unit_.into_c == IntoC::any;
    const int64_t row = i * unit_.mr, rows = std::min(unit_.mr, g_.m - row);
    const int64_t col = j * unit_.nr, cols = std::min(unit_.nr, g_.n - col);
    if (block + 1 == k_blocks_ && !s_.transposed) {
      const Rectangle at{c.batch, row, col, rows, cols};
      fetch<true>(store_job_->c, at);
      fetch<false>(store_job_->residual, at);
    }
    MicroCall call{};
    call.steps = std::min(steps_of_block_, steps_ - step);
    if (s_.pack_a) {
      call.a = a_panel(c, i) + step * width * unit_.words;
    } else {
      call.a = reinterpret_cast<const std::uint32_t*>(a_.at(c.batch, row, step));
      call.a_in_place = true, call.a_row = a_.outer, call.a_step = a_.inner;
    }
    if (!s_.b_in_place()) {
      call.b = b_panel(c, j) + block_offset(block);
    } else {
      call.b = reinterpret_cast<const std::uint32_t*>(b_.at(c.batch, col, step));
      call.b_in_place = true, call.b_step = b_.inner;
      // The hardware prefetcher does not see the next columns before they are read.
      if (j + 1 < c.col1) call.later = call.b + unit_.nr;
    }
    call.rows = width, call.cols = cols;
    call.add = block > 0;
    const int64_t panel = later.col + j - c.col0;
    if (later.first < later.all && panel < b_panels_) {
      call.later = b_panel(c, panel) + block_offset(later.block) + later.first * words_of_line;
      call.later_lines = std::min(later.lines, later.all - later.first);
    }
    if (into_c) call.to = c_at(c.batch, row, col), call.to_ld = store_job_->c.strides[1];
    if (into_c && (any || !in_parts)) {
      call.sums = call.to, call.ld = call.to_ld;
      if (needs_column_sums()) {  // begin with what is taken off for the 128 of a
        const std::int32_t* const sums = totals(c, j);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t t = 0; t < cols; ++t) {
            call.sums[r * call.ld + t] = 0u - 128u * static_cast<std::uint32_t>(sums[t]);
          }
        }
        call.add = true;
      }
    } else {
      call.sums = sums, call.ld = ld;
      if (in_parts) call.next_sums = sums + unit_.mr * unit_.nr;
      if (!into_c) call.to = call.sums, call.to_ld = call.ld;
    }
    unit_.micro(call);
  }

  std::uint32_t* c_at(int64_t batch, int64_t row, int64_t col) const {
    const View& c = store_job_->c;
    return static_cast<std::uint32_t*>(c.data) + batch * c.strides[0] + row * c.strides[1] + col;
  }

  // Sums of the columns of a micro-panel of b over all of k.
  const std::int32_t* totals(const Share& c, int64_t panel) const {
    const int64_t place = s_.own_b() ? c.thread : shared_place(c);
    if (k_blocks_ == 1) return sums_of_columns(place, 0, panel);
    auto* const to = reinterpret_cast<std::int32_t*>(scratch(c.thread) + totals_at_);
    std::copy_n(sums_of_columns(place, 0, panel), unit_.nr, to);
    for (int64_t block = 1; block < k_blocks_; ++block) {
      const std::int32_t* const more = sums_of_columns(place, block, panel);
      for (int64_t j = 0; j < unit_.nr; ++j) to[j] += more[j];
    }
    return to;
  }

  // Sums that become c together stay in L1.
  static constexpr int64_t stored_words = 2048;
  const int64_t steps_, steps_of_block_, k_blocks_, a_panels_, b_panels_;
  const int64_t tiles_stored_;  // micro-tiles that become c together
  bool to_c_ = false;  // sums need nothing to become c: micro-tiles that may be are stored there
  int64_t a_panels_of_piece_ = 1, b_panels_of_piece_ = 1;
  int64_t own_a_words_ = 0, own_b_words_ = 0;
  int64_t totals_at_ = 0;  // in a thread's scratch, behind sums
  Buffer a_memory_, b_memory_, column_sums_;
  std::vector<Owned> owned_;
  SharedPieces a_pieces_, b_pieces_;
};

}  // namespace

std::unique_ptr<Product> packed_product(const Problem& problem, const Schedule& schedule,
                                        const Environment& env, const Unit& unit,
                                        const ProductOperands& constants) {
  return std::make_unique<PackedProduct>(problem, schedule, env, unit, constants);
}

}  // namespace rooflane::gemm
