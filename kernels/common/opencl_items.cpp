// Items over rows. See opencl_items.hpp.
#include "kernels/common/opencl_items.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backends/opencl.hpp"

namespace rooflane::common {

std::optional<std::string> item_defect(const Problem&, const Tuning& t, const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const auto is_power = [&](const char* key) {
    return std::has_single_bit(static_cast<std::uint64_t>(t.get(key, 1)));
  };
  const auto items = static_cast<std::size_t>(t.get("lx", 1) * t.get("ly", 1));
  if (is_power("v") && is_power("lx") && is_power("ly") && items <= info.max_work_group) {
    return std::nullopt;
  }
  return fmt::format("v, lx and ly must be powers of two and lx·ly at most {} on {}",
                     info.max_work_group, info.name);
}

// CPU devices: an item per row, its vectors as wide as the registers, 16 rows to a group to spread
// the cost of starting one. Others: neighbours read neighbouring memory, 16 bytes each; groups of
// 256, and half and twice as many items to a row.
std::vector<Tuning> item_tunings(std::int64_t cols, const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const auto most = static_cast<std::int64_t>(std::bit_floor(info.max_work_group));
  std::vector<Tuning> list;
  const auto add = [&](std::int64_t v, std::int64_t lx, std::int64_t ly) {
    lx = std::clamp<std::int64_t>(lx, 1, most);
    const Tuning tuning{{"v", v}, {"lx", lx}, {"ly", std::clamp<std::int64_t>(ly, 1, most / lx)}};
    if (std::find(list.begin(), list.end(), tuning) == list.end()) list.push_back(tuning);
  };
  if (info.kind == opencl::DeviceKind::cpu) {
    const auto v = std::clamp<std::int64_t>(info.vector_floats, 1, 16);
    for (const std::int64_t ly : {16, 1, 64}) add(v, 1, ly);
    return list;
  }
  const auto vectors = static_cast<std::uint64_t>((cols + 3) / 4);
  const auto lx = static_cast<std::int64_t>(std::min<std::uint64_t>(std::bit_ceil(vectors), 256));
  add(4, lx, 256 / lx);
  add(4, lx / 2, 256 / std::max<std::int64_t>(lx / 2, 1));
  add(4, std::min<std::int64_t>(lx * 2, 256), 256 / std::min<std::int64_t>(lx * 2, 256));
  return list;
}

opencl::Launch item_launch(std::int64_t rows, const Tuning& tuning) {
  const std::int64_t ly = tuning.get("ly", 1);
  return {static_cast<std::size_t>((rows + ly - 1) / ly),
          static_cast<std::size_t>(tuning.get("lx", 1) * ly)};
}

}  // namespace rooflane::common
