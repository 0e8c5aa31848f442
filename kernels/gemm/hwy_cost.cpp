// The cost model of the hwy GEMM: the time of a schedule from what it does (multiply-adds, loads,
// bytes through each level of memory, copies, tasks) and what the machine was measured to be
// (core/traits.hpp). In the way of the execution-cache-memory model (Treibig & Hager, 2010) and of
// the analytical blocking of BLIS (Low et al., "Analytical modeling is enough for high-performance
// BLIS", 2016); it knows no CPU and no shape. Which schedules there are: hwy_candidates.cpp.
#include "kernels/gemm/hwy_cost.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/traits.hpp"
#include "kernels/gemm/cost_model.hpp"
#include "kernels/gemm/hwy_job.hpp"

namespace rooflane::gemm {
namespace {

using namespace cost;
using std::int64_t;

constexpr double c_prefetch = 8;  // steps of k for each line of c that is prefetched

// Bytes of a run that is read as fast as lines here and there that software prefetches early
// enough: 16 fill buffers of a core and 100 ns of latency are 10 GB/s where runs without end come
// at 25.
constexpr double prefetched_run = 256;

// What the prefetcher of an Intel core's L2 runs ahead of a stream: 20 lines.
constexpr double prefetched_ahead = 20 * 64;

// Predicts the product that a schedule forms.
class Model : Costs {
 public:
  Model(const Schedule& s, const Gemm& g, const MicroTile& tile, const Traits& traits);
  double seconds() const;
  Floor floor() const;

 private:
  // One task's share of the product formed, and how the loops cut it.
  struct Share {
    double m, n, k;
    double mc, kc, mr, nr;
    double blocks_m, blocks_k, panels_a, panels_b;
  };

  // ---- memory
  double bytes_of_thread() const;
  Level level_of(double bytes, double l1, double l2) const;
  double run(double width, int64_t row, double rows) const;

  // ---- copies
  double copy(double rows, double cols, double width, bool transposes, Level to, Level from) const {
    return Costs::copy(4 * rows * cols, rows, cols, width, transposes, to, from);
  }
  // Whether what pack_b packs next is prefetched while micro-panels are multiplied.
  bool packs_ahead(const Share& sh) const {
    return s_.pack_b && !g_.trans_b && (real(s_.nc) < sh.n || sh.blocks_k > 1);
  }

  // ---- paths
  double step(double rows, double vectors, bool splits) const;
  double micro_kernels(const Share& sh, bool b_in_place) const;
  void add_operands(const Share& sh, Times& t) const;
  void add_pages(const Share& sh, Times& t) const;
  void add_c(const Share& sh, Times& t) const;
  Share share_of(double rows, double cols) const;
  double task(const Share& sh) const;
  // What reading micro-panels takes longer where other cores have just packed them: as many as all
  // L2 caches hold, of `rows` vectors of k elements.
  double packed_by_others(double bytes, double rows) const {
    return packs_together() && 4 * real(g_.k) * rows <= l2_ * s_.threads ? taken(bytes) : 0;
  }
  double shared_packing(int64_t pieces, double products, double rows, int64_t width,
                        bool transposes) const;
  double packing_of_b(int64_t pieces) const;
  // Whether threads use what others packed in this run.
  bool packs_together() const {
    return s_.path == Path::packed && s_.threads > 1 && (s_.pack_a || !g_.prepack);
  }
  // Before they do they wait for each other, as at the end of a region.
  double around_packing() const {
    return ops(setup_ops) + (packs_together() ? region_of(traits_) : 0);
  }
  double packing_together() const;
  double blocked() const;
  double dot() const;
  double outer() const;
  double rows_of_outer_products(double skinny_rows, double cols, Times& t) const;

  const MicroTile& tile_;
  const bool m_innermost_;  // a B micro-panel stays in L1
};

Model::Model(const Schedule& s, const Gemm& g, const MicroTile& tile, const Traits& traits)
    : Costs(s, g, real(tile.lanes), traits),
      tile_(tile),
      m_innermost_(s.pack_a || s.path == Path::outer) {
  source_ = beyond_l1(bytes_of_thread());
}

// Bytes of operands and of c that a thread touches.
double Model::bytes_of_thread() const {
  const double m = real(g_.m), n = real(g_.n), k = real(g_.k), threads = s_.threads;
  const bool blocks = s_.path == Path::unpacked || s_.path == Path::packed;
  if (!blocks || s_.threads == 1 || s_.m_parts * s_.n_parts == 1) {
    return 4 * real(g_.batch) * (m * k + k * n + m * n) / threads;
  }
  // Tasks one after the other: columns first.
  const double tasks = std::max(1.0, real(s_.m_parts * s_.n_parts) * real(g_.batch) / threads);
  const double cols = std::min(1.0, tasks / real(s_.n_parts));
  const double rows = std::max(1.0, tasks / real(s_.n_parts)) / real(s_.m_parts);
  const double m_share = rows * m, n_share = cols * n;
  return 4 * (m_share * k + k * n_share + m_share * n_share);
}

double Model::seconds() const {
  switch (s_.path) {
    case Path::scale:
    case Path::few_rows:
      return begin();
    case Path::dot:
      return begin() + dot() + epilogue(real(g_.batch * div_up(g_.n, s_.nc)));
    case Path::outer:
      return begin() + outer() + epilogue(real(g_.batch * div_up(g_.n, s_.nc)));
    case Path::unpacked:
    case Path::packed:
      return begin() + blocked() + epilogue(real(g_.batch * s_.m_parts * s_.n_parts));
  }
  return begin();
}

// The level from which `bytes` are read again, if so many bytes of the caches can be used; never a
// level beyond the one they came from.
Level Model::level_of(double bytes, double l1, double l2) const {
  if (bytes <= l1) return in_l1;
  if (bytes <= l2) return in_l2;
  return source_ == in_l2 ? in_l3 : std::min(source_, level(bytes * 4));
}

// Bytes that are read one after the other, from rows `row` floats long if `width` of them are read.
// The hardware prefetches across rows that are read whole, across at most followed_runs rows, or,
// if more than a vector is read, within half of L2 if they are there already.
double Model::run(double width, int64_t row, double rows) const {
  const bool follows = source_ <= in_l2 && width > lanes_ && 4 * rows * real(row) <= l2_ / 2;
  return width >= real(row) || rows <= followed_runs || follows ? endless : 4 * width;
}

// ---- unpacked, packed

// A step of k of a micro-kernel: multiply-adds, loads (two a cycle, a vector that crosses a line
// twice), or latency.
double Model::step(double rows, double vectors, bool splits) const {
  const double accumulators = rows * vectors;
  const bool two_chains = accumulators <= accumulators_of_two_chains;
  return ops(std::max({accumulators, rows + (splits ? 2 : 1) * vectors,
                       two_chains ? latency_ops / 2 : latency_ops}));
}

// All micro-kernels of a share, c stored once for each block of k.
double Model::micro_kernels(const Share& sh, bool b_in_place) const {
  const bool splits = b_in_place && g_.n % tile_.lanes != 0;
  const bool adds = s_.path == Path::outer || (g_.reads_c0() && !s_.transposed);
  double time = 0;
  const auto add = [&](int64_t b_panels, int64_t vectors) {
    if (b_panels <= 0) return;
    const int64_t most = s_.pack_a ? tile_.mr : std::min(s_.mr, tile_.tall(vectors));
    const double tiles = std::ceil(sh.m / real(most)), rows = sh.m / tiles;
    const double accumulators = rows * real(vectors);
    const double stores =
        sh.blocks_k * (accumulators * store_ops + tile_ops + (m_innermost_ ? column_ops : 0)) +
        (sh.blocks_k - (adds ? 0 : 1)) * accumulators * load_ops;
    time += real(b_panels) * tiles * (sh.k * step(rows, real(vectors), splits) + ops(stores));
  };
  const int64_t nv = s_.nr / tile_.lanes;
  const int64_t vectors = div_up(static_cast<int64_t>(std::ceil(sh.n)), tile_.lanes);
  const int64_t left = vectors % nv, whole = vectors / nv;
  if (left == 1 && nv >= 3 && whole > 0) {  // as in MicroPanels
    add(whole - 1, nv), add(1, nv - 1), add(1, 2);
  } else {
    add(whole, nv), add(left > 0 ? 1 : 0, left);
  }
  return time;
}

// a and b: read once in place, and again from the level that contains them then. With m innermost a
// B micro-panel meets all A micro-panels of a block, with n innermost the other way.
void Model::add_operands(const Share& sh, Times& t) const {
  const bool in_place = s_.b_in_place();
  const double a_bytes = 4 * sh.m * sh.k, b_bytes = 4 * sh.k * sh.n;
  const bool a_along_k = !g_.trans_a, a_across = !s_.pack_a && !a_along_k;
  // Across micro-tiles each of its steps is in a line of its own.
  const double a_panel = (a_across ? std::max(64.0, 4 * sh.mr) : 4 * sh.mr) * sh.kc;
  const double b_panel = 4 * sh.kc * sh.nr;
  double b_l1 = l1_, b_l2 = l2_;
  if (in_place) {
    b_l1 *= usable(page_bytes, g_.n, sh.nr);
    b_l2 *= usable(l2_way(), g_.n, sh.n);
    // Before the next micro-tile they evict each other: misses that nothing hides.
    if (b_panel > b_l1 && b_l1 < l1_) t.core += read(b_bytes * sh.panels_a, in_l2);
  }
  const double b_run = in_place ? run(sh.nr, g_.n, sh.kc) : endless;
  const double a_run = s_.pack_a   ? endless
                       : a_along_k ? (sh.kc < sh.k ? 4 * sh.kc : endless)
                                   : std::max(prefetched_run, run(sh.mr, g_.m, sh.kc));
  const Level a_first =
      s_.pack_a ? std::max(s_.threads > 1 ? in_l3 : in_l2, level(4 * real(g_.k) * sh.m)) : source_;
  const Level b_first = in_place    ? source_
                        : s_.pack_b ? in_l2
                                    : std::max(packs_together() && !g_.prepack ? in_l3 : in_l2,
                                               level(4 * sh.k * std::min(real(s_.nc), sh.n)));
  const double b_times = m_innermost_ ? sh.blocks_m : 1;
  t.of(a_first) += read(a_bytes, a_first, a_run);
  if (s_.pack_a) t.beyond_l2 += packed_by_others(a_bytes, real(g_.m));
  // Nothing prefetches short runs in place: the first micro-tile waits for them.
  (b_run < endless && b_first >= in_l3 ? t.core : t.of(b_first)) +=
      b_times * read(b_bytes, b_first, b_run);
  if (!in_place && !s_.pack_b && !g_.prepack) {
    t.beyond_l2 += packed_by_others(b_bytes, std::min(real(s_.nc), real(g_.n)));
  }
  if (packs_ahead(sh)) t.of(source_) += sh.blocks_m * read(b_bytes, source_);
  double a_l1 = l1_, a_l2 = l2_;
  if (!s_.pack_a && a_along_k) {
    a_l1 *= usable(page_bytes, g_.k, sh.kc);
    a_l2 *= usable(l2_way(), g_.k, sh.kc);
    t.core += read(evicted_lines(sh.mr, g_.k, 1) * a_bytes * sh.panels_b, in_l2);
  } else if (!s_.pack_a) {
    a_l1 *= usable(page_bytes, g_.m, sh.mr);
    a_l2 *= usable(l2_way(), g_.m, sh.mc);
  }
  const Level a_again =
      level_of((m_innermost_ ? 4 * sh.mc * sh.kc : a_panel) + b_panel, a_l1, a_l2);
  // Rows of a meet the columns that are packed at a time, beside those that are prefetched to be
  // packed next, or all of them.
  const double b_cols = s_.pack_b ? (packs_ahead(sh) ? 2 : 1) * std::min(real(s_.nc), sh.n) : sh.n;
  // Sums of c's transpose are in L2 beside it from one block of k to the next.
  const double sums = s_.transposed && sh.blocks_k > 1 ? 4 * sh.mc * sh.n : 0;
  const Level b_again =
      level_of((m_innermost_ ? b_panel : 4 * sh.kc * b_cols) + a_panel + sums, b_l1, b_l2);
  // Nothing prefetches rows in place a second time from beyond L2, nor from L2 those across a
  // micro-panel, which takes a part of their lines.
  const auto again = [&](bool waits, Level from, double bytes) {
    (waits ? t.core : t.of(from)) += read(bytes, from);
  };
  if (a_again > in_l1) {
    again(a_across || (!s_.pack_a && a_again >= in_l3), a_again,
          (a_across ? std::max(1.0, lanes_ / sh.mr) : 1) * a_bytes * (sh.panels_b - 1));
  }
  if (b_again > in_l1) {
    const bool splits = in_place && g_.n % tile_.lanes != 0;
    again(in_place && b_again >= in_l3, b_again,
          (splits ? split_l2 : 1) * b_bytes * (sh.panels_a - b_times));
  }
}

// Rows of a, b in place and of c that lie in pages of their own: where the inner loop comes to more
// of them than are translated at once, each takes a walk of the page tables. Packed operands lie in
// huge pages.
void Model::add_pages(const Share& sh, Times& t) const {
  const bool b_in_place = s_.b_in_place();
  const bool a_along_k = !g_.trans_a;
  const auto of_a = [&](double rows) {
    return a_along_k ? pages(rows, sh.kc, g_.k) : pages(sh.kc, rows, g_.m);
  };
  const auto of_c = [&](double rows, double cols) {
    return s_.transposed ? 0.0 : pages(rows, cols, g_.n);
  };
  const auto of_b = [&](double cols) { return b_in_place ? pages(sh.kc, cols, g_.n) : 0.0; };
  const double at_once =
      m_innermost_ ? of_c(sh.mc, sh.nr) : of_a(sh.mr) + of_b(sh.n) + of_c(sh.mr, sh.n);
  const double times =
      sh.blocks_k * sh.blocks_m * (m_innermost_ ? sh.panels_b : sh.panels_a / sh.blocks_m);
  t.core += page_walks(at_once) * times * traits_.page_walk;
}

// c: where its block fits it stays from one block of k to the next.
void Model::add_c(const Share& sh, Times& t) const {
  const double bytes = 4 * sh.m * sh.n;
  t.of(source_) += write(bytes, source_);
  t.beyond_l2 += dirty(bytes);
  if (sh.n < real(g_.n) && !m_innermost_ && !s_.transposed) {
    // The hardware prefetches lines that are written, too, as far as a share's rows go. Where
    // threads write shares of the same rows, it runs into each other's.
    t.of(source_) += read(bytes, source_, 4 * sh.n) - read(bytes, source_);
    if (source_ >= in_l3) t.of(source_) += sh.m * taken(prefetched_ahead);
  }
  // A micro-kernel that is too short to prefetch its lines waits for them.
  const bool too_short = sh.kc < c_prefetch * sh.mr * sh.nr / lanes_;
  if (s_.pack_a && too_short) t.core += read(bytes, source_, 4 * sh.nr) - read(bytes, source_);
  if (g_.reads_c0()) {
    t.of(source_) +=
        read(bytes, source_, run(m_innermost_ ? sh.nr : sh.n, g_.n, m_innermost_ ? sh.mc : sh.mr));
  }
  if (s_.path == Path::packed && s_.kb < g_.k) t.core += read(bytes, source_);  // the last phase's
  if (sh.blocks_k <= 1) return;
  const Level between = std::max(in_l2, level_of(4 * sh.mc * (sh.n + sh.kc), l1_, l2_));
  // From beyond L2 they come too late as well.
  const bool waits = between >= in_l3 || too_short;
  (waits ? t.core : t.of(between)) += (sh.blocks_k - 1) * read(bytes, between);
  (between >= in_l3 ? t.core : t.of(between)) += (sh.blocks_k - 1) * bytes / rates_.write[between];
}

// The largest share of rows × cols of the product.
Model::Share Model::share_of(double rows, double cols) const {
  const auto part = [](double total, int64_t parts, int64_t unit) {
    return std::min(total, std::ceil(total / real(unit) / real(parts)) * real(unit));
  };
  const bool packed = s_.path == Path::packed;
  Share sh{};
  const auto phase = [](double total, int64_t size) {
    return total / std::ceil(total / real(size));
  };
  sh.m = part(rows, s_.m_parts, tile_.mr);
  sh.n = part(packed ? phase(cols, s_.nc) : cols, s_.n_parts, s_.nr);
  sh.k = packed ? phase(real(g_.k), s_.kb) : part(real(g_.k), s_.k_parts, s_.kc);
  sh.mc = std::min(real(s_.mc), sh.m);
  sh.kc = std::min(real(s_.kc), sh.k);
  sh.nr = std::min(real(s_.nr), sh.n);
  const int64_t vectors = std::max<int64_t>(1, div_up(static_cast<int64_t>(sh.nr), tile_.lanes));
  sh.mr = std::min(real(s_.pack_a ? tile_.mr : std::min(s_.mr, tile_.tall(vectors))), sh.m);
  const auto pieces = [](double total, double size) { return std::ceil(total / size - 1e-9); };
  sh.blocks_m = pieces(sh.m, sh.mc);
  sh.blocks_k = pieces(sh.k, sh.kc);
  sh.panels_a = pieces(sh.m, sh.mr);
  sh.panels_b = pieces(sh.n, real(s_.nr));
  return sh;
}

double Model::task(const Share& sh) const {
  const bool packed = s_.path == Path::packed;
  Times t;
  t.core = micro_kernels(sh, !packed && !s_.pack_b);
  add_operands(sh, t);
  add_c(sh, t);
  add_pages(sh, t);
  double time = t.together();
  if (s_.pack_b) {
    const bool once = s_.kc >= g_.k && real(s_.nc) >= sh.n;
    time += (once ? 1 : sh.blocks_m) *
            copy(sh.k, sh.n, real(s_.nr), g_.trans_b, in_l2, packs_ahead(sh) ? in_l2 : source_);
  }
  if (s_.transposed) time += transposed(sh.m, sh.n) * real(div_up(g_.k, s_.kb));
  const bool plain = !packed && !s_.pack_b && sh.panels_b <= 1 && sh.m >= real(g_.m) &&
                     g_.m <= 8 * tile_.mr && g_.k <= s_.kc && s_.k_parts == 1;
  return time + (plain ? 0 : ops(setup_ops));
}

// The cost of an operand's `rows` rows, packed by all threads in so many pieces a phase.
double Model::shared_packing(int64_t pieces, double products, double rows, int64_t width,
                             bool transposes) const {
  const double workers = real(std::clamp<int64_t>(pieces, 1, s_.threads)), k = real(g_.k);
  // The memory that is packed again was read by all other threads last time.
  return products / workers *
         (copy(k, rows, real(width), transposes, level(4 * products / s_.threads * k * rows),
               source_) +
          taken(4 * k * rows));
}

double Model::packing_of_b(int64_t pieces) const {
  if (g_.prepack) return 0;
  return shared_packing(pieces, real(g_.batch), real(g_.n), s_.nr, g_.trans_b);
}

// b, and a where it is packed too.
double Model::packing_together() const {
  const PackedPieces pieces(s_, g_, tile_);
  double time = around_packing() + packing_of_b(pieces.of_b());
  if (s_.pack_a) {
    time += shared_packing(pieces.of_a(), real(g_.batch * div_up(g_.n, s_.nc)), real(g_.m),
                           tile_.mr, !g_.trans_a);
  }
  return time;
}

Floor Model::floor() const {
  const bool packed = s_.path == Path::packed;
  const double m = real(g_.m), n = real(g_.n), k = real(g_.k), batches = real(g_.batch);
  if (s_.path == Path::dot || s_.path == Path::outer) {
    const double long_bytes = 4 * batches * k * n;
    const double sums = s_.path == Path::dot ? sum_ops : 0;
    return {begin(),
            std::max(ops(batches * m * n * (k / lanes_ + sums)), read(long_bytes, source_))};
  }
  Share sh{};
  sh.m = m, sh.n = n, sh.k = k, sh.blocks_k = 1;
  double product = micro_kernels(sh, !packed && !s_.pack_b);
  if (s_.pack_b) product += copy(k, n, real(s_.nr), g_.trans_b, in_l2, in_l2);
  if (s_.transposed) product += transposed(m, n);
  return {begin() + (packed ? around_packing() + packing_of_b(s_.threads) : 0), batches * product};
}

double Model::blocked() const {
  const bool packed = s_.path == Path::packed;
  const int64_t rows = g_.m, cols = g_.n;
  const int64_t parts = s_.m_parts * s_.n_parts * s_.k_parts;
  double tasks = real(parts * g_.batch), products = 1;  // of a phase or all; of a task
  if (packed) {
    tasks = real(parts * div_up(g_.batch, s_.batch_parts));
    products = real(s_.batch_parts * div_up(cols, s_.nc) * div_up(g_.k, s_.kb));
  } else if (s_.batch_parts < g_.batch || parts == 1) {
    tasks = real(s_.batch_parts);
    products = real(div_up(g_.batch, s_.batch_parts));
  }
  const Share sh = share_of(real(rows), real(cols));
  // A vector that is not full takes as long as others.
  const double width = real(round_up(packed ? std::min(cols, s_.nc) : cols, tile_.lanes));
  const double mean = std::min(1.0, real(rows) / real(s_.m_parts) / sh.m) *
                      std::min(1.0, width / real(s_.n_parts) / sh.n);
  double total = products * of_tasks(tasks, task(sh), mean);
  if (packed) total += packing_together();
  if (s_.k_parts > 1) {
    const double sums = 4 * real(g_.batch * rows * cols * s_.k_parts) / s_.threads;
    total +=
        region_of(traits_) + read(sums, in_l3);  // a region ends in a barrier, as parts of k do
  }
  return total;
}

// ---- dot products

double Model::dot() const {
  const int64_t skinny = g_.m, other = g_.n;
  const double k = real(g_.k), kc = std::min(k, real(s_.kc)), chunks = std::ceil(k / kc);
  const double groups = std::ceil(real(skinny) / (s_.pack_a ? 8 : 4));
  const double skinny_rows = real(skinny) / groups, registers = real(tile_.mr * tile_.nv);
  const double most = s_.pack_a ? 4 : std::min<double>(12, real(s_.mr));
  const int64_t parts = div_up(other, s_.nc);
  const double rows = real(other) / real(parts);
  const double at_once = std::max(1.0, std::floor(std::min(most, registers / skinny_rows)));
  const double long_rows = rows / std::ceil(rows / at_once), tiles = rows / long_rows * groups;
  const double sums = skinny_rows * long_rows,
               loads = (skinny_rows + long_rows) * (g_.k % tile_.lanes != 0 ? 2 : 1);
  const double steps = chunks * std::ceil(kc / lanes_);
  Times t;
  // Where the skinny operand is packed, accumulators are kept from one chunk of k to the next.
  const double kept = s_.pack_a ? (chunks - 1) * sums * (store_ops + load_ops) : 0;
  t.core = ops(tiles * (steps * std::max({sums, loads, sums <= 4 ? 4.0 : latency_ops}) +
                        (s_.pack_a ? 1 : chunks) * (sums * sum_ops + tile_ops) + kept));
  // Read alone or apart, a row is followed by the next one in memory.
  const bool followed = s_.order || long_rows < 2 || !shorter_than_page(g_);
  t.of(source_) += read(4 * rows * k, source_, kc >= k && followed ? endless : 4 * kc);
  const int64_t apart = !s_.order ? 1
                                  : std::max<int64_t>(1, rows_apart(static_cast<int64_t>(rows),
                                                                    static_cast<int64_t>(at_once)));
  t.core += read(evicted_lines(at_once, apart * g_.k, lanes_) * 4 * rows * k, in_l2);
  // The skinny operand again for each tile of the long one: misses of L1 for which, unless they are
  // prefetched, what comes from beyond L2 waits.
  const double skinny_bytes = 4 * skinny_rows * kc * (s_.pack_a ? 1 : groups);
  const Level again = level(skinny_bytes + 4 * long_rows * kc);
  if (again > in_l1)
    t.of(again) += read(skinny_bytes * std::ceil(rows / long_rows) * chunks, again);
  if (again > in_l1 && !s_.pack_a)
    t.core += t.within_l2 + t.beyond_l2, t.within_l2 = t.beyond_l2 = 0;
  t.beyond_l2 += dirty(4 * rows * real(skinny));
  const double tasks = std::ceil(real(g_.batch * parts) / s_.threads);
  double time = of_tasks(real(g_.batch * parts), t.together());
  const bool across_k = g_.trans_a && !g_.prepack;
  const double packed = copy(k, real(skinny), real(skinny), across_k, in_l2, source_);
  if (s_.pack_a) {
    time += real(g_.batch) / s_.threads * packed + ops(setup_ops);
    if (s_.threads > 1) time += region_of(traits_);
  } else if (skinny > 1 && across_k) {
    time += tasks * packed;
  }
  return time;
}

// ---- outer products

// Whole rows of c, eight of k at a time; adds what the core does.
double Model::rows_of_outer_products(double skinny_rows, double cols, Times& t) const {
  constexpr int64_t depth = 8;
  const double k = real(g_.k), vectors = std::ceil(cols / lanes_);
  const bool held =
      skinny_rows * depth <= (tile_.mr * tile_.nv >= 24 ? 24 : 8);  // weights in registers
  const int64_t left = g_.k % depth;
  const double passes = real(g_.k / depth + left / 4 + left % 4);
  const double loads =
      (k * (1 + (held ? 0 : skinny_rows)) + passes * skinny_rows * (load_ops + store_ops)) *
      vectors;
  t.core +=
      ops(std::max(k * skinny_rows * vectors, loads) + 2 * k * skinny_rows + passes * tile_ops);
  return std::ceil(k / depth);
}

double Model::outer() const {
  const int64_t skinny = g_.m, other = g_.n;
  const double skinny_rows = real(skinny), cols = std::min(real(other), real(s_.nc)),
               k = real(g_.k);
  const double sums = 4 * skinny_rows * cols;
  Times t;
  double passes;  // over sums
  if (s_.order) {
    passes = rows_of_outer_products(skinny_rows, cols, t);
    t.of(source_) += read(4 * cols * k, source_);
  } else {
    const double kc = std::min(k, real(s_.kc));
    passes = std::ceil(k / kc);
    Share sh{};
    sh.m = skinny_rows, sh.n = cols, sh.k = k, sh.blocks_k = passes;
    t.core = micro_kernels(sh, true);
    t.of(source_) += read(4 * cols * k, source_, 4 * real(s_.nr));
  }
  const Level at = level(2 * sums);
  if (at > in_l1) t.of(at) += passes * (read(sums, at) + sums / rates_.write[at]);
  t.of(source_) += write(sums, source_);
  t.beyond_l2 += dirty(sums);
  const double tasks = std::ceil(real(g_.batch * div_up(other, s_.nc)) / s_.threads);
  const double around = ops(2 * skinny_rows * cols / lanes_ + setup_ops) +
                        (s_.transposed ? transposed(skinny_rows, cols) : 0);
  return of_tasks(real(g_.batch * div_up(other, s_.nc)), t.together()) + tasks * around;
}

}  // namespace

double predict(const Schedule& schedule, const Gemm& g, const MicroTile& tile,
               const Traits& traits) {
  return Model(schedule, formed(schedule, g), tile, traits).seconds();
}

Floor predict_floor(const Schedule& schedule, const Gemm& g, const MicroTile& tile,
                    const Traits& traits) {
  return Model(schedule, formed(schedule, g), tile, traits).floor();
}

}  // namespace rooflane::gemm
