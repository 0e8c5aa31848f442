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
  static constexpr std::int64_t path = decode;
  static constexpr const char* names[] = {"code_path", "w",      "lanes", "nb",
                                          "stages",    "splits", "fused"};
  // Rows that attention_decode.cl takes: q and o of all of them stay in registers.
  static constexpr std::int64_t most_rows = 8;

  std::int64_t lane_floats(std::int64_t head_dim) const {
    const std::int64_t vector = row_alignment(head_dim);
    return ceil_div(ceil_div(head_dim, vector), lanes) * vector;
  }
  std::int64_t local_bytes(const Sizes& s) const {
    const std::int64_t rows = s.q_len * s.group();
    const std::int64_t ring = stages * 2 * nb * w * lane_floats(s.head_dim);
    const std::int64_t sums = w * rows * lane_floats(s.head_dim);
    return 4 * (std::max(ring, sums) + 2 * w / lanes * rows + (code_path == 0 ? w : 0)) + 64;
  }
  std::optional<std::string> defect(const Sizes& s, const common::Device& device) const {
    return common::unmet_need(
        path,
        {plain_floats(s),
         has_code_path(code_path, device),
         {s.q_len * s.group() <= most_rows, "at most 8 rows: q_len · heads/kv_heads"},
         {code_path == 1 || fused == 0, "code_path=1 for fused=1"},
         {is_power_of_two(lanes) && lanes <= 32 && w % lanes == 0,
          "lanes that are a power of two up to 32 and divide w"},
         {stages >= 2, "stages of at least 2"}},
        {code_path, w, local_bytes(s)}, device);
  }
  std::string options(const Sizes& s) const {
    Decode compiled = *this;
    compiled.fused = splits > 1 ? fused : 0;
    return fmt::format("-DV=1 -DVW={} -DROWS={} -DMASKED={:d} {}", row_alignment(s.head_dim),
                       s.q_len * s.group(), s.causal && s.q_len > 1, macros_of(compiled, s));
  }
};

// Candidates for decode. Copies in flight are what counts: about 4.8 TB/s times a loaded latency
// of a microsecond are 36 KB per multiprocessor; a ring of three or more stages of 16 to 32 KB
// holds two to three times that.
inline std::vector<Tuning> decode_tunings(const Sizes& s, const common::Device& device) {
  const std::int64_t rows = s.q_len * s.group();
  if (rows > Decode::most_rows) return {};
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
          // Two to four groups at a time per multiprocessor.
          const std::int64_t groups = at_a_time(device, d.local_bytes(s));
          if (groups >= 2 && groups <= 4) list.push_back(d);
        }
      }
    }
  }
  for (const std::int64_t w : {128, 64, 32}) list.push_back({1, w, 32, 1, 2, 1, 1});
  std::vector<Tuning> tunings;
  for (Decode& d : list) {
    if (d.defect(s, device)) continue;
    const std::int64_t groups = std::clamp<std::int64_t>(device.local_limit(1) / d.local_bytes(s),
                                                         1, std::max<std::int64_t>(1, 512 / d.w));
    const std::int64_t slots = device.info.compute_units * groups;
    // Starting and ending takes the time of about 8 MB of reading, shared by all slots.
    const double start = 8e6 / (8.0 * static_cast<double>(s.head_dim * slots));
    d.splits = best_splits(s.batch * s.kv_heads, keys, slots, start, static_cast<double>(rows),
                           std::max<std::int64_t>(1, keys / (d.w / d.lanes * d.nb)));
    d.splits = std::max<std::int64_t>(
        1, ceil_div(keys, std::max<std::int64_t>(1, ceil_div(keys, d.splits))));
    tunings.push_back(common::tuning_of(d));
  }
  return tunings;
}

}  // namespace rooflane::attention
