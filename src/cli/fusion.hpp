// What the catalogue knows of fusing: which variants have a rung that does apart what they fuse,
// and the bytes that either way moves.
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

// Of problems whose functions behind the product are a chain or a gate; the catalogue must outlive
// it.
BytesOfFusion bytes_of_fusion(const Catalogue& catalogue);

}  // namespace rooflane
