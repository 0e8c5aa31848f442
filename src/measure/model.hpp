// A least time that also counts exps and unfused operations, which are not multiply-adds. It
// explains a row's distance to the strict roof (roofline.hpp) and is informational only: a kernel
// may beat it with a cheaper exp, or by fusing operations that are counted as unfused.
#pragma once

#include <optional>
#include <string_view>

#include "core/kernel.hpp"
#include "measure/case.hpp"
#include "measure/ceilings.hpp"

namespace rooflane {

// Nanoseconds, with P, N and E the FMA peak, the unfused rate and the exp rate at these settings:
//   CPU:    max(bytes/bandwidth, fma_flops/P + unfused_flops/N + exps/E), since all three go
//           through the same ports;
//   others: the largest of the four terms, since a GPU has units of their own for exps;
// and never below the strict roof, which counts every flop at P. Bandwidth, isa, threads, device
// and path as in roof_of; nothing where that is nothing or the rates were not measured.
std::optional<double> model_ns(const Problem& problem, const Ceilings& ceilings,
                               std::string_view math, std::string_view isa, int threads,
                               std::string_view device, CacheMode cache = CacheMode::warm,
                               std::string_view path = {});

}  // namespace rooflane
