// Traits as `calibrate` and `doctor` show them.
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "core/traits.hpp"

namespace rooflane {

// Sizes, rates and costs as a table, one figure a line with its unit; the FMA peaks of all targets.
std::string traits_table(const MeasuredTraits& measured);

// How long ago "2026-01-31 12:00:00 UTC" was: "3 days ago"; "at 2026-…" for any other text.
std::string traits_age(const std::string& date, std::time_t now);

// "measured 3 days ago, FILE", or "derived; …" with the reason and what fixes it.
std::string traits_origin(const TraitsSource& source, std::time_t now);
// The key numbers, a line for one thread and one for all.
std::string traits_summary(const Traits& traits);

// Everything, with origin, file and problem; of the traits in use at `isa`.
nlohmann::ordered_json traits_json(const TraitsSource& source, const std::string& isa,
                                   const Traits& traits);

}  // namespace rooflane
