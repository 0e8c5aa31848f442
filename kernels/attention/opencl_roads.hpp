// Tunings of attention_tiles.cl (many rows) and attention_decode.cl (few rows): what they need of a
// device, which ones are worth trying, how keys are split. attention.cl's and the choice between
// them: opencl.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backends/opencl.hpp"
#include "core/variant.hpp"
#include "kernels/attention/attention.hpp"

namespace rooflane::attention {

// Which file runs: the tunable `path`.
enum Path : std::int64_t { any_device = 0, many_rows = 1, few_rows = 2 };

inline std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

// Floats that rows of head_dim floats, one after another, are aligned to: 4, 2 or 1.
inline std::int64_t row_alignment(std::int64_t head_dim) {
  return head_dim % 4 == 0 ? 4 : head_dim % 2 == 0 ? 2 : 1;
}

// What a device offers to one work-group and to all that a compute unit runs at a time.
struct Room {
  std::int64_t local_bytes;  // of a group, and of a unit, which holds little more
  std::int64_t group_items;
  std::int64_t units;

  // Groups of `bytes` each; the driver takes another KB for each.
  std::int64_t at_a_time(std::int64_t bytes) const { return (local_bytes + 2048) / (bytes + 1024); }
};

// Splits of the keys: `work` pieces of `length` keys each are cut in s parts, and the device runs
// `slots` groups at a time; a part costs its keys and `start` keys besides. The s of least time.
inline std::int64_t best_splits(std::int64_t work, std::int64_t length, std::int64_t slots,
                                double start, double start_if_split, std::int64_t most) {
  std::int64_t best = 1;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t s = 1; s <= std::min<std::int64_t>(most, 1024); ++s) {
    const double time =
        static_cast<double>(ceil_div(work * s, slots)) *
        (static_cast<double>(ceil_div(length, s)) + start + (s > 1 ? start_if_split : 0));
    if (time < least) best = s, least = time;
  }
  return best;
}

// attention_tiles.cl. Items of a row are `columns` neighbours; each has `tm` rows, `bk`/columns
// keys and head_dim/columns columns.
struct Tiles {
  std::int64_t road, w, bq, bk, tm, cd, cn, stages, unroll, splits;

  static Tiles from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {t.get("road", 0), get("w"),  get("bq"),     get("bk"),     get("tm"),
            get("cd"),        get("cn"), get("stages"), get("unroll"), get("splits")};
  }
  std::int64_t columns() const { return w / (bq / tm); }
  std::int64_t out_columns(std::int64_t head_dim) const { return ceil_div(head_dim, columns()); }
  std::int64_t local_bytes(std::int64_t head_dim) const {
    const std::int64_t chunk = std::max(bk * cd, cn * out_columns(head_dim) * columns());
    const std::int64_t turned = (head_dim > cd ? 2 : 1) * cd * bk;
    return 4 * (ceil_div(head_dim, cd) * cd * bq + turned + stages * chunk + bk * bq + bq + 1 +
                (road == 0 ? w : 0)) +
           64;
  }
  // First columns of the parts of o in which neighbours are exchanged.
  std::int64_t exchanged_columns(std::int64_t head_dim) const {
    return row_alignment(head_dim) == 4 ? out_columns(head_dim) / 4 * 4 * columns() : 0;
  }
  // Registers for the accumulators: more than 160 floats of 255 spill.
  std::int64_t accumulators(std::int64_t head_dim) const {
    return tm * (bk / columns() + out_columns(head_dim));
  }
  bool fits(const Room& room, std::int64_t head_dim) const {
    const auto power = [](std::int64_t x) {
      return x > 0 && std::has_single_bit(static_cast<std::uint64_t>(x));
    };
    return tm % 4 == 0 && bq % tm == 0 && (bq / tm % 2 == 0 || columns() > 16) &&
           w % (bq / tm) == 0 && power(columns()) && columns() <= 32 && power(bq / 4) &&
           bk % (4 * columns()) == 0 && bk % cn == 0 && unroll % 4 == 0 && cd % unroll == 0 &&
           cd % 8 == 0 && cn % unroll == 0 && stages >= 2 && w <= room.group_items &&
           local_bytes(head_dim) <= room.local_bytes;
  }
  // Groups that a unit runs at a time: 255 registers for each item, of 65536.
  std::int64_t at_a_time(const Room& room, std::int64_t head_dim) const {
    return std::max<std::int64_t>(1, std::min(room.at_a_time(local_bytes(head_dim)), 256 / w));
  }
  std::string options(std::int64_t head_dim) const {
    return fmt::format(
        "-DROAD={} -DV=1 -DVW={} -DD={} -DW={} -DBQ={} -DBK={} -DTM={} -DCD={} -DCN={} -DSTAGES={} "
        "-DUNROLL={}",
        road, row_alignment(head_dim), head_dim, w, bq, bk, tm, cd, cn, stages, unroll);
  }
  Tuning tuning() const {
    return {{"path", many_rows}, {"road", road},     {"w", w},          {"bq", bq},
            {"bk", bk},          {"tm", tm},         {"cd", cd},        {"cn", cn},
            {"stages", stages},  {"unroll", unroll}, {"splits", splits}};
  }
};

// attention_decode.cl. `lanes` items share a key, each with vectors of row_alignment(head_dim)
// floats.
struct Decode {
  std::int64_t road, w, lanes, nb, stages, splits, fused;

  static Decode from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {t.get("road", 0), get("w"),      get("lanes"),     get("nb"),
            get("stages"),    get("splits"), t.get("fused", 0)};
  }
  std::int64_t lane_floats(std::int64_t head_dim) const {
    const std::int64_t vector = row_alignment(head_dim);
    return ceil_div(ceil_div(head_dim, vector), lanes) * vector;
  }
  std::int64_t local_bytes(std::int64_t head_dim, std::int64_t rows) const {
    const std::int64_t ring = stages * 2 * nb * w * lane_floats(head_dim);
    const std::int64_t sums = w * rows * lane_floats(head_dim);
    return 4 * (std::max(ring, sums) + 2 * w / lanes * rows + (road == 0 ? w : 0)) + 64;
  }
  bool fits(const Room& room, std::int64_t head_dim, std::int64_t rows) const {
    return lanes <= 32 && std::has_single_bit(static_cast<std::uint64_t>(lanes)) &&
           w % lanes == 0 && stages >= 2 && w <= room.group_items &&
           local_bytes(head_dim, rows) <= room.local_bytes;
  }
  std::string options(const Sizes& s) const {
    return fmt::format(
        "-DROAD={} -DV=1 -DVW={} -DD={} -DROWS={} -DW={} -DLANES={} -DNB={} -DSTAGES={} "
        "-DMASKED={} -DFUSED={}",
        road, row_alignment(s.head_dim), s.head_dim, s.q_len * s.group(), w, lanes, nb, stages,
        s.causal && s.q_len > 1 ? 1 : 0, splits > 1 ? fused : 0);
  }
  Tuning tuning() const {
    return {{"path", few_rows}, {"road", road},     {"w", w},           {"lanes", lanes},
            {"nb", nb},         {"stages", stages}, {"splits", splits}, {"fused", fused}};
  }
};

// Rows that attention_decode.cl takes: q and o of all of them stay in registers.
constexpr std::int64_t most_decode_rows = 8;

// Candidates for many rows on NVIDIA's road, the likely best in front. Two blocks of 128 items or
// one of 256 fill a multiprocessor's 65536 registers (up to 255 each), 8×8 scores and 8 rows by 4
// to 16 columns of o per item: 64 multiply-adds per 16 floats of local memory.
inline std::vector<Tiles> nvidia_tiles(const Sizes& s, const Room& room) {
  const std::int64_t rows = s.q_len * s.group();
  std::vector<Tiles> list;
  const auto add = [&](std::int64_t w, std::int64_t bq, std::int64_t bk, std::int64_t tm,
                       std::int64_t chunk, std::int64_t stages, std::int64_t unroll) {
    // About `chunk` columns of k, evenly, and rows of v.
    const std::int64_t cd =
        ceil_div(ceil_div(s.head_dim, ceil_div(s.head_dim, chunk)), unroll) * unroll;
    const auto rows_of_v =
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(chunk)));
    list.push_back({1, w, bq, bk, tm, cd, rows_of_v, stages, unroll, 1});
  };
  if (rows > 64 && s.head_dim <= 64) {
    add(128, 128, 64, 8, 64, 2, 8);
    add(256, 256, 64, 8, 64, 2, 8);
  }
  if (rows > 64 && s.head_dim <= 96) {
    add(128, 128, 64, 8, 40, 2, 8);
    add(128, 128, 64, 8, 32, 3, 8);
    add(128, 128, 64, 8, 16, 3, 8);
  }
  if (rows > 64 && s.head_dim <= 128) {
    add(256, 128, 128, 8, 64, 2, 8);
    add(256, 128, 128, 8, 32, 3, 8);
  }
  if (rows > 64) add(256, 128, 64, 8, 16, 3, 8);
  if (rows > 32 && s.head_dim <= 128) {
    add(128, 64, 128, 8, 16, 4, 8);
    add(128, 64, 64, 8, 32, 3, 8);
  }
  if (rows > 32) add(128, 64, 64, 8, 16, 4, 8);
  if (rows > 16 && rows <= 64) {
    add(128, 32, 128, 8, 32, 3, 8);
    add(64, 32, 128, 8, 32, 3, 8);
    add(64, 32, 64, 8, 32, 3, 8);
  }
  if (rows <= 16) add(64, 16, 128, 4, 16, 3, 8);
  if (rows <= 32) {
    add(128, 16, 128, 4, 32, 3, 8);
    add(64, 16, 64, 4, 32, 3, 8);
  }
  add(128, 32, 64, 4, 8, 2, 8);  // the last resort for a long head_dim
  add(128, 16, 128, 4, 8, 2, 8);
  std::erase_if(list, [&](const Tiles& t) {
    return !t.fits(room, s.head_dim) || t.accumulators(s.head_dim) > 160;
  });
  const std::int64_t heads = s.batch * s.kv_heads;
  for (Tiles& t : list) {
    const std::int64_t at_a_time =
        std::max<std::int64_t>(1, std::min(room.at_a_time(t.local_bytes(s.head_dim)), 256 / t.w));
    const std::int64_t length = ceil_div(s.kv_len, t.bk);
    // A start costs about a tile (q, the first copies), and the sums of a split are written, read
    // and written again.
    t.splits = best_splits(heads * ceil_div(rows, t.bq), length, room.units * at_a_time, 1.0, 1.0,
                           std::max<std::int64_t>(1, length / 2));
    t.splits = std::max<std::int64_t>(
        1, ceil_div(length, std::max<std::int64_t>(1, ceil_div(length, t.splits))));
  }
  return list;
}

// Candidates for few rows. Copies in flight are what counts: about 4.8 TB/s times a loaded latency
// of a microsecond are 36 KB per multiprocessor; a ring of three or more stages of 16 to 32 KB
// holds two to three times that.
inline std::vector<Decode> nvidia_decode(const Sizes& s, const Room& room) {
  const std::int64_t rows = s.q_len * s.group();
  if (rows > most_decode_rows) return {};
  const std::int64_t vector = row_alignment(s.head_dim);
  const std::int64_t vectors = ceil_div(s.head_dim, vector);
  // q and o in registers: at most 64 floats of each.
  // At least 128 bytes of a key in a row.
  std::int64_t lanes = 32 / vector;
  while (lanes < 32 && ceil_div(vectors, lanes) * vector * std::max<std::int64_t>(rows, 4) > 64)
    lanes *= 2;
  std::vector<Decode> list;
  for (const std::int64_t wide : {lanes, 2 * lanes}) {
    if (wide > 32 || (wide > lanes && wide > vectors)) continue;
    for (const std::int64_t w : {128, 256}) {
      for (const std::int64_t nb : {2, 4, 1}) {
        for (const std::int64_t stages : {3, 4, 6, 2}) {
          const Decode d = {1, w, wide, nb, stages, 1, 1};
          const std::int64_t bytes = d.local_bytes(s.head_dim, rows);
          // Two to four groups at a time per multiprocessor.
          if (room.at_a_time(bytes) >= 2 && room.at_a_time(bytes) <= 4) list.push_back(d);
        }
      }
    }
  }
  for (const std::int64_t w : {128, 64, 32}) list.push_back({1, w, 32, 1, 2, 1, 1});
  std::erase_if(list, [&](const Decode& d) { return !d.fits(room, s.head_dim, rows); });
  for (Decode& d : list) {
    const std::int64_t at_a_time =
        std::clamp<std::int64_t>(room.local_bytes / d.local_bytes(s.head_dim, rows), 1,
                                 std::max<std::int64_t>(1, 512 / d.w));
    const std::int64_t slots = room.units * at_a_time;
    // Starting and ending takes the time of about 8 MB of reading, shared by all slots.
    const double start = 8e6 / (8.0 * static_cast<double>(s.head_dim * slots));
    d.splits = best_splits(s.batch * s.kv_heads, s.kv_len, slots, start, static_cast<double>(rows),
                           std::max<std::int64_t>(1, s.kv_len / (d.w / d.lanes * d.nb)));
    d.splits = std::max<std::int64_t>(
        1, ceil_div(s.kv_len, std::max<std::int64_t>(1, ceil_div(s.kv_len, d.splits))));
  }
  return list;
}

}  // namespace rooflane::attention
