// See low_precision.hpp.
#include "model/low_precision.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "model/rewrite.hpp"

namespace rooflane::model {
namespace {

constexpr std::string_view scale_suffix = ".scale";
// The largest magnitude that int8 has on both sides of 0.
constexpr float largest_int8 = 127;

bool is_product(const Call& call) { return std::string_view(call.problem.kernel().name) == "gemm"; }

bool is_plain_weight(const Tensor& tensor) {
  return tensor.kind == Tensor::Kind::weight && tensor.dtype == &float32;
}

// Weights that products alone read, as b.
std::set<std::string> weights_of_products(const Instance& instance) {
  std::set<std::string> products, others;
  for (const Phase& phase : instance.phases) {
    for (const Call& call : phase.calls) {
      for (const Operand& operand : call.operands) {
        const Tensor& tensor = phase.tensors[operand.view.tensor];
        if (!is_plain_weight(tensor)) continue;
        (is_product(call) && operand.name == "b" ? products : others).insert(tensor.name);
      }
    }
  }
  for (const std::string& name : others) products.erase(name);
  return products;
}

// The tensors of a product's weight in the new format.
class Rewriter {
 public:
  Rewriter(const Instance& instance, DType dtype, std::string math)
      : dtype_(dtype),
        math_(std::move(math)),
        wanted_(weights_of_products(instance)),
        result_(instance) {}

  Instance run() {
    while (!rewritten()) {
    }
    return std::move(result_);
  }

 private:
  // One attempt at all phases; false where a product refuses: its weight then stays as it is.
  bool rewritten() {
    Instance trial = result_;
    for (Phase& phase : trial.phases) {
      for (Tensor& tensor : phase.tensors) {
        if (wanted_.contains(tensor.name)) tensor.dtype = dtype_;
      }
      for (Call& call : phase.calls) {
        const Operand* const b = is_product(call) ? find_operand(call, "b") : nullptr;
        if (b == nullptr || !wanted_.contains(phase.tensors[b->view.tensor].name)) continue;
        try {
          call = converted(phase, call, *b);
        } catch (const Error&) {
          wanted_.erase(phase.tensors[b->view.tensor].name);
          return false;
        }
      }
    }
    result_ = std::move(trial);
    return true;
  }

  Call converted(Phase& phase, const Call& call, const Operand& b) const {
    Problem problem = without(call.problem, "b_type");
    problem.set("b_type", dtype_->short_name);
    Views views = views_of(call);
    if (dtype_ == &int8_per_channel) views.emplace_back("b_scale", scales_of(phase, call, b));
    Call made = call_of(problem, views, phase.tensors);
    const auto defect = math_.empty() ? std::nullopt : math_defect(made.problem, math_);
    if (defect) throw argument_error(*defect);
    made.step = call.step;
    made.math = math_;
    return made;
  }

  // A weight as long as op(b) has columns, which a product's weight fills whole.
  static Strided scales_of(Phase& phase, const Call& call, const Operand& b) {
    if (!call.problem.flag("trans_b") || !b.all) throw argument_error("columns do not lie as rows");
    const Tensor& weight = phase.tensors[b.view.tensor];
    const std::string name = weight.name + std::string(scale_suffix);
    const Shape shape = {call.problem.size("n")};
    const auto known = std::find_if(phase.tensors.begin(), phase.tensors.end(),
                                    [&](const Tensor& tensor) { return tensor.name == name; });
    if (known != phase.tensors.end()) {
      if (known->shape != shape) throw argument_error("columns differ from product to product");
      return whole(static_cast<std::size_t>(known - phase.tensors.begin()), shape);
    }
    Tensor scale;
    scale.name = name;
    scale.kind = Tensor::Kind::weight;
    scale.shape = shape;
    scale.line = weight.line;
    phase.tensors.push_back(std::move(scale));
    return whole(phase.tensors.size() - 1, shape);
  }

  DType dtype_;
  std::string math_;
  std::set<std::string> wanted_;
  Instance result_;
};

// See converted_weights.
class ConvertedWeights final : public WeightSource {
 public:
  ConvertedWeights(const Instance& plain, const Instance& converted, const WeightSource& source)
      : source_(source), plain_(weights_of(plain)) {
    for (const auto& [name, tensor] : weights_of(converted)) {
      if (!plain_.contains(name)) columns_.emplace(plain_of(tensor).name, tensor.elements());
    }
  }

  std::optional<std::string> missing(const Tensor& weight) const override {
    return source_.missing(plain_of(weight));
  }

  void read(const Tensor& weight, void* to) const override {
    const Tensor& plain = plain_of(weight);
    const bool is_scale = plain.name != weight.name;
    if (!is_scale && plain.dtype == weight.dtype) {
      source_.read(weight, to);
      return;
    }
    std::vector<float> values(static_cast<std::size_t>(plain.elements()));
    source_.read(plain, values.data());
    if (is_scale) {
      const std::vector<float> scales = scales_of(values, weight.elements(), plain.shape.back());
      std::copy(scales.begin(), scales.end(), static_cast<float*>(to));
    } else if (weight.dtype == &int8_per_channel) {
      quantise(values, plain, static_cast<std::int8_t*>(to));
    } else {
      const std::vector<double> wide(values.begin(), values.end());
      weight.dtype->encode(wide.data(), to, weight.elements());
    }
  }

 private:
  static std::map<std::string, Tensor> weights_of(const Instance& instance) {
    std::map<std::string, Tensor> weights;
    for (const Phase& phase : instance.phases) {
      for (const Tensor& tensor : phase.tensors) {
        if (tensor.kind == Tensor::Kind::weight) weights.emplace(tensor.name, tensor);
      }
    }
    return weights;
  }

  // The float32 weight that it is made of.
  const Tensor& plain_of(const Tensor& weight) const {
    const auto found = plain_.find(weight.name);
    if (found != plain_.end()) return found->second;
    const std::string_view name = weight.name;
    return plain_.at(std::string(name.substr(0, name.size() - scale_suffix.size())));
  }

  // The scale of each of `columns` rows of k elements, for every matrix of a batch: max|w| / 127,
  // or 1 for zeros.
  static std::vector<float> scales_of(const std::vector<float>& values, std::int64_t columns,
                                      std::int64_t k) {
    std::vector<float> scales(static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < values.size(); ++i) {
      float& scale = scales[i / static_cast<std::size_t>(k) % scales.size()];
      scale = std::max(scale, std::abs(values[i]));
    }
    for (float& scale : scales) scale = scale > 0 ? scale / largest_int8 : 1;
    return scales;
  }

  void quantise(const std::vector<float>& values, const Tensor& plain, std::int8_t* to) const {
    const auto k = static_cast<std::size_t>(plain.shape.back());
    const std::vector<float> scales =
        scales_of(values, columns_.at(plain.name), plain.shape.back());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float number = std::nearbyint(values[i] / scales[i / k % scales.size()]);
      to[i] = static_cast<std::int8_t>(std::clamp(number, -largest_int8, largest_int8));
    }
  }

  const WeightSource& source_;
  std::map<std::string, Tensor> plain_;
  std::map<std::string, std::int64_t> columns_;
};

}  // namespace

Instance with_products_in(const Instance& instance, DType dtype, const std::string& math) {
  return Rewriter(instance, dtype, math).run();
}

Instance with_math(const Instance& instance, const std::string& math) {
  Instance result = instance;
  for (Phase& phase : result.phases) {
    for (Call& call : phase.calls) {
      const Operand* const b = is_product(call) ? find_operand(call, "b") : nullptr;
      if (b == nullptr) continue;
      // Weights in float32 are asked to stay what they are.
      const Tensor& weight = phase.tensors[b->view.tensor];
      if (weight.kind != Tensor::Kind::weight || weight.dtype == &float32) continue;
      if (!math_defect(call.problem, math)) call.math = math;
    }
  }
  return result;
}

std::unique_ptr<WeightSource> converted_weights(const Instance& plain, const Instance& converted,
                                                const WeightSource& source) {
  return std::make_unique<ConvertedWeights>(plain, converted, source);
}

}  // namespace rooflane::model
