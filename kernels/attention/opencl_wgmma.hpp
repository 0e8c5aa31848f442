// Tunings of attention_wgmma.cl, maths f16 and bf16 on Hopper's matrix units: what they need of a
// problem and a device, and which ones are worth trying. Other devices and problems:
// opencl_tensor.hpp; the choice between them: opencl.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backends/opencl_ptx.hpp"
#include "core/variant.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/opencl_tiles.hpp"

namespace rooflane::attention {

struct Warpgroups {
  std::int64_t warps, bk, stages;

  static Warpgroups from(const Tuning& t) {
    return {t.get("warps", 4), t.get("bk", 64), t.get("stages", 2)};
  }
  Tuning tuning() const {
    return {{"path", wgmma}, {"code_path", 1}, {"warps", warps}, {"bk", bk}, {"stages", stages}};
  }
  std::int64_t consumers() const { return warps / 4; }
  // One more warpgroup starts copies.
  std::int64_t items() const { return 32 * warps + 128; }
  std::int64_t bq() const { return 16 * warps; }
  // Blocks of queries: a group computes one after the other.
  std::int64_t works(const Sizes& s) const { return s.batch * s.heads * ceil_div(s.q_len, bq()); }
  // A block of queries, tiles, and two barriers for each.
  std::int64_t local_bytes(const Sizes& s) const {
    return ceil_div(s.head_dim, 64) * 128 * (bq() + stages * bk) + 16 * (stages + 1);
  }
  // Scores, weights, sums, and about 30 addresses and counters.
  std::int64_t registers(const Sizes& s) const { return bk / 2 + bk / 4 + s.head_dim / 2 + 30; }
  // What ptxas can use of those that attention_wgmma.cl takes.
  std::int64_t most_registers() const { return warps == 12 ? 160 : 224; }
  bool fits(const Room& room, const Sizes& s) const {
    return warps % 4 == 0 && warps >= 4 && warps <= 12 && bk % 16 == 0 && bk >= 16 && bk <= 256 &&
           stages >= 2 && registers(s) <= most_registers() && items() <= room.group_items &&
           local_bytes(s) <= room.local_bytes;
  }
  // Rounds of blocks, one a unit, each tile by tile; of causal blocks the longest come first. As
  // measured on an H200 (heads of 64 to 128 columns, 1 to 64 tiles). A third consumer waits more
  // for the matrix unit the longer products are; one alone leaves it idle.
  double expected_ns(const Sizes& s, const Room& room) const {
    const auto real = [](std::int64_t x) { return static_cast<double>(x); };
    const double columns = real(s.head_dim);
    const double share = warps == 4 ? 0.7 : warps == 8 ? 1 : 1.2 + 0.0025 * columns;
    const double tile_ns = 100 + share * real(bk) * (3.7 + 0.061 * columns);
    const double block_ns = 600 + 600 * real(consumers());
    // Tiles at the diagonal: a comparison and a selection for every score.
    const double edges = s.causal ? 0.6 * (real(bq()) / real(bk) + 1) : 0;
    const std::int64_t matrices = s.batch * s.heads, all = works(s);
    double ns = 2500;
    bool is_odd = false;  // two rounds even each other out; an odd last one takes its longest block
    for (std::int64_t first = 0; first < all; first += room.units) {
      const std::int64_t count = std::min(room.units, all - first);
      is_odd = !is_odd;
      const bool is_longest = is_odd && first + count == all;
      const std::int64_t block = s.causal ? (first + (is_longest ? 0 : count / 2)) / matrices : 0;
      const std::int64_t keys = s.end_key(s.q_len - 1 - block * bq());
      ns += block_ns + tile_ns * (std::max(1.0, real(ceil_div(keys, bk))) + edges);
    }
    return ns;
  }
  opencl::Wgmma scores(const Sizes& s) const {
    return {.columns = static_cast<int>(bk), .a = s.type->short_name};
  }
  std::string macros(const Sizes& s) const {
    const opencl::Wgmma values = {.columns = static_cast<int>(s.head_dim),
                                  .a = s.type->short_name,
                                  .b_wide = true,
                                  .a_in_registers = true};
    return scores(s).macros("SCORES") + values.macros("VALUES");
  }
  std::string options(const Sizes& s) const {
    return fmt::format(
        "-DCODE_PATH=1 -DV=1 -DVW=1 -DD={} -DCONSUMERS={} -DBK={} -DSTAGES={} -DTYPE={}{}",
        s.head_dim, consumers(), bk, stages, s.type == &float16 ? "F16" : "BF16", element_macro(s));
  }
};

// Why the path cannot serve the problem, whatever the tuning.
inline std::optional<std::string> wgmma_refusal(const Sizes& s) {
  if (s.type == &float32) return "path=4 is of maths f16 and bf16";
  if (s.head_dim % 8 != 0 || s.head_dim > 256) {
    return fmt::format("path=4 takes heads of at most 256 columns, a multiple of 8, not {}",
                       s.head_dim);
  }
  if (s.scale < 0) return "path=4 takes no negative scale";
  if (s.kv_len == 0) return "path=4 needs keys";
  return std::nullopt;
}

inline std::vector<Timed> warpgroups(const Sizes& s, const Room& room) {
  std::vector<Timed> list;
  for (const std::int64_t warps : {8, 12, 4}) {
    for (const std::int64_t bk : {128, 160, 176, 208, 112, 96, 80, 64}) {
      Warpgroups groups{warps, bk, 8};
      while (groups.stages > 2 && !groups.fits(room, s)) --groups.stages;
      if (groups.fits(room, s)) list.emplace_back(groups.expected_ns(s, room), groups.tuning());
    }
  }
  return list;
}

}  // namespace rooflane::attention
