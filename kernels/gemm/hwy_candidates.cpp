// Which schedules of the hwy GEMM are worth a prediction, and the choice among them: paths, blocks
// that fill the caches the way Goto & van de Geijn derive them ("Anatomy of high-performance matrix
// multiplication", 2008), and shares of the work. What each costs: hwy_cost.cpp.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "backends/highway.hpp"
#include "core/traits.hpp"
#include "kernels/gemm/cost_model.hpp"
#include "kernels/gemm/hwy_cost.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/planned.hpp"

namespace rooflane::gemm {
namespace {

using cost::Grid;
using cost::Ranking;
using cost::real;
using std::int64_t;

class Search {
 public:
  Search(const Gemm& g, const MicroTile& tile, const Environment& env, Ranking found)
      : g_(g),
        tile_(tile),
        isa_(isa_name(resolve_isa(env.isa))),
        most_(std::max(1, env.threads)),
        found_(std::move(found)) {}

  Ranking all() {
    if (!g_.reads_ab() || g_.empty()) {
      found_.add(Schedule(), 0);
      return std::move(found_);
    }
    // Most problems that a single thread computes best are known by it.
    for (const int threads : Ranking::thread_counts(most_)) {
      threads_ = threads;
      traits_ = &traits(isa_, threads);
      const double peak = threads > 1 ? traits_->many.fma : traits_->one.fma;
      if (!found_.hopeless(g_, threads, peak, *traits_)) add_families();
    }
    return std::move(found_);
  }

 private:
  // The seconds predicted.
  double add(const Schedule& given) {
    const Schedule s = rounded(given, g_, tile_);
    const double seconds = predict(s, g_, tile_, *traits_);
    if (!found_.needless(seconds) && !defect_of(s, g_, tile_)) found_.add(s, seconds);
    return seconds;
  }
  void add_families();
  // Schedules that differ only in blocks, loop order and shares; all other fields are set.
  void add_family(const Schedule& s) {
    floor_ = predict_floor(s, g_, tile_, *traits_);
    if (needless(1.0 / threads_)) return;
    switch (s.path) {
      case Path::dot:
        return add_dot(s);
      case Path::outer:
        return add_outer(s);
      case Path::packed:
        return add_packed(s);
      default:
        return add_unpacked(s);
    }
  }
  // Depths of equal blocks of k, of at most so much each.
  std::vector<int64_t> depths(std::initializer_list<int64_t> most) const {
    std::vector<int64_t> list;
    for (const int64_t depth : most) {
      const int64_t kc = div_up(g_.k, div_up(g_.k, std::max<int64_t>(depth, 1)));
      if (std::find(list.begin(), list.end(), kc) == list.end()) list.push_back(kc);
    }
    return list;
  }
  // Whole micro-tiles so that kc × rows floats take so many bytes, or all rows.
  int64_t rows_of(int64_t bytes, int64_t kc, int64_t rows) const {
    const int64_t tiles = std::max<int64_t>(bytes / (float_bytes * kc) / tile_.mr, 1);
    return std::min(tiles * tile_.mr, round_up(rows, tile_.mr));
  }
  // What a thread may fill of L2 with copies, less where very many share the limit on workspace.
  int64_t l2_of_thread() const { return std::min(traits_->l2_bytes, workspace_limit / threads_); }

  void add_dot(Schedule s);
  void add_outer(Schedule s);
  void add_packed(Schedule s);
  void cut_into_phases(Schedule& s, int64_t rows, int64_t cols) const;
  void add_unpacked(Schedule s);
  void add_shares(Schedule s);
  // Whether shares need not be tried where so much of all tasks passes until they are done.
  bool needless(double last) const { return found_.needless(floor_.before + floor_.tasks * last); }

  const Gemm& g_;
  const MicroTile& tile_;
  const std::string isa_;
  const int most_;
  int threads_ = 1;
  const Traits* traits_ = nullptr;
  cost::Cuts cuts_;
  Floor floor_{};
  Ranking found_;
};

void Search::add_families() {
  Schedule s;
  s.threads = threads_;
  // Taller micro-tiles, where columns are left that do not fill nr, unless rows meet in L1.
  const auto mr_in_place = [this](bool along_k) {
    return along_k && g_.k % page_floats == 0 ? tile_.mr : 2 * tile_.mr;
  };
  for (const bool transposed : {false, true}) {
    const int64_t skinny = transposed ? g_.n : g_.m;
    s.transposed = transposed;
    s.mr = tile_.mr, s.nr = tile_.nr();
    s.path = Path::outer;
    if (skinny <= 4 * most_outer_rows) add_family(s);
    s.path = Path::dot;
    if (skinny <= 2 * dot_limit) add_family(s);
    s.path = Path::packed;
    s.pack_a = true;
    if (!transposed) add_family(s);
    s.pack_a = false;
    s.mr = mr_in_place(transposed ? g_.trans_b : !g_.trans_a);
    add_family(s);
  }
  if (g_.prepack) return;
  s.path = Path::unpacked;
  s.transposed = false;
  s.mr = mr_in_place(!g_.trans_a);
  std::vector<int64_t> widths = {tile_.nr()};
  if (g_.m < tile_.mr || g_.k <= 64) {
    // Rows that do not fill a micro-tile, or a c that is most of the traffic: micro-tiles of fewer
    // rows and more columns, all of nearly as many.
    const int64_t most = std::min(tile_.most_nv, tile_.mr * tile_.nv / std::min(g_.m, tile_.mr));
    const int64_t vectors = div_up(g_.n, tile_.lanes);
    const int64_t nv = div_up(vectors, div_up(vectors, std::max(most, tile_.nv)));
    if (nv > tile_.nv) widths.push_back(nv * tile_.lanes);
  }
  for (const int64_t nr : widths) {
    s.nr = nr;
    for (const bool pack_b : {false, true}) {
      s.pack_b = pack_b;
      add_family(s);
    }
  }
}

void Search::add_dot(Schedule s) {
  const int64_t skinny = formed(s, g_).m, other = formed(s, g_).n;
  s.nr = tile_.lanes;
  const int64_t l1 = traits_->l1_bytes, l2 = traits_->l2_bytes;
  for (const bool pack : {false, true}) {
    s.pack_a = s.fixed = pack;
    const double region = pack && threads_ > 1 ? cost::region_of(*traits_) : 0;
    if (found_.needless(floor_.before + region + floor_.tasks / threads_)) continue;
    // Packed, a chunk of a group of rows stays in L1 beside the long operand's; else in L2.
    const int64_t group = float_bytes * std::min(skinny, dot_limit);
    for (const int64_t kc :
         pack ? depths(
                    {std::max<int64_t>(l1 / 3 / group, 64), g_.k * group <= l1 * 2 / 3 ? g_.k : 64})
              : depths({std::clamp<int64_t>(l2 / 4 / (float_bytes * skinny), 256, 4096)})) {
      s.kc = pack ? round_up(kc, tile_.lanes) : kc;
      // As many rows at once as registers hold, or, of a single row's, as the hardware follows
      // best: those longer than a page, which lie in different pages anyway.
      const bool short_rows = shorter_than_page(g_);
      for (const int64_t rows : {12, 4}) {
        if (rows == 4 && (pack || skinny > 1 || short_rows)) break;
        s.mr = rows;
        for (const bool other_order : {false, true}) {
          // Else both are predicted to take the same time.
          if (other_order && (pack || (!short_rows && found_.only_best()))) break;
          s.order = short_rows != other_order;
          int64_t before = 0;
          for (const int64_t per_thread : {8, 2, 1}) {
            s.nc =
                threads_ == 1 ? other : std::max<int64_t>(32, div_up(other, per_thread * threads_));
            if (std::exchange(before, s.nc) != s.nc) add(s);
          }
        }
      }
    }
  }
}

void Search::add_outer(Schedule s) {
  const int64_t skinny = formed(s, g_).m, other = formed(s, g_).n;
  s.kc = 64;  // of micro-tiles, as deep as c's stores are seldom
  for (const bool order : {false, true}) {
    s.order = order;
    // Sums stay in L1, or whole rows of them in a quarter of L2: long runs are read faster.
    const int64_t sums = order ? traits_->l2_bytes / 4 : traits_->l1_bytes;
    const int64_t unit = order ? 16 : s.nr;
    int64_t before = 0;
    for (const int64_t per_thread : {1, 2, 4}) {
      s.nc = std::max(sums / (float_bytes * skinny), unit);
      if (threads_ > 1) s.nc = std::min(s.nc, div_up(other, per_thread * threads_));
      s.nc = round_up(s.nc, unit);
      if (order) s.nc = std::min(s.nc, most_outer_columns);
      if (std::exchange(before, s.nc) != s.nc) add(s);
    }
  }
}

// How the output, k and batches are cut into tasks: rows and columns, or parts of k.
void Search::add_shares(Schedule s) {
  const bool packed = s.path == Path::packed;
  const int64_t rows = formed(s, g_).m, cols = formed(s, g_).n;
  // Rows of a transposed c are columns: threads that share lines of c take them from each other.
  const int64_t tiles =
      s.transposed && threads_ > 1 ? std::max<int64_t>(1, rows / 32) : div_up(rows, tile_.mr);
  const int64_t width = packed ? std::min(s.nc, cols) : cols;
  const int64_t batches = packed ? div_up(g_.batch, s.batch_parts) : g_.batch;
  const Grid grid = {.batches = batches,
                     .rows = rows,
                     .row_step = tile_.mr,
                     .most_rows = tiles,
                     .cols = round_up(width, tile_.lanes),
                     .col_step = s.nr,
                     .most_cols = std::max<int64_t>(1, width / s.nr),
                     .threads = threads_,
                     .small_squares = s.pack_a && packed,  // nothing is packed twice
                     .runs = !packed};
  s.m_parts = s.n_parts = s.k_parts = 1;
  // What static scheduling saves at most: lines of c that another core wrote last time.
  const double c_bytes = real(float_bytes * g_.batch * g_.m * g_.n);
  const double taken =
      traits_->constants.gemm.taken_share * c_bytes / traits_->many.write[in_memory];
  const auto add_cut = [&](int64_t m, int64_t n, int64_t k, double last) {
    s.m_parts = m, s.n_parts = n, s.k_parts = k;
    if (!packed) s.batch_parts = m * n * k == 1 ? grid.uncut_tasks() : g_.batch;
    s.fixed = false;
    const double seconds = add(s);
    if (threads_ == 1 || s.pack_a || found_.needless(seconds - taken * last)) return;
    s.fixed = true;
    add(s);
  };
  for (const cost::Cut& cut : cuts_.of(grid, *traits_)) {
    if (needless(cut.last)) break;
    add_cut(cut.m_parts, cut.n_parts, 1, cut.last);
  }
  if (threads_ == 1) {
    // A block of c stays in L2 from one block of k to the next, and b's from one row to the next.
    const int64_t c_block = float_bytes * std::min(s.mc, rows) * cols;
    const int64_t n_parts =
        std::clamp<int64_t>(div_up(c_block, traits_->l2_bytes / 4), 1, grid.most_cols);
    if (g_.k > s.kc && n_parts > 1 && !needless(1)) add_cut(1, n_parts, 1, 1);
  }
  if (threads_ == 1 || packed) return;
  const int64_t blocks = div_up(g_.k, s.kc);
  for (int64_t k = threads_; k > 1 && blocks > 1; k /= 2) {
    const int64_t m = std::min(div_up(threads_, k * batches), tiles), k_parts = std::min(k, blocks);
    const double last = grid.until_last(m, 1, k_parts, *traits_);
    if (!needless(last)) add_cut(m, 1, k_parts, k_parts * last);  // each part of k writes c
  }
}

void Search::add_unpacked(Schedule s) {
  const int64_t l2 = l2_of_thread();
  for (const int64_t kc : depths({g_.k, 512, 256, 128, 64})) {
    if (kc > 512 && float_bytes * kc * std::min(g_.n, 4 * s.nr) > l2) continue;
    s.kc = s.kb = kc;
    s.mc = rows_of(l2 / 4, kc, g_.m);
    const int64_t all = round_up(g_.n, s.nr);
    s.nc = all;
    // As much of L2 as possible, or as little as leaves room for what is packed next.
    for (const int64_t bytes : {l2 / 2, l2 / 8}) {
      if (s.pack_b) s.nc = std::min(all, round_up(bytes / float_bytes / kc, s.nr));
      add_shares(s);
      if (!s.pack_b || s.nc == all) break;
    }
  }
}

void Search::add_packed(Schedule s) {
  const int64_t rows = formed(s, g_).m, cols = formed(s, g_).n;
  const int64_t l2 = l2_of_thread();
  // All of k where the micro-panels of a skinny n stay in L2: then rows are read from end to end.
  const int64_t deepest = float_bytes * g_.k * cols <= l2 / 2 ? g_.k : 512;
  for (int64_t kc : depths({128, 192, 256, 320, 384, 512, deepest})) {
    // Blocks of k begin a line in every micro-panel.
    if (kc < g_.k) kc = std::min(g_.k, round_up(kc, 16));
    s.kc = kc;
    cut_into_phases(s, rows, cols);
    s.mc = rows_of(l2 / 4, kc, rows);
    // Sums of c's transpose stay in L2 until they are transposed.
    if (s.transposed) s.mc = std::min(s.mc, round_up(l2 / 4 / float_bytes / cols, tile_.mr));
    add_shares(s);
  }
}

// Cuts the product into phases of nearly equal size. A phase packs as much of b, and of a where it
// is packed, as half of L3 and the limit on workspace allow. k is cut rather than the columns,
// because a row should have some thousand columns.
void Search::cut_into_phases(Schedule& s, int64_t rows, int64_t cols) const {
  // Where all is shared, no thread needs scratch of its own.
  const int64_t limit = workspace_limit - (s.pack_a ? 1 << 20 : 16 << 20);
  const int64_t most =
      (s.pack_a ? limit : std::clamp<int64_t>(traits_->l3_bytes / 2, 2 << 20, limit)) / float_bytes;
  const auto part = [](int64_t total, int64_t size, int64_t unit) {
    return std::min(total, round_up(div_up(total, div_up(total, size)), unit));
  };
  const int64_t all = round_up(cols, s.nr), shared_rows = s.pack_a ? rows : 0;
  if (g_.prepack) {
    s.nc = all;
    if (!s.pack_a) {
      s.kb = g_.k, s.batch_parts = 1;
      return;
    }
  } else {
    s.nc = round_up(part(all, std::max<int64_t>(4096, most / g_.k - shared_rows), s.nr), s.nr);
  }
  // Packed in a phase, for each of its k.
  const int64_t width = (g_.prepack ? 0 : std::min(s.nc, cols)) + shared_rows;
  s.kb = part(g_.k, std::max(s.kc, most / width / s.kc * s.kc), s.kc);
  const bool whole = s.nc >= cols && s.kb == g_.k;
  const int64_t together =
      std::clamp<int64_t>(most / (g_.k * width), 1, std::max<int64_t>(g_.batch, 1));
  s.batch_parts = whole ? div_up(g_.batch, together) : g_.batch;
}

// Schedules that differ in blocks and shares only.
std::array<int64_t, 7> kind_of(const Schedule& s) {
  return {static_cast<int64_t>(s.path),
          s.transposed,
          s.threads > 1,
          s.pack_a,
          s.pack_b,
          s.order,
          s.fixed};
}

}  // namespace

std::vector<Schedule> candidates(const Gemm& g, const MicroTile& tile, const Environment& env) {
  return Search(g, tile, env, Ranking()).all().varied(2, kind_of);
}

Schedule best_schedule(const Gemm& g, const MicroTile& tile, const Environment& env,
                       const Tuning& tuning) {
  static Planned<Schedule> planned;
  if (tuning.values().empty()) {
    return planned.of(PlannedFor(g, env),
                      [&] { return *Search(g, tile, env, Ranking::best_below()).all().best(); });
  }
  return best_agreeing(Search(g, tile, env, Ranking()).all().sorted(), tuning);
}

}  // namespace rooflane::gemm
