// What the paths of the variant `opencl` for matrix units and short operands share (mma.sync and
// wgmma; gemm_parts.cl): how operands are laid out for them, and a plan that prepares operands,
// multiplies and adds the sums of groups that share k.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/gemm/opencl_paths.hpp"

namespace rooflane::gemm {

// What a tile has of k, in bytes.
inline constexpr std::int64_t unit_row_bytes = 128;
// Sizes and bytes of a row are counted in int, a tile's side beyond an edge included.
inline constexpr std::int64_t unit_longest = std::int64_t{1} << 29;

// Share of its highest clock that a card's power allows while its matrix units work (an H100 and an
// H200 at 8192³).
inline constexpr double unit_sustained_clock = 0.75;

// How tiles of an operand are read: a row of `ld` bytes holds k, or with `wide` rows of op(a) or
// columns of op(b) side by side. laid: `rearrange` makes the former of it first.
struct UnitLayout {
  bool wide, laid;
  std::int64_t ld;
  std::int64_t matrix_bytes(std::int64_t rows, std::int64_t k) const {
    return (wide ? k : rows) * ld;
  }
};

struct UnitLayouts {
  std::int64_t bytes;  // of an element
  UnitLayout a, b;
  UnitLayouts(const Gemm& g, DType type);
};

// Whether matrix units compute problems of this math: f16, bf16 and exact int8.
bool has_unit_math(const Problem& problem, const Environment& env);
// Bytes of the sums of groups that share k.
double unit_parts_bytes(std::int64_t splits, const Gemm& g);
// Least bytes that a product moves.
double unit_bytes(const Gemm& g, const UnitLayouts& layouts, const Problem& problem);

class UnitPlan : public opencl::DevicePlan {
 protected:
  // `source`: of a program with gemm_parts.cl in it.
  UnitPlan(const Problem& problem, const Tuning& tuning, const Environment& env,
           std::string source);
  // Sets a, b and parts; builds what runs before and after the product. Steps of k are shared
  // evenly.
  void prepare(const Operands& constants, std::int64_t splits);
  // The kernel's last arguments.
  void add_output(opencl::KernelCall& call);
  // Enqueues the product.
  virtual void multiply() = 0;

  const Gemm g_;
  const UnitLayouts layouts_;
  std::string source_, options_;
  cl_mem a_ = nullptr, b_ = nullptr, parts_ = nullptr;
  std::int64_t k_ = 0;        // 0: a and b are not read
  std::int64_t k_share_ = 0;  // of a group

 private:
  struct Lay {
    opencl::KernelCall call;
    opencl::Launch size{0, 1};
  };
  void enqueue() final;
  cl_mem operand(Lay& lay, cl_mem from, const UnitLayout& to, std::int64_t rows, bool deep,
                 bool is_constant);
  cl_mem operand_b(const Operands& constants);

  Lay lay_a_, lay_b_;
  opencl::KernelCall add_;
  opencl::Launch add_size_{0, 1};
};

inline cl_int as_cl_int(std::int64_t x) { return static_cast<cl_int>(x); }

}  // namespace rooflane::gemm
