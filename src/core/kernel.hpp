// The description of a kernel. One constant record per room; everything generic (verify, bench,
// command line, tests) works from this record and names no kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distribution.hpp"
#include "domain.hpp"
#include "math.hpp"
#include "problem.hpp"
#include "tensor.hpp"

namespace rooflane {

// updated: an output that is an input too (a cache that grows); its reference takes what it held
// before.
enum class Role { input, constant, output, updated };
inline bool is_written(Role role) { return role == Role::output || role == Role::updated; }
inline bool is_read(Role role) { return role != Role::output; }

// One axis of a tensor: the name of the size parameter that gives its length.
struct Axis {
  const char* param;
  // plain: exactly one array axis. droppable: the array may lack it when its size is 1.
  // leading: any number of array axes, also none; their product is the size (softmax rows).
  enum class Form { plain, droppable, leading } form = Form::plain;
  // For outputs: the length where it follows from the parameters and is not one of them; `param` is
  // then only a name.
  std::int64_t (*derived)(const Problem&) = nullptr;
  // The array's axis is so many times as long as the parameter says (gemm's b with gate=1).
  std::int64_t times = 1;
};
std::int64_t axis_length(const Problem& problem, const Axis& axis);

inline constexpr int whole_reach = 1 << 14;
// A reach that leaves a result 2^binades times as large as an operand within the format.
inline int reach_below(DType type, int binades) { return std::ilogb(type->largest) + 1 - binades; }

// In a plan's operands every tensor has exactly one axis per entry here: softmax x is [rows,cols],
// gemm a is [batch,m,k], attention q is [batch,heads,q_len,head_dim].
struct TensorSpec {
  std::string name;
  Role role;
  std::vector<Axis> axes;
  DType dtype = &float32;
  double seed_scale = 1;  // inputs from a seed are multiplied by this
  // For floats: magnitudes of seeded inputs are at most 2^reach, and those of normal ones at least
  // 2^-reach, in every distribution. 0: uniform in all of them (vectors beside rows). The default:
  // the format's whole range.
  int reach = whole_reach;
  const char* like = "";      // outputs: `run` copies array rank and leading axes of this input
  IntegerDomain domain = {};  // of int32 inputs
};

inline bool follows_distributions(const TensorSpec& tensor) {
  return !tensor.dtype->is_integer() && tensor.reach != 0;
}

// Counts per contract; bytes are compulsory traffic, each operand once, or where ids choose rows,
// those that are chosen.
struct Cost {
  double flops = 0;
  double exps = 0;
  double bytes = 0;
  // What the model (measure/model.hpp) prices besides exps and bytes: flops that multiply-adds do
  // in pairs, and sums, differences, products and maxima that are done one by one. No split of
  // `flops`, which leaves out what attention's softmax needs and which the strict roof takes for
  // multiply-adds altogether.
  double fma_flops = 0;
  double unfused_flops = 0;
  // It moves elements and computes nothing: with no flops it still has a roof, that of its bytes.
  bool moves = false;
};

// Chosen elements of an output seen as [rows, cols], rows = product of all axes but the last. All
// of `rows` × all of `cols`.
struct Region {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> cols;
};

// Where a reference puts what it finds: element (rows[i], cols[j]) of the region at
// i·cols.size()+j.
struct ReferenceOut {
  double* value;
  double* bound;        // what a careful algorithm in the math's sums may err
  double* plain_bound;  // what plain sums may lose beyond that; at least `bound`
};

// The relative error that plain sums of n terms may add to what careful ones keep: that of random
// roundings, which grows like √n (Higham & Mary, "A new approach to probabilistic rounding error
// analysis", 2019), and 8 for short sums.
inline double plain_sum_error(double n, double unit_roundoff) {
  return (8 + std::sqrt(n)) * unit_roundoff;
}

// The largest error of a whole output over what a kernel's bounds allow for its checks.
struct WholeError {
  double over_bound = 0;
  double over_plain_bound = 0;
};

struct Kernel {
  const char* name;
  const char* summary;  // the maths in one line
  std::span<const ParamSpec> params;
  // Tensors in contract order, inputs first. May look at flags only (sizes may be unset).
  std::vector<TensorSpec> (*tensors)(const Problem&);
  Cost (*cost)(const Problem&);
  // Constraints between parameters; throws Error (heads a multiple of kv_heads). May be null.
  void (*check)(const Problem&);
  // Double-precision result and error bounds for every element of a region of the output `tensor`,
  // one of those that `tensors` lists. Inputs come as float32, to which every shorter format
  // converts exactly, but int32 ones as they are; they may be strided. Bounds leave out the
  // rounding of the output to a format other than float32: who compares adds it
  // (measure/verify.cpp). Infinite or NaN values are what NumPy would give.
  void (*reference)(const Problem&, const Math&, const Operands& inputs, std::string_view tensor,
                    const Region&, const ReferenceOut&);
  // The arithmetics that variants may offer, the first the default.
  std::span<const Math* const> maths = only_fp32;
  // Why inputs of a distribution other than uniform are beyond what the kernel promises; nothing
  // when they are not. Null: none is.
  std::optional<std::string> (*distribution_defect)(const Problem&, const Math&,
                                                    const Distribution&) = nullptr;
  // Why a problem of these number formats cannot be computed with a math; nothing when it can.
  // Null: all can.
  std::optional<std::string> (*math_defect)(const Problem&, const Math&) = nullptr;
  // The input that the output may be, element for element (row kernels: x). Else "".
  std::string_view in_place_input = {};
  // True when chosen columns cost less than whole rows (gemm).
  bool columns_are_cheap = false;
  // A check of the whole output that costs far less than the reference (gemm: Freivalds product;
  // softmax: row sums). `operands`: inputs and outputs, as float32. May be null.
  WholeError (*whole_check)(const Problem&, const Math&, const Operands& operands,
                            std::uint64_t seed) = nullptr;
  // Whether that check can judge this problem; where it cannot, more rows and columns are compared.
  // Null: it always can.
  bool (*whole_check_applies)(const Problem&) = nullptr;
};

const ParamSpec* find_param(const Kernel& kernel, std::string_view name);
// Null: the kernel has no such math.
const Math* find_math(const Kernel& kernel, std::string_view name);
// Why the math of this name is none for the problem; nothing when it is, or the kernel has no such
// math.
std::optional<std::string> math_defect(const Problem& problem, std::string_view name);
// What `asked` means for a problem: itself, but where it is the kernel's default and the problem's
// number formats exclude it, the first math that they allow.
std::string math_for(const Problem& problem, const std::string& asked);

// The array shape of a tensor of a complete problem, one entry per axis.
Shape tensor_shape(const Problem& problem, const TensorSpec& tensor);
double tensor_bytes(const Problem& problem, const TensorSpec& tensor);
// Bytes of all tensors together, in double so that it cannot overflow.
double operand_bytes(const Problem& problem);
// Compulsory traffic: each operand once, one that is read and written twice.
double traffic_bytes(const Problem& problem);
// Relative error of rounding a result to the output's format; 0 for float32, in which every kernel
// forms its results, so that its bound holds that rounding already.
double output_roundoff(DType dtype);
// The formats of all tensors, each once in their order: "float32", "bfloat16+float32".
std::string dtype_text(const Problem& problem);

// Sizes from arrays: `known` holds parameters the user gave; `shapes` the arrays by tensor name.
// Throws Error naming both arrays and axes that disagree, a missing or an unknown array.
struct NamedShape {
  std::string name;
  Shape shape;
};
Problem infer_problem(const Problem& known, const std::vector<NamedShape>& shapes);
// The shape that the user sees for an output: rank and leading axes of the array it is like.
Shape output_array_shape(const Problem& problem, const TensorSpec& output,
                         const std::vector<NamedShape>& inputs);

}  // namespace rooflane
