// Fusing in the catalogue: which variants have a rung with separate passes, and the bytes that both
// ways move.
#pragma once

#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "io/fusion.hpp"

namespace rooflane {

// Names of variants with such a rung for one of these kernels, each once. Throws Error for a kernel
// that has none.
std::vector<std::string> variants_that_fuse(const Catalogue& catalogue,
                                            const std::vector<const Kernel*>& kernels);

// For problems with a chain or a gate behind the product; the catalogue must outlive it.
BytesOfFusion bytes_of_fusion(const Catalogue& catalogue);

}  // namespace rooflane
