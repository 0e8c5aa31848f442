// `main` of the measuring tools in this folder.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace rooflane {

// The status of `run`; 2, and the reason on standard error, if it throws.
inline int tool_main(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  }
}

}  // namespace rooflane
