// The plan of GEMM on a dot-product unit. See dot_plan.hpp.
#include "kernels/gemm/dot_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/phases.hpp"
#include "fmt/format.h"
#include "kernels/gemm/dot_output.hpp"
#include "kernels/gemm/gate_product.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t lane_bytes = 4;

int64_t div_up(int64_t x, int64_t y) { return (x + y - 1) / y; }
int64_t round_up(int64_t x, int64_t y) { return div_up(x, y) * y; }

// Sizes of blocks: mc a multiple of mr, nc of nr, kc in lanes and a multiple of run.
struct Blocks {
  int64_t mc, nc, kc;
};

int64_t lanes_of(const Gemm& g, const DotUnit& unit) {
  return round_up(div_up(g.k, unit.group), unit.run);
}

Blocks rounded(const Blocks& blocks, const Gemm& g, const DotUnit& unit) {
  const auto fit = [](int64_t size, int64_t unit_size, int64_t whole) {
    return std::min(round_up(std::max<int64_t>(size, 1), unit_size),
                    round_up(std::max<int64_t>(whole, 1), unit_size));
  };
  return {fit(blocks.mc, unit.mr, g.m), fit(blocks.nc, unit.nr, g.n),
          fit(blocks.kc, unit.run, lanes_of(g, unit))};
}

// A B micro-panel of a sixteenth of L2, from where micro-kernels prefetch it, so that sums are
// visited seldom; a block of a in a quarter of L2, its sums in another. A single micro-panel of
// rows passes b once, so that nothing is gained by visiting it in parts.
Blocks guess(const Gemm& g, const Environment& env, const DotUnit& unit) {
  const auto l2 = static_cast<int64_t>(std::max<std::size_t>(machine().l2_bytes, 256 << 10));
  Blocks blocks{};
  blocks.kc = std::max(unit.run, l2 / 16 / (unit.nr * lane_bytes) / 16 * 16);
  const int64_t lanes = std::max(unit.run, lanes_of(g, unit));
  if (blocks.kc > lanes || g.m <= unit.mr) blocks.kc = lanes;
  blocks.mc = std::max(unit.mr, l2 / 4 / (blocks.kc * lane_bytes) / unit.mr * unit.mr);
  // No more rows than make b's traffic small: each lane of b serves so many products.
  blocks.mc = g.m <= unit.mr ? unit.mr : std::min(blocks.mc, 10 * unit.mr);
  blocks.nc = std::max(unit.nr, l2 / 4 / (blocks.mc * lane_bytes) / unit.nr * unit.nr);
  // Enough blocks that threads end together.
  const int64_t wanted = env.threads > 1 ? int64_t{4} * env.threads : 1;
  blocks = rounded(blocks, g, unit);
  while (blocks.nc > 2 * unit.nr &&
         g.batch * div_up(g.m, blocks.mc) * div_up(g.n, blocks.nc) < wanted) {
    blocks.nc = round_up(blocks.nc / 2, unit.nr);
  }
  return blocks;
}

Blocks blocks_of(const Tuning& tuning, const Gemm& g, const Environment& env, const DotUnit& unit) {
  const Blocks first = guess(g, env, unit);
  return rounded({tuning.get("mc", first.mc), tuning.get("nc", first.nc),
                  div_up(tuning.get("kc", first.kc * unit.group), unit.group)},
                 g, unit);
}

Tuning tuning_of(const Blocks& blocks, const DotUnit& unit) {
  return {{"mc", blocks.mc}, {"nc", blocks.nc}, {"kc", blocks.kc * unit.group}};
}

// Batches that are packed together: as many as make 32 MiB, which no region's start counts beside.
int64_t batches_together(const Gemm& g, const DotUnit& unit) {
  const int64_t bytes = lanes_of(g, unit) * (g.m + g.n) * lane_bytes;
  return std::clamp<int64_t>((int64_t{32} << 20) / std::max<int64_t>(bytes, 1), 1,
                             std::max<int64_t>(g.batch, 1));
}

// An operand by elements of any format, as Side has it of float32.
struct Elements {
  const std::byte* data = nullptr;
  int64_t size = 0;  // bytes of one
  int64_t batch_stride = 0, outer = 0, inner = 0;
  const std::byte* at(int64_t batch, int64_t vector) const {
    return data + (batch * batch_stride + vector * outer) * size;
  }
};
Elements elements_of(const View& view, bool along_memory) {
  return {static_cast<const std::byte*>(view.data), static_cast<int64_t>(size_of(view.dtype)),
          view.strides[0], along_memory ? view.strides[1] : 1, along_memory ? 1 : view.strides[1]};
}

class DotPlan final : public Plan {
 public:
  DotPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
          const Operands& constants, const DotUnit& unit)
      : Plan(problem),
        g_(problem),
        unit_(unit),
        env_(env),
        blocks_(blocks_of(tuning, g_, env, unit)),
        lanes_(lanes_of(g_, unit)),
        threads_(std::max(env.threads, 1)),
        dynamic_(env.math == math_int8_dynamic.name),
        rounded_(env.math == math_bf16.name && problem.dtype("a_type") == &float32),
        few_rows_(unit.skinny()),
        skinny_(g_.trans_b && !g_.prepack && g_.m <= skinny_rows),
        shifts_((skinny_ ? few_rows_.shifts_a : unit.shifts_a) && problem.dtype("a_type") == &int8),
        together_(batches_together(g_, unit)),
        output_(g_, unit.finish) {
    if (g_.gate) {
      gate_.emplace(problem, constants, [&](const Problem& product, const Operands& of_product) {
        return std::make_unique<DotPlan>(product, tuning, env, of_product, unit);
      });
    }
    if (g_.empty() || !g_.reads_ab()) return;
    allocate();
    if (g_.prepack) prepack(constants);
  }

  void run() override {
    if (g_.empty()) return;
    if (gate_) gate_->run();
    if (!g_.reads_ab()) {
      output_.store_zeros();
      return;
    }
    if (converts()) convert();
    for (int64_t first = 0; first < g_.batch; first += together_) {
      const int64_t count = std::min(together_, g_.batch - first);
      if (skinny_) {
        run_skinny(first, count);
      } else {
        run_packed(first, count);
      }
    }
  }

  std::vector<std::span<const std::byte>> regions() const override {
    auto list = Plan::regions();
    if (!g_.prepack) return list;
    for (const Buffer* panels : {&b_panels_, gate_ ? &gate_->plan().b_panels_ : nullptr}) {
      if (panels == nullptr || panels->bytes() == 0) continue;
      list.push_back({static_cast<const std::byte*>(panels->data()), panels->bytes()});
    }
    return list;
  }

  PlanFacts facts() const override {
    PlanFacts facts;
    facts.path = skinny_ ? few_rows_.path : unit_.path;
    facts.tuning = tuning_of(blocks_, unit_);
    facts.packed_bytes = g_.prepack ? b_panels_.bytes() : 0;
    facts.workspace_bytes = a_panels_.bytes() + scratch_.bytes() + column_sums_.bytes() +
                            converted_.bytes() + steps_.bytes() + kept_scale_.bytes() +
                            (g_.prepack ? 0 : b_panels_.bytes());
    if (gate_) gate_->add_to(facts);
    return facts;
  }

 private:
  bool converts() const { return dynamic_ || rounded_; }
  // Bytes of an element of a as the unit takes it.
  int64_t converted_bytes() const { return rounded_ ? 2 : 1; }
  bool needs_column_sums() const { return dynamic_ || shifts_; }
  int64_t a_panels() const { return div_up(g_.m, unit_.mr); }
  int64_t b_panels() const { return div_up(g_.n, unit_.nr); }
  int64_t n_padded() const { return b_panels() * unit_.nr; }

  void allocate() {
    const auto words = [](int64_t count) {
      return Buffer(static_cast<std::size_t>(count * lane_bytes));
    };
    if (skinny_) {
      // Rows a line apart from a power of two, which would share sets of L1.
      skinny_lanes_ = round_up(lanes_, vector_lanes) + vector_lanes;
      a_panels_ = words(together_ * g_.m * skinny_lanes_);
      tile_words_ = skinny_rows * skinny_columns;
    } else {
      a_panels_ = words(together_ * a_panels() * unit_.mr * lanes_);
      b_panels_ = words((g_.prepack ? g_.batch : together_) * n_padded() * lanes_);
      tile_words_ = blocks_.kc < lanes_ ? blocks_.mc * blocks_.nc : unit_.mr * unit_.nr;
    }
    if (needs_column_sums()) {
      column_sums_ = words((g_.prepack ? g_.batch : together_) * n_padded());
    }
    // Whole pages, so that threads share none.
    tile_words_ = round_up(tile_words_, 1024);
    scratch_ = words(tile_words_ * threads_);
    if (!converts()) return;
    converted_ = Buffer(static_cast<std::size_t>(g_.batch * g_.m * g_.k * converted_bytes()));
    steps_ = words(g_.batch * g_.m);
  }

  void prepack(const Operands& constants) {
    b_ = elements_of(own_part_of_b(g_, constants.at("b")), g_.trans_b);
    if (constants.has("b_scale")) {
      kept_scale_ = Buffer(static_cast<std::size_t>(g_.n) * sizeof(float));
      std::copy_n(constants.at("b_scale").f32(), g_.n, kept_scale_.f32());
      b_scale_ = kept_scale_.f32();
    }
    parallel_for(env_.pool, threads_, g_.batch * b_panels(), [&](int64_t task, int) {
      pack_b(task / b_panels(), task / b_panels(), task % b_panels());
    });
  }

  void on_bind(const Operands& operands) override {
    const View& a = operands.at("a");
    a_ = elements_of(a, !g_.trans_a);
    short_a_ = a.dtype == &bfloat16;
    if (!g_.prepack) {
      b_ = elements_of(own_part_of_b(g_, operands.at("b")), g_.trans_b);
      if (operands.has("b_scale")) b_scale_ = operands.at("b_scale").f32();
    }
    if (gate_) gate_->bind(operands);
    output_.bind(operands, gate_ ? gate_->sums() : Matrix<const float>());
  }

  Output output_of(int64_t batch, int64_t place) const {
    Output out = output_.of(batch);
    out.integers = dynamic_;
    if (needs_column_sums()) {
      const int64_t where = g_.prepack ? batch : place;
      out.column_sums = static_cast<std::int32_t*>(column_sums_.data()) + where * n_padded();
    }
    if (dynamic_) {
      out.row_scale = steps_.f32() + batch * g_.m;
      out.column_scale = b_scale_;
    }
    return out;
  }

  void convert() const {
    constexpr int64_t rows_together = 8;
    const int64_t rows = g_.batch * g_.m;
    parallel_for(env_.pool, threads_, div_up(rows, rows_together), [&](int64_t task, int) {
      const PhaseTimer timer(RunPhase::pack);
      for (int64_t row = task * rows_together; row < std::min(rows, (task + 1) * rows_together);
           ++row) {
        unit_.convert({a_.at(row / g_.m, row % g_.m), short_a_, a_.inner, g_.k,
                       static_cast<std::byte*>(converted_.data()) + row * g_.k * converted_bytes(),
                       steps_.f32() + row});
      }
    });
  }

  // a as the unit takes it: what convert() left.
  Elements source_of_a() const {
    if (!converts()) return a_;
    return {static_cast<const std::byte*>(converted_.data()), converted_bytes(), g_.m * g_.k, g_.k,
            1};
  }
  std::uint32_t xor_mask() const { return shifts_ ? 0x80808080u : 0; }

  std::uint32_t* words_at(const Buffer& buffer, int64_t place) const {
    return static_cast<std::uint32_t*>(buffer.data()) + place;
  }
  std::uint32_t* a_panel(int64_t place, int64_t panel) const {
    return words_at(a_panels_, (place * a_panels() + panel) * unit_.mr * lanes_);
  }
  std::uint32_t* b_panel(int64_t place, int64_t panel) const {
    return words_at(b_panels_, (place * b_panels() + panel) * unit_.nr * lanes_);
  }
  int64_t width_of(int64_t panel) const {
    return unit_.whole_panels ? unit_.mr : std::min(unit_.mr, g_.m - panel * unit_.mr);
  }

  void pack_a(int64_t batch, int64_t place, int64_t panel) const {
    const Elements a = source_of_a();
    unit_.pack({a.at(batch, panel * unit_.mr), a.outer, a.inner, g_.k,
                std::min(unit_.mr, g_.m - panel * unit_.mr), width_of(panel), lanes_, unit_.run,
                xor_mask(), a_panel(place, panel)});
  }
  void pack_b(int64_t batch, int64_t place, int64_t panel) const {
    std::uint32_t* const to = b_panel(place, panel);
    unit_.pack({b_.at(batch, panel * unit_.nr), b_.outer, b_.inner, g_.k,
                std::min(unit_.nr, g_.n - panel * unit_.nr), unit_.nr, lanes_, 1, 0, to});
    if (!needs_column_sums()) return;
    unit_.column_sums(
        to, lanes_,
        static_cast<std::int32_t*>(column_sums_.data()) + place * n_padded() + panel * unit_.nr);
  }

  void run_packed(int64_t first, int64_t count) const {
    const int64_t panels = a_panels() + (g_.prepack ? 0 : b_panels());
    // Tasks of a few panels: handing one out costs less than packing it, whatever k.
    const int64_t of_task = std::max<int64_t>(1, 4096 / lanes_);
    const int64_t tasks = div_up(panels, of_task);
    parallel_for(env_.pool, threads_, count * tasks, [&](int64_t task, int) {
      const PhaseTimer timer(RunPhase::pack);
      const int64_t place = task / tasks, begin = task % tasks * of_task;
      for (int64_t p = begin; p < std::min(panels, begin + of_task); ++p) {
        if (p < a_panels()) {
          pack_a(first + place, place, p);
        } else {
          pack_b(first + place, place, p - a_panels());
        }
      }
    });
    const int64_t rows = div_up(g_.m, blocks_.mc), cols = div_up(g_.n, blocks_.nc);
    parallel_for(env_.pool, threads_, count * rows * cols, [&](int64_t task, int thread) {
      const int64_t place = task / (rows * cols), block = task % (rows * cols);
      multiply(first + place, place, block % rows * blocks_.mc, block / rows * blocks_.nc, thread);
    });
  }

  // A block of c, all of k.
  void multiply(int64_t batch, int64_t place, int64_t i0, int64_t j0, int thread) const {
    const Output out = output_of(batch, place);
    const int64_t b_place = g_.prepack ? batch : place;
    const int64_t rows = std::min(blocks_.mc, g_.m - i0), cols = std::min(blocks_.nc, g_.n - j0);
    const bool in_parts = blocks_.kc < lanes_;
    const int64_t ld = in_parts ? blocks_.nc : unit_.nr;
    std::uint32_t* const sums = words_at(scratch_, thread * tile_words_);
    if (unit_.begin != nullptr) unit_.begin();
    for (int64_t p = 0; p < lanes_; p += blocks_.kc) {
      const int64_t lanes = std::min(blocks_.kc, lanes_ - p);
      for (int64_t j = 0; j < cols; j += unit_.nr) {
        const std::uint32_t* const b = b_panel(b_place, (j0 + j) / unit_.nr) + p * unit_.nr;
        for (int64_t i = 0; i < rows; i += unit_.mr) {
          const int64_t panel = (i0 + i) / unit_.mr, width = width_of(panel);
          std::uint32_t* const tile = sums + (in_parts ? i * ld + j : 0);
          const int64_t width_of_c = std::min(unit_.nr, cols - j);
          unit_.micro(
              {lanes, a_panel(place, panel) + p * width, b, width, width_of_c, tile, ld, p > 0});
          if (p + lanes < lanes_) continue;
          output_.store(batch,
                        {&out, i0 + i, std::min(unit_.mr, rows - i), j0 + j, width_of_c, tile, ld});
        }
      }
    }
    if (unit_.end != nullptr) unit_.end();
  }

  void run_skinny(int64_t first, int64_t count) const {
    const Elements a = source_of_a();
    for (int64_t row = 0; row < count * g_.m; ++row) {
      unit_.pack({a.at(first + row / g_.m, row % g_.m), a.outer, a.inner, g_.k, 1, 1, skinny_lanes_,
                  1, xor_mask(), words_at(a_panels_, row * skinny_lanes_)});
    }
    const int64_t tasks = div_up(g_.n, skinny_columns);
    // In static chunks: a thread prefetches what its next task reads.
    parallel_for_static(env_.pool, threads_, count * tasks, [&](int64_t task, int thread) {
      const int64_t place = task / tasks, batch = first + place;
      const int64_t col = task % tasks * skinny_columns;
      const int64_t cols = std::min(skinny_columns, g_.n - col);
      const Output out = output_of(batch, place);
      std::uint32_t* const sums = words_at(scratch_, thread * tile_words_);
      std::int32_t* const of_columns =
          needs_column_sums()
              ? static_cast<std::int32_t*>(column_sums_.data()) + place * n_padded() + col
              : nullptr;
      few_rows_.multiply({words_at(a_panels_, place * g_.m * skinny_lanes_), skinny_lanes_, g_.m,
                          b_.at(batch, col), b_.outer, g_.k, cols, sums, skinny_columns, of_columns,
                          b_.at(batch, g_.n)});
      output_.store(batch, {&out, 0, g_.m, col, cols, sums, skinny_columns});
    });
  }

  static constexpr int64_t vector_lanes = 16;
  // Rows of b of a task where a is skinny: half a megabyte of weights at k = 8192, so that the next
  // task's fit in L2, too.
  static constexpr int64_t skinny_columns = 32;

  const Gemm g_;
  const DotUnit& unit_;
  const Environment env_;
  const Blocks blocks_;
  const int64_t lanes_;
  const int threads_;
  const bool dynamic_;  // a is quantised in the run
  const bool rounded_;  // or rounded to bfloat16
  const SkinnyProducts few_rows_;
  const bool skinny_;
  const bool shifts_;  // a is s8, packed as u8
  const int64_t together_;
  int64_t skinny_lanes_ = 0, tile_words_ = 0;
  Buffer a_panels_, b_panels_, column_sums_, scratch_, converted_, steps_, kept_scale_;
  Elements a_, b_;
  bool short_a_ = false;
  const float* b_scale_ = nullptr;
  DotOutput output_;
  std::optional<GateProduct<DotPlan>> gate_;
};

}  // namespace

std::optional<std::string> dot_unsupported(const Problem& problem, const Environment& env) {
  const auto needs = [&](const char* name, const std::string& what) {
    return fmt::format("math {}: {}={}, computed is {}", env.math, name,
                       problem.dtype(name)->short_name, what);
  };
  const DType a = problem.dtype("a_type");
  if (env.math == math_bf16.name) {
    if (a != &bfloat16 && a != &float32) return needs("a_type", "f32 or bf16");
    if (problem.dtype("b_type") != &bfloat16) return needs("b_type", "bf16");
  }
  if (env.math == math_int8_dynamic.name && a != &float32 && a != &bfloat16) {
    return needs("a_type", "f32 or bf16");
  }
  return std::nullopt;
}

std::vector<Tuning> dot_tunings(const Problem& problem, const Environment& env,
                                const DotUnit& unit) {
  const Gemm g(problem);
  const Blocks first = guess(g, env, unit);
  std::vector<Tuning> list = {tuning_of(first, unit)};
  const auto add = [&](const Blocks& blocks) {
    const Tuning tuning = tuning_of(rounded(blocks, g, unit), unit);
    if (std::find(list.begin(), list.end(), tuning) == list.end()) list.push_back(tuning);
  };
  for (const int64_t kc : {first.kc / 2, first.kc, 2 * first.kc}) {
    for (const int64_t mc : {first.mc / 2, first.mc, 2 * first.mc}) {
      for (const int64_t nc : {first.nc / 2, first.nc, 2 * first.nc}) add({mc, nc, kc});
    }
  }
  return list;
}

std::unique_ptr<Plan> dot_plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                               const Operands& constants, const DotUnit& unit) {
  return std::make_unique<DotPlan>(problem, tuning, env, constants, unit);
}

}  // namespace rooflane::gemm
