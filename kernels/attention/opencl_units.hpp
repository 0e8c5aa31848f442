// Tunings of maths 3xtf32, f16 and bf16: attention_tensor.cl (mma.sync) and, for the latter two on
// Hopper, attention_wgmma.cl. What they need of a problem and a device, and which ones are worth
// trying. The strict paths: opencl_tiles.hpp, opencl_decode.hpp; the choice between them:
// opencl.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backends/opencl_ptx.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/opencl_tiles.hpp"

namespace rooflane::attention {

struct Tensor {
  std::int64_t code_path, warps, mt, bk, stages;
  static constexpr std::int64_t path = tensor;
  static constexpr const char* names[] = {"code_path", "warps", "mt", "bk", "stages"};

  // The column `path` of a row.
  std::string name(const Sizes& s) const {
    if (code_path == 0) return "mma emulated";
    return s.type == &float32 ? "mma.m16n8k8.tf32"
                              : fmt::format("mma.m16n8k16.{}", s.type->short_name);
  }
  // The portable code path's work-items play a whole warp each.
  std::int64_t items() const { return code_path == 1 ? 32 * warps : warps; }
  std::int64_t bq() const { return warps * mt * 16; }
  static std::int64_t padded_dim(const Sizes& s) { return ceil_div(s.head_dim, 16) * 16; }
  // Rows of k and of v in local memory, as attention_fragments.cl lays them out.
  std::int64_t local_bytes(const Sizes& s) const {
    const std::int64_t dp = padded_dim(s);
    const bool split = s.type == &float32;
    const std::int64_t row_k = split ? 4 * (dp % 32 == 16 ? dp : dp + 16) : 2 * dp + 16;
    const std::int64_t row_v = split ? 4 * (dp + 4) : row_k;
    return bq() * row_k + stages * bk * (row_k + row_v) + 4 * bq() + 64;
  }
  // Scores, sums, operands, and about 40 addresses and counters. 16-bit queries stay in registers
  // where these have room for them.
  std::int64_t registers(const Sizes& s) const {
    const std::int64_t dp = padded_dim(s), sums = mt * (bk / 2 + dp / 2);
    if (s.type == &float32) return std::min<std::int64_t>(255, sums + 16 * mt + 32 / mt + 16 + 40);
    const std::int64_t queries = sums + mt * dp / 4 <= 176 ? mt * dp / 4 : 4 * mt;
    return std::min<std::int64_t>(255, sums + queries + 8 + 40);
  }
  std::optional<std::string> defect(const Sizes& s, const common::Device& device) const {
    const opencl::Features& has = device.features;
    return common::unmet_need(
        path,
        {{code_path == 0 || (has.mma_tf32 && has.mma_f16 && has.nvidia_code_path()),
          "matrix units that take tf32 and f16 with code_path=1"},
         {mt <= 2, "mt of 1 or 2"},
         {bk % 32 == 0, "bk a multiple of 32"},
         {is_power_of_two(warps), "a power of two for warps"}},
        {code_path, items(), local_bytes(s)}, device);
  }
  std::string options(const Sizes& s) const {
    const std::int64_t row_bytes = static_cast<std::int64_t>(s.type->bytes(s.head_dim));
    const std::int64_t piece = row_bytes % 16 == 0  ? 16
                               : row_bytes % 8 == 0 ? 8
                               : row_bytes % 4 == 0 ? 4
                                                    : 2;
    return fmt::format("-DV=1 -DPIECE={} -DVW={} {}", piece, std::max<std::int64_t>(1, piece / 4),
                       macros_of(*this, s));
  }
  // Groups in waves over the device, each as long as its rows take beside the others of its unit.
  double expected_ns(const Sizes& s, const common::Device& device) const {
    if (code_path == 0) return common::never_first;
    const std::int64_t units = device.info.compute_units;
    const std::int64_t most = std::max<std::int64_t>(
        1, std::min(at_a_time(device, local_bytes(s)), 65536 / (registers(s) * items())));
    const std::int64_t groups = s.batch * s.kv_heads * ceil_div(s.q_len * s.group(), bq());
    const std::int64_t resident = std::min(most, ceil_div(groups, units));
    // Measured on an H200: half of the speed with 4 warps a unit, nine tenths with one row of
    // fragments a warp; of 16-bit operands, where loading fragments takes longer, three quarters.
    const double one_row = s.type == &float32 ? 0.9 : 0.75;
    const double busy = std::min(1.0, 0.25 + 0.75 * static_cast<double>(warps * resident) / 8) *
                        (mt == 2 ? 1 : one_row) * (bk == 32 ? 0.97 : 1);
    // What does not fit 255 registers goes through memory.
    const std::int64_t sums = mt * (bk + padded_dim(s)) / 2;
    const double spilled = std::max(0.0, static_cast<double>(sums) - 160) / 160;
    // 16-bit operands: 0.12 ns a row and key with 64 columns, 0.21 with 128.
    const double key_ns = 0.034 + 0.00136 * static_cast<double>(s.head_dim);
    return 3000 + std::ceil(static_cast<double>(groups) / static_cast<double>(units * resident)) *
                      static_cast<double>(resident * bq()) * (1 + spilled) / busy * s.mean_keys() *
                      key_ns;
  }
};

struct Warpgroups {
  std::int64_t code_path, warps, bk, stages;
  static constexpr std::int64_t path = wgmma;
  static constexpr const char* names[] = {"code_path", "warps", "bk", "stages"};

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
  // Why no tuning can serve the problem.
  static std::optional<std::string> refusal(const Sizes& s, const common::Device& device) {
    const opencl::Features& has = device.features;
    if (!has.wgmma) {
      return fmt::format("path=4 needs wgmma, which {} or its driver lacks{}", device.info.name,
                         has.no_wgmma.empty() ? "" : ": " + has.no_wgmma);
    }
    if (s.type == &float32) return "path=4 is of maths f16 and bf16";
    if (s.head_dim % 8 != 0 || s.head_dim > 256) {
      return fmt::format("path=4 takes heads of at most 256 columns, a multiple of 8, not {}",
                         s.head_dim);
    }
    if (s.scale < 0) return "path=4 takes no negative scale";
    if (s.kv_len == 0) return "path=4 needs keys";
    return std::nullopt;
  }
  std::optional<std::string> defect(const Sizes& s, const common::Device& device) const {
    if (auto reason = refusal(s, device)) return reason;
    return common::unmet_need(
        path,
        {{code_path == 1, "code_path=1"},
         {warps % 4 == 0 && warps >= 4 && warps <= 12, "4, 8 or 12 warps"},
         {bk % 16 == 0 && bk >= 16 && bk <= 256, "bk a multiple of 16 up to 256"},
         {stages >= 2, "stages of at least 2"},
         {registers(s) <= most_registers(),
          "3·bk/4 + head_dim/2 + 30 registers of at most 224, or 160 with warps=12"}},
        {1, items(), local_bytes(s)}, device);
  }
  // Rounds of blocks, one a unit, each tile by tile; of causal blocks the longest come first. As
  // measured on an H200 (heads of 64 to 128 columns, 1 to 64 tiles). A third consumer waits more
  // for the matrix unit the longer products are; one alone leaves it idle.
  double expected_ns(const Sizes& s, const common::Device& device) const {
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
    for (std::int64_t first = 0; first < all; first += device.info.compute_units) {
      const std::int64_t count = std::min<std::int64_t>(device.info.compute_units, all - first);
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
    return fmt::format("-DV=1 -DVW=1 -DCONSUMERS={} {}", consumers(), macros_of(*this, s));
  }
};

// Tunings of both paths.
inline std::vector<Guess> unit_guesses(const Sizes& s, const common::Device& device) {
  std::vector<Guess> list;
  const auto add = [&](const auto& t) {
    if (!t.defect(s, device)) list.push_back({common::tuning_of(t), t.expected_ns(s, device)});
  };
  struct Shape {
    std::int64_t warps, mt, bk;
  };
  constexpr Shape shapes[] = {{4, 2, 64}, {4, 1, 64}, {8, 1, 64}, {4, 2, 32},
                              {4, 1, 32}, {8, 1, 32}, {2, 1, 32}, {1, 1, 32}};
  for (const auto& [warps, mt, bk] : shapes) {
    // Copies of 16-bit operands take little room: the next tiles of both can arrive meanwhile.
    add(Tensor{1, warps, mt, bk, s.type == &float32 ? 1 : 2});
  }
  // The portable code path only serves checks.
  for (const std::int64_t warps : {2, 1}) add(Tensor{0, warps, 1, 32, 1});
  if (!Warpgroups::refusal(s, device)) {
    for (const std::int64_t warps : {8, 12, 4}) {
      for (const std::int64_t bk : {128, 160, 176, 208, 112, 96, 80, 64}) {
        Warpgroups groups{1, warps, bk, 8};
        while (groups.stages > 2 && groups.defect(s, device)) --groups.stages;
        add(groups);
      }
    }
  }
  return list;
}

}  // namespace rooflane::attention
