// What every fuzz target is: a function of an input's bytes. An Error says that the input was
// refused; everything else that is thrown, and whatever require() finds, is a bug. Run under
// libFuzzer by entry.cpp (scripts/fuzz.sh), over the committed inputs by replay.cpp.
#pragma once

#include <cstdlib>
#include <iterator>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "generated_catalogue.hpp"

// Every NAME_fuzz.cpp.
#define ROOFLANE_FUZZ_TARGETS(TARGET) \
  TARGET(answers)                     \
  TARGET(c_api)                       \
  TARGET(cases)                       \
  TARGET(ceilings)                    \
  TARGET(csv)                         \
  TARGET(doorbell)                    \
  TARGET(gguf)                        \
  TARGET(llama)                       \
  TARGET(model)                       \
  TARGET(npy)                         \
  TARGET(phases)                      \
  TARGET(plugin)                      \
  TARGET(presets)                     \
  TARGET(requests)                    \
  TARGET(rows)                        \
  TARGET(samples)                     \
  TARGET(schedule)                    \
  TARGET(shapes)                      \
  TARGET(traits)                      \
  TARGET(tuned)                       \
  TARGET(worker)

namespace rooflane::fuzz {

#define ROOFLANE_DECLARE(NAME) void NAME##_target(std::string_view input);
ROOFLANE_FUZZ_TARGETS(ROOFLANE_DECLARE)
#undef ROOFLANE_DECLARE

// Also in builds without assertions.
inline void require(bool holds) {
  if (!holds) std::abort();
}

inline std::span<const Kernel* const> all_kernels() {
  // A null pointer ends them.
  return {generated::kernels, std::size(generated::kernels) - 1};
}

template <class Target>
void run(Target target, std::string_view input) {
  try {
    target(input);
  } catch (const Error& error) {
    require(*error.what() != '\0');
  }
}

}  // namespace rooflane::fuzz
