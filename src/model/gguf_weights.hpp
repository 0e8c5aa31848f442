// Weights of a model from a GGUF file, by their names. Only tensors are read: the model says what
// is computed with them, and the file's metadata does not change that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/gguf.hpp"
#include "model/weights.hpp"

namespace rooflane::model {

// Weight NAME of the model is tensor NAME of the file, or NAME.weight. Where the file has neither,
// attn_qkv is its attn_q, attn_k and attn_v one after another, ffn_gate_up its ffn_gate and then
// its ffn_up, with the rows that the weight's `parts` say, and `output` the table token_embd.
class GgufWeights : public WeightSource {
 public:
  // The file must outlive it.
  explicit GgufWeights(const Gguf& gguf) : gguf_(gguf) {}

  std::optional<std::string> missing(const Tensor& weight) const override;
  // As float32, or as the file has it.
  void read(const Tensor& weight, void* to) const override;
  // The file's own format, where kernels read it and all that is joined has it; else float32.
  DType format_of(const Tensor& weight) const;
  // Names of the file's tensors that no weight of the instance reads, in the file's order.
  std::vector<std::string> unread(const Instance& instance) const;

 private:
  // Names of the tensors that follow one another in a weight.
  std::vector<std::string> parts_of(const std::string& weight) const;
  static std::optional<std::int64_t> rows_of(const Tensor& weight, std::size_t index,
                                             std::size_t count);

  const Gguf& gguf_;
};

}  // namespace rooflane::model
