// The ways in which the variant `opencl` multiplies; opencl.cpp chooses. A tuning's `path` names
// one, and each has tunables of its own:
//   0  tiles     any device, CPUs included, any number formats and gate=1 (opencl.cpp, gemm.cl)
//   1  pipeline  GPUs: tiles with prefetched copies (opencl_pipeline.cpp, gemm_pipeline.cl)
//   2  skinny    GPUs: m or n of at most 32, memory-bound; few rows of a against short or quantised
//                weights (opencl_skinny.cpp, gemm_skinny.cl)
//   3  tensor    maths 3xtf32, f16, bf16, int8: matrix units (opencl_tensor.cpp, gemm_tensor.cl)
//   7  wgmma     maths f16, bf16, int8: Hopper's matrix units (opencl_wgmma.cpp, gemm_wgmma.cl)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/opencl_plan.hpp"
#include "kernels/gemm/gemm.hpp"

namespace rooflane::gemm {

enum OpenClPath : std::int64_t {
  path_tiles = 0,
  path_pipeline = 1,
  path_skinny = 2,
  path_tensor = 3,
  path_wgmma = 7
};

// Code path 1 where the device has it.
std::int64_t best_code_path(const opencl::DeviceInfo& info);

// Whether a problem is of the paths for number formats: it has another format than float32, another
// math than the others compute, or gate=1.
bool has_formats(const Problem& problem, const Environment& env);
// The options of gemm_output.cl and gemm_epilogue.cl, with vectors of v elements.
std::string output_options(const Problem& problem, std::int64_t v = 4);
// A format's number in gemm_output.cl.
int number_of(DType type);

// Most bytes of local memory that a group on this code path may have.
std::int64_t local_limit(std::int64_t code_path, const opencl::DeviceInfo& info);

// A tunable as a member of a path's own struct, and its value where a tuning lacks it.
template <class T>
struct Field {
  const char* name;
  std::int64_t T::*place;
  std::int64_t otherwise = 1;
};
template <class T>
T read_tuning(std::span<const Field<T>> fields, const Tuning& tuning) {
  T read;
  for (const Field<T>& field : fields) {
    read.*field.place = tuning.get(field.name, field.otherwise);
  }
  return read;
}
template <class T>
Tuning tuning_of(std::int64_t path, std::span<const Field<T>> fields, const T& values) {
  Tuning tuning = {{"path", path}};
  for (const Field<T>& field : fields) tuning.set(field.name, values.*field.place);
  return tuning;
}

// A condition on a tuning, and the words for it.
struct Need {
  bool holds;
  std::string_view what;
};
// What a group takes of the device, and the partial sums of a split of k.
struct GroupUse {
  std::int64_t code_path, items, local_bytes;
  double parts_bytes;
};
// "path=P needs …": the first need that does not hold, then whatever the device has too little of.
std::optional<std::string> unmet_need(std::int64_t path, std::initializer_list<Need> needs,
                                      const GroupUse& use, const opencl::DeviceInfo& info);

// A tuning with the least time that a simple model of the device expects, nanoseconds.
struct Guess {
  Tuning tuning;
  double ns;
};

// The expected time of a tuning that only serves checks on this device.
inline constexpr double never_first = 1e30;

// Per path: tunings worth trying for this problem, math and device, in no order; none where the
// path cannot serve them, and one or few of a portable code path on a CPU device. Why a complete
// tuning cannot be used. The plan.
std::vector<Guess> pipeline_guesses(const Problem& problem, const Environment& env);
std::optional<std::string> pipeline_defect(const Problem& problem, const Tuning& tuning,
                                           const Environment& env);
std::unique_ptr<Plan> pipeline_plan(const Problem& problem, const Tuning& tuning,
                                    const Environment& env, const Operands& constants);

std::vector<Guess> skinny_guesses(const Problem& problem, const Environment& env);
std::optional<std::string> skinny_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env);
std::unique_ptr<Plan> skinny_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands& constants);

// Every device has the portable code path; it is slow (below 1 GFLOP/s), being there for checks.
std::vector<Guess> tensor_guesses(const Problem& problem, const Environment& env);
std::optional<std::string> tensor_defect(const Problem& problem, const Tuning& tuning,
                                         const Environment& env);
std::unique_ptr<Plan> tensor_plan(const Problem& problem, const Tuning& tuning,
                                  const Environment& env, const Operands& constants);
// Device memory that it takes beside the operands.
double tensor_beside_bytes(const Problem& problem, const Tuning& tuning);

std::vector<Guess> wgmma_guesses(const Problem& problem, const Environment& env);
std::optional<std::string> wgmma_defect(const Problem& problem, const Tuning& tuning,
                                        const Environment& env);
std::unique_ptr<Plan> wgmma_plan(const Problem& problem, const Tuning& tuning,
                                 const Environment& env, const Operands& constants);

// What a launch does for a product with k split among groups: SPLIT of gemm_pipeline.cl.
// OpenCL 1.2 lets groups see each other's sums only from launch to launch; code path 1 adds in the
// same one.
enum class SplitPart { none = 0, write = 1, add = 2, write_and_add = 3 };
inline SplitPart first_part(std::int64_t splits, std::int64_t code_path) {
  return splits == 1      ? SplitPart::none
         : code_path == 1 ? SplitPart::write_and_add
                          : SplitPart::write;
}

// Most bytes of partial sums that a split of k may keep.
inline constexpr double most_parts_bytes = 1 << 28;
// Most bytes of operands that are rearranged first (2 GB in a product of 16384³).
inline constexpr double most_rearranged_bytes = 1LL << 32;

// What the models know of a GPU: multiply-adds a nanosecond of one compute unit, bytes a nanosecond
// of the device's memory, and a launch with its wait. The last two are read off an H200 (4.3 TB/s,
// 3.6 us with its first and last steps); they only rank tunings.
struct GpuModel {
  double units;
  double mads_per_ns;
  double bytes_per_ns = 4300;
  double launch_ns = 3600;
  explicit GpuModel(const opencl::DeviceInfo& info)
      : units(info.compute_units),
        mads_per_ns((info.lanes_per_unit > 0 ? info.lanes_per_unit : 64) * 1e-3 *
                    (info.clock_mhz > 0 ? info.clock_mhz : 1000)) {}
};

inline std::int64_t tiles(std::int64_t length, std::int64_t tile) {
  return (length + tile - 1) / tile;
}

// Tiles of c of bm × bn elements times shares of k.
inline double groups_of(const Gemm& g, std::int64_t bm, std::int64_t bn, std::int64_t splits) {
  return static_cast<double>(g.batch) * static_cast<double>(tiles(g.m, bm)) *
         static_cast<double>(tiles(g.n, bn)) * static_cast<double>(splits);
}

// Floats of the widest copy (4, 2 or 1) that rows of `length` floats allow.
inline int copy_width(std::int64_t length) { return length % 4 == 0 ? 4 : length % 2 == 0 ? 2 : 1; }

}  // namespace rooflane::gemm
