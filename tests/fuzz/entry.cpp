// libFuzzer's entry for one target, the function that scripts/fuzz.sh gives as TARGET.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rooflane::fuzz::run(rooflane::fuzz::TARGET, {reinterpret_cast<const char*>(data), size});
  return 0;
}
