// What the plans of GEMM's OpenCL paths share: operands that are rearranged first (gemm_work.cl),
// sums of groups that share k, and the arguments for epilogues; and what those for matrix units
// (mma.sync and wgmma; gemm_parts.cl) share beside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {

// How tiles of an operand are read: a row of `ld` elements holds k, or with `wide` rows of op(a) or
// columns of op(b) side by side. laid: `rearrange` makes it of the operand first.
struct Layout {
  bool wide, laid;
  std::int64_t rows, k, ld;
  std::int64_t block = 0;  // of packed parts of 3xtf32 the rows of a tile (gemm_work.cl)
  std::int64_t elements() const { return (wide ? k : rows) * ld; }
};
struct Layouts {
  Layout a, b;
  std::int64_t bytes;  // of an element
  // A row's bytes for a step of k: both parts of packed operands.
  std::int64_t step_bytes() const { return a.block > 0 ? 2 * bytes : bytes; }
  // Device memory for what is rearranged; in a run, which a constant b has no part in.
  double laid_bytes(const Gemm& g, bool of_run) const;
  // Expected time of rearranging, where each byte that it writes takes the time of `moved` bytes.
  double lay_ns(const Gemm& g, const GpuModel& gpu, double moved) const;
};

// A run rearranges a and b, multiplies and adds up, as far as there is something to do.
class GemmPlan : public opencl::DevicePlan {
 protected:
  GemmPlan(const Task& task, const Tuning& tuning);

  // a, b and b_scale, or another buffer for an argument that is not read.
  cl_mem operand(const char* tensor, const Operands& constants);
  // The same of "a" or "b" with this layout, by a kernel of `source`. A constant b is laid out now,
  // everything else by a step.
  cl_mem laid_out(const char* tensor, const Operands& constants, const Layout& layout,
                  std::int64_t bytes, const char* source, const std::string& options);
  // The last arguments of a kernel with gemm_output.cl.
  void add_output(opencl::KernelCall& call);

  // Launches for a product with k split among groups, by the values of SPLIT (gemm_pipeline.cl).
  // OpenCL 1.2 lets groups see each other's sums only from launch to launch; code path 1 adds in
  // the same one.
  static std::vector<int> split_launches(std::int64_t splits, std::int64_t code_path) {
    return splits == 1 ? std::vector{0} : code_path == 1 ? std::vector{3} : std::vector{1, 2};
  }

  const Gemm g_;
  cl_mem a_ = nullptr, b_ = nullptr;
};

// What a tile has of k, in bytes.
inline constexpr std::int64_t unit_row_bytes = 128;
// Sizes and bytes of a row are counted in int, a tile's side beyond an edge included.
inline constexpr std::int64_t unit_longest = std::int64_t{1} << 29;

// Share of its highest clock that a card's power allows while its matrix units work (an H100 and an
// H200 at 8192³).
inline constexpr double unit_sustained_clock = 0.75;

// pack_a and pack_b: of math 3xtf32, rows of the tiles for which operands are split while they are
// rearranged; 0: they are not.
Layouts unit_layouts(const Task& task, std::int64_t pack_a = 0, std::int64_t pack_b = 0);

// Whether matrix units compute problems of this math: 3xtf32, or f16, bf16 and exact int8.
bool has_unit_math(const Task& task);
// Tiles of k of a group.
inline std::int64_t unit_steps(const Task& task, const Layouts& layouts, std::int64_t splits) {
  return tiles(tiles(task.g.k * layouts.step_bytes(), unit_row_bytes), splits);
}
// Expected time of a product that computes for so long: at least that of memory, with the launches
// and bytes that come before and after it.
double unit_ns(const Task& task, double compute_ns, const Layouts& layouts, std::int64_t splits);

class UnitPlan : public GemmPlan {
 protected:
  // `source`: of a program with gemm_parts.cl in it.
  UnitPlan(const Task& task, const Tuning& tuning, const Layouts& layouts, std::string source);
  // Sets what follows; the steps before the product.
  void prepare(const Task& task, const Operands& constants, std::int64_t splits);
  // The step after a product with k split: adds up, in order.
  void add_up(std::int64_t splits);
  // The kernel's last arguments; of 3xtf32, a and b as they are come first.
  void add_last(opencl::KernelCall& call);
  bool is_3xtf32() const { return layouts_.bytes == 4; }

  const Layouts layouts_;
  std::string source_, options_;
  cl_mem parts_ = nullptr;
  std::int64_t k_ = 0;        // 0: a and b are not read
  std::int64_t k_share_ = 0;  // of a group

 private:
  cl_mem strict_a_ = nullptr, strict_b_ = nullptr;  // of 3xtf32 alone
};

}  // namespace rooflane::gemm
