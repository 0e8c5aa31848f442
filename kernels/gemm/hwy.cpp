// GEMM, variant `hwy`: Highway at run time's best ISA target, threads from core/parallel.hpp. Here:
// memory and the plan; the choice of path is hwy_model.hpp, of blocks hwy_block_sizes.hpp. The
// loops, compiled through hwy_loops.cpp, stand in hwy_paths-inl.h (both sides long),
// hwy_skinny-inl.h and hwy_dot-inl.h (one side short), hwy_tail-inl.h (last columns) and, over the
// register tiles of hwy_tiles-inl.h, hwy_blocks-inl.h. The scheme is Goto & van de Geijn, "Anatomy
// of high-performance matrix multiplication" (2008), turned for row-major c: vectors lie along n
// (but for last columns). Unlike there, operands that lie well are multiplied in place, and what
// the next tiles need is fetched ahead meanwhile.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/hwy.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/gemm/hwy_job.hpp"

// hwy_loops.cpp has them, in units of their own.
HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

void Run(const Job& job);
// b of prepack=1, [batch] times k·n floats: rows [n,k] where b is the side with few rows, else
// blocks of kc rows as the packed path reads them.
void Pack(const Job& job, const Side& b, float* to);
TileShape MicroTile();

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cmath>
#include <memory>

#include "backends/highway.hpp"
#include "core/buffer.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "fmt/format.h"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_block_sizes.hpp"
#include "kernels/gemm/hwy_model.hpp"

namespace rooflane::gemm {

HWY_EXPORT(Run);
HWY_EXPORT(Pack);
HWY_EXPORT(MicroTile);

namespace {

using std::int64_t;

constexpr Tunable tunables[] = {
    {"path",
     "0 scale, 1 dot, 2 stream, 3 direct, 4 packed; n = 1: of c's transpose, a and b exchanged", 0,
     4},
    {"mc", "packed: rows of a packed block of a", 1, 1 << 20},
    {"kc", "depth of a block along k", 1, 1 << 20},
    {"nc", "packed: columns of b packed at a time; stream, dot: columns or rows a task", 1,
     int64_t{1} << 40},
    {"pack", "direct: 1 copies blocks of a, 2 strips of b, 3 both; packed: 1 copies blocks of a", 0,
     3},
    {"sweep",
     "direct, packed: 1 goes along the rows of tiles, 0 down the columns; stream: 1 whole rows, 0 "
     "strips; dot: 1 reads rows at once that are not neighbours, 0 neighbours",
     0, 1},
    {"fetch",
     "direct: the next strip of b in place is fetched row by row (1) or column by column (0); from "
     "three tiles of rows on",
     0, 1},
};

Tuning tuning_of(Path path, const Blocks& blocks) {
  return {{"path", static_cast<int64_t>(path)},
          {"mc", blocks.mc},
          {"kc", blocks.kc},
          {"nc", blocks.nc},
          {"pack", int64_t{blocks.pack_a} + 2 * int64_t{blocks.pack_b}},
          {"sweep", int64_t{blocks.sweep}},
          {"fetch", int64_t{blocks.fetch}}};
}

std::vector<Tuning> tunings(const Problem& problem, const Environment& env) {
  const Gemm g = column_as_row(Gemm(problem));
  const TileShape tile = ROOFLANE_HWY_FUNCTION(MicroTile, resolve_isa(env.isa))();
  const Caches cache = caches();
  const int threads = threads_for(g, env, cache);
  const Path first = choose(g, tile, cache, threads);
  std::vector<Tuning> list;
  list.push_back(tuning_of(first, block_sizes(first, g, tile, cache, threads)));
  const auto add = [&](Path path, const Blocks& blocks) {
    Tuning tuning = tuning_of(path, blocks);
    if (std::find(list.begin(), list.end(), tuning) == list.end()) list.push_back(tuning);
  };
  for (const Path path : {Path::dot, Path::stream, Path::direct, Path::packed}) {
    if (!allowed(path, g)) continue;
    const Blocks guess = block_sizes(path, g, tile, cache, threads);
    add(path, guess);
    const bool either_order =
        path == Path::dot ? g.k <= guess.kc
                          : path == Path::stream &&
                                can_update(flipped(path, g, cache, threads) ? g.n : g.m, threads);
    if (either_order) {
      Blocks blocks = guess;
      blocks.sweep = !guess.sweep;
      add(path, blocks);
    }
    if (path == Path::direct && short_strips(g, tile, cache, threads)) {
      Blocks blocks = guess;
      blocks.kc = g.k;
      blocks.sweep = true;
      add(path, blocks);
    }
    if (path == Path::direct && guess.pack_b && !g.trans_b) {
      Blocks blocks = guess;
      blocks.pack_b = false;
      add(path, blocks);
    }
    if (path == Path::direct && !guess.pack_b && g.m > 2 * tile.mr && g.k > 32) {
      for (const int64_t kc : {int64_t{48}, int64_t{96}, guess.kc}) {
        Blocks blocks = guess;
        blocks.kc = std::min(kc, g.k);
        blocks.fetch = true;
        add(path, blocks);
      }
    }
    if (path != Path::packed) continue;
    for (const int64_t kc : {128, 192, 256, 384}) {
      for (const int64_t mc_bytes : {cache.l2 / 4, cache.l2 / 2}) {
        for (const int64_t nc : {int64_t{1024}, int64_t{2048}, int64_t{4096}}) {
          Blocks blocks = guess;
          blocks.kc = std::min(kc, g.k);
          blocks.mc =
              std::max(mc_bytes / (float_bytes * blocks.kc) / tile.mr, int64_t{1}) * tile.mr;
          blocks.mc = std::min(blocks.mc, round_up(g.m, tile.mr));
          blocks.nc = std::min(round_up(nc, tile.nr()), round_up(g.n, tile.nr()));
          add(path, blocks);
        }
      }
    }
  }
  return list;
}

std::string allowed_paths(const Gemm& g) {
  std::string text;
  for (int64_t path = 0; path <= static_cast<int64_t>(Path::packed); ++path) {
    if (allowed(static_cast<Path>(path), g)) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", path);
    }
  }
  return text;
}

std::optional<std::string> tuning_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment&) {
  const Gemm g = column_as_row(Gemm(problem));
  const auto path = tuning.find("path");
  if (!path || allowed(static_cast<Path>(*path), g)) return std::nullopt;
  return fmt::format("path={} cannot serve this problem; allowed: {}", *path, allowed_paths(g));
}

class HwyPlan final : public Plan {
 public:
  HwyPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
          const Operands& constants, bool columns_as_rows = true)
      : Plan(problem),
        target_(resolve_isa(env.isa)),
        job_(columns_as_rows ? column_as_row(Gemm(problem)) : Gemm(problem)),
        column_(columns_as_rows && is_column(Gemm(problem))),
        env_(env) {
    const Gemm& g = job_.g;
    run_ = ROOFLANE_HWY_FUNCTION(Run, target_);
    tile_ = ROOFLANE_HWY_FUNCTION(MicroTile, target_)();
    const Caches cache = caches();
    job_.pool = env.pool;
    job_.threads = threads_for(g, env, cache);
    job_.path = static_cast<Path>(
        tuning.get("path", static_cast<int64_t>(choose(g, tile_, cache, job_.threads))));
    if (const auto defect = tuning_defect(problem, tuning, env)) throw argument_error(*defect);
    if (const auto path = tuning.find("path")) path_.set("path", *path);
    job_.flip = flipped(job_.path, g, cache, job_.threads);
    const Blocks guess = block_sizes(job_.path, g, tile_, cache, job_.threads);
    job_.mc = round_up(tuning.get("mc", guess.mc), tile_.mr);
    job_.kc = tuning.get("kc", guess.kc);
    job_.nc = tuning.get("nc", guess.nc);
    const int64_t packing = tuning.get("pack", int64_t{guess.pack_a} + 2 * int64_t{guess.pack_b});
    const TileShape usual = tile_;
    if ((packing & 1) == 0) tile_ = tile_of(job_.path, g, tile_, cache);
    const bool tiled = job_.path == Path::direct || job_.path == Path::packed;
    job_.pack_a = tiled && (packing & 1) != 0;
    job_.pack_b = job_.path == Path::direct && ((packing & 2) != 0 || g.trans_b);
    job_.sweep = tuning.get("sweep", guess.sweep) != 0;
    job_.far = job_.path == Path::dot && far(g, job_.flip, tile_, cache, job_.threads);
    const int64_t few = job_.flip ? g.n : g.m, many = job_.flip ? g.m : g.n;
    if (few == 1 && !cache.far_l3 && g.batch * many * g.k * float_bytes > cache.l3 / 2) {
      job_.streams = streams_from_memory(cache);
    }
    if (job_.path == Path::stream) {
      job_.sweep &= can_update(few, job_.threads);
      if (job_.sweep) job_.nc = std::min(job_.nc, most_update_columns);
    }
    // Where c is most of the operands, threads find their share of it in their own L2 (Sapphire
    // Rapids, 16 threads, 2048² of k = 16: 490 GF/s handed out anew, 780; k = 1 66 and 105; 37 ×
    // 20011 × 89 800 and 1070; but 20011 × 29 × 67 1140 and 1000; 2 threads, 1000² of k = 16 47 and
    // 63; Zen 4, 2 threads, 500² of k = 4 48 and 64, 370 × 2517 × 42 162 and 176; but where L3 is
    // near only while it holds c easily: Zen 5, 2 threads, k = 1 36 and 24); and their share of b,
    // where all of it stays there (16 threads, 4 × 1131 × 1390 285 and 498).
    const bool keeps_b = g.n > g.m && fits_far_l2(g, cache, job_.threads);
    const bool keeps_c =
        g.n >= g.k && (job_.threads >= many_threads || cache.far_l3 || c_is_near(g, cache));
    job_.near = job_.path == Path::packed ? keeps_b && job_.flip : keeps_b || keeps_c;
    job_.fetch_rows =
        job_.path == Path::direct && !job_.pack_b && tuning.get("fetch", guess.fetch) != 0;
    if (job_.far) {
      job_.kc = round_up(job_.kc, tile_.lanes);
      job_.sweep &= g.k <= job_.kc;  // rows ahead are found within a chunk of k
    }
    const bool turned = job_.path == Path::packed && job_.flip;
    job_.rows = turned ? g.n : g.m;
    job_.cols = turned ? g.m : g.n;
    if (job_.path == Path::direct && !job_.pack_a) {
      job_.tail = tail_columns(g, usual, cache);
      job_.cols -= job_.tail;
    }
    job_.strips = Strips(job_.cols, tile_, tile_.nv == usual.nv && wide_strips(cache));
    set_shares(cache);
    allocate();
    if (g.prepack) pack(constants.at("b"));
  }

  void run() override {
    if (has_gaps_) {
      with_gaps_->run();
    } else {
      run_(job_);
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
    if (has_gaps_) return with_gaps_->facts();
    PlanFacts facts;
    facts.isa = isa_name(target_);
    facts.tuning = tuning_of(job_.path, {job_.mc, job_.kc, job_.nc, job_.pack_a, job_.pack_b,
                                         job_.sweep, job_.fetch_rows});
    facts.workspace_bytes = workspace_.bytes() + packed_.bytes() - packed_bytes_;
    facts.packed_bytes = packed_bytes_;
    return facts;
  }

 private:
  // Wide strips stream more of b past each tile: while one stays in L1 (Zen 5: 64³ 4 % faster, but
  // 4096 × 64 × 4096 5 % slower). Swept beside others, they read all of a once more.
  bool wide_strips(const Caches& cache) const {
    const Gemm& g = job_.g;
    if (job_.path != Path::direct || job_.pack_a || job_.pack_b) return false;
    const int64_t width = tile_.nr() + tile_.lanes;
    if (std::min(g.k, job_.kc) * width * float_bytes > cache.l1 * 3 / 4) return false;
    return !job_.sweep || job_.cols % width == 0 || g.m * g.k * float_bytes <= cache.l2 / 2;
  }

  // Blocks of k that parts may share: each part has sums of its own, but of the tail. May be 0.
  int64_t most_k_parts() const {
    const Gemm& g = job_.g;
    if (job_.tail > 0) return 1;
    return std::min(div_up(g.k, job_.kc),
                    workspace_limit / 2 / (float_bytes * g.batch * g.m * g.n));
  }

  // A b along k that several threads turn, each for itself; not where k alone is shared.
  bool shares_turned() const {
    const Gemm& g = job_.g;
    return g.trans_b && job_.threads > 1 && g.batch < job_.threads && !deep(g);
  }

  // direct, of a b that each part turns for itself: the parts that take the least time, of equal
  // ones the most. Turning costs as much as 6 rows, reading a as 6 columns (2 threads, 300 × 160 ×
  // 400: 116 GF/s in two parts of columns, 151 of rows); sums of another part, from another core's
  // cache, as 50 of k (16 threads, 300 × 500 × 700: 167 µs in parts of rows, 203 of k as well).
  void share_turned(int64_t tiles, int64_t strips) {
    const Gemm& g = job_.g;
    const int64_t k_blocks = div_up(g.k, job_.kc);
    const auto largest = [](int64_t total, int64_t parts) {
      return static_cast<double>(div_up(total, parts)) / static_cast<double>(total);
    };
    double least = 0;
    for (int64_t ks = 1; ks <= std::clamp<int64_t>(most_k_parts(), 1, job_.threads); ++ks) {
      for (int64_t cols = 1; cols <= std::min<int64_t>(strips, 4 * job_.threads); ++cols) {
        for (int64_t rows = 1; rows <= std::max<int64_t>(tiles / 4, 1); ++rows) {
          const int64_t parts = g.batch * rows * cols * ks;
          if (parts > 4 * std::max<int64_t>(job_.threads, g.batch)) break;
          const double turns = 1 + 6.0 * static_cast<double>(rows) / static_cast<double>(g.m);
          const double reads = 1 + 6.0 * static_cast<double>(cols) / static_cast<double>(g.n);
          const double adds =
              ks > 1 ? 1 + 50.0 * static_cast<double>(ks) / static_cast<double>(g.k) : 1;
          const double time = static_cast<double>(div_up(parts, job_.threads)) * turns * reads *
                              adds * largest(tiles, rows) * largest(strips, cols) *
                              largest(k_blocks, ks);
          if (least != 0 && time > least * (1 + 1e-9)) continue;
          least = time;
          job_.row_parts = rows;
          job_.col_parts = cols;
          job_.k_parts = ks;
        }
      }
    }
  }

  // How the output is cut into tasks, and how deep b is packed at a time.
  void set_shares(const Caches& cache) {
    const Gemm& g = job_.g;
    if (job_.path != Path::direct && job_.path != Path::packed) return;
    const bool shared = job_.path == Path::packed;
    job_.nc = round_up(job_.nc, tile_.nr());
    if (shared) {
      if (g.prepack) {
        job_.nc = std::max(job_.nc, job_.cols);
        job_.kb = g.k;
        job_.batch_group = g.batch;
      } else {
        const int64_t floats = packed_b_limit(cache) / float_bytes;
        const int64_t width = std::min(job_.nc, job_.cols);
        job_.kb = std::min(g.k, std::max<int64_t>(1, floats / width / job_.kc) * job_.kc);
        const bool whole = width == job_.cols && job_.kb == g.k;
        job_.batch_group = whole ? std::clamp<int64_t>(floats / (g.k * job_.cols), 1, g.batch) : 1;
      }
    }
    // Four tasks a thread let the quicker ones take more. Rows are shared first, down to 8 tiles a
    // task: at 64 rows a strip of b is read from L2 or L3 once per 64 × 3 FMAs a row.
    const int64_t tiles = div_up(job_.rows, tile_.mr);
    const int64_t strips = shared ? div_up(std::min(job_.nc, job_.cols), tile_.nr())
                                  : std::max<int64_t>(job_.strips.count(), 1);
    // Smaller tasks than are worth a thread cost more in handing out than the quicker ones save.
    const int64_t worthwhile = static_cast<int64_t>(flops_of(g) / flops_per_thread(cache));
    const int64_t wanted =
        job_.threads == 1 ? 1 : std::clamp<int64_t>(worthwhile, job_.threads, 4 * job_.threads);
    const int64_t batches = shared ? std::min(job_.batch_group, g.batch) : g.batch;
    if (job_.pack_b) {
      // Every share of rows packs its strips anew: columns are shared first. Not so where k is
      // short, L3 far and rows enough for all: what lies behind the end of a thread's run of c, the
      // hardware fetches, and if that is another thread's, takes it away (Sapphire Rapids, k = 16,
      // GF/s by columns and by rows: 2 threads, 1000² 79 and 129, 1400 × 1500 87 and 158, 4096² 95
      // and 151; 16 threads, 2048² 807 and 1057, but 1000² 650 and 560; 4096² of k = 64, 1 MB of b
      // for each of 2, 191 and 175). Nor where L3 is near and holds c easily (Zen 4, 2 threads:
      // 1000² 41 and 154, 2000 × 300 × 30 88 and 171, 150 × 631 × 8 along k 53 and 108; but 1500²
      // of k = 32 178 and 155). A row is then one thread's, in whatever tasks, or few threads'.
      const int64_t tasks = div_up(wanted, batches);
      // Rows for whose sake copying b takes a tenth of the time; with too few of them for all
      // threads, in so few parts of columns that they are enough (16 threads, 284 × 5580 × 6 along
      // k: 237 → 380 GF/s).
      const int64_t worth_copying = g.trans_b && g.k > 8 ? 64 : 32;
      const int64_t enough = std::max<int64_t>(job_.rows / worth_copying, 1);
      const int64_t across = job_.threads / divisor_up_to(job_.threads, enough);
      const bool by_rows = (cache.far_l3 || c_is_near(g, cache)) && g.k <= short_k &&
                           g.k * job_.cols * float_bytes <= cache.l2 / 4 &&
                           (across == 1 || (batches == 1 && strips >= 4 * across));
      if (by_rows && across == 1) {
        const int64_t parts = std::min(tasks, enough);
        job_.row_parts = parts < job_.threads ? parts : parts / job_.threads * job_.threads;
        job_.col_parts = std::clamp<int64_t>(div_up(tasks, parts), 1, strips);
      } else if (by_rows) {
        job_.row_parts = job_.threads / across;
        job_.col_parts = across;
      } else if (shares_turned()) {
        share_turned(tiles, strips);
      } else {
        job_.col_parts = std::clamp<int64_t>(tasks, 1, strips);
        job_.row_parts = std::clamp<int64_t>(div_up(wanted, batches * job_.col_parts), 1,
                                             std::max<int64_t>(tiles / 8, 1));
      }
    } else {
      const int64_t blocks = div_up(job_.rows, job_.mc);
      // With all of b near by, two tiles are enough: threads that share rows of c share lines where
      // their columns meet (Sapphire Rapids, 97³ on 3 threads: 204 GF/s by columns).
      const bool b_in_l2 = !shared && g.k * g.n * float_bytes <= cache.l2 / 4;
      // Columns that make a strip or two leave nothing else to share.
      const int64_t alone = std::min(tiles, div_up(job_.threads, batches * strips));
      const int64_t finest = std::max({blocks, tiles / (b_in_l2 ? 2 : 8), alone});
      job_.row_parts = std::clamp(div_up(wanted, batches), blocks, finest);
      job_.col_parts = std::clamp<int64_t>(div_up(wanted, batches * job_.row_parts), 1, strips);
      job_.row_parts = std::min(job_.row_parts, tiles);
      // The sums of a block of rows go from block to block of k: in parts that stay in L2 (Zen 5,
      // 32 × 4001 times 4001 × 4000 on one thread: 225 GF/s, 131 in one part; 256 rows 8 % faster).
      if (!shared && g.k > job_.kc) {
        const int64_t sums = std::min(job_.mc, job_.rows) * job_.cols * float_bytes;
        job_.col_parts = std::clamp<int64_t>(div_up(sums, cache.l2 / 4), job_.col_parts,
                                             std::max(strips, job_.col_parts));
      }
    }
    if (shared) return;
    // Small products, several a task.
    const bool whole = job_.row_parts * job_.col_parts == 1;
    job_.batch_parts = whole ? std::min(g.batch, wanted) : g.batch;
    const int64_t parts = job_.row_parts * job_.col_parts * g.batch;
    const int64_t most_k = most_k_parts();
    const bool may_share_k = !(job_.pack_b && shares_turned());
    if (may_share_k && deep(g) && g.batch < wanted && job_.threads > 1 && most_k > 1) {
      // Eight blocks a task, so that adding up their sums costs little.
      job_.row_parts = job_.col_parts = 1;
      job_.k_parts =
          std::clamp<int64_t>(div_up(g.k, job_.kc) / 8, std::min<int64_t>(job_.threads, most_k),
                              std::min(wanted, most_k));
    } else if (may_share_k && parts < job_.threads) {
      // Too small a product to go round: k is shared as well.
      job_.k_parts = std::clamp<int64_t>(job_.threads / parts, 1, std::max<int64_t>(1, most_k));
    }
    // One block of k writes c once: past the caches when it is larger than they are. Where L3 is
    // far from a quarter of it on, as long as tiles take less time than their lines (Sapphire
    // Rapids, 4096² of k = 1 4.8 → 9.0 GF/s, k = 4 16 → 30, k = 8 46 → 50, k = 16 73 → 56). Where
    // it is near, shared with neighbours and to be written back, before it is full (a Zen 4, 1700 ×
    // 1712 of k = 1 6.7 → 13.6 GF/s, 2048² of k = 64 71 → 96, on two threads 150 → 208); several
    // threads later where c is all there is to do, as L3 feeds them better while it is all theirs
    // (two, 2048² of k = 1 in four runs 0.3, 0.8, 1.7 and 1.8 times as fast, 2400² 1.9).
    const bool far_c = cache.far_l3 && g.k <= 8 && job_.threads < many_threads;
    const double share_of_near = job_.threads == 1 ? 3.0 / 8 : g.k > 8 ? 7.0 / 16 : 5.0 / 8;
    const double share_of_l3 = far_c ? 1.0 / 4 : cache.far_l3 ? 1.0 : share_of_near;
    may_stream_c_ = g.k <= job_.kc && job_.k_parts == 1 && !g.reads_c0() &&
                    static_cast<double>(g.batch * g.m * g.n * float_bytes) >
                        share_of_l3 * static_cast<double>(cache.l3);
  }

  void allocate() {
    const Gemm& g = job_.g;
    const int64_t few = job_.flip ? g.n : g.m;  // dot, stream
    int64_t shared = 0;
    switch (job_.path) {
      case Path::scale:
        break;
      case Path::direct:
      case Path::packed: {
        const int64_t kc = std::min(job_.kc, g.k);
        if (job_.pack_a) {
          job_.scratch_a = round_up(std::min(job_.mc, round_up(job_.rows, tile_.mr)) * kc, 16);
        }
        job_.scratch_floats = job_.scratch_a + (g.trans_a ? 0 : job_.tail * g.k);
        // A tile loads whole vectors of b, also in the last strip.
        if (job_.pack_b) {
          job_.scratch_floats +=
              kc * std::min(job_.nc, round_up(job_.cols, tile_.nr())) + tile_.lanes;
        }
        if (job_.k_parts > 1) shared = job_.k_parts * g.batch * g.m * g.n;
        if (job_.path == Path::direct) break;
        if (job_.flip) {
          const int64_t strips = div_up(std::min(job_.nc, job_.cols), tile_.nr());
          job_.scratch_floats += std::min(job_.mc, round_up(job_.rows, tile_.mr)) *
                                 round_up(div_up(strips, job_.col_parts) * tile_.nr(), 16);
        }
        if (!g.prepack) {
          shared = job_.batch_group * job_.kb * std::min(job_.nc, job_.cols) + tile_.lanes;
        }
        break;
      }
      case Path::dot: {
        if (job_.far) {
          shared = g.batch * few * round_up(g.k, tile_.lanes);
          job_.scratch_floats = far_block * few * tile_.lanes;
          break;
        }
        const bool gathers = job_.flip ? !g.trans_b && !g.prepack : g.trans_a;
        job_.scratch_floats = gathers ? few * std::min(job_.kc, g.k) : 0;
        break;
      }
      case Path::stream:
        if (job_.in_place()) break;
        job_.scratch_floats = job_.sweep ? update_floats(few) : few * job_.stream_ld();
        break;
    }
    job_.scratch_floats = round_up(job_.scratch_floats, 16);  // 64-byte lines of their own
    shared = round_up(shared, 16);
    const double bytes =
        static_cast<double>(float_bytes) *
        (static_cast<double>(shared) +
         static_cast<double>(job_.threads) * static_cast<double>(job_.scratch_floats));
    if (bytes > static_cast<double>(workspace_limit)) {
      throw argument_error(
          fmt::format("tuning mc={},kc={},nc={} needs {:.0f} MiB of workspace; allowed are 64 MiB",
                      job_.mc, job_.kc, job_.nc, bytes / (1 << 20)));
    }
    workspace_ = Buffer(static_cast<std::size_t>(bytes));
    job_.shared = workspace_.f32();
    job_.scratch = job_.shared + shared;
  }

  void pack(const View& b) {
    const Gemm& g = job_.g;
    packed_bytes_ = static_cast<std::size_t>(g.batch * g.k * g.n * float_bytes);
    if (packed_bytes_ == 0 || job_.path == Path::scale) {
      packed_bytes_ = 0;
      return;
    }
    // Whole vectors are loaded past the end here, too.
    packed_ = Buffer(packed_bytes_ + static_cast<std::size_t>(tile_.lanes * float_bytes));
    std::fill_n(packed_.f32() + packed_bytes_ / sizeof(float), tile_.lanes, 0.0f);
    ROOFLANE_HWY_FUNCTION(Pack, target_)(job_, side_b(g, b), packed_.f32());
    if (job_.flip) {  // dot: packed ones are not flipped with prepack
      job_.b = {packed_.f32(), g.n * g.k, g.k, 1};
    } else {
      job_.prepacked = packed_.f32();
    }
  }

  void on_bind(const Operands& operands) override {
    const Gemm& g = job_.g;
    has_gaps_ = column_ && (operands.at("c").strides[1] != 1 ||
                            (g.reads_c0() && operands.at("c0").strides[1] != 1));
    if (has_gaps_) {
      if (with_gaps_ == nullptr) {
        with_gaps_ = std::make_unique<HwyPlan>(problem(), path_, env_, Operands(), false);
      }
      with_gaps_->bind(operands);
      return;
    }
    job_.a = side_a(g, operands.at(column_ ? "b" : "a"));
    if (!g.prepack) job_.b = side_b(g, operands.at(column_ ? "a" : "b"));
    if (job_.path == Path::packed && job_.flip) std::swap(job_.a, job_.b);
    // Zen 5, 4096×16×4096: 202 GF/s with 8 rows, 155 with 16.
    job_.tall = job_.a.outer == 1 || !conflicts(job_.a.outer);
    if (g.reads_c0()) job_.c0 = const_matrix(operands.at("c0"));
    job_.c = matrix(operands.at("c"));
    job_.stream_c = may_stream_c_ && job_.c.ld % tile_.lanes == 0 &&
                    job_.c.batch_stride % tile_.lanes == 0 &&
                    reinterpret_cast<std::uintptr_t>(job_.c.data) %
                            static_cast<std::uintptr_t>(tile_.lanes * float_bytes) ==
                        0;
  }

  const int64_t target_;
  TileShape tile_{};
  RunFunction run_ = nullptr;
  Job job_;
  Buffer workspace_;
  Buffer packed_;
  std::size_t packed_bytes_ = 0;
  bool may_stream_c_ = false;
  const bool column_;  // job_ computes a single column as a row
  // Where that column, or c0's, has gaps: another plan, which computes it as it is.
  bool has_gaps_ = false;
  std::unique_ptr<HwyPlan> with_gaps_;
  const Environment env_;
  Tuning path_;  // as given, for that plan
};

std::unique_ptr<Plan> plan(const Problem& problem, const Tuning& tuning, const Environment& env,
                           const Operands& constants) {
  return std::make_unique<HwyPlan>(problem, tuning, env, constants);
}

}  // namespace

const Variant hwy = {.name = "hwy",
                     .kernel = &kernel,
                     .backend = &highway::backend,
                     .threads = Threads::many,
                     .tunables = tunables,
                     .unsupported = nullptr,
                     .tunings = tunings,
                     .plan = plan,
                     .tuning_defect = tuning_defect,
                     .ladder = ladder};

}  // namespace rooflane::gemm
#endif  // HWY_ONCE
