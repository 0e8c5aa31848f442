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
  std::string_view name;
  std::vector<std::string_view> parts;
};
const std::array<Joined, 2> joined = {
    {{".attn_qkv", {".attn_q", ".attn_k", ".attn_v"}}, {".ffn_gate_up", {".ffn_gate", ".ffn_up"}}}};
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
    std::vector<std::string> names;
    for (const std::string_view part : each.parts) {
      names.push_back(in_file(layer + std::string(part)));
    }
    return names;
  }
  return {in_file(weight == output ? embedding : weight)};
}

// Rows of the weight's `index`-th of `count` parts; nothing where it has no such parts.
std::optional<std::int64_t> GgufWeights::rows_of(const Tensor& weight, std::size_t index,
                                                 std::size_t count) {
  if (weight.shape.empty()) return std::nullopt;
  if (weight.parts.size() == count) return weight.parts[index];
  const auto parts = static_cast<std::int64_t>(count);
  if (!weight.parts.empty() && count > 1) return std::nullopt;
  if (weight.shape.front() % parts != 0) return std::nullopt;
  return weight.shape.front() / parts;
}

std::optional<std::string> GgufWeights::missing(const Tensor& weight) const {
  if (weight.dtype->is_integer()) return "it holds integers, of which a file has none";
  const std::vector<std::string> parts = parts_of(weight.name);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = parts[i];
    const auto rows = rows_of(weight, i, parts.size());
    if (!rows) return fmt::format("its rows are no {} tensors of one size", parts.size());
    Shape shape = weight.shape;
    shape.front() = *rows;
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
  const std::int64_t row = weight.elements() / std::max<std::int64_t>(weight.shape.front(), 1);
  auto* at = static_cast<char*>(to);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const GgufTensor& tensor = *gguf_.find_tensor(parts[i]);
    if (weight.dtype == &float32) {
      read_f32(tensor, reinterpret_cast<float*>(at));
    } else {
      std::ranges::copy(tensor.bytes, at);
    }
    at += weight.dtype->bytes(*rows_of(weight, i, parts.size()) * row);
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
