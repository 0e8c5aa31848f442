// What a kernel tells of itself. One constant record per room; everything generic (verify, bench,
// command line, tests) works from this record and names no kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "problem.hpp"
#include "tensor.hpp"

namespace rooflane {

enum class Role { input, constant, output };

// One axis of a tensor: the name of the size parameter that gives its length.
struct Axis {
  const char* param;
  // plain: exactly one array axis. droppable: the array may lack it when its size is 1.
  // leading: any number of array axes, also none, whose product is the size (softmax rows).
  enum class Form { plain, droppable, leading } form = Form::plain;
};

// In a plan's operands every tensor has exactly one axis per entry here: softmax x is [rows,cols],
// gemm a is [batch,m,k], attention q is [batch,heads,q_len,head_dim].
struct TensorSpec {
  std::string name;
  Role role;
  std::vector<Axis> axes;
  double seed_scale = 1;  // inputs from a seed are multiplied by this
  const char* like = "";  // outputs: the input whose array rank and leading axes `run` copies
};

// Counts per contract; bytes are compulsory traffic, each operand once.
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
};

// Chosen elements of the (single) output seen as [rows, cols], rows = product of all axes but the
// last. All of `rows` × all of `cols`.
struct Region {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> cols;
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
  // Double-precision result and error bound for every element of the region: value[i*cols+j] for
  // rows[i], cols[j]. Inputs may be strided. Infinite or NaN values are what NumPy would give.
  void (*reference)(const Problem&, const Operands& inputs, const Region&, double* value,
                    double* bound);
  // The input that the output may be, element for element (softmax and layernorm: x). Else "".
  std::string_view in_place_input = {};
  // True when chosen columns cost less than whole rows (gemm).
  bool columns_are_cheap = false;
  // A check of the whole output that costs far less than the reference (gemm: Freivalds product;
  // softmax: row sums). Returns max error / bound over its checks. May be null.
  double (*whole_check)(const Problem&, const Operands& inputs, const View& output,
                        std::uint64_t seed) = nullptr;
};

const ParamSpec* find_param(const Kernel& kernel, std::string_view name);

// The array shape of a tensor of a complete problem, one entry per axis.
Shape tensor_shape(const Problem& problem, const TensorSpec& tensor);
// Bytes of all tensors together, in double so that it cannot overflow.
double operand_bytes(const Problem& problem);
const TensorSpec& output_of(const std::vector<TensorSpec>& tensors);

// Sizes from arrays: `known` holds parameters the user gave; `shapes` the arrays by tensor name.
// Throws Error naming both arrays and axes that disagree, a missing or an unknown array.
struct NamedShape {
  std::string name;
  Shape shape;
};
Problem infer_problem(const Problem& known, const std::vector<NamedShape>& shapes);
// The shape that the user sees for the output: rank and leading axes of the array it is like.
Shape output_array_shape(const Problem& problem, const std::vector<NamedShape>& inputs);

}  // namespace rooflane
