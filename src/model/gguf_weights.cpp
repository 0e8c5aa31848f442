// Names of weights in GGUF files. See gguf_weights.hpp.
#include "model/gguf_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace rooflane::model {
namespace {

// What the file keeps apart and a model multiplies by at once.
struct Joined {
  std::string_view name, first, second;
};
constexpr std::array<Joined, 2> joined = {
    {{".attn_kv", ".attn_k", ".attn_v"}, {".ffn_gate_up", ".ffn_gate", ".ffn_up"}}};
constexpr std::string_view output = "output";
constexpr std::string_view embedding = "token_embd";

std::string in_file(std::string_view name) { return fmt::format("{}.weight", name); }

}  // namespace

std::vector<std::string> GgufWeights::parts_of(const std::string& weight) const {
  for (const std::string& name : {weight, in_file(weight)}) {
    if (gguf_.find_tensor(name) != nullptr) return {name};
  }
  for (const Joined& each : joined) {
    if (!weight.ends_with(each.name)) continue;
    const std::string layer = weight.substr(0, weight.size() - each.name.size());
    return {in_file(layer + std::string(each.first)), in_file(layer + std::string(each.second))};
  }
  return {in_file(weight == output ? embedding : weight)};
}

std::optional<std::string> GgufWeights::missing(const Tensor& weight) const {
  if (weight.dtype->is_integer()) return "it holds integers, of which a file has none";
  const std::vector<std::string> parts = parts_of(weight.name);
  const auto count = static_cast<std::int64_t>(parts.size());
  if (weight.shape.empty() || weight.shape.front() % count != 0) {
    return fmt::format("its rows are no {} tensors of one size", count);
  }
  Shape shape = weight.shape;
  shape.front() /= count;
  for (const std::string& name : parts) {
    const GgufTensor* const tensor = gguf_.find_tensor(name);
    if (tensor == nullptr) return fmt::format("'{}' has no tensor '{}'", gguf_.path(), name);
    if (tensor->shape != shape) {
      return fmt::format("'{}' has tensor '{}' of {} instead of {}", gguf_.path(), name,
                         print_shape(tensor->shape), print_shape(shape));
    }
    if (weight.dtype != &float32 && weight.dtype != tensor->dtype) {
      return fmt::format("'{}' has tensor '{}' in {} instead of {}", gguf_.path(), name,
                         tensor->dtype->short_name, weight.dtype->short_name);
    }
  }
  return std::nullopt;
}

void GgufWeights::read(const Tensor& weight, void* to) const {
  const std::vector<std::string> parts = parts_of(weight.name);
  const std::int64_t elements = weight.elements() / static_cast<std::int64_t>(parts.size());
  auto* at = static_cast<char*>(to);
  for (const std::string& name : parts) {
    const GgufTensor& tensor = *gguf_.find_tensor(name);
    if (weight.dtype == &float32) {
      read_f32(tensor, reinterpret_cast<float*>(at));
    } else {
      std::ranges::copy(tensor.bytes, at);
    }
    at += weight.dtype->bytes(elements);
  }
}

DType GgufWeights::format_of(const Tensor& weight) const {
  static constexpr std::array<DType, 5> multiplied = {&float16, &bfloat16, &q8_0, &q4_0, &q4_1};
  DType format = nullptr;
  for (const std::string& name : parts_of(weight.name)) {
    const GgufTensor* const tensor = gguf_.find_tensor(name);
    if (tensor == nullptr || (format != nullptr && format != tensor->dtype)) return &float32;
    format = tensor->dtype;
  }
  const bool known = std::ranges::find(multiplied, format) != multiplied.end();
  return known && weight.shape.size() >= 2 ? format : &float32;
}

std::vector<std::string> GgufWeights::unread(const Instance& instance) const {
  std::set<std::string, std::less<>> read;
  for (const Phase& phase : instance.phases) {
    for (const Tensor& tensor : phase.tensors) {
      if (tensor.kind != Tensor::Kind::weight) continue;
      for (std::string& name : parts_of(tensor.name)) read.insert(std::move(name));
    }
  }
  std::vector<std::string> names;
  for (const GgufTensor& tensor : gguf_.tensors()) {
    if (read.count(tensor.name) == 0) names.push_back(printable(tensor.name));
  }
  return names;
}

}  // namespace rooflane::model
