// Tunings of attention_tensor.cl, maths 3xtf32, f16 and bf16: what they need of a device and which
// ones are worth trying. The strict paths: opencl_tiles.hpp, opencl_decode.hpp; the choice between
// them: opencl.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/variant.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/opencl_tiles.hpp"

namespace rooflane::attention {

struct Tensor {
  std::int64_t code_path, warps, mt, bk, stages;

  static Tensor from(const Tuning& t) {
    return {t.get("code_path", 0), t.get("warps", 1), t.get("mt", 1), t.get("bk", 32),
            t.get("stages", 1)};
  }
  Tuning tuning() const {
    return {{"path", tensor}, {"code_path", code_path}, {"warps", warps}, {"mt", mt},
            {"bk", bk},       {"stages", stages}};
  }
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
  bool fits(const Room& room, const Sizes& s) const {
    return (mt == 1 || mt == 2) && bk % 32 == 0 &&
           std::has_single_bit(static_cast<std::uint64_t>(warps)) && items() <= room.group_items &&
           local_bytes(s) <= room.local_bytes;
  }
  std::string options(const Sizes& s) const {
    const std::int64_t row_bytes = static_cast<std::int64_t>(s.type->bytes(s.head_dim));
    const std::int64_t piece = row_bytes % 16 == 0  ? 16
                               : row_bytes % 8 == 0 ? 8
                               : row_bytes % 4 == 0 ? 4
                                                    : 2;
    return fmt::format(
        "-DCODE_PATH={} -DV=1 -DPIECE={} -DVW={} -DD={} -DWARPS={} -DMT={} -DBK={} -DSTAGES={} "
        "-DTYPE={}{}",
        code_path, piece, std::max<std::int64_t>(1, piece / 4), s.head_dim, warps, mt, bk, stages,
        s.type == &float32   ? "F32"
        : s.type == &float16 ? "F16"
                             : "BF16",
        element_macro(s));
  }
};

// Groups in waves over the device, each as long as its rows take beside the others of its unit.
// `room` is that of the code path, `portable_room` that of code path 0.
inline std::vector<Timed> tensor_tiles(const Sizes& s, const Room& room, const Room& portable_room,
                                       std::int64_t code_path) {
  std::vector<Timed> list;
  if (code_path == 1) {
    const auto time = [&](const Tensor& t) {
      const std::int64_t at_a_time = std::max<std::int64_t>(
          1, std::min(room.at_a_time(t.local_bytes(s)), 65536 / (t.registers(s) * t.items())));
      const std::int64_t groups = s.batch * s.kv_heads * ceil_div(s.q_len * s.group(), t.bq());
      const std::int64_t resident = std::min(at_a_time, ceil_div(groups, room.units));
      const double warps = static_cast<double>(t.warps * resident);
      // Measured on an H200: half of the speed with 4 warps a unit, nine tenths with one row of
      // fragments a warp; of 16-bit operands, where loading fragments takes longer, three quarters.
      const double one_row = s.type == &float32 ? 0.9 : 0.75;
      const double busy = std::min(1.0, 0.25 + 0.75 * warps / 8) * (t.mt == 2 ? 1 : one_row) *
                          (t.bk == 32 ? 0.97 : 1);
      // What does not fit 255 registers goes through memory.
      const std::int64_t sums = t.mt * (t.bk + Tensor::padded_dim(s)) / 2;
      const double spilled = std::max(0.0, static_cast<double>(sums) - 160) / 160;
      // 16-bit operands: 0.12 ns a row and key with 64 columns, 0.21 with 128.
      const double key_ns = 0.034 + 0.00136 * static_cast<double>(s.head_dim);
      return 3000 +
             std::ceil(static_cast<double>(groups) / static_cast<double>(room.units * resident)) *
                 static_cast<double>(resident * t.bq()) * (1 + spilled) / busy * s.mean_keys() *
                 key_ns;
    };
    for (const auto& [warps, mt, bk] : {std::array<std::int64_t, 3>{4, 2, 64},
                                        {4, 1, 64},
                                        {8, 1, 64},
                                        {4, 2, 32},
                                        {4, 1, 32},
                                        {8, 1, 32},
                                        {2, 1, 32},
                                        {1, 1, 32}}) {
      // Copies of 16-bit operands take little room: the next tiles of both can arrive meanwhile.
      const Tensor t = {1, warps, mt, bk, s.type == &float32 ? 1 : 2};
      if (t.fits(room, s)) list.emplace_back(time(t), t.tuning());
    }
  }
  // The portable code path only serves checks.
  for (const std::int64_t warps : {2, 1}) {
    const Tensor portable{0, warps, 1, 32, 1};
    if (portable.fits(portable_room, s)) list.emplace_back(1e30, portable.tuning());
  }
  return list;
}

}  // namespace rooflane::attention
