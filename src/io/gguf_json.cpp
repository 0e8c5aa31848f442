// See gguf_json.hpp.
#include "io/gguf_json.hpp"

#include <string>
#include <variant>

namespace rooflane {
namespace {

using nlohmann::json;

json element_json(const GgufElement& element) {
  return std::visit([](const auto& value) { return json(value); }, element);
}

json value_json(const GgufValue& value) {
  const std::vector<GgufElement> elements = elements_of(value);
  if (!value.is_array) return element_json(elements.front());
  json list = json::array();
  for (const GgufElement& each : elements) list.push_back(element_json(each));
  return list;
}

}  // namespace

json gguf_json(const Gguf& gguf) {
  json metadata = json::object();
  for (const GgufValue& value : gguf.metadata()) {
    metadata[std::string(value.key)] = value_json(value);
  }
  json tensors = json::array();
  for (const GgufTensor& tensor : gguf.tensors()) {
    tensors.push_back(
        {{"name", tensor.name}, {"shape", tensor.shape}, {"type", tensor.dtype->short_name}});
  }
  return {{"version", gguf.version()}, {"metadata", metadata}, {"tensors", tensors}};
}

}  // namespace rooflane
