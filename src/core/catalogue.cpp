// The catalogue, and the list that the build generated. See catalogue.hpp.
#include "catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "error.hpp"
#include "generated_catalogue.hpp"
#include "text.hpp"

namespace rooflane {

std::optional<std::string> absent_reason(const CatalogueEntry& entry) {
  const Backend& backend = *entry.variant->backend;
  if (backend.absent_reason == nullptr) return std::nullopt;
  return backend.absent_reason(entry.library);
}

Catalogue Catalogue::built_in() {
  Catalogue catalogue;
  for (const Kernel* kernel : generated::kernels) {
    if (kernel != nullptr) catalogue.add(*kernel);
  }
  for (const Variant* variant : generated::variants) {
    if (variant != nullptr)
      catalogue.add(CatalogueEntry{.name = variant->name, .variant = variant});
  }
  for (const generated::AbsentText& absent : generated::absent) {
    if (absent.kernel != nullptr) {
      catalogue.add(AbsentVariant{absent.kernel, absent.variant, absent.reason});
    }
  }
  return catalogue;
}

void Catalogue::add(const Kernel& kernel) { kernels_.push_back(&kernel); }

void Catalogue::add(const CatalogueEntry& entry) {
  for (CatalogueEntry& known : entries_) {
    if (known.variant->kernel == entry.variant->kernel && known.name == entry.name) {
      known = entry;
      return;
    }
  }
  entries_.push_back(entry);
}

void Catalogue::add(const AbsentVariant& absent) { absent_.push_back(absent); }

std::vector<const CatalogueEntry*> Catalogue::variants(const Kernel& kernel) const {
  std::vector<const CatalogueEntry*> found;
  for (const CatalogueEntry& entry : entries_) {
    if (entry.variant->kernel == &kernel) found.push_back(&entry);
  }
  return found;
}

std::vector<std::string> Catalogue::kernel_names() const {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels_) names.emplace_back(kernel->name);
  return names;
}

std::vector<std::string> Catalogue::variant_names() const {
  std::vector<std::string> names;
  const auto add_once = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const CatalogueEntry& entry : entries_) add_once(entry.name);
  for (const AbsentVariant& absent : absent_) add_once(absent.variant);
  return names;
}

const Kernel& Catalogue::kernel(std::string_view name) const {
  for (const Kernel* kernel : kernels_) {
    if (kernel->name == name) return *kernel;
  }
  throw argument_error(unknown_name("kernel", name, kernel_names()));
}

const CatalogueEntry& Catalogue::variant(const Kernel& kernel, std::string_view name) const {
  for (const CatalogueEntry& entry : entries_) {
    if (entry.variant->kernel == &kernel && entry.name == name) return entry;
  }
  for (const AbsentVariant& absent : absent_) {
    if (absent.kernel == kernel.name && absent.variant == name) {
      throw unavailable_error(
          fmt::format("variant '{}' of {} is absent: {}", name, kernel.name, absent.reason));
    }
  }
  std::vector<std::string> names;
  for (const CatalogueEntry* entry : variants(kernel)) names.push_back(entry->name);
  for (const AbsentVariant& absent : absent_) {
    if (absent.kernel == kernel.name) names.push_back(absent.variant);
  }
  throw argument_error(unknown_name(fmt::format("variant of {}", kernel.name), name, names));
}

std::string Catalogue::math(std::string_view name) const {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels_) {
    for (const Math* math : kernel->maths) {
      if (math->name == name) return std::string(name);
      if (std::find(names.begin(), names.end(), math->name) == names.end()) {
        names.emplace_back(math->name);
      }
    }
  }
  throw argument_error(unknown_name("math", name, names));
}

}  // namespace rooflane
