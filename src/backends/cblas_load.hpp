// Steps of cblas::open that the children of cblas_environment.cpp need too: finding the file and
// loading it, without the cache and its lock. Not for other callers; they use cblas.hpp.
#pragma once

#include <memory>
#include <string>

#include "backends/cblas.hpp"

namespace rooflane::cblas {

// Debian's name of this architecture: libraries are in /usr/lib/MULTIARCH.
#if defined(__aarch64__)
inline constexpr const char* multiarch = "aarch64-linux-gnu";
#else
inline constexpr const char* multiarch = "x86_64-linux-gnu";
#endif

// The file that `path` means: the default library for an empty path. Throws Error like `open` where
// the path is not a regular file or the machine has no default library.
std::string library_file(const std::string& path);

// Loads `file` afresh unless the process already holds it; `name` stands for it in errors.
std::shared_ptr<const Library> load(const std::string& file, const std::string& name);

}  // namespace rooflane::cblas
