// What the plans of GEMM's OpenCL paths share: operands that are rearranged first (gemm_work.cl),
// sums of groups that share k, and the arguments for epilogues; and for matrix units
// (mma.sync and wgmma; gemm_parts.cl) how operands are laid out.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {

inline cl_int as_cl_int(std::int64_t x) { return static_cast<cl_int>(x); }

// A run rearranges a and b, multiplies and adds up, as far as there is something to do.
class GemmPlan : public opencl::DevicePlan {
 public:
  PlanFacts facts() const override;

 protected:
  struct Step {
    opencl::KernelCall call;
    opencl::Launch size{0, 1};
  };
  GemmPlan(const Problem& problem, const Tuning& tuning, const Environment& env);

  // a, b and b_scale, or another buffer for an argument that is not read.
  cl_mem operand(const char* tensor, const Operands& constants);
  // The last arguments of a kernel with gemm_output.cl.
  void add_output(opencl::KernelCall& call);

  // A matrix of a batch, element (y, x) at y·outer + x·inner: it becomes ys_to rows of `ld`
  // elements; ys and xs of them exist.
  struct Rearranging {
    std::int64_t ys, xs, ys_to, ld, outer, inner;
    std::int64_t bytes;      // of an element
    std::int64_t block = 0;  // of packed parts of 3xtf32 the rows of a tile (gemm_work.cl)
  };
  // Memory with what `step` makes of a or b; of a constant b now.
  cl_mem rearranged(Step& step, const char* tensor, const Operands& constants,
                    const Rearranging& what, const char* source, const std::string& options);
  // The product by the kernel that `ready` makes for a part of the work (SplitPart), and the
  // launch that adds up where it needs one of its own.
  template <class Ready>
  void multiply_and_add(std::int64_t splits, std::int64_t code_path, std::int64_t groups,
                        std::int64_t items, const Ready& ready) {
    const SplitPart first = first_part(splits, code_path);
    gemm_ = {ready(first), launch_of(groups * splits, items)};
    if (first == SplitPart::write) add_ = {ready(SplitPart::add), launch_of(groups, items)};
  }
  static opencl::Launch launch_of(std::int64_t groups, std::int64_t items) {
    return {static_cast<std::size_t>(groups), static_cast<std::size_t>(items)};
  }
  virtual void multiply() { launch(gemm_.call, gemm_.size); }

  const Gemm g_;
  std::string path_;  // PlanFacts has it
  Step lay_a_, lay_b_, gemm_, add_;

 private:
  void enqueue() final;
};

// What a tile has of k, in bytes.
inline constexpr std::int64_t unit_row_bytes = 128;
// Sizes and bytes of a row are counted in int, a tile's side beyond an edge included.
inline constexpr std::int64_t unit_longest = std::int64_t{1} << 29;

// Share of its highest clock that a card's power allows while its matrix units work (an H100 and an
// H200 at 8192³).
inline constexpr double unit_sustained_clock = 0.75;

// How tiles of an operand are read: a row of `ld` bytes holds k, or with `wide` rows of op(a) or
// columns of op(b) side by side. laid: `rearrange` makes the former of it first, of `rows` rows.
struct UnitLayout {
  bool wide, laid;
  std::int64_t ld, rows;
  std::int64_t matrix_bytes(std::int64_t k) const { return (wide ? k : rows) * ld; }
};

struct UnitLayouts {
  std::int64_t bytes;         // of an element
  std::int64_t packed_bytes;  // of a step of k in a row: of both parts with `packed`
  UnitLayout a, b;
  std::int64_t block_a, block_b;
  // pack_a and pack_b: of math 3xtf32, rows of the tiles for which operands are split while they
  // are rearranged; 0: they are not.
  UnitLayouts(const Gemm& g, DType type, std::int64_t pack_a = 0, std::int64_t pack_b = 0);
  // Device memory for what is rearranged; in a run, which a constant b has no part in.
  double laid_bytes(const Gemm& g, bool of_run) const;
  // Expected time of rearranging.
  double lay_ns(const Gemm& g, const GpuModel& gpu) const;
};

// Whether matrix units compute problems of this math: 3xtf32, or f16, bf16 and exact int8.
bool has_unit_math(const Problem& problem, const Environment& env);
// Bytes of the sums of groups that share k.
double unit_parts_bytes(std::int64_t splits, const Gemm& g);
// Expected time of writing and adding them.
inline double unit_split_ns(std::int64_t splits, const Gemm& g, const GpuModel& gpu) {
  return splits > 1 ? gpu.launch_ns + 2 * unit_parts_bytes(splits, g) / gpu.bytes_per_ns : 0;
}
// Least bytes that a product moves.
double unit_bytes(const Problem& problem);

class UnitPlan : public GemmPlan {
 protected:
  // `source`: of a program with gemm_parts.cl in it.
  UnitPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
           const UnitLayouts& layouts, std::string source);
  // Sets a, b and parts; builds what runs before and after the product. Steps of k are shared
  // evenly.
  void prepare(const Operands& constants, std::int64_t splits);
  // The kernel's last arguments; of 3xtf32, a and b as they are come first.
  void add_last(opencl::KernelCall& call);
  bool is_3xtf32() const { return layouts_.bytes == 4; }

  const UnitLayouts layouts_;
  std::string source_, options_;
  cl_mem a_ = nullptr, b_ = nullptr, parts_ = nullptr;
  std::int64_t k_ = 0;        // 0: a and b are not read
  std::int64_t k_share_ = 0;  // of a group

 private:
  cl_mem strict_a_ = nullptr, strict_b_ = nullptr;  // of 3xtf32 alone
};

}  // namespace rooflane::gemm
