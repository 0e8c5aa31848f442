// What a plugin's table says, checked before any of it is used. Pointers in it cannot be: who loads
// a library runs it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "rooflane/variant.h"

namespace rooflane::plugin {

// The limit for all plugins of a process together.
inline constexpr std::size_t most_variants = 64;

struct CheckedVariant {
  std::string name;  // as users see it
  const Kernel* kernel = nullptr;
  rooflane_variant table{};
  std::vector<DType> dtypes;
  std::vector<Tunable> tunables;
};

// The variants of a table, in its order, called `name` or `name-x`. Throws Error(argument): none,
// not of this ABI, an incomplete or unknown variant, a name that is taken or no word, tunables or
// dtypes without end.
std::vector<CheckedVariant> checked_variants(const Catalogue& catalogue, const std::string& name,
                                             const rooflane_plugin* described);

}  // namespace rooflane::plugin
