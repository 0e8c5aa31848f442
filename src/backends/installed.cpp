// Finding BLIS. See installed.hpp.
#include "backends/installed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "backends/cblas.hpp"
#include "backends/cblas_load.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

namespace fs = std::filesystem;

// The OpenMP build first: it shares one pool of threads with everything else in the process.
std::vector<std::string> folders() {
  const std::string debian = fmt::format("/usr/lib/{}", cblas::multiarch);
  return {debian + "/blis-openmp", "/usr/local/lib", "/usr/lib64", debian};
}

// libblis.so.4, libblis-mt.so: any version; the one that sorts last. Empty: none.
std::string blis_in(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_blis = name.starts_with("libblis.so") || name.starts_with("libblis-mt.so");
    if (is_blis && entry.is_regular_file(error)) found = std::max(found, entry.path().string());
  }
  return found;
}

}  // namespace

Catalogue with_installed_libraries(Catalogue catalogue) {
  std::string path;
  for (const std::string& folder : folders()) {
    if (path.empty()) path = blis_in(folder);
  }
  const std::string reason = fmt::format(
      "no BLIS found (looked for libblis.so.* in {}); install libblis4-openmp or name it "
      "with --blas blis=PATH",
      join(folders(), ", "));
  const std::vector<CatalogueEntry> entries = catalogue.entries();
  for (const CatalogueEntry& entry : entries) {
    if (entry.name != "blas") continue;
    if (path.empty()) {
      catalogue.add(AbsentVariant{entry.variant->kernel->name, "blis", reason});
    } else {
      catalogue.add(CatalogueEntry{.name = "blis", .variant = entry.variant, .library = path});
    }
  }
  return catalogue;
}

}  // namespace rooflane
