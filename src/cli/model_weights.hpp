// `model --weights FILE.gguf --weight-type T`, or weights from the seed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_arguments.hpp"
#include "io/gguf.hpp"
#include "model/weights.hpp"

namespace rooflane {

class ModelWeights {
 public:
  // Throws Error(argument) for a file that is not a GGUF.
  explicit ModelWeights(const ModelArguments& read);

  // As --weight-type says.
  const model::WeightFormat& format() const { return format_; }
  // Throws Error(argument), before anything is allocated, for a file that lacks a weight or has it
  // in another shape or format.
  void open(const ModelArguments& read, const model::Instance& instance);
  bool has_file() const { return gguf_.has_value(); }
  // As the file of --weights has them.
  model::WeightFormat file_format() const;
  const model::WeightSource& source() const { return *source_; }
  // A file may hold more layers than the model has, and much that another model would read.
  void note_unread() const;

 private:
  std::optional<Gguf> gguf_;
  model::WeightFormat format_;
  std::unique_ptr<model::WeightSource> source_;
  std::vector<std::string> unread_;
};

}  // namespace rooflane
