// Protocol 1 as JSON: the lines of worker.hpp's answers. Used by both ends.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "measure/worker.hpp"

namespace rooflane::protocol {

inline constexpr int version = 1;
// A longer line is rubbish: the longest answer, a profile with most_events, is below that.
inline constexpr std::size_t longest_line = std::size_t{1} << 24;
// Events of a profile, all threads together: 60 bytes each at most.
inline constexpr std::int64_t most_events = std::int64_t{1} << 18;

// One line, without its end. Invalid UTF-8 is replaced; NaN and infinities are written as strings,
// since JSON has none.
std::string line_of(const nlohmann::json& message);

nlohmann::json open_request(const Case& c);
nlohmann::json to_json(const Greeting& greeting);
nlohmann::json to_json(const Opened& opened);
nlohmann::json to_json(const Verification& verification);
nlohmann::json reproduced(bool same);
nlohmann::json to_json(const Calibration& calibration);
nlohmann::json to_json(const Samples& samples);
nlohmann::json to_json(const std::optional<PhaseProfile>& profile);
nlohmann::json failure(Status status, const std::string& reason);

// Throw nlohmann::json::exception when fields are missing, of another type or out of range.
Greeting greeting_from(const nlohmann::json& message);
Opened opened_from(const nlohmann::json& message);
Verification verification_from(const nlohmann::json& message);
bool reproduced_from(const nlohmann::json& message);
Calibration calibration_from(const nlohmann::json& message);
Samples samples_from(const nlohmann::json& message);
std::optional<PhaseProfile> profile_from(const nlohmann::json& message);

// The answer of `worker` to the line of a request, whatever the line contains; an exception on the
// way becomes a failure with its reason.
nlohmann::json answer(Worker& worker, const Catalogue& catalogue, const std::string& line);

}  // namespace rooflane::protocol
