// GGUF files: of an accepted one everything can be read, and said as JSON.
#include <nlohmann/json.hpp>
#include <vector>

#include "io/gguf.hpp"
#include "io/gguf_json.hpp"
#include "io/json.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void gguf_target(std::string_view input) {
  const Gguf gguf(input, "fuzz.gguf");
  for (const GgufValue& value : gguf.metadata()) elements_of(value);
  std::vector<float> values;
  for (const GgufTensor& tensor : gguf.tensors()) {
    std::size_t elements = 1;
    for (const std::int64_t axis : tensor.shape) elements *= static_cast<std::size_t>(axis);
    values.resize(elements);
    read_f32(tensor, values.data());
  }
  require(nlohmann::json::accept(json_text(gguf_json(gguf))));
}

}  // namespace rooflane::fuzz
