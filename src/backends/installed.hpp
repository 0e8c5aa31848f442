// Peers that are libraries found on this machine, as entries of their own.
#pragma once

#include "core/catalogue.hpp"

namespace rooflane {

// Adds `blis` for every kernel that has a `blas` variant: the same code over the BLIS library that
// is installed, its OpenMP build first. Where there is none, it is absent with the reason.
Catalogue with_installed_libraries(Catalogue catalogue);

}  // namespace rooflane
