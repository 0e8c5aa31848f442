// Ladders in the catalogue: which variants have one, and the names of their rungs.
#pragma once

#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "io/ladder.hpp"

namespace rooflane {

// Names of variants with a ladder for one of these kernels, each once. Throws Error for a kernel
// that has none.
std::vector<std::string> variants_with_ladder(const Catalogue& catalogue,
                                              const std::vector<const Kernel*>& kernels);

// Names and ideas of this build's rungs; the catalogue must outlive it.
RungTexts rung_texts(const Catalogue& catalogue);

}  // namespace rooflane
