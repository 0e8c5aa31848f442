// Where this program may keep files between runs.
#pragma once

#include <filesystem>

namespace rooflane {

// `rooflane` in $XDG_CACHE_HOME, else in ~/.cache; not created here. Empty: neither is set.
std::filesystem::path cache_folder();

}  // namespace rooflane
