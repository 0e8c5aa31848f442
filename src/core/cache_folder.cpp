// The XDG base directory specification's rule for caches.
#include "core/cache_folder.hpp"

#include <cstdlib>

namespace rooflane {

std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  // The specification ignores relative paths.
  if (cache != nullptr && *cache == '/') return std::filesystem::path(cache) / "rooflane";
  if (home != nullptr && *home != '\0') return std::filesystem::path(home) / ".cache" / "rooflane";
  return {};
}

}  // namespace rooflane
