// Tunings of attention_decode.cl, few query rows on NVIDIA's code path: what they need of a device,
// which ones are worth trying, how keys are split. Many rows: opencl_tiles.hpp; the choice between
// the files: opencl.cpp.
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
#include "kernels/attention/opencl_tiles.hpp"

namespace rooflane::attention {

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

// attention_decode.cl. `lanes` items share a key, each with vectors of row_alignment(head_dim)
// floats.
struct Decode {
  std::int64_t code_path, w, lanes, nb, stages, splits, fused;

  static Decode from(const Tuning& t) {
    const auto get = [&](const char* key) { return t.get(key, 1); };
    return {t.get("code_path", 0), get("w"),      get("lanes"),     get("nb"),
            get("stages"),         get("splits"), t.get("fused", 0)};
  }
  std::int64_t lane_floats(std::int64_t head_dim) const {
    const std::int64_t vector = row_alignment(head_dim);
    return ceil_div(ceil_div(head_dim, vector), lanes) * vector;
  }
  std::int64_t local_bytes(std::int64_t head_dim, std::int64_t rows) const {
    const std::int64_t ring = stages * 2 * nb * w * lane_floats(head_dim);
    const std::int64_t sums = w * rows * lane_floats(head_dim);
    return 4 * (std::max(ring, sums) + 2 * w / lanes * rows + (code_path == 0 ? w : 0)) + 64;
  }
  bool fits(const Room& room, std::int64_t head_dim, std::int64_t rows) const {
    return lanes <= 32 && std::has_single_bit(static_cast<std::uint64_t>(lanes)) &&
           w % lanes == 0 && stages >= 2 && w <= room.group_items &&
           local_bytes(head_dim, rows) <= room.local_bytes;
  }
  std::string options(const Sizes& s) const {
    return fmt::format(
        "-DCODE_PATH={} -DV=1 -DVW={} -DD={} -DROWS={} -DW={} -DLANES={} -DNB={} -DSTAGES={} "
        "-DMASKED={} -DFUSED={}{}",
        code_path, row_alignment(s.head_dim), s.head_dim, s.q_len * s.group(), w, lanes, nb, stages,
        s.causal && s.q_len > 1 ? 1 : 0, splits > 1 ? fused : 0, option_macros(s));
  }
  Tuning tuning() const {
    return {{"path", decode}, {"code_path", code_path}, {"w", w},           {"lanes", lanes},
            {"nb", nb},       {"stages", stages},       {"splits", splits}, {"fused", fused}};
  }
};

// Rows that attention_decode.cl takes: q and o of all of them stay in registers.
constexpr std::int64_t most_decode_rows = 8;

// Candidates for decode. Copies in flight are what counts: about 4.8 TB/s times a loaded latency
// of a microsecond are 36 KB per multiprocessor; a ring of three or more stages of 16 to 32 KB
// holds two to three times that.
inline std::vector<Decode> nvidia_decode(const Sizes& s, const Room& room) {
  const std::int64_t rows = s.q_len * s.group();
  if (rows > most_decode_rows) return {};
  const std::int64_t keys = s.most_keys(s.q_len);
  const std::int64_t vector = row_alignment(s.head_dim);
  const std::int64_t vectors = ceil_div(s.head_dim, vector);
  // At least 128 bytes of a key in a row.
  std::int64_t lanes = 32 / vector;
  // q and o in registers: at most 64 floats of each.
  while (lanes < 32 && ceil_div(vectors, lanes) * vector * std::max<std::int64_t>(rows, 4) > 64)
    lanes *= 2;
  std::vector<Decode> list;
  for (const std::int64_t lanes_of_key : {lanes, 2 * lanes}) {
    if (lanes_of_key > 32 || (lanes_of_key > lanes && lanes_of_key > vectors)) continue;
    for (const std::int64_t w : {128, 256}) {
      for (const std::int64_t nb : {2, 4, 1}) {
        for (const std::int64_t stages : {3, 4, 6, 2}) {
          const Decode d = {1, w, lanes_of_key, nb, stages, 1, 1};
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
    d.splits = best_splits(s.batch * s.kv_heads, keys, slots, start, static_cast<double>(rows),
                           std::max<std::int64_t>(1, keys / (d.w / d.lanes * d.nb)));
    d.splits = std::max<std::int64_t>(
        1, ceil_div(keys, std::max<std::int64_t>(1, ceil_div(keys, d.splits))));
  }
  return list;
}

}  // namespace rooflane::attention
