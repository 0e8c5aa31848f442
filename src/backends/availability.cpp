// What each backend needs of the machine. See availability.hpp.
#include "backends/availability.hpp"

#include "backends/cblas.hpp"
#ifdef ROOFLANE_HAS_OPENCL
#include "backends/opencl.hpp"
#endif

namespace rooflane {

std::optional<std::string> absent_reason(const CatalogueEntry& entry) {
  const std::string_view backend = entry.variant->backend;
  if (backend == "cblas") return cblas::absent_reason(entry.library);
#ifdef ROOFLANE_HAS_OPENCL
  if (backend == "opencl" && opencl::devices().empty()) {
    return opencl::no_device_reason();
  }
#endif
  return std::nullopt;
}

}  // namespace rooflane
