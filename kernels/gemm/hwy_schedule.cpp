// Schedules of the hwy GEMM as text, which of them are legal, and the workspace they need.
#include "kernels/gemm/hwy_schedule.hpp"

#include <algorithm>
#include <array>

#include "fmt/format.h"
#include "kernels/gemm/hwy_job.hpp"

namespace rooflane::gemm {
namespace {

using std::int64_t;

constexpr int64_t any_size = int64_t{1} << 40;

// One line for each field: the tunable, how it is read and how it is set.
struct Field {
  Tunable tunable;
  int64_t (*get)(const Schedule&);
  void (*set)(Schedule&, int64_t);
};

#define ROOFLANE_FIELD(name, member, meaning, least, most)                                    \
  {                                                                                           \
    {name, meaning, least, most},                                                             \
        [](const Schedule& s) { return static_cast<int64_t>(s.member); },                     \
        [](Schedule& s, int64_t value) { s.member = static_cast<decltype(s.member)>(value); } \
  }

constexpr Field fields[] = {
    ROOFLANE_FIELD(
        "path", path,
        "0 scale, 1 dot products, 2 outer products, 3 unpacked or packed by each thread, "
        "4 packed for all threads (Goto), 5 few rows, b as it is stored",
        0, 5),
    ROOFLANE_FIELD("unit", unit,
                   "what multiplies: 0 float32 multiply-adds, 1 pmaddwd, 2 vdpbf16ps, 3 vpdpbusd, "
                   "4 vpdpbusd with a scale a block, 5 AMX tiles",
                   0, 5),
    ROOFLANE_FIELD("transposed", transposed, "1: c's transpose is formed, operands swapped", 0, 1),
    ROOFLANE_FIELD("threads", threads, "threads that share the product", 1, 1 << 16),
    ROOFLANE_FIELD("mr", mr, "rows of a micro-tile; dot: rows of the long operand read at once", 1,
                   64),
    ROOFLANE_FIELD("nr", nr, "columns of a micro-tile, a multiple of the vector", 1, 1024),
    ROOFLANE_FIELD("mc", mc, "rows of a block of a", 1, any_size),
    ROOFLANE_FIELD("kc", kc, "depth of a block along k", 1, any_size),
    ROOFLANE_FIELD(
        "nc", nc,
        "packed, unpacked: columns of b packed at a time; outer, dot: columns or rows of "
        "the long operand a task",
        1, any_size),
    ROOFLANE_FIELD("kb", kb, "packed: depth of b packed at a time", 1, any_size),
    ROOFLANE_FIELD(
        "pack_a", pack_a,
        "packed: 1, a is packed; of float32 for all threads, m innermost. dot: 1, the skinny "
        "operand is",
        0, 1),
    ROOFLANE_FIELD("share_a", share_a,
                   "units: 1, a is packed once for all threads; 0, each task packs its own", 0, 1),
    ROOFLANE_FIELD("pack_b", pack_b, "unpacked: 1, each part packs the micro-panels of b it uses",
                   0, 1),
    ROOFLANE_FIELD(
        "order", order,
        "outer: 1 whole rows, 0 micro-tiles; dot, pack_a=0: 1 rows read at once lie pages apart, 0 "
        "side by side",
        0, 1),
    ROOFLANE_FIELD("static", fixed, "1: a thread has the same tasks in every run", 0, 1),
    ROOFLANE_FIELD("m_parts", m_parts, "tasks: shares of rows", 1, any_size),
    ROOFLANE_FIELD("n_parts", n_parts, "tasks: shares of columns", 1, any_size),
    ROOFLANE_FIELD("k_parts", k_parts, "tasks: shares of k, summed at the end", 1, 1 << 16),
    ROOFLANE_FIELD("batch_parts", batch_parts, "shares of the batches", 1, any_size),
};
#undef ROOFLANE_FIELD

constexpr std::size_t field_count = std::size(fields);

const auto tunables = [] {
  std::array<Tunable, field_count> list{};
  for (std::size_t i = 0; i < field_count; ++i) list[i] = fields[i].tunable;
  return list;
}();

// Of counts, each below 2^60 or saturated there: far beyond what a workspace may hold, and twice
// that is a number still.
int64_t times(int64_t x, int64_t y) {
  constexpr int64_t saturated = int64_t{1} << 60;
  int64_t result = 0;
  return __builtin_mul_overflow(x, y, &result) ? saturated : std::min(result, saturated);
}
template <class... More>
int64_t times(int64_t x, int64_t y, More... more) {
  return times(times(x, y), more...);
}

bool product(const Gemm& g) { return g.reads_ab() && !g.empty(); }

std::optional<std::string> defect_of_skinny(const Schedule& s, const Gemm& g,
                                            const MicroTile& tile) {
  const bool from_a = s.path == Path::dot ? !g.trans_a : g.trans_a;
  const bool from_b = (s.path == Path::dot ? g.trans_b : !g.trans_b) && !g.prepack;
  if (s.transposed ? !from_a : !from_b) {
    return fmt::format("path={},transposed={} needs {} that is contiguous {} k{}",
                       static_cast<int>(s.path), int{s.transposed}, s.transposed ? "an a" : "a b",
                       s.path == Path::dot ? "along" : "across",
                       g.prepack && !s.transposed ? " and not packed beforehand" : "");
  }
  const int64_t skinny = formed(s, g).m;
  if (s.path == Path::dot) {
    if (s.pack_a && (skinny < 2 || skinny > 2 * dot_limit)) {
      return fmt::format("pack_a=1 of dot products needs 2 to {} rows in the skinny operand",
                         2 * dot_limit);
    }
  } else if (s.order && skinny > most_outer_rows) {
    return fmt::format("order=1 of outer products serves up to {} rows", most_outer_rows);
  } else if (s.order && s.nc > most_outer_columns) {
    return fmt::format("order=1 of outer products needs nc of at most {}", most_outer_columns);
  } else if (!s.order && s.nr != tile.nr()) {
    return fmt::format("outer products need nr={}", tile.nr());
  }
  return std::nullopt;
}

std::optional<std::string> defect_of_blocks(const Schedule& s, const Gemm& g,
                                            const MicroTile& tile) {
  const bool unpacked = s.path == Path::unpacked;
  if (s.mr > 2 * tile.mr) return fmt::format("mr is at most {}", 2 * tile.mr);
  if (s.pack_a && s.mr != tile.mr) return fmt::format("pack_a=1 needs mr={}", tile.mr);
  const int64_t most_nr = (unpacked ? tile.most_nv : tile.nv) * tile.lanes;
  if (s.nr % tile.lanes != 0 || s.nr > most_nr || (!unpacked && s.nr != tile.nr())) {
    return unpacked ? fmt::format("nr must be a multiple of {} up to {}", tile.lanes, most_nr)
                    : fmt::format("path=4 needs nr={}", tile.nr());
  }
  if (!unpacked) {
    if (s.pack_b || s.k_parts > 1) return "path=4 has no pack_b and no k_parts";
    if (s.transposed && g.prepack) return "a b packed beforehand cannot be transposed";
    if (g.prepack && s.nc < g.n) return "a b packed beforehand needs nc of all columns";
    return std::nullopt;
  }
  if (s.transposed) return "path=3 forms c itself: transposed=0";
  if (g.prepack) return "a b packed beforehand needs path=4 or 1";
  if (g.trans_b && !s.pack_b) return "a transposed b needs pack_b=1";
  if (s.pack_a) return "path=3 reads a in place: pack_a=0";
  if (s.k_parts > std::max<int64_t>(1, div_up(g.k, s.kc))) {
    return fmt::format("k_parts={} exceeds the {} blocks of k", s.k_parts, div_up(g.k, s.kc));
  }
  return std::nullopt;
}

}  // namespace

const std::span<const Tunable> schedule_tunables(tunables);

Tuning tuning_of(const Schedule& schedule) {
  Tuning tuning;
  for (const Field& field : fields) tuning.set(field.tunable.name, field.get(schedule));
  return tuning;
}

Schedule with(Schedule schedule, const Tuning& tuning) {
  for (const Field& field : fields) {
    if (const auto value = tuning.find(field.tunable.name)) field.set(schedule, *value);
  }
  return schedule;
}

const Schedule& best_agreeing(std::span<const Schedule> schedules, const Tuning& tuning) {
  const Schedule* best = &schedules.front();
  int most = -1;
  for (const Schedule& schedule : schedules) {
    int agrees = 0;
    for (const Field& field : fields) {
      if (tuning.find(field.tunable.name) != field.get(schedule)) continue;
      agrees += field.tunable.name == std::string_view("path") ? 100 : 1;
    }
    if (agrees > most) best = &schedule, most = agrees;
    if (tuning.values().empty()) break;
  }
  return *best;
}

Schedule rounded(Schedule s, const Gemm& g, const MicroTile& tile) {
  const Schedule unread;
  const bool blocks = s.path == Path::unpacked || s.path == Path::packed;
  if (!blocks) {
    s.mc = unread.mc, s.kb = unread.kb, s.pack_b = unread.pack_b;
    s.m_parts = unread.m_parts, s.n_parts = unread.n_parts, s.k_parts = unread.k_parts;
    s.batch_parts = unread.batch_parts;
  }
  if (blocks) s.order = unread.order;
  s.share_a = unread.share_a;
  const int64_t rows = formed(s, g).m, cols = formed(s, g).n;
  if (s.path != Path::scale) s.kc = std::min(s.kc, std::max<int64_t>(g.k, 1));
  switch (s.path) {
    case Path::scale:
    case Path::few_rows:
      break;
    case Path::dot:
      if (s.pack_a) s.kc = round_up(s.kc, tile.lanes), s.order = unread.order;
      s.nc = std::min(s.nc, std::max<int64_t>(cols, 1));
      s.nr = tile.lanes;
      s.fixed = s.pack_a;
      break;
    case Path::outer:
      s.pack_a = unread.pack_a, s.fixed = unread.fixed;
      s.mr = tile.mr;
      if (s.order) s.nr = tile.nr();
      s.nc = round_up(s.nc, s.order ? 16 : s.nr);  // lines of c are one task's
      break;
    case Path::unpacked:
      s.kb = s.kc;
      [[fallthrough]];
    case Path::packed:
      s.mc = round_up(std::clamp<int64_t>(s.mc, 1, std::max<int64_t>(rows, 1)), tile.mr);
      s.nc = round_up(std::clamp<int64_t>(s.nc, 1, std::max<int64_t>(cols, 1)), s.nr);
      s.kb = std::min(std::max<int64_t>(g.k, 1), round_up(s.kb, s.kc));
      break;
  }
  if (s.threads == 1) s.fixed = unread.fixed;
  return s;
}

std::optional<std::string> defect_of(const Schedule& s, const Gemm& g, const MicroTile& tile) {
  if (s.unit != UnitKind::fma) return "unit is 0 for float32";
  if (s.path == Path::scale) {
    if (product(g)) return "path=0 forms no product";
    return std::nullopt;
  }
  if (!product(g)) return "there is no product to form: path=0";
  if (s.path == Path::few_rows) return "path=5 is for other formats than float32";
  std::optional<std::string> defect = s.path == Path::dot || s.path == Path::outer
                                          ? defect_of_skinny(s, g, tile)
                                          : defect_of_blocks(s, g, tile);
  if (defect) return defect;
  const double bytes = workspace_of(s, g, tile).bytes(s.threads);
  if (bytes > static_cast<double>(workspace_limit)) {
    return fmt::format("needs {:.0f} MiB of workspace; allowed are 64 MiB", bytes / (1 << 20));
  }
  return std::nullopt;
}

double Workspace::bytes(int threads) const {
  return static_cast<double>(float_bytes) * floats(threads) +
         static_cast<double>(SharedPieces::bytes_of_piece) * static_cast<double>(pieces);
}

Workspace workspace_of(const Schedule& s, const Gemm& problem, const MicroTile& tile) {
  Workspace w;
  const Gemm g = formed(s, problem);
  const int64_t rows = g.m, cols = g.n;
  const int64_t kc = std::min(s.kc, g.k);
  switch (s.path) {
    case Path::scale:
    case Path::few_rows:
      break;
    case Path::dot: {
      if (s.pack_a) {
        w.shared = times(g.batch, rows, round_up(g.k, tile.lanes));
        w.of_thread = times(packed_dot_block, rows, tile.lanes);
        break;
      }
      w.of_thread = g.trans_a && !g.prepack ? times(rows, kc) : 0;
      break;
    }
    case Path::outer:
      if (outer_in_place(s, g)) break;
      w.of_thread = s.order ? outer_floats(rows) : times(rows, outer_ld(s));
      break;
    case Path::unpacked:
      // A micro-kernel loads whole vectors of b, also in the last micro-panel.
      if (s.pack_b) w.of_thread = times(kc, std::min(s.nc, round_up(cols, s.nr))) + tile.lanes;
      if (s.k_parts > 1) w.shared = times(s.k_parts, g.batch, g.m, g.n);
      break;
    case Path::packed: {
      const int64_t width = std::min(s.nc, cols);
      const int64_t batches = div_up(g.batch, s.batch_parts), depth = std::min(s.kb, g.k);
      if (s.transposed) {
        w.of_thread = times(std::min(s.mc, round_up(rows, tile.mr)),
                            round_up(div_up(div_up(width, s.nr), s.n_parts) * s.nr, 16));
      }
      if (!g.prepack) {
        w.shared = times(batches, depth, width) + tile.lanes;
      }
      if (s.pack_a) w.shared_a = times(batches, depth, rows);
      w.pieces = PackedPieces(s, g, tile).of_phase();
      break;
    }
  }
  w.of_thread = round_up(w.of_thread, 16);  // 64-byte lines of their own
  w.shared_a = round_up(w.shared_a, 16);
  w.shared = round_up(w.shared, 16) + w.shared_a;
  return w;
}

// A piece of b is up to 16 micro-panels, runs of 3 KB that the hardware prefetcher follows, and
// less where threads would go without. A piece of a is a few A micro-panels, or, where a is
// contiguous across them, as many as are packed together. Both are more where they are so small
// that states of pieces would take much memory beside them.
PackedPieces::PackedPieces(const Schedule& s, const Gemm& g, const MicroTile& tile)
    : phases(times(s.batch_parts, div_up(g.n, s.nc), div_up(g.k, s.kb))),
      batches(div_up(g.batch, s.batch_parts)),
      row_parts(s.m_parts) {
  const int64_t kc = std::min(s.kc, g.k);
  constexpr int64_t least_floats = 1024;
  const auto at_least = [&](int64_t panels, int64_t width) {
    return std::max(panels, div_up(least_floats, times(width, kc)));
  };
  blocks = div_up(std::min(s.kb, g.k), s.kc);
  if (!g.prepack) {
    const int64_t panels = div_up(std::min(s.nc, g.n), s.nr);
    const int64_t all = times(batches, blocks, panels);
    b_panels = std::clamp<int64_t>(all / (2 * s.threads), 1, at_least(micro_panels_at_once, s.nr));
    b_pieces = div_up(panels, b_panels);
  }
  if (s.pack_a) {
    const int64_t part = div_up(div_up(g.m, tile.mr), s.m_parts) * tile.mr;
    const int64_t panels = div_up(std::min(part, s.mc), tile.mr);
    a_panels = at_least(g.trans_a ? micro_panels_at_once : 4, tile.mr);
    a_pieces = div_up(panels, a_panels);
    a_blocks = div_up(part, s.mc);
  }
}

int64_t PackedPieces::of_b() const { return times(batches, blocks, b_pieces); }
int64_t PackedPieces::of_a() const { return times(batches, row_parts, a_blocks, blocks, a_pieces); }

}  // namespace rooflane::gemm
