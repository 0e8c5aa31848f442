// What the opencl variants of the row kernels (softmax, LayerNorm) share: how items are laid over
// rows. The maths is in the rooms' .cl files.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/opencl_plan.hpp"
#include "core/error.hpp"

namespace rooflane::common {

inline constexpr Tunable opencl_row_tunables[] = {
    {"v", "floats per vector: 1, 2, 4, 8 or 16", 1, 16},
    {"chunk", "vectors that a work-item holds in registers", 1, 16},
    {"lx", "work-items that share a row, a power of two", 1, 1024},
    {"ly", "rows per group, a power of two", 1, 64},
};

// Whether the whole vectors of a row fit the registers of its items, so that memory is read once.
inline bool is_single(const Tuning& t, std::int64_t cols) {
  return cols / t.get("v", 1) <= t.get("lx", 1) * t.get("chunk", 1);
}

inline bool fits_rows(const Tuning& t, const opencl::DeviceInfo& info) {
  const auto power = [&](const char* key) {
    return std::has_single_bit(static_cast<std::uint64_t>(t.get(key, 1)));
  };
  return power("v") && power("lx") && power("ly") &&
         static_cast<std::size_t>(t.get("lx", 1) * t.get("ly", 1)) <= info.max_work_group;
}

// CPU devices: one item per row, the vectors as wide as the registers, so that no barrier is met;
// short rows share a group to spread the cost of starting one. Eight vectors a chunk leave room for
// the accumulators among 16 registers once the compiler reuses loads.
// Others: about four vectors an item while a row fits 256 items, up to eight (32 floats, an eighth
// of the registers a GPU gives to 256 items) while it fits a group; groups of at least 128 items.
inline std::vector<Tuning> opencl_row_tunings(std::int64_t cols, const opencl::DeviceInfo& info) {
  std::vector<Tuning> list;
  const auto add = [&](std::int64_t v, std::int64_t chunk, std::int64_t lx, std::int64_t ly) {
    const Tuning tuning{{"v", v}, {"chunk", chunk}, {"lx", lx}, {"ly", ly}};
    const bool is_new = std::find(list.begin(), list.end(), tuning) == list.end();
    if (is_new && fits_rows(tuning, info)) list.push_back(tuning);
  };
  if (info.kind == opencl::DeviceKind::cpu) {
    const std::int64_t v = std::min(info.vector_floats, 16);
    const std::int64_t ly = cols <= 1024 ? 16 : 1;
    for (const std::int64_t chunk : {8, 4, 16}) add(v, chunk, 1, ly);
  } else {
    constexpr std::int64_t v = 4;
    const auto power_of = [](std::int64_t x) {
      return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x)));
    };
    const auto chunk_of = [&](std::int64_t lx) {
      return std::min<std::int64_t>(power_of((cols + lx * v - 1) / (lx * v)), 8);
    };
    const std::int64_t spread = std::min<std::int64_t>(power_of((cols + 4 * v - 1) / (4 * v)), 256);
    const std::int64_t lx = spread * 8 * v < cols ? 1024 : spread;
    for (const std::int64_t items : {lx, lx / 2, lx * 2, std::int64_t{64}}) {
      if (items < 1 || items > 1024) continue;
      add(v, chunk_of(items), items, std::max<std::int64_t>(1, 128 / items));
    }
  }
  // Fits every device that OpenCL allows.
  if (list.empty()) add(1, 8, 1, 1);
  return list;
}

inline std::string opencl_row_options(const Tuning& tuning, std::int64_t cols) {
  return fmt::format("{} -DSINGLE={:d}", opencl::defines(tuning), is_single(tuning, cols));
}

inline opencl::Launch opencl_row_launch(const Tuning& tuning, std::int64_t rows) {
  const std::int64_t ly = tuning.get("ly", 1);
  return {static_cast<std::size_t>((rows + ly - 1) / ly),
          static_cast<std::size_t>(tuning.get("lx", 1) * ly)};
}

// Why the completed tuning does not fit the device.
inline std::optional<std::string> opencl_row_defect(const Problem&, const Tuning& tuning,
                                                    const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  if (fits_rows(tuning, info)) return std::nullopt;
  return fmt::format("v, lx and ly must be powers of two and lx·ly at most {} on {}",
                     info.max_work_group, info.name);
}

}  // namespace rooflane::common
