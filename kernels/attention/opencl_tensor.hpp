// Tunings of attention_tensor.cl, math 3xtf32: what they need of a device and which ones are worth
// trying. The strict paths: opencl_tiles.hpp, opencl_decode.hpp; the choice between them:
// opencl.cpp.
#pragma once

#include <algorithm>
#include <array>
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
  std::int64_t code_path, warps, mt, bk;

  static Tensor from(const Tuning& t) {
    return {t.get("code_path", 0), t.get("warps", 1), t.get("mt", 1), t.get("bk", 32)};
  }
  Tuning tuning() const {
    return {{"path", split_products},
            {"code_path", code_path},
            {"warps", warps},
            {"mt", mt},
            {"bk", bk}};
  }
  // The portable code path's work-items play a whole warp each.
  std::int64_t items() const { return code_path == 1 ? 32 * warps : warps; }
  std::int64_t bq() const { return warps * mt * 16; }
  std::int64_t local_bytes(std::int64_t head_dim) const {
    const std::int64_t dp = ceil_div(head_dim, 16) * 16;
    const std::int64_t ldk = dp % 32 == 16 ? dp : dp + 16;
    return 4 * ((bq() + bk) * ldk + bk * (dp + 4) + bq()) + 64;
  }
  // Scores, sums, the split operands, and about 40 addresses and counters.
  std::int64_t registers(std::int64_t head_dim) const {
    const std::int64_t dp = ceil_div(head_dim, 16) * 16;
    return std::min<std::int64_t>(255, mt * (bk / 2 + dp / 2 + 16) + 32 / mt + 16 + 40);
  }
  bool fits(const Room& room, std::int64_t head_dim) const {
    return (mt == 1 || mt == 2) && bk % 32 == 0 && items() <= room.group_items &&
           local_bytes(head_dim) <= room.local_bytes;
  }
  std::string options(std::int64_t head_dim) const {
    return fmt::format("-DCODE_PATH={} -DV=1 -DVW={} -DD={} -DWARPS={} -DMT={} -DBK={}", code_path,
                       row_alignment(head_dim), head_dim, warps, mt, bk);
  }
};

// Groups in waves over the device, each as long as its rows take beside the others of its unit: the
// likely best in front.
// `room` is that of the code path, `portable_room` that of code path 0.
inline std::vector<Tensor> tensor_tiles(const Sizes& s, const Room& room, const Room& portable_room,
                                        std::int64_t code_path) {
  std::vector<Tensor> list;
  if (code_path == 1) {
    for (const auto& [warps, mt, bk] : {std::array<std::int64_t, 3>{4, 2, 64},
                                        {4, 1, 64},
                                        {8, 1, 64},
                                        {4, 2, 32},
                                        {4, 1, 32},
                                        {8, 1, 32},
                                        {2, 1, 32},
                                        {1, 1, 32}}) {
      list.push_back({1, warps, mt, bk});
    }
    std::erase_if(list, [&](const Tensor& t) { return !t.fits(room, s.head_dim); });
    const auto time = [&](const Tensor& t) {
      const std::int64_t at_a_time =
          std::max<std::int64_t>(1, std::min(room.at_a_time(t.local_bytes(s.head_dim)),
                                             65536 / (t.registers(s.head_dim) * t.items())));
      const std::int64_t groups = s.batch * s.kv_heads * ceil_div(s.q_len * s.group(), t.bq());
      const std::int64_t resident = std::min(at_a_time, ceil_div(groups, room.units));
      const double warps = static_cast<double>(t.warps * resident);
      // Measured on an H200: half of the speed with 4 warps a unit, nine tenths with one row of
      // fragments a warp.
      const double busy =
          std::min(1.0, 0.25 + 0.75 * warps / 8) * (t.mt == 2 ? 1 : 0.9) * (t.bk == 32 ? 0.97 : 1);
      // What does not fit 255 registers goes through memory.
      const std::int64_t dp = ceil_div(s.head_dim, 16) * 16;
      const double spilled = std::max(0.0, static_cast<double>(t.mt * (t.bk + dp) / 2) - 160) / 160;
      return std::ceil(static_cast<double>(groups) / static_cast<double>(room.units * resident)) *
             static_cast<double>(resident * t.bq()) * (1 + spilled) / busy;
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](const Tensor& x, const Tensor& y) { return time(x) < time(y); });
  }
  for (const std::int64_t warps : {2, 1}) {
    const Tensor portable{0, warps, 1, 32};
    if (portable.fits(portable_room, s.head_dim)) list.push_back(portable);
  }
  return list;
}

}  // namespace rooflane::attention
