// See unit_schedule.hpp. The model is that of hwy_cost.cpp for blocks of micro-panels: work of the
// core, traffic of L1 and L2 beside it, traffic from beyond, which is prefetched.
#include "kernels/gemm/unit_schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "backends/highway.hpp"
#include "fmt/format.h"
#include "kernels/gemm/gemm.hpp"
#include "kernels/gemm/hwy_job.hpp"
#include "kernels/gemm/unit_variant.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

double real(int64_t i) { return static_cast<double>(i); }

bool takes_few(const Gemm& g, const Unit& unit) {
  return g.trans_b && g.m > 0 && g.m <= unit.few.limit;
}

// Vector instructions beside products, in half cycles, as hwy_cost.cpp counts them.
constexpr double tile_ops = 60;     // calling a micro-kernel
constexpr double sums_ops = 3;      // a vector of sums: loaded and stored again
constexpr double store_ops = 8;     // a vector of sums that becomes c
constexpr double piece_ops = 400;   // claiming a piece and packing it: calls, conversions begun
constexpr double convert_ops = 12;  // a vector of op(a) that is rounded or quantised
constexpr double decode_ops = 6;    // a vector of b that is decoded
constexpr double overlap = 2.5;     // norm that joins times which overlap
constexpr double claim_ops = 60;    // finding out that a shared piece is done
constexpr double call_ops = 200, task_ops = 100;
// Values of a are broadcast one by one: where they come from L2, products wait for them longer than
// for vectors of b.
constexpr double a_streams = 2;
// A region that follows other work, over one right behind another, as calibrated.
constexpr double wake = 2;
// Bytes that could have been read until a new run of neighbours is under way, of runs of so many;
// a core follows so many (hwy_cost.cpp).
constexpr double lead_bytes = 370, run_bytes = 64;
constexpr int64_t followed = 16;
// A line that another core wrote takes longer than a store to memory.
constexpr double crossing = 1.4;
constexpr double vector_bytes = 64;

class Model {
 public:
  Model(const Schedule& s, const UnitProblem& of, const Traits& traits)
      : s_(s),
        g_(of.g),
        unit_(of.unit),
        traits_(traits),
        rates_(s.threads > 1 ? traits.many : traits.one),
        a_type_(*of.a),
        b_type_(*of.b),
        converts_(of.converts),
        op_(2 * vector_bytes / 4 / rates_.fma) {
    const double stored = bytes(a_type_, g_.m) + bytes(b_type_, g_.n) + 4 * real(g_.m) * real(g_.n);
    source_ = std::max(in_l2, level(real(g_.batch) * stored / s.threads));
  }

  double seconds() const {
    const double begin = op_ * call_ops + (s_.threads > 1 ? wake * traits_.region : 0);
    return begin + (s_.path == Path::few_rows ? few() : packed());
  }

 private:
  double bytes(const NumberFormat& type, int64_t vectors) const {
    return real(vectors) * static_cast<double>(type.block_bytes) * real(g_.k) / real(type.block);
  }
  Level level(double of_thread) const {
    if (of_thread <= 0.7 * real(traits_.l1_bytes)) return in_l1;
    if (of_thread <= real(traits_.l2_bytes)) return in_l2;
    return of_thread * s_.threads <= 0.9 * real(traits_.l3_bytes) ? in_l3 : in_memory;
  }
  double read(double bytes, Level from) const { return bytes / rates_.read[from]; }
  double write(double bytes, Level to) const { return bytes / rates_.write[to]; }
  static double joined(double x, double y) {
    return std::pow(std::pow(x, overlap) + std::pow(y, overlap), 1 / overlap);
  }
  // Vectors along memory are transposed as they are packed, line by line of so many at once: the
  // hardware follows few of them, and what it does not follow waits for memory.
  double pack(double stored, double packed, bool along_k, int64_t at_once, Level to) const {
    if (!along_k) return read(stored, source_) + write(packed, to);
    const double waits = source_ >= in_l3 && at_once > followed ? lead_bytes / run_bytes : 0;
    return std::max(packed / traits_.transpose,
                    read(stored, source_) * (1 + waits) + write(packed, to));
  }

  double few() const {
    const double columns = real(g_.n) * real(g_.batch) / s_.threads;
    const double per_column = real(g_.k) / (vector_bytes / 4);
    const double products =
        2 * real(g_.m) * real(g_.k) / traits_.rate(unit_.few.path, s_.threads > 1);
    const double core =
        columns * (products + op_ * decode_ops * per_column *
                                  static_cast<double>(b_type_.block_bytes) / real(b_type_.block));
    const double moved = bytes(b_type_, 1) * columns;
    const double tasks = std::ceil(real(g_.batch * div_up(g_.n, s_.nc)) / s_.threads);
    const double uneven = tasks * s_.threads / std::max(1.0, real(g_.batch * g_.n) / real(s_.nc));
    const double prepared =
        op_ * convert_ops * real(g_.batch * g_.m) * real(g_.k) / (vector_bytes / 4);
    return prepared + joined(core, read(moved, source_)) * std::max(1.0, uneven) +
           tasks * (op_ * task_ops + (s_.threads > 1 ? traits_.task : 0)) +
           op_ * store_ops * columns * real(g_.m) / (vector_bytes / 4);
  }

  double packed() const {
    const int64_t a_panels = div_up(g_.m, unit_.mr), b_panels = div_up(g_.n, unit_.nr);
    const double pm = real(div_up(a_panels, s_.m_parts)), pn = real(div_up(b_panels, s_.n_parts));
    const double k = real(div_up(g_.k, unit_.depth) * unit_.depth);
    const double k_blocks = std::ceil(k / real(s_.kc)), kc = std::min(k, real(s_.kc));
    const double word_of_k = real(unit_.words * word_bytes) / real(unit_.depth);
    const double tile = real(unit_.mr * unit_.nr), tiles = pm * pn;
    const double tasks = std::ceil(real(g_.batch * s_.m_parts * s_.n_parts) / s_.threads);
    // The core.
    const double vectors = tile * 4 / vector_bytes;
    const double rows = std::min(pm * real(unit_.mr), real(g_.m));  // of a share
    const double used = unit_.whole_panels ? 1 : rows / (pm * real(unit_.mr));
    const double core =
        tiles * (2 * tile * used * k / traits_.rate(unit_.path, s_.threads > 1) +
                 op_ * (k_blocks * (tile_ops + sums_ops * vectors) + store_ops * vectors));
    // An A micro-panel is read again and again, from L1 where it fits; those of b stream.
    const double a_part = real(unit_.mr) * word_of_k * kc, b_part = real(unit_.nr) * word_of_k * kc;
    const double block = std::min(real(s_.nc) / real(unit_.nr), pn) * b_part;
    const Level stream_from = std::max(in_l2, level(block + a_part));
    const bool stays = a_part + 2 * b_part / 8 <= 0.7 * real(traits_.l1_bytes);
    double within = tiles * k_blocks *
                    (read(b_part, stream_from) + (stays ? 0 : a_streams * read(a_part, in_l2)));
    const double sums = k_blocks > 1 ? real(s_.mc * s_.nc) * 4 : 0;
    if (sums > 0) {
      const Level at = std::max(in_l2, level(sums + block));
      within += tiles * (k_blocks - 1) * (read(tile * 4, at) + write(tile * 4, at));
    }
    // Blocks come from where they were packed, each row block's b and each column block's a anew.
    const double a_bytes = pm * a_part * k_blocks, b_bytes = pn * b_part * k_blocks;
    const double row_blocks = std::ceil(pm * real(unit_.mr) / real(s_.mc));
    const double col_blocks = std::ceil(pn * real(unit_.nr) / real(s_.nc));
    const double own = real(s_.nc) * word_of_k * k;
    const Level b_at = s_.pack_b ? std::max(in_l2, level(own)) : std::max(in_l2, level(b_bytes));
    const Level a_at = s_.share_a ? std::max(in_l2, level(a_bytes)) : in_l2;
    const double beyond = row_blocks * read(b_bytes, b_at) + col_blocks * read(a_bytes, a_at) +
                          write(tiles * tile * 4, source_);
    const double claims = op_ * claim_ops *
                          ((s_.share_a ? pm * col_blocks : 0) +
                           (s_.pack_b || g_.prepack ? 0 : pn * row_blocks * k_blocks));
    double time = joined(joined(core, within), beyond) + claims;
    // What other cores packed, or wrote to c in the run before.
    if (s_.threads > 1) {
      if (s_.share_a) time += from_others(a_bytes);
      if (!s_.pack_b && !g_.prepack) time += from_others(b_bytes);
      if (!s_.fixed) time += from_others(tiles * tile * 4);
    }
    return tasks * (time + op_ * task_ops + (s_.threads > 1 ? traits_.task : 0)) +
           (s_.threads > 1 ? 0.08 * time : 0) + packing(a_panels, b_panels, word_of_k * k);
  }

  // Lines that other cores have written and still hold.
  double from_others(double bytes) const {
    if (bytes > real(traits_.l2_bytes)) return 0;  // beyond their L2 they are in L3 or memory
    return bytes * (1 - 1.0 / s_.threads) * crossing / traits_.one.write[in_memory];
  }

  double packing(int64_t a_panels, int64_t b_panels, double vector_bytes_packed) const {
    const double share = real(g_.batch) / s_.threads;
    const double a_packed = real(a_panels * unit_.mr) * vector_bytes_packed;
    const double b_packed = real(b_panels * unit_.nr) * vector_bytes_packed;
    const double times_a = s_.share_a ? 1 : real(s_.n_parts);
    const Level a_to = s_.share_a ? std::max(in_l2, level(share * a_packed)) : in_l2;
    double time = times_a * share *
                  (pack(bytes(a_type_, g_.m), a_packed, !g_.trans_a, unit_.mr, a_to) +
                   op_ * piece_ops * real(a_panels));
    if (converts_) {
      time += times_a * share * op_ * convert_ops * real(g_.m) * real(g_.k) / (vector_bytes / 4);
    }
    if (g_.prepack) return time;
    const double times = s_.pack_b ? real(s_.m_parts) : 1;
    const Level to = s_.pack_b ? in_l2 : std::max(in_l2, level(share * b_packed));
    const double decoded =
        b_type_.quantisation.bits > 0 ? op_ * decode_ops * b_packed / vector_bytes : 0;
    return time + times * share *
                      (pack(bytes(b_type_, g_.n), b_packed, g_.trans_b, unit_.nr, to) + decoded +
                       op_ * piece_ops * real(b_panels));
  }

  const Schedule& s_;
  const Gemm& g_;
  const Unit& unit_;
  const Traits& traits_;
  const Traits::Rates& rates_;
  const NumberFormat &a_type_, &b_type_;
  const bool converts_;
  const double op_;  // seconds of a vector instruction, of two a cycle
  Level source_;     // where operands are found that one run after the other reads
};

class Search {
 public:
  explicit Search(const UnitProblem& of) : of_(of), unit_(of.unit), g_(of.g), most_(of.threads) {}

  std::vector<Schedule> all() {
    if (!g_.reads_ab() || g_.empty()) return {rounded(Schedule(), of_)};
    for (int threads = 1;; threads = std::min(most_, 2 * threads)) {
      threads_ = threads;
      traits_ = &traits_for(unit_, threads);
      if (takes_few(g_, unit_)) add_few();
      if (!takes_few(g_, unit_) || g_.m > 1) add_packed();
      if (threads == most_) break;
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Ranked& x, const Ranked& y) { return x.seconds < y.seconds; });
    std::vector<Schedule> list;
    for (const Ranked& ranked : found_) {
      // Blocks of other sizes may come to the same once they are rounded.
      if (list.empty() || list.back() != ranked.schedule) list.push_back(ranked.schedule);
    }
    return list;
  }

 private:
  struct Ranked {
    Schedule schedule;
    double seconds;
  };

  void add(const Schedule& given) {
    const Schedule s = rounded(given, of_);
    if (defect_of(s, of_)) return;
    found_.push_back({s, predict(s, of_, *traits_)});
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
    s.path = Path::packed;
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
    for (const int64_t kc : depths) {
      s.kc = kc;
      for (const int own : {0, 1, 2}) {  // nothing, of a, of b
        if (own == 2 && g_.prepack) continue;
        s.share_a = own != 1, s.pack_b = own == 2;
        // A block of a in a part of L2, of all k where it is the thread's own; the sums of a block
        // of c in a quarter, or the thread's own micro-panels of b in half.
        for (const int64_t a_bytes : {l2 / 8, l2 / 4, l2 / 2}) {
          s.mc = std::max(unit_.mr, a_bytes / bytes(unit_.mr, own == 1 ? k : kc) * unit_.mr);
          const int64_t of_sums = l2 / 4 / (word_bytes * std::min(s.mc, g_.m));
          s.nc = own == 2 ? l2 / 2 / bytes(1, k)
                 : kc < k ? of_sums
                          : std::max(of_sums, l2 / 4 / bytes(1, kc));
          s.nc = std::max(unit_.nr, s.nc / unit_.nr * unit_.nr);
          add_shares(s);
        }
      }
    }
  }

  void add_shares(Schedule s) {
    const int64_t rows = div_up(g_.m, unit_.mr), cols = div_up(g_.n, unit_.nr);
    std::vector<std::array<int64_t, 2>> tried;
    const auto cut = [&](int64_t m, int64_t n) {
      const std::array<int64_t, 2> parts = {std::clamp<int64_t>(m, 1, rows),
                                            std::clamp<int64_t>(n, 1, cols)};
      if (std::find(tried.begin(), tried.end(), parts) != tried.end()) return;
      tried.push_back(parts);
      s.m_parts = parts[0], s.n_parts = parts[1];
      for (const bool fixed : {false, true}) {
        s.fixed = fixed && threads_ > 1;
        if (s.fixed == fixed) add(s);
      }
    };
    if (g_.batch >= threads_) cut(1, 1);
    if (threads_ == 1) return;
    for (const int64_t per_thread : {1, 2, 4}) {
      const int64_t parts = div_up(per_thread * threads_, std::max<int64_t>(1, g_.batch));
      for (int64_t m = 1; m <= parts; ++m) {
        if (parts % m == 0) cut(m, parts / m);
      }
    }
  }

  const UnitProblem& of_;
  const Unit& unit_;
  const Gemm& g_;
  const int most_;
  int threads_ = 1;
  const Traits* traits_ = nullptr;
  std::vector<Ranked> found_;
};

}  // namespace

UnitProblem::UnitProblem(const Problem& problem, const Environment& env, const Unit& chosen)
    : g(problem),
      a(problem.dtype("a_type")),
      b(problem.dtype("b_type")),
      converts(env.math == math_int8_dynamic.name ||
               (chosen.a_rounded != nullptr && a != chosen.a_rounded)),
      threads(std::max(1, env.threads)),
      unit(chosen) {}

Schedule rounded(const Schedule& s, const UnitProblem& of) {
  const Gemm& g = of.g;
  const Unit& unit = of.unit;
  const auto fit = [](int64_t size, int64_t step, int64_t whole) {
    return std::min(round_up(std::max<int64_t>(size, 1), step),
                    round_up(std::max<int64_t>(whole, 1), step));
  };
  Schedule r;
  r.threads = s.threads;
  if (!g.reads_ab() || g.empty()) return r;
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
  r.pack_a = true;
  r.pack_b = s.pack_b && !g.prepack;
  r.order = true;  // A micro-panels stay, those of b stream
  r.fixed = s.fixed && s.threads > 1;
  r.m_parts = std::clamp<int64_t>(s.m_parts, 1, div_up(g.m, unit.mr));
  r.n_parts = std::clamp<int64_t>(s.n_parts, 1, div_up(g.n, unit.nr));
  // A row is quantised once, by one thread.
  r.share_a = s.share_a || (of.converts && r.n_parts > 1);
  return r;
}

std::optional<std::string> defect_of(const Schedule& s, const UnitProblem& of) {
  const Gemm& g = of.g;
  const Unit& unit = of.unit;
  if (s.threads > of.threads) return fmt::format("threads={} of {}", s.threads, of.threads);
  if (!g.reads_ab() || g.empty()) return std::nullopt;
  if (s.path == Path::few_rows) {
    if (takes_few(g, unit)) return std::nullopt;
    return fmt::format("path=5 takes 1 to {} rows of a and a b that is contiguous along k",
                       unit.few.limit);
  }
  if (s.path != Path::packed) {
    return fmt::format("products by {} have path=4 and path=5", unit.path);
  }
  if (s.kc < g.k && word_bytes * s.mc * s.nc > workspace_limit / s.threads) {
    return "sums of a block of c exceed the limit of 64 MiB";
  }
  return std::nullopt;
}

const Traits& traits_for(const Unit& unit, int threads) {
  return traits(unit.isa.empty() ? isa_name(resolve_isa("")) : unit.isa, threads);
}

double predict(const Schedule& s, const UnitProblem& of, const Traits& traits) {
  if (!of.g.reads_ab() || of.g.empty()) return 0;
  return (of.g.gate ? 2 : 1) * Model(s, of, traits).seconds();
}

std::vector<Schedule> unit_candidates(const UnitProblem& of) {
  // Keep few schedules that differ only in blocks and shares.
  constexpr int of_a_kind = 3;
  constexpr std::size_t most = 40;
  std::map<std::array<int64_t, 5>, int> kinds;
  std::vector<Schedule> list;
  for (const Schedule& s : Search(of).all()) {
    if (kinds[{static_cast<int64_t>(s.path), s.threads, s.share_a, s.pack_b, s.kc}]++ >=
        of_a_kind) {
      continue;
    }
    list.push_back(s);
    if (list.size() == most) break;
  }
  return list;
}

Schedule unit_schedule(const UnitProblem& of, const Tuning& tuning) {
  if (tuning.values().size() >= schedule_tunables.size()) {
    return rounded(with(Schedule(), tuning), of);
  }
  const std::vector<Schedule> all = Search(of).all();
  return rounded(with(best_agreeing(all, tuning), tuning), of);
}

std::optional<std::string> unit_unsupported(const Problem& problem, const Environment& env) {
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

}  // namespace rooflane::gemm
