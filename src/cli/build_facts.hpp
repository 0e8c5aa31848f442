// What this build is: version, commit, compiler. For --version and the columns of every row.
#pragma once

#include <string>

namespace rooflane {

extern const std::string build_version;   // "0.1.0"
extern const std::string build_commit;    // abbreviated hash; "unknown" outside a git checkout
extern const std::string build_hash;      // the whole hash; "unknown" likewise
extern const std::string build_dirty;     // "1" with uncommitted changes, "0" without, else empty
extern const std::string build_compiler;  // "GCC 12.2.0"

}  // namespace rooflane
