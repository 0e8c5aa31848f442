// The model of how items are laid over rows, its limits, and the launches. See opencl_rows.hpp.
#include "kernels/common/opencl_rows.hpp"

#include <cstddef>
#include <limits>

namespace rooflane::common {
namespace {

constexpr std::int64_t warp = 32;

bool is_power(std::int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); }

// Bytes of local memory that a group declares, as the .cl files do.
std::size_t local_bytes(const Tuning& t) {
  const std::int64_t items = t.get("lx", 1) * t.get("ly", 1);
  // Sums of up to 3 floats per row and team of 32 items; on code path 0 one float per item as well.
  const std::int64_t sums =
      12 * t.get("ry", 1) * items + (t.get("code_path", 0) == 1 ? 4 : 4 * items);
  std::int64_t rows = 0;
  if (t.get("form", 0) == row_form::staged) rows = 4 * items * t.get("chunk", 1) + 16;
  return static_cast<std::size_t>(sums + rows);
}

std::optional<std::string> defect_of_form(std::int64_t cols, const Tuning& t) {
  const std::int64_t form = t.get("form", 0);
  const std::int64_t lx = t.get("lx", 1);
  const std::int64_t chunk = t.get("chunk", 1);
  const std::int64_t splits = t.get("splits", 1);
  if (form != row_form::registers && t.get("ry", 1) > 1) {
    return "ry belongs to form 1";
  }
  if (splits > 1 && (form == row_form::staged || t.get("ly", 1) > 1)) {
    return "rows are split in forms 0 and 1 only, one row per group at a time";
  }
  if (t.get("regs", 0) > 0 && (form != row_form::registers || t.get("code_path", 0) == 0)) {
    return "regs belongs to form 1 on code_path 1";
  }
  if (const std::int64_t items = lx * t.get("ly", 1);
      ceil_div(t.get("regs", 0), 8) * 8 * items > 65536) {
    return fmt::format("regs={} for {} items are more registers than a compute unit has",
                       t.get("regs", 0), items);
  }
  if (form == row_form::loop) {
    if (t.get("code_path", 0) == 1) return "form 0 has no code_path 1";
    if (chunk > 16) return "chunk is at most 16 in form 0";
    return std::nullopt;
  }
  if (t.get("v", 1) != 4) return "v must be 4 in forms 1 and 2";
  if (form == row_form::staged) {
    if (lx * t.get("ly", 1) < 4) return "form 2 takes at least 4 items, lx·ly";
    if (lx * chunk < cols || lx * (chunk - 1) > cols) {
      return fmt::format("form 2 takes chunk = ceil(cols / lx) = {} for {} columns",
                         ceil_div(cols, lx), cols);
    }
    return std::nullopt;
  }
  if (chunk > 64) return "chunk is at most 64 in form 1";
  if (cols > std::numeric_limits<std::int32_t>::max() - 64) return "the row is too long for form 1";
  if (splits * lx * chunk < vectors_of_row(cols)) {
    return fmt::format("a row of {} columns takes {} vectors; lx·chunk·splits is {}", cols,
                       vectors_of_row(cols), splits * lx * chunk);
  }
  if (splits > 1 && splits > lx) return "splits is at most lx in form 1";
  return std::nullopt;
}

std::int64_t limited(std::int64_t x, std::int64_t least, std::int64_t most) {
  return std::min(std::max(x, least), most);
}

// A device with local memory of its own. Collects the tunings that its limits allow.
class GpuModel {
 public:
  GpuModel(const Problem& problem, const Environment& env)
      : problem_(problem),
        env_(env),
        rows_(problem.size("rows")),
        cols_(problem.size("cols")),
        vectors_(vectors_of_row(cols_)),
        is_aligned_(cols_ % 4 == 0),
        has_columns_(problem.kernel().tensors(problem).size() > 2),
        units_(opencl::device(env.device).compute_units),
        code_path_(opencl::features(env.device).nvidia_code_path() ? 1 : 0) {}

  std::vector<Tuning> list() && {
    // Rows that start anywhere in a vector: in registers each takes its own masks, and gamma and
    // beta shifted its way. (H200: softmax of 33 columns 1.5 times as fast through local memory, of
    // 509 columns 0.95 times; LayerNorm of 509 columns 1.1 times, of 1021 columns 0.98 times.)
    if (!is_aligned_ && cols_ < (has_columns_ ? 768 : 256)) add_staged();
    if (vectors_ <= warp) {
      add_short();
    } else if (vectors_ <= 16 * 256) {
      add_medium();
    } else {
      add_long();
    }
    if (!is_aligned_ && cols_ <= 1024) add_staged();
    // Takes every row.
    if (list_.empty()) {
      const std::int64_t most =
          static_cast<std::int64_t>(opencl::device(env_.device).max_work_group);
      add(std::min<std::int64_t>(256, most), 1, 1, row_form::loop, splits_for(64), 8);
    }
    return std::move(list_);
  }

 private:
  void add(std::int64_t lx, std::int64_t ly, std::int64_t ry, std::int64_t form,
           std::int64_t splits, std::int64_t chunk, std::int64_t registers = 0) {
    const Tuning t{{"v", 4},
                   {"chunk", chunk},
                   {"lx", lx},
                   {"ly", ly},
                   {"ry", ry},
                   {"form", form},
                   {"splits", splits},
                   {"load", 0},
                   {"store", 0},
                   {"regs", code_path_ == 1 && form == row_form::registers ? registers : 0},
                   {"code_path", form == row_form::loop ? 0 : code_path_}};
    const bool is_new = std::find(list_.begin(), list_.end(), t) == list_.end();
    if (is_new && !opencl_row_defect(problem_, t, env_)) list_.push_back(t);
  }

  void add_registers(std::int64_t lx, std::int64_t ly, std::int64_t ry, std::int64_t splits = 1,
                     std::int64_t registers = 0) {
    add(lx, ly, ry, row_form::registers, splits, ceil_div(vectors_, lx * splits), registers);
  }

  // Groups of 256 items, as few for a row as hold it with `most` vectors an item, all of them with
  // about as many.
  void add_split(std::int64_t most, std::int64_t registers) {
    const std::int64_t splits = ceil_div(vectors_, 256 * most);
    if (splits <= 256) add_registers(256, 1, 1, splits, registers);
  }

  // Groups per row so that every compute unit has two.
  std::int64_t splits_for(std::int64_t most) const {
    return limited(ceil_div(2 * units_, std::max<std::int64_t>(rows_, 1)), 1, most);
  }

  // As many items per row as make conflicts of banks impossible (a power of two that divides cols),
  // more where an item would hold more than 17 elements.
  void add_staged() {
    const std::int64_t lowest_bit = cols_ & -cols_;
    const std::int64_t lx =
        std::min(std::max(lowest_bit, power_of_two_from(ceil_div(cols_, 17))), warp);
    add(lx, 256 / lx, 1, row_form::staged, 1, ceil_div(cols_, lx));
    add(lx, 128 / lx, 1, row_form::staged, 1, ceil_div(cols_, lx));
  }

  // Up to 128 columns: a few items per row, without idle ones where vectors_ has a power of two in
  // it. Several rows per item gain nothing on an H200 (0.96 to 1.02 times).
  void add_short() {
    const std::int64_t even = vectors_ & -vectors_;
    const std::int64_t lx = vectors_ / even <= 8 ? even : power_of_two_from(ceil_div(vectors_, 4));
    add_registers(lx, 256 / lx, 1);
    add_registers(lx, 256 / lx, 4);
    const std::int64_t wider = std::min(lx * 2, warp);
    add_registers(wider, 128 / wider, 1);
    add_staged();
  }

  // The fewest idle slots among 3 to 9 vectors an item, with 512 items where 256 would have more
  // (H200, 12289 columns: softmax 1.02 times as fast so, LayerNorm the same); smaller groups cost
  // less at their barriers. So many loads under way are 64 KB and more per compute unit, which
  // covers memory's latency (about 40 KB on an H200).
  void add_medium() {
    std::int64_t best = vectors_ > 9 * 256 ? 512 : 256;
    for (std::int64_t lx = best; lx >= warp; lx /= 2) {
      const std::int64_t chunk = ceil_div(vectors_, lx);
      const bool is_better = lx * chunk < best * ceil_div(vectors_, best);
      if (chunk <= 9 && (is_better || ceil_div(vectors_, best) < 3)) best = lx;
    }
    for (const std::int64_t lx : {best, best * 2, best / 2}) {
      const std::int64_t chunk = ceil_div(vectors_, lx);
      if (lx < warp || chunk > 16) continue;
      // A compute unit's 65536 registers for two groups of 512 items, or for three of 256 where the
      // columns of LayerNorm are shifted (H200, 8191 columns: 80 registers 1.1 times as fast as
      // what the compiler takes or 64).
      const bool is_shifting = has_columns_ && !is_aligned_ && chunk >= 7;
      const std::int64_t registers = lx == 512 && chunk >= 6 ? 64 : is_shifting ? 80 : 0;
      add_registers(lx, std::max<std::int64_t>(256 / lx, 1), 1, 1, registers);
    }
  }

  // Groups of 256 items that are two, three or four to a compute unit, since one group's loads
  // cover another's sums and stores. An item's registers (128, 80, 64) hold 25, 13 or 9 vectors of
  // softmax. LayerNorm reads gamma and beta beside them: from another group's lines of the cache
  // where many groups are on the way (H200, 128256 columns: four 1.04 times as fast as three, 1.2
  // as two); where they are shifted, more in registers and fewer groups (50257 columns: two 1.24
  // times as fast as four). Few rows: as many groups as the device holds.
  void add_long() {
    const std::int64_t splits = splits_for(std::min<std::int64_t>(vectors_ / 256, 256));
    if (rows_ < units_ / 2 && vectors_ > 8192 && ceil_div(vectors_, 256 * splits) <= 13) {
      add_registers(256, 1, 1, splits);
    }
    if (!has_columns_) {
      add_split(25, 128);
      add_split(13, 80);
      add_split(9, 64);
    } else if (is_aligned_) {
      add_split(8, 64);
      add_split(12, 80);
      add_split(20, 128);
    } else {
      add_split(17, 128);
      add_split(10, 80);
      add(1024, 1, 1, row_form::staged, 1, ceil_div(cols_, 1024));
    }
    const std::int64_t least = ceil_div(vectors_, 512 * 25);
    if (least <= 512) add_registers(512, 1, 1, least);
  }

  const Problem& problem_;
  const Environment& env_;
  std::int64_t rows_, cols_, vectors_;
  bool is_aligned_;
  bool has_columns_;  // gamma and beta
  std::int64_t units_, code_path_;
  std::vector<Tuning> list_;
};

}  // namespace

std::optional<std::string> opencl_row_defect(const Problem& problem, const Tuning& t,
                                             const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const std::int64_t items = t.get("lx", 1) * t.get("ly", 1);
  if (!is_power(t.get("v", 1)) || !is_power(t.get("lx", 1)) || !is_power(t.get("ly", 1)) ||
      static_cast<std::size_t>(items) > info.max_work_group) {
    return fmt::format("v, lx and ly must be powers of two and lx·ly at most {} on {}",
                       info.max_work_group, info.name);
  }
  if (auto defect = defect_of_form(problem.size("cols"), t)) return defect;
  if (t.get("form", 0) != row_form::loop && problem.dtype("type") != &float32) {
    return "forms 1 and 2 take float32 only";
  }
  std::size_t local_limit = info.local_bytes;
  if (t.get("code_path", 0) == 1) {
    const opencl::Features& found = opencl::features(env.device);
    if (!found.nvidia_code_path()) {
      return fmt::format("code_path 1 needs NVIDIA's inline PTX, which {} does not run", info.name);
    }
    if (items % warp != 0) return "code_path 1 takes groups of whole warps: lx·ly a multiple of 32";
    local_limit = found.static_local_bytes;
  }
  if (t.get("form", 0) != row_form::loop && local_bytes(t) > local_limit) {
    return fmt::format("{} bytes of local memory exceed the {} of {}", local_bytes(t), local_limit,
                       info.name);
  }
  return std::nullopt;
}

// CPU devices: one item per row, the vectors as wide as the registers, so that no barrier is met;
// short rows share a group to spread the cost of starting one, few long ones are split among the
// threads (from 128 KiB a thread on, since two launches cost tens of microseconds). Eight vectors a
// chunk leave room for the accumulators among 16 registers once the compiler reuses loads.
std::vector<Tuning> opencl_row_tunings(const Problem& problem, const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  if (info.kind != opencl::DeviceKind::cpu) {
    std::vector<Tuning> list = GpuModel(problem, env).list();
    if (!list.empty()) return list;
  }
  constexpr std::int64_t worth_splitting = 32768;
  const std::int64_t rows = std::max<std::int64_t>(problem.size("rows"), 1);
  const std::int64_t cols = problem.size("cols");
  const std::int64_t units = env.threads > 0 ? env.threads : info.compute_units;
  const std::int64_t splits = limited(std::min(units / rows, cols / worth_splitting), 1,
                                      info.kind == opencl::DeviceKind::cpu ? 64 : 1);
  const std::int64_t rows_of_group =
      std::min<std::int64_t>(cols <= 1024 ? 16 : 1, static_cast<std::int64_t>(info.max_work_group));
  std::vector<Tuning> list;
  const auto add = [&](std::int64_t chunk, std::int64_t parts) {
    list.push_back({{"v", limited(info.vector_floats, 1, 16)},
                    {"chunk", chunk},
                    {"lx", 1},
                    {"ly", rows_of_group},
                    {"ry", 1},
                    {"form", row_form::loop},
                    {"splits", parts},
                    {"load", 0},
                    {"store", 0},
                    {"regs", 0},
                    {"code_path", 0}});
  };
  for (const std::int64_t chunk : {8, 4, 16}) add(chunk, splits);
  if (splits > 1) add(8, 1);
  return list;
}

std::string OpenclRowPlan::options(int phase) {
  std::string text = opencl::defines(tuning());
  if (tuning().get("form", 0) == row_form::loop) {
    const bool is_split = tuning().get("splits", 1) > 1;
    const DType type = problem().dtype("type");
    if (type == &float16) text += " -DFLOAT16";
    if (type == &bfloat16) text += " -DBFLOAT16";
    return text +
           fmt::format(" -DSINGLE={:d} -DPHASE={}", !is_split && is_single(tuning(), cols_), phase);
  }
  if (const std::int64_t most = tuning().get("regs", 0); most > 0) {
    text += fmt::format(" -cl-nv-maxrregcount={}", most);
  }
  return text + fmt::format(" -DALIGNED={:d} -DPHASE={} -DRESIDENT={:d}", cols_ % 4 == 0, phase,
                            all_resident());
}

// Whether the device holds all groups at the same time, by what is sure: a compute unit holds as
// many groups as its 65536 registers suffice for, at most 255 an item, and one at least.
bool OpenclRowPlan::all_resident() {
  const std::int64_t registers = tuning().get("regs", 0) > 0 ? tuning().get("regs", 0) : 255;
  const std::int64_t items = tuning().get("lx", 1) * tuning().get("ly", 1);
  const std::int64_t per_unit =
      std::max<std::int64_t>(65536 / (ceil_div(registers, 8) * 8 * items), 1);
  return blocks() * tuning().get("splits", 1) <=
         std::min<std::int64_t>(per_unit, 8) * context().compute_units();
}

opencl::Launch OpenclRowPlan::launch_size() {
  return {static_cast<std::size_t>(blocks() * tuning().get("splits", 1)),
          static_cast<std::size_t>(tuning().get("lx", 1) * tuning().get("ly", 1))};
}

void OpenclRowPlan::make_partials() {
  // On code path 1 twice as wide, for the tags (code_paths.cl, give).
  const std::int64_t slots = blocks() * tuning().get("ry", 1) * tuning().get("splits", 1);
  partials_ = zeroed_workspace(static_cast<std::size_t>(slots) * 8 * sizeof(float));
  next_number_ = zeroed_workspace(sizeof(cl_uint));
}

}  // namespace rooflane::common
