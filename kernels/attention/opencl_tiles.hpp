// Tunings of attention_tiles.cl, many query rows on NVIDIA's code path: what they need of a device,
// which ones are worth trying, and a model of their time that puts the likely best in front and
// says how keys are split. Few rows: opencl_decode.hpp; the choice between the files: opencl.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/opencl_plan.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/common/opencl_tuning.hpp"

namespace rooflane::attention {

// Which file runs: the tunable `path`.
enum Path : std::int64_t { any_device = 0, prefill = 1, decode = 2, tensor = 3, wgmma = 4 };

using common::Guess;
using common::is_power_of_two;

inline std::int64_t ceil_div(std::int64_t x, std::int64_t y) { return (x + y - 1) / y; }

// The format of q, k, v and o, as vectors.cl and formats.cl take it.
inline const char* element_macro(const Sizes& s) {
  return s.type == &float16    ? " -DFLOAT16 -DTYPE=F16"
         : s.type == &bfloat16 ? " -DBFLOAT16 -DTYPE=BF16"
                               : " -DTYPE=F32";
}
// The tunables as macros, but that the number of splits is an argument of kernels, and what
// attention_rows.cl says of options.
template <class T>
std::string macros_of(T tuning, const Sizes& s) {
  if constexpr (requires { tuning.splits; }) tuning.splits = 1;
  return fmt::format("-DD={} -DMASK={:d} -DSOFTCAP={:d} -DLENGTHS={:d}{}{}", s.head_dim, s.mask,
                     s.softcap != 0, s.lengths, element_macro(s),
                     opencl::defines(common::tuning_of(tuning)));
}

// Floats that rows of head_dim floats, one after another, are aligned to: 4, 2 or 1.
inline std::int64_t row_alignment(std::int64_t head_dim) {
  return head_dim % 4 == 0 ? 4 : head_dim % 2 == 0 ? 2 : 1;
}

// Groups of `bytes` of local memory each that a unit runs at a time: it holds little more than one
// may have, and the driver takes another KB for each.
inline std::int64_t at_a_time(const common::Device& device, std::int64_t bytes) {
  return (device.local_limit(1) + 2048) / (bytes + 1024);
}

// What paths 1 and 2 need beside a tuning.
inline common::Need plain_floats(const Sizes& s) {
  return {s.type == &float32 && s.v_dim == s.head_dim, "float32, with a v_dim of head_dim"};
}
inline common::Need has_code_path(std::int64_t code_path, const common::Device& device) {
  return {code_path == 0 || device.features.nvidia_code_path(),
          "inline PTX, shuffles and cp.async with code_path=1"};
}

// attention_tiles.cl. Items of a row are `columns` neighbours; each has `tm` rows, `bk`/columns
// keys and head_dim/columns columns.
struct Tiles {
  std::int64_t code_path, w, bq, bk, tm, cd, cn, stages, unroll, splits;
  static constexpr std::int64_t path = prefill;
  static constexpr const char* names[] = {"code_path", "w",  "bq",     "bk",     "tm",
                                          "cd",        "cn", "stages", "unroll", "splits"};

  std::int64_t columns() const {
    return std::max<std::int64_t>(1, w / std::max<std::int64_t>(1, bq / tm));
  }
  std::int64_t keys() const { return bk / columns(); }
  std::int64_t out_columns(std::int64_t head_dim) const { return ceil_div(head_dim, columns()); }
  std::int64_t local_bytes(std::int64_t head_dim) const {
    const std::int64_t chunk = std::max(bk * cd, cn * out_columns(head_dim) * columns());
    const std::int64_t transposed = (head_dim > cd ? 2 : 1) * cd * bk;
    return 4 * (ceil_div(head_dim, cd) * cd * bq + transposed + stages * chunk + bk * bq + bq + 1 +
                (code_path == 0 ? w : 0)) +
           64;
  }
  // First columns of the parts of o in which neighbours are exchanged.
  std::int64_t exchanged_columns(std::int64_t head_dim) const {
    return row_alignment(head_dim) == 4 ? out_columns(head_dim) / 4 * 4 * columns() : 0;
  }
  // Registers for the accumulators: more than 160 floats of 255 spill.
  std::int64_t accumulators(std::int64_t head_dim) const {
    return tm * (keys() + out_columns(head_dim));
  }
  std::optional<std::string> defect(const Sizes& s, const common::Device& device) const {
    return common::unmet_need(
        path,
        {plain_floats(s),
         has_code_path(code_path, device),
         {tm % 4 == 0 && bq % tm == 0 && w % (bq / tm) == 0 && is_power_of_two(bq / 4) &&
              is_power_of_two(columns()) && columns() >= 4 && columns() <= 32 &&
              (bq / tm % 2 == 0 || columns() > 16),
          "tm a multiple of 4, and powers of two for bq/tm and w·tm/bq, the latter 4 to 32"},
         {bk % (4 * columns()) == 0 && (bk < 32 || bk % 32 == 0) && bk % cn == 0 &&
              out_columns(s.head_dim) * columns() <= bk * bq,
          "bk a multiple of cn, of 4·w·tm/bq and from 32 on of 32, and bk·bq at least head_dim"},
         {unroll % 4 == 0 && cd % unroll == 0 && cd % 8 == 0 && cn % unroll == 0,
          "unroll a multiple of 4, cd and cn of unroll, cd of 8"},
         {stages >= 2, "stages of at least 2"}},
        {code_path, w, local_bytes(s.head_dim)}, device);
  }
  // Groups that a unit with 65536 registers runs at a time. An item has its sums, two steps'
  // operands and about 65 more, counted in eights.
  std::int64_t resident(const common::Device& device, std::int64_t head_dim) const {
    const std::int64_t columns_of_item = std::max(keys(), out_columns(head_dim));
    const std::int64_t registers =
        std::min<std::int64_t>(255, accumulators(head_dim) + 2 * (tm + columns_of_item) + 65);
    return std::max<std::int64_t>(1, std::min(at_a_time(device, local_bytes(head_dim)),
                                              65536 / (w * ceil_div(registers, 8) * 8)));
  }
  std::string options(const Sizes& s) const {
    return fmt::format("-DV=1 -DVW={} {}", row_alignment(s.head_dim), macros_of(*this, s));
  }
};

// What the model says of one group that sees `keys` keys, in clocks: how long its unit's four
// schedulers are busy with it, and how long it takes with the unit to itself.
struct GroupTime {
  double busy, alone;
};

// Constants fitted to 99 times of 17 problems on an H200, off by 8 % (root of the mean square;
// worst by 40 %: keys split over groups of 64 items). A multiply-add takes 1.13 clocks there, 1.18
// in loops of 8 steps; a copied float 24, transposing and waits included.
inline GroupTime group_time(const Tiles& t, std::int64_t head_dim, std::int64_t keys) {
  const auto real = [](std::int64_t x) { return static_cast<double>(x); };
  const std::int64_t columns = ceil_div(head_dim, t.cd) * t.cd;
  const std::int64_t out = t.out_columns(head_dim);
  // A step of an outer product: multiply-adds, loads, addresses.
  const double step = (t.unroll >= 16 ? 1.13 : 1.18) * real(t.tm);
  const double tiles = real(ceil_div(keys, t.bk));
  const double scores = tiles * real(columns * t.keys()) * step;
  const double values = real(ceil_div(keys, t.unroll) * t.unroll * out) * step;
  const double weights = tiles * real(t.tm) *
                         (12 * real(t.keys()) + real(out) +
                          6 * real(std::bit_width(static_cast<std::uint64_t>(t.columns()))));
  const double copies = tiles * 24 * real(t.bk * (columns + head_dim)) / real(t.w);
  const double start = 113 * real(t.bq * columns) / real(t.w) + 3 * real(t.tm * out);
  const double chunks = tiles * real(ceil_div(head_dim, t.cd) + t.bk / t.cn);
  const double issued = scores + values + weights + copies + start + 143 * chunks;
  // Barriers and memory, where no other group fills the time.
  const double waits = 6300 + 240 * chunks;
  return {issued * real(t.w) / 128, issued * std::max(1.18, real(t.w) / 128) + waits};
}

// The model's time of the whole problem in clocks: groups go, longest first, to the unit with the
// least to do, and a unit takes as long as its work, its waits shared by the groups that it runs at
// a time, or its longest group.
inline double model_clocks(const Tiles& t, const Sizes& s, const common::Device& device) {
  const std::int64_t rows = s.q_len * s.group();
  const std::int64_t heads = s.batch * s.kv_heads;
  const std::int64_t blocks = ceil_div(rows, t.bq);
  const std::int64_t places = t.resident(device, s.head_dim);
  const std::int64_t part =
      std::max<std::int64_t>(1, ceil_div(ceil_div(s.kv_len, t.splits), t.bk)) * t.bk;
  std::vector<GroupTime> groups;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t last_query = (std::min(rows, (block + 1) * t.bq) - 1) / s.group();
    const std::int64_t seen =
        s.causal ? std::clamp<std::int64_t>(last_query + 1 + s.kv_len - s.q_len, 0, s.kv_len)
                 : s.kv_len;
    for (std::int64_t first = 0; first == 0 || first < s.kv_len; first += part) {
      groups.push_back(group_time(t, s.head_dim, std::clamp<std::int64_t>(seen - first, 0, part)));
    }
  }
  // A second launch, and the parts written and read.
  const double merge =
      t.splits > 1 ? 7700 + 0.018 * static_cast<double>(rows * heads * t.splits * (s.head_dim + 2))
                   : 0;
  const auto units = static_cast<double>(device.info.compute_units);
  const auto count = static_cast<std::int64_t>(groups.size()) * heads;
  std::ranges::sort(groups, std::greater(), &GroupTime::busy);
  if (count > 64 * device.info.compute_units) {
    GroupTime sum = {0, 0};
    for (const GroupTime& g : groups) sum = {sum.busy + g.busy, sum.alone + g.alone};
    const double each = static_cast<double>(heads) / units;
    return std::max(sum.busy, sum.alone / static_cast<double>(places)) * each +
           groups.back().alone + merge;
  }
  // In one wave the longest groups share their units with the shortest (`fold` in
  // attention_tiles.cl). If there are more groups, they wait for a place, and several places of a
  // unit often become free at once: an H200 then fills some units and leaves others without work at
  // the end.
  const bool one_wave = count <= device.info.compute_units * places;
  // Warps that go to the busiest of four schedulers in place of their mean.
  const double warps = static_cast<double>(ceil_div(count, device.info.compute_units) * t.w) / 128;
  const double uneven = std::ceil(warps) / warps;
  struct Place {
    double busy, longest;
    bool operator>(const Place& other) const { return busy > other.busy; }
  };
  std::priority_queue<Place, std::vector<Place>, std::greater<>> queue(
      std::greater<>(), std::vector<Place>(static_cast<std::size_t>(device.info.compute_units *
                                                                    (one_wave ? 1 : places))));
  double time = 0;
  for (const GroupTime& g : groups) {
    const double busy =
        one_wave ? g.busy * uneven : std::max(g.busy * static_cast<double>(places), g.alone);
    for (std::int64_t head = 0; head < heads; ++head) {
      Place place = queue.top();
      queue.pop();
      place = {place.busy + busy, std::max(place.longest, g.alone)};
      time = std::max({time, place.busy, place.longest});
      queue.push(place);
    }
  }
  // Three and more on a unit do not end together.
  if (!one_wave && places > 2) {
    double busy = 0;
    for (const GroupTime& g : groups) busy += g.busy * static_cast<double>(heads);
    time = (time + busy / units) / 2;
  }
  return time + merge;
}

// About `chunk` columns of k, evenly, and rows of v.
struct TileShape {
  std::int64_t w, bq, bk, tm, chunk, stages;

  // Loops of 16 steps take 4 % less than those of 8, unless they add columns.
  Tiles tiles(std::int64_t head_dim) const {
    const std::int64_t even = ceil_div(head_dim, ceil_div(head_dim, chunk));
    const auto columns = [&](std::int64_t unroll) { return ceil_div(even, unroll) * unroll; };
    const auto padded = [&](std::int64_t cd) { return ceil_div(head_dim, cd) * cd; };
    const auto rows_of_v =
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(chunk)));
    const std::int64_t unroll =
        rows_of_v % 16 == 0 && padded(columns(16)) <= padded(columns(8)) ? 16 : 8;
    return {1, w, bq, bk, tm, columns(unroll), rows_of_v, stages, unroll, 1};
  }
};
// Two groups of 128 items or one of 256 fill a multiprocessor's 65536 registers (up to 255 each),
// 8×8 scores and 8 rows by 4 to 16 columns of o per item: 64 multiply-adds per 16 floats of local
// memory. Smaller tiles are for few groups and for the ends of uneven ones, the last two for a long
// head_dim.
inline constexpr TileShape tile_shapes[] = {
    {128, 128, 64, 8, 64, 2},  {128, 128, 64, 8, 40, 2},  {128, 128, 64, 8, 32, 3},
    {128, 128, 64, 8, 16, 3},  {256, 256, 64, 8, 32, 2},  {64, 64, 64, 8, 16, 3},
    {256, 128, 128, 8, 32, 2}, {256, 128, 128, 8, 32, 3}, {256, 128, 64, 8, 16, 3},
    {128, 64, 128, 8, 40, 2},  {128, 64, 128, 8, 16, 3},  {128, 64, 64, 8, 40, 2},
    {128, 64, 64, 8, 16, 3},   {256, 64, 128, 8, 32, 2},  {64, 32, 64, 8, 32, 2},
    {128, 32, 128, 8, 32, 2},  {128, 32, 128, 8, 16, 2},  {64, 16, 64, 4, 32, 3},
    {128, 16, 128, 4, 32, 3},  {64, 16, 128, 8, 16, 3},   {128, 32, 64, 4, 8, 2},
    {128, 16, 128, 4, 8, 2}};

// Candidates for many rows on NVIDIA's code path.
inline std::vector<Guess> tiles_guesses(const Sizes& given, const common::Device& device) {
  // With a window blocks of about 64 rows see as many keys each, and the model need not know more.
  Sizes s = given;
  if (s.window != 0) {
    s.kv_len = s.most_keys(64 / s.group() + 1);
    s.causal = false;
  }
  const std::int64_t rows = s.q_len * s.group();
  std::vector<Guess> guesses;
  for (const TileShape& shape : tile_shapes) {
    if (shape.bq > 16 && shape.bq / 2 >= rows) continue;
    const Tiles t = shape.tiles(s.head_dim);
    // 64 items copy twice as many floats each as 128 do, in registers that sums would take.
    if (t.defect(given, device) || t.accumulators(s.head_dim) > (t.w > 64 ? 160 : 128)) continue;
    const std::int64_t length = std::max<std::int64_t>(1, ceil_div(s.kv_len, t.bk));
    const std::int64_t groups = s.batch * s.kv_heads * ceil_div(rows, t.bq);
    // Few groups share their keys with others, whole tiles each.
    const std::int64_t most =
        groups >= 2 * device.info.compute_units ? 1 : std::clamp<std::int64_t>(length / 2, 1, 1024);
    Guess best = {common::tuning_of(t), std::numeric_limits<double>::infinity()};
    for (std::int64_t splits = 1; splits <= most; splits += std::max<std::int64_t>(1, splits / 4)) {
      Tiles split = t;
      split.splits = ceil_div(length, ceil_div(length, splits));
      const double time = model_clocks(split, s, device);
      if (time < best.ns) best = {common::tuning_of(split), time};
    }
    guesses.push_back(best);
  }
  return guesses;
}

}  // namespace rooflane::attention
