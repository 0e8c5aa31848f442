// Ladders in the catalogue. See ladder.hpp.
#include "cli/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace rooflane {

std::vector<std::string> variants_with_ladder(const Catalogue& catalogue,
                                              const std::vector<const Kernel*>& kernels) {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels) {
    bool any = false;
    for (const CatalogueEntry* entry : catalogue.variants(*kernel)) {
      if (entry->variant->ladder.empty()) continue;
      any = true;
      if (absent_reason(*entry)) continue;
      if (std::find(names.begin(), names.end(), entry->name) == names.end()) {
        names.push_back(entry->name);
      }
    }
    if (!any) {
      throw unavailable_error(
          fmt::format("--ladder: no variant of {} has a ladder in this build", kernel->name));
    }
  }
  return names;
}

RungTexts rung_texts(const Catalogue& catalogue) {
  return [&catalogue](const std::string& kernel, const std::string& variant, std::int64_t step) {
    for (const CatalogueEntry& entry : catalogue.entries()) {
      if (entry.variant->kernel->name != kernel || entry.name != variant) continue;
      if (step < 0 || step >= std::ssize(entry.variant->ladder)) continue;
      const Rung& rung = entry.variant->ladder[static_cast<std::size_t>(step)];
      return RungText{rung.name, rung.idea};
    }
    return RungText{};
  };
}

}  // namespace rooflane
