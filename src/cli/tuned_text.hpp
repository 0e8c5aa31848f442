// Tuned schedules as text: which file is in use, its content, or its defect. core/tuned.hpp has the
// lookup.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "core/tuned.hpp"

namespace rooflane {

// The schedules of --tuned FILE; none of `none`; without the option those in use by default. Prints
// a note where they are of another machine, or have unused entries. Throws Error(argument) for a
// file that is broken.
std::shared_ptr<const TunedSchedules> tuned_of(const std::optional<std::string>& option,
                                               const Catalogue& catalogue);

// A line for each entry that serves nothing, because its variant has no such tunable or value.
std::vector<std::string> unused_entries(const TunedSource& source, const Catalogue& catalogue);

// "3 entries, the last 2 hours ago, /home/me/.cache/rooflane/tuned-….json", or why there are none.
std::string tuned_summary(const TunedSource& source, std::time_t now);

nlohmann::ordered_json tuned_json(const TunedSource& source,
                                  const std::vector<std::string>& unused);

}  // namespace rooflane
