// From a stranger's source to a library that a runner loads: compiled in the jail, as it runs
// there.
#pragma once

#include <string>
#include <vector>

#include "jail/jail.hpp"
#include "judge/signature.hpp"

namespace rooflane::judge {

struct Source {
  std::string path, text;  // text: of a library its bytes
  std::string sha256;
  enum class Kind { function, table, opencl, library } kind = Kind::function;
};
std::string_view name_of(Source::Kind kind);
// Throws Error(argument): it cannot be read, or its name ends in none of .c, .cc, .cpp, .cxx, .cl,
// .so.
Source read_source(const std::string& path);

struct Build {
  bool good = false;
  bool timed_out = false;
  std::string compiler, flags;
  std::string messages;                     // the compiler's, cut
  std::vector<std::string> not_vectorised;  // "line: reason"
};
inline constexpr const char* built_library = "judged.so";
inline constexpr const char* default_flags = "-O3 -march=native";

// Builds into `folder`/judged.so; the folder holds the runner. A compiler that takes more than so
// many seconds of the CPU is ended, and all of them after half a minute.
Build build(const Source& source, const Signature& signature, bool many_threads,
            const std::string& flags, jail::Kind kind, const std::string& folder,
            double cpu_seconds);

}  // namespace rooflane::judge
