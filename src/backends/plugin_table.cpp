// Checking the C tables of rooflane/variant.h. See plugin_table.hpp.
#include "backends/plugin_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane::plugin {

namespace {

// More than any library offers; a value that is not a count is almost always larger.
constexpr std::size_t most_tunables = 64;

void require_table(const rooflane_plugin* described) {
  if (described == nullptr) throw argument_error("is no plugin: rooflane_describe returned NULL");
  if (described->abi != ROOFLANE_VARIANT_ABI) {
    throw argument_error(fmt::format(
        "was built for version {} of rooflane/variant.h, this program takes version {}{}",
        described->abi, ROOFLANE_VARIANT_ABI,
        described->abi == 1 ? ": compile it with the new header, give `plan` its third "
                              "argument `tuning` and cast tensors' void* data"
                            : ""));
  }
  if (described->variant_count == 0 || described->variants == nullptr) {
    throw argument_error("is a plugin without variants");
  }
  if (described->variant_count > most_variants) {
    throw argument_error(fmt::format("describes {} variants; allowed are {}",
                                     described->variant_count, most_variants));
  }
}

void require_complete(const rooflane_variant& table) {
  const std::pair<const char*, bool> parts[] = {{"kernel", table.kernel != nullptr},
                                                {"plan", table.plan != nullptr},
                                                {"bind", table.bind != nullptr},
                                                {"run", table.run != nullptr},
                                                {"destroy", table.destroy != nullptr}};
  for (const auto& [part, present] : parts) {
    if (!present) throw argument_error(fmt::format("describes a variant without '{}'", part));
  }
}

// Names are typed by users, in lists with commas and as KEY=VALUE.
void require_word(const char* what, std::string_view name) {
  const bool word = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (word) return;
  throw argument_error(fmt::format(
      "describes a {} with a name of other than letters, digits, '_', '-' and '.'", what));
}

std::vector<DType> dtypes_of(const rooflane_variant& table) {
  if (table.dtypes == nullptr) return {&float32};
  const auto all = all_dtypes();
  std::vector<DType> dtypes;
  for (const char* const* name = table.dtypes; *name != nullptr; ++name) {
    const DType dtype = find_dtype(*name);
    if (dtype == nullptr) {
      std::vector<std::string> known;
      for (const DType each : all) known.emplace_back(each->name);
      throw argument_error("describes a variant of an " + unknown_name("dtype", *name, known));
    }
    if (dtypes.size() == all.size()) {
      throw argument_error("describes a variant with more dtypes than there are: NULL ends them");
    }
    dtypes.push_back(dtype);
  }
  if (dtypes.empty()) throw argument_error("describes a variant without a dtype");
  return dtypes;
}

std::vector<Tunable> tunables_of(const rooflane_variant& table) {
  if (table.tunable_count > 0 && table.tunables == nullptr) {
    throw argument_error(fmt::format("describes {} tunables at NULL", table.tunable_count));
  }
  if (table.tunable_count > most_tunables) {
    throw argument_error(
        fmt::format("describes {} tunables; allowed are {}", table.tunable_count, most_tunables));
  }
  std::vector<Tunable> tunables;
  for (std::size_t i = 0; i < table.tunable_count; ++i) {
    const rooflane_tunable& from = table.tunables[i];
    if (from.name == nullptr || from.meaning == nullptr || from.value < from.least ||
        from.value > from.most) {
      throw argument_error(
          fmt::format("describes a tunable '{}' without a name, a meaning or a value in its range",
                      from.name != nullptr ? from.name : ""));
    }
    require_word("tunable", from.name);
    const std::string_view name = from.name;
    if (name == step_key || std::any_of(tunables.begin(), tunables.end(),
                                        [&](const Tunable& t) { return t.name == name; })) {
      throw argument_error(fmt::format("describes a tunable '{}' whose name is taken", name));
    }
    tunables.push_back({from.name, from.meaning, from.least, from.most});
  }
  return tunables;
}

void require_new(const Catalogue& catalogue, const std::vector<CheckedVariant>& before,
                 const Kernel& kernel, const std::string& name) {
  const auto entries = catalogue.variants(kernel);
  const bool taken =
      std::any_of(entries.begin(), entries.end(),
                  [&](const CatalogueEntry* entry) { return entry->name == name; }) ||
      std::any_of(before.begin(), before.end(), [&](const CheckedVariant& other) {
        return other.kernel == &kernel && other.name == name;
      });
  if (!taken) return;
  throw argument_error(fmt::format("describes '{}' of {}, which exists", name, kernel.name));
}

}  // namespace

std::vector<CheckedVariant> checked_variants(const Catalogue& catalogue, const std::string& name,
                                             const rooflane_plugin* described) {
  require_table(described);
  std::vector<CheckedVariant> variants;
  for (std::uint32_t i = 0; i < described->variant_count; ++i) {
    const rooflane_variant& table = described->variants[i];
    require_complete(table);
    if (table.name != nullptr) require_word("variant", table.name);
    CheckedVariant checked{
        .name = table.name == nullptr ? name : fmt::format("{}-{}", name, table.name),
        .kernel = &catalogue.kernel(table.kernel),
        .table = table,
        .dtypes = dtypes_of(table),
        .tunables = tunables_of(table)};
    require_new(catalogue, variants, *checked.kernel, checked.name);
    variants.push_back(std::move(checked));
  }
  return variants;
}

}  // namespace rooflane::plugin
