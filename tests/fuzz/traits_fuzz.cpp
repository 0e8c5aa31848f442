// Files of traits: what is accepted prints as a file that reads back as itself, and serves every
// target and number of threads.
#include "core/traits.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void traits_target(std::string_view input) {
  const MeasuredTraits measured = parse_traits(input);
  const std::string text = print_traits(measured);
  require(print_traits(parse_traits(text)) == text);
  for (const int threads : {1, 2, 64}) {
    require(traits_of(measured, machine(), "AVX3", threads).threads == threads);
  }
}

}  // namespace rooflane::fuzz
