// See unit_schedule.hpp. The model's terms and constants: cost_model.hpp.
#include "kernels/gemm/unit_schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "backends/highway.hpp"
#include "fmt/format.h"
#include "kernels/gemm/cost_model.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_job.hpp"

namespace rooflane::gemm {
namespace {

using namespace cost;
using std::int64_t;

bool reads_b_in_place(const Gemm& g, const Unit& unit) { return unit.b_in_place && !g.trans_b; }
bool takes_few(const Gemm& g, const Unit& unit) {
  return g.trans_b && g.m > 0 && g.m <= unit.few.limit;
}

// Bytes of a vector register; a unit's lanes are words.
constexpr double vector_bytes = 64, vector_words = vector_bytes / word_bytes;

// Elements are decoded so many at a time; few_rows: of so many columns at once.
constexpr int64_t decoded_together = 32;
constexpr double few_columns = 4;
// Moving one number; adding up a vector of few_rows' sums and storing it.
constexpr double each_op = 5, few_sum_ops = 12;
// Nothing prefetches the first steps of a micro-panel that is read where b is stored.
constexpr double in_place_ops = 400;
// The part of L2 that pages of 4 KiB can use, which lie anywhere; packed operands have huge pages.
constexpr double pages_l2 = 0.5;

// Of an element: as it is stored, and in a micro-panel of b.
double bytes_of_k(const NumberFormat& type) {
  return static_cast<double>(type.block_bytes) / real(type.block);
}
double b_bytes_of_k(const Unit& unit) {
  return real(unit.b_step_words() * word_bytes) / real(unit.nr * unit.depth);
}

// As many as there are, each with the same schedule.
double products(const Gemm& g) { return g.gate ? 2 : 1; }

// Operations/s of each thread: micro-kernels', and few rows'.
struct UnitRates {
  UnitRates(const Unit& unit, int threads, const Traits& traits)
      : micro(traits.rate(unit.path, threads > 1)),
        few(unit.few.limit > 0 ? traits.rate(unit.few.path, threads > 1) : 0) {}
  double micro, few;
};

class Model : Costs {
 public:
  Model(const Schedule& s, const UnitProblem& of, const Traits& traits, const UnitRates& rates)
      : Costs(s, of.g, vector_words, traits),
        unit_(of.unit),
        unit_rates_(rates),
        a_type_(*of.a),
        b_type_(*of.b),
        converts_(of.converts),
        a_of_k_(real(unit_.words * word_bytes) / real(unit_.depth)),
        b_of_k_(b_bytes_of_k(unit_)),
        // A b that is packed as it is stored need not be decoded.
        decodes_(bytes_of_k(b_type_) != b_of_k_) {
    // Of an operand in place a thread reads what its tasks do, which share columns first.
    const double each = 1.0 / s_.threads, cols = std::max(1 / real(g_.batch * s_.n_parts), each);
    const double of_a = s_.path != Path::few_rows && !s_.pack_a ? std::min(1.0, each / cols) : each;
    const double of_b = s_.b_in_place() ? cols : each;
    const double stored = real(g_.k) * (bytes_of_k(a_type_) * real(g_.m) * of_a +
                                        bytes_of_k(b_type_) * real(g_.n) * of_b) +
                          word_bytes * real(g_.m) * real(g_.n) * each;
    source_ = beyond_l1(real(g_.batch) * stored);
  }

  double seconds() const {
    const bool is_few = s_.path == Path::few_rows;
    const int64_t parts = is_few ? div_up(g_.n, s_.nc) : s_.m_parts * s_.n_parts;
    return begin() + (is_few ? few() : packed()) + epilogue(real(g_.batch * parts)) +
           transposing(real(g_.batch * parts));
  }
  // What a packed schedule takes at least, however it is shared: before tasks begin; a's packing
  // for each part of n and b's for each of m, where these pack their own; all micro-kernels.
  struct Least {
    double before, of_n_part, of_m_part, tasks;
  };
  Least least() const {
    const int64_t a_panels = div_up(g_.m, unit_.mr), b_panels = div_up(g_.n, unit_.nr);
    const double of_a = packing_of_a(a_panels), of_b = packing_of_b(b_panels);
    return {begin() + ops(setup_ops) + (s_.own_a() ? 0 : of_a) + (s_.own_b() ? 0 : of_b),
            s_.own_a() ? of_a : 0, s_.own_b() ? of_b : 0,
            real(g_.batch) * micro_kernels(real(a_panels), real(b_panels))};
  }

 private:
  // Rounding or quantising rows of op(a).
  double converted(double rows) const {
    return converts_ ? ops(vector_ops * rows * real(g_.k) / vector_words) : 0;
  }
  // Decoding vectors to `of_k` bytes an element; those along memory by whole registers.
  double decoded(const NumberFormat& type, double of_k, double vectors, bool along_k) const {
    if (bytes_of_k(type) == of_k) return 0;
    const int64_t k = along_k ? round_up(g_.k, static_cast<int64_t>(vector_words)) : g_.k;
    return ops(vectors * vector_ops * real(k) / vector_words);
  }

  // Few rows of op(a) side by side, as float32 or as they are: by one thread for each batch.
  double packed_rows(double rows) const {
    const double elements = rows * real(g_.k);
    const double workers = real(std::min<int64_t>(s_.threads, g_.batch));
    const Level at = beyond_l1(elements * word_bytes / workers);
    return (ops(vector_ops * elements / vector_words) +
            (g_.trans_a ? real(g_.batch) * transposed(real(g_.k), real(g_.m)) : 0) +
            read(elements * bytes_of_k(a_type_), source_) + write(elements * word_bytes, at) +
            read(elements * word_bytes, at)) /
           workers;
  }

  double few() const {
    const double tasks = real(g_.batch * div_up(g_.n, s_.nc));
    const double columns = std::min(real(s_.nc), real(g_.n));
    const double visits =
        unit_.few.rows_a_visit > 0 ? real(div_up(g_.m, unit_.few.rows_a_visit)) : 1;
    const double decoding = visits * (!decodes_            ? 0
                                      : b_type_.block == 1 ? decode_ops
                                                           : decode_block_ops);
    Times t;
    const double k = real(round_up(g_.k, decoded_together));
    // What surrounds a column's products: some columns' loops, sums across lanes, a last part of k.
    const bool across = unit_.few.together == 1;
    const double passes = decodes_ && g_.k % decoded_together != 0 ? 2 : 1;
    const double around = passes * tile_ops / (across ? few_columns : real(unit_.few.together)) +
                          (across ? few_sum_ops * real(g_.m) : 0);
    t.of(in_l2) += (visits - 1) * read(columns * real(g_.k) * bytes_of_k(b_type_), in_l2);
    t.core = 2 * columns * real(g_.m) * k / unit_rates_.few +
             ops(((decoding * k + vector_ops * real(g_.m)) / vector_words + around) * columns);
    t.of(source_) += read(columns * real(g_.k) * bytes_of_k(b_type_), source_);
    const double mean = real(g_.n) / real(div_up(g_.n, s_.nc)) / columns;
    // Rows of a are packed first: in a region of their own, or by one thread, from whose caches the
    // others take them.
    const double before = s_.threads > 1 ? region_of(traits_) : 0;
    const double rows = real(g_.batch * g_.m);
    return before + (converts_ ? converted(rows) : packed_rows(rows)) +
           of_tasks(tasks, t.together(), mean);
  }

  // Sums of c's transpose become c one by one, in so many tasks, and c's rows are short.
  double transposing(double tasks) const {
    if (!s_.transposed) return 0;
    return ops((each_op * real(g_.m) + tile_ops / 2) * real(g_.batch * g_.n)) /
           std::min(std::max(tasks, 1.0), real(s_.threads));
  }

  double padded_k() const { return real(div_up(g_.k, unit_.depth) * unit_.depth); }
  double blocks_of_k() const { return std::ceil(padded_k() / real(s_.kc)); }
  // Of so many micro-panels of a and b.
  double micro_kernels(double pm, double pn) const {
    const double tile = real(unit_.mr * unit_.nr);
    const double rows = std::min(pm * real(unit_.mr), real(g_.m));
    double used = unit_.whole_panels ? 1 : rows / (pm * real(unit_.mr));
    // Where any tile may be c, only vectors of columns that are there are multiplied.
    const bool any_width = unit_.into_c == IntoC::any;
    const double cols =
        any_width ? real(round_up(g_.n, static_cast<int64_t>(vector_words))) : pn * real(unit_.nr);
    used *= std::min(1.0, cols / (pn * real(unit_.nr)));
    const double vectors = used * tile / vector_words;
    return pm * pn *
           (2 * tile * used * padded_k() / unit_rates_.micro +
            ops(blocks_of_k() * (tile_ops + (load_ops + store_ops) * vectors) +
                vector_ops * vectors));
  }

  double packed() const {
    const int64_t a_panels = div_up(g_.m, unit_.mr), b_panels = div_up(g_.n, unit_.nr);
    const double pm = real(div_up(a_panels, s_.m_parts)), pn = real(div_up(b_panels, s_.n_parts));
    const double k = padded_k(), k_blocks = blocks_of_k(), kc = std::min(k, real(s_.kc));
    const double tile = real(unit_.mr * unit_.nr), tiles = pm * pn;
    Times t;
    t.core = micro_kernels(pm, pn);
    // An A micro-panel is read again and again, from L1 where it fits; those of b stream.
    const int64_t panel_rows = unit_.whole_panels ? unit_.mr : std::min(unit_.mr, g_.m);
    const double a_part = real(panel_rows) * a_of_k_ * kc;
    const double b_part = real(unit_.nr) * b_of_k_ * kc;
    const double block = std::min(real(s_.nc) / real(unit_.nr), pn) * b_part;
    const Level a_at = a_part + b_part / 4 > l1_ ? in_l2 : in_l1;
    double loads = read(b_part, in_l2);
    if (a_at > in_l1 || unit_.loads_first) loads += read(a_part, a_at);
    (unit_.loads_first ? t.core : t.within_l2) += tiles * k_blocks * loads;
    // A block that L2 does not hold comes from beyond for each A micro-panel, not only the first.
    const double panels = std::min(std::ceil(real(s_.mc) / real(unit_.mr)), pm);
    const double cols = std::min(real(s_.nc), real(g_.n));
    // Rows in place may meet in few sets of L2; their pages lie anywhere.
    const double b_l2 = s_.b_in_place() ? pages_l2 * usable(l2_way(), g_.n, cols) : 1;
    if (const Level b_at = beyond_l1((block + a_part) / b_l2); b_at > in_l2) {
      t.of(b_at) += (1 - 1 / panels) * tiles * k_blocks * read(b_part, b_at);
    }
    if (k_blocks > 1) {
      const Level at = beyond_l1(real(s_.mc * s_.nc) * word_bytes + block);
      t.of(at) +=
          tiles * (k_blocks - 1) * (read(tile * word_bytes, at) + write(tile * word_bytes, at));
    }
    // Blocks are read where they were packed, for each row block b's and for each column block a's.
    const double a_bytes = pm * real(unit_.mr) * a_of_k_ * k;
    const double b_bytes = pn * real(unit_.nr) * b_of_k_ * k;
    const double row_blocks = std::ceil(pm * real(unit_.mr) / real(s_.mc));
    const double col_blocks = std::ceil(pn * real(unit_.nr) / real(s_.nc));
    const bool own_a = s_.own_a(), own_b = s_.own_b();
    const double own_a_bytes = std::min(a_bytes, real(s_.mc) * a_of_k_ * k);
    const double own_b_bytes = std::min(b_bytes, real(s_.nc) * b_of_k_ * k);
    // Shared ones are read first where all of them fit.
    const auto blocks = [&](bool own, double bytes, double reused, double times, double all) {
      const Level again = beyond_l1(reused);
      const Level first =
          own ? again : std::max({s_.threads > 1 ? in_l3 : in_l2, again, beyond_l1(all)});
      t.of(first) += read(bytes, first);
      t.of(again) += (times - 1) * read(bytes, again);
    };
    // What lies in L2 beside a: a block of b, the next one if it is fetched meanwhile, and sums.
    const double sums = std::min(real(s_.mc), pm * real(unit_.mr)) *
                        std::min(real(s_.nc), pn * real(unit_.nr)) * word_bytes;
    const double beside = (unit_.loads_first ? 2 : 1) * block + (k_blocks > 1 ? sums : 0);
    const double each = real(g_.batch) / s_.threads;
    double at_once = 0;
    if (s_.pack_a) {
      blocks(own_a, a_bytes, (own_a ? own_a_bytes : a_bytes) + beside, col_blocks,
             each * real(a_panels * unit_.mr) * a_of_k_ * k);
    } else {
      const bool across = g_.trans_a;
      at_once += across ? pages(kc, real(unit_.mr), g_.m) : pages(real(unit_.mr), kc, g_.k);
      t.of(source_) += read(a_bytes, source_,
                            across   ? word_bytes * real(unit_.mr)
                            : kc < k ? a_of_k_ * kc
                                     : endless);
      t.of(beyond_l1(a_bytes + beside)) +=
          (col_blocks - 1) * read(a_bytes, beyond_l1(a_bytes + beside));
      if (!across) t.core += read(evicted_lines(real(unit_.mr), g_.k, 1) * a_bytes * pn, in_l2);
    }
    if (!s_.b_in_place()) {
      blocks(own_b, b_bytes, own_b ? own_b_bytes + a_part : b_bytes, row_blocks,
             each * real(b_panels * unit_.nr) * b_of_k_ * k);
    } else {
      at_once += pages(kc, cols, g_.n);
      t.core += ops(tiles * k_blocks * in_place_ops);
      t.of(source_) += read(b_bytes, source_, word_bytes * cols);
      t.of(beyond_l1(b_bytes)) += (row_blocks - 1) * read(b_bytes, beyond_l1(b_bytes));
    }
    t.core += page_walks(at_once) * pm * k_blocks * col_blocks * traits_.page_walk;
    const double c_bytes = tiles * tile * word_bytes;
    t.of(source_) += write(c_bytes, source_);
    t.beyond_l2 += dirty(c_bytes);
    const double claims = (own_a || !s_.pack_a ? 0 : pm * col_blocks) +
                          (own_b || s_.b_in_place() || g_.prepack ? 0 : pn * row_blocks * k_blocks);
    const double mean = std::min(1.0, real(a_panels) / real(s_.m_parts) / pm) *
                        std::min(1.0, real(b_panels) / real(s_.n_parts) / pn);
    return of_tasks(real(g_.batch * s_.m_parts * s_.n_parts), t.together() + ops(tile_ops * claims),
                    mean) +
           ops(setup_ops) + packing_of_a(a_panels) * (own_a ? real(s_.n_parts) : 1) +
           packing_of_b(b_panels) * (own_b ? real(s_.m_parts) : 1);
  }

  // All threads' packing, beside which nothing is multiplied: so many times, by so many at once:
  // each share what it uses, of which this is one, or all together.
  double packing(const NumberFormat& type, double of_k, int64_t vectors, int64_t width,
                 int64_t panels, bool own, bool along_k) const {
    const double k = padded_k();
    const double workers =
        own ? s_.threads : real(std::min<int64_t>(s_.threads, g_.batch * panels));
    const double times = real(g_.batch) / workers;
    const double packed = real(panels * width) * of_k * k;
    const Level to = own ? in_l2 : beyond_l1(times * packed);
    // What L2 does not hold has been written to memory when it is packed again: L3 keeps little of
    // what is only written.
    return times * (copy(bytes_of_k(type) * real(g_.k * vectors), of_k * k / word_bytes,
                         real(panels * width), real(width), along_k, to, source_) +
                    ops((own ? tile_ops : setup_ops) * real(panels)) + (own ? 0 : taken(packed)) +
                    (to > in_l2 ? packed / rates_.write[in_memory] : 0));
  }
  double packing_of_a(int64_t panels) const {
    if (!s_.pack_a) return 0;
    const double rows = real(g_.batch * g_.m);
    return packing(a_type_, a_of_k_, g_.m, unit_.mr, panels, s_.own_a(), !g_.trans_a) +
           (converts_ ? converted(rows) : decoded(a_type_, a_of_k_, rows, !g_.trans_a)) /
               s_.threads;
  }
  double packing_of_b(int64_t panels) const {
    if (s_.b_in_place() || (g_.prepack && !s_.own_b())) return 0;
    return packing(b_type_, b_of_k_, g_.n, unit_.nr, panels, s_.own_b(), g_.trans_b) +
           decoded(b_type_, b_of_k_, real(g_.batch * g_.n), g_.trans_b) / s_.threads;
  }

  const Unit& unit_;
  const UnitRates& unit_rates_;
  const NumberFormat &a_type_, &b_type_;
  const bool converts_;
  const double a_of_k_, b_of_k_;  // packed bytes of an element
  const bool decodes_;
};

Schedule rounded_formed(const Schedule& s, const UnitProblem& of) {
  const Gemm& g = of.g;
  const Unit& unit = of.unit;
  const auto fit = [](int64_t size, int64_t step, int64_t whole) {
    return std::min(round_up(std::max<int64_t>(size, 1), step),
                    round_up(std::max<int64_t>(whole, 1), step));
  };
  Schedule r;
  r.unit = unit.kind;
  r.threads = s.threads;
  if (!g.reads_ab() || g.empty()) return r;
  r.transposed = s.transposed;
  r.path = s.path;
  if (s.path == Path::few_rows) {
    r.nc = std::min(round_up(s.nc, std::max<int64_t>(1, unit.few.together)),
                    round_up(g.n, std::max<int64_t>(1, unit.few.together)));
    r.fixed = s.threads > 1;
    return r;
  }
  r.mr = unit.mr, r.nr = unit.nr;
  r.mc = fit(s.mc, unit.mr, g.m);
  r.nc = fit(s.nc, unit.nr, g.n);
  r.kc = fit(s.kc, std::max(unit.k_together, unit.depth), g.k);
  r.pack_a = s.pack_a || !unit.a_in_place;
  r.pack_b = s.path == Path::unpacked && (s.pack_b || !reads_b_in_place(g, unit));
  r.order = true;  // A micro-panels stay, those of b stream
  r.fixed = s.fixed && s.threads > 1;
  r.m_parts = std::clamp<int64_t>(s.m_parts, 1, div_up(g.m, unit.mr));
  r.n_parts = std::clamp<int64_t>(s.n_parts, 1, div_up(g.n, unit.nr));
  // A row is quantised once, by one thread.
  r.share_a = r.pack_a && (s.share_a || (of.converts && r.n_parts > 1));
  return r;
}

std::optional<std::string> defect_of_formed(const Schedule& s, const UnitProblem& of) {
  const Gemm& g = of.g;
  const Unit& unit = of.unit;
  if (s.threads > of.threads) return fmt::format("threads={} of {}", s.threads, of.threads);
  if (!g.reads_ab() || g.empty()) return std::nullopt;
  if (s.path == Path::few_rows) {
    if (takes_few(g, unit)) return std::nullopt;
    return s.transposed
               ? fmt::format(
                     "path=5,transposed=1 takes 1 to {} columns of c and an a that is "
                     "contiguous along k",
                     unit.few.limit)
               : fmt::format("path=5 takes 1 to {} rows of a and a b that is contiguous along k",
                             unit.few.limit);
  }
  if (s.path != Path::packed && s.path != Path::unpacked) {
    return fmt::format("products by {} have path=3, path=4 and path=5", unit.path);
  }
  if (s.kc < g.k && word_bytes * s.mc * s.nc > workspace_limit / s.threads) {
    return "sums of a block of c exceed the limit of 64 MiB";
  }
  return std::nullopt;
}

// Of the product formed.
class Search {
 public:
  Search(const UnitProblem& of, bool transposed, Ranking found)
      : of_(of),
        transposed_(transposed),
        unit_(of.unit),
        g_(of.g),
        most_(of.threads),
        grows_(bytes_of_k(*of.b) < b_bytes_of_k(of.unit)),
        found_(std::move(found)) {}

  Ranking all() {
    for (const int threads : Ranking::thread_counts(most_)) {
      threads_ = threads;
      traits_ = &traits_for(unit_, threads);
      const UnitRates rates(unit_, threads, *traits_);
      rates_ = &rates;
      const bool few = takes_few(g_, unit_);
      const double peak = std::max(rates.micro, few ? rates.few : 0);
      if (found_.hopeless(g_, threads, peak, *traits_)) continue;
      if (few) add_few();
      if (!few || g_.m > 1) add_packed();
    }
    return std::move(found_);
  }

 private:
  // The seconds predicted.
  double add(const Schedule& given) {
    Schedule s = given;
    s.transposed = transposed_;
    s = rounded_formed(s, of_);
    const double seconds = Model(s, of_, *traits_, *rates_).seconds();
    if (!found_.needless(seconds) && !defect_of_formed(s, of_)) found_.add(s, seconds);
    return seconds;
  }

  void add_few() {
    Schedule s;
    s.path = Path::few_rows;
    s.threads = threads_;
    for (const int64_t columns : {32, 64, 128}) {
      s.nc = columns;
      add(s);
    }
    for (const int64_t tasks : {1, 2}) {
      s.nc = div_up(g_.n, tasks * threads_);
      if (s.nc < 32) add(s);
    }
  }

  void add_packed() {
    Schedule s;
    s.threads = threads_;
    const int64_t l1 = traits_->l1_bytes, l2 = traits_->l2_bytes;
    const int64_t k = div_up(g_.k, unit_.depth) * unit_.depth;
    const auto bytes = [&](int64_t vectors, int64_t depth) {
      return vectors * depth * unit_.words * word_bytes / unit_.depth;
    };
    // Micro-panels that fill two thirds of L1, half, twice or four times as much, or all of k.
    const int64_t most_of_l1 = std::max<int64_t>(
        unit_.k_together, 2 * l1 / 3 * unit_.depth / (unit_.nr * unit_.words * word_bytes));
    std::vector<int64_t> depths;
    for (const int64_t most : {most_of_l1 / 2, most_of_l1, 2 * most_of_l1, 4 * most_of_l1, k}) {
      const int64_t kc = div_up(k, div_up(k, std::clamp<int64_t>(most, 1, k)));
      if (std::find(depths.begin(), depths.end(), kc) == depths.end()) depths.push_back(kc);
    }
    const Grid grid = {.batches = g_.batch,
                       .rows = div_up(g_.m, unit_.mr),
                       .row_step = 1,
                       .most_rows = div_up(g_.m, unit_.mr),
                       .cols = div_up(g_.n, unit_.nr),
                       .col_step = 1,
                       .most_cols = div_up(g_.n, unit_.nr),
                       .threads = threads_};
    const std::vector<Cut>& cuts = cuts_.of(grid, *traits_);
    struct Packing {
      bool packs_a, shares_a;
      Path path;
      bool packs_b;
    };
    constexpr Packing packings[] = {
        {true, true, Path::packed, false},    {true, false, Path::packed, false},
        {true, true, Path::unpacked, true},   {true, true, Path::unpacked, false},
        {true, false, Path::unpacked, false}, {false, false, Path::packed, false},
        {false, false, Path::unpacked, true}, {false, false, Path::unpacked, false},
    };
    for (const Packing& packing : packings) {
      s.pack_a = packing.packs_a, s.share_a = packing.shares_a;
      s.path = packing.path, s.pack_b = packing.packs_b;
      if (s.pack_b && g_.prepack && !grows_) continue;
      if (!s.pack_a && !unit_.a_in_place) continue;
      if (s.b_in_place() && !reads_b_in_place(g_, unit_)) continue;
      for (const int64_t kc : depths) {
        s.kc = kc;
        s.m_parts = s.n_parts = 1;
        const Model::Least least = Model(rounded_formed(s, of_), of_, *traits_, *rates_).least();
        // A block of a in a part of L2, of all k where it is the thread's own; the sums of a block
        // of c in a quarter, or the thread's own micro-panels of b in half.
        int64_t before = 0;
        for (const int64_t a_bytes : {l2 / 8, l2 / 4, l2 / 2}) {
          s.mc = std::clamp(a_bytes / bytes(unit_.mr, s.own_a() ? k : kc) * unit_.mr, unit_.mr,
                            round_up(g_.m, unit_.mr));
          if (std::exchange(before, s.mc) == s.mc) break;
          const int64_t of_sums = l2 / 4 / (word_bytes * std::min(s.mc, g_.m));
          s.nc = s.own_b() ? l2 / 2 / bytes(1, k)
                 : kc < k  ? of_sums
                           : std::max(of_sums, l2 / 4 / bytes(1, kc));
          s.nc = std::max(unit_.nr, s.nc / unit_.nr * unit_.nr);
          add_shares(s, cuts, least);
        }
      }
    }
  }

  void add_shares(Schedule s, const std::vector<Cut>& cuts, const Model::Least& least) {
    // What static scheduling saves at most: lines of c that another core wrote last time.
    const int64_t c_words = g_.batch * round_up(g_.m, unit_.mr) * round_up(g_.n, unit_.nr);
    const double taken = traits_->constants.gemm.taken_share * real(word_bytes * c_words) /
                         traits_->many.write[in_memory];
    for (const Cut& cut : cuts) {
      // rounded() shares such an a.
      if (s.own_a() && of_.converts && cut.n_parts > 1) continue;
      const double to_all = least.before + least.tasks * cut.last;
      if (found_.needless(to_all)) break;
      if (found_.needless(to_all + least.of_n_part * real(cut.n_parts) +
                          least.of_m_part * real(cut.m_parts))) {
        continue;
      }
      s.m_parts = cut.m_parts, s.n_parts = cut.n_parts;
      s.fixed = false;
      const double seconds = add(s);
      if (threads_ == 1 || found_.needless(seconds - taken * cut.last)) continue;
      s.fixed = true;
      add(s);
    }
  }

  const UnitProblem& of_;
  const bool transposed_;
  const Unit& unit_;
  const Gemm& g_;
  const int most_;
  const bool grows_;  // b, where it is packed
  int threads_ = 1;
  const Traits* traits_ = nullptr;
  const UnitRates* rates_ = nullptr;  // of so many threads
  cost::Cuts cuts_;
  Ranking found_;
};

Ranking search(const UnitProblem& of, Ranking found) {
  if (!of.g.reads_ab() || of.g.empty()) {
    found.add(rounded(Schedule(), of), 0);
    return found;
  }
  found = Search(of, false, std::move(found)).all();
  if (of.unit.swapped == nullptr || of.g.n >= of.g.m) return found;
  return Search(of.transpose(), true, std::move(found)).all();
}

}  // namespace

UnitProblem::UnitProblem(const Problem& problem, const Environment& env, const Unit& chosen)
    : g(problem),
      a(problem.dtype("a_type")),
      b(problem.dtype("b_type")),
      converts(env.math == math_int8_dynamic.name ||
               (chosen.a_converted != nullptr && a != chosen.a_converted)),
      threads(std::max(1, env.threads)),
      unit(chosen) {}

UnitProblem UnitProblem::transpose() const {
  return {formed_by_unit({.transposed = true}, g), b, a, threads, *unit.swapped};
}

Gemm formed_by_unit(const Schedule& schedule, const Gemm& g) {
  Gemm product = formed(schedule, g);
  if (schedule.transposed || schedule.path == Path::unpacked) product.prepack = false;
  return product;
}

Schedule rounded(const Schedule& s, const UnitProblem& of) {
  const bool forms_transpose = s.transposed && of.unit.swapped != nullptr;
  return rounded_formed(s, forms_transpose ? of.transpose() : of);
}

std::optional<std::string> defect_of(const Schedule& s, const UnitProblem& of) {
  if (!s.transposed) return defect_of_formed(s, of);
  if (of.unit.swapped == nullptr) {
    return fmt::format("products by {} have transposed=0", of.unit.path);
  }
  return defect_of_formed(s, of.transpose());
}

const Traits& traits_for(const Unit& unit, int threads) {
  return traits(unit.isa.empty() ? isa_name(resolve_isa("")) : unit.isa, threads);
}

double predict(const Schedule& s, const UnitProblem& of, const Traits& traits) {
  if (!of.g.reads_ab() || of.g.empty()) return 0;
  const UnitProblem product = s.transposed ? of.transpose() : of;
  const UnitRates rates(product.unit, s.threads, traits);
  return products(of.g) * Model(s, product, traits, rates).seconds();
}

std::vector<Schedule> unit_candidates(const UnitProblem& of) {
  return search(of, Ranking()).varied(3, [](const Schedule& s) {
    return std::array<int64_t, 7>{
        static_cast<int64_t>(s.path), s.transposed, s.threads, s.pack_a, s.share_a, s.pack_b, s.kc};
  });
}

std::optional<Schedule> unit_schedule(const UnitProblem& of, const Tuning& tuning, double below) {
  if (tuning.values().size() >= schedule_tunables.size()) {
    return rounded(with(Schedule(), tuning), of);
  }
  if (tuning.values().empty())
    return search(of, Ranking::best_below(below / products(of.g))).best();
  return rounded(with(best_agreeing(search(of, Ranking()).sorted(), tuning), tuning), of);
}

}  // namespace rooflane::gemm
