// libFuzzer's entry for GGUF files: whatever the bytes are, they are read or refused with an Error,
// and of an accepted file everything can be read. Built and run by scripts/fuzz.sh.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.hpp"
#include "io/gguf.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rooflane;
  try {
    const Gguf gguf({reinterpret_cast<const char*>(data), size}, "fuzz.gguf");
    for (const GgufValue& value : gguf.metadata()) elements_of(value);
    std::vector<float> values;
    for (const GgufTensor& tensor : gguf.tensors()) {
      std::size_t elements = 1;
      for (const std::int64_t axis : tensor.shape) elements *= static_cast<std::size_t>(axis);
      values.resize(elements);
      read_f32(tensor, values.data());
    }
  } catch (const Error&) {
    // What is wrong with it was said.
  }
  return 0;
}
