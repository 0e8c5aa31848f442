// Whether this machine has what a catalogue entry needs: a library, a device. What the build lacks
// stands in Catalogue::absent(); what a variant refuses, in its `unsupported`.
#pragma once

#include <optional>
#include <string>

#include "core/catalogue.hpp"

namespace rooflane {

// Why this machine cannot run an entry; nothing when it can. Opens its library or lists devices.
std::optional<std::string> absent_reason(const CatalogueEntry& entry);

}  // namespace rooflane
