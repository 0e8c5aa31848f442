// Protocol 1 as JSON: what worker.hpp's answers look like on a line. Used by both of its ends.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/worker.hpp"

namespace rooflane::protocol {

inline constexpr int version = 1;
// A longer line is rubbish: the longest answer, a thousand samples, is below 128 KiB.
inline constexpr std::size_t longest_line = std::size_t{1} << 24;

// One line, without its end. Text that is no UTF-8 is mended; NaN and infinities are written as
// strings, since JSON has none.
std::string line_of(const nlohmann::json& message);

nlohmann::json open_request(const Case& c);
nlohmann::json to_json(const Greeting& greeting);
nlohmann::json to_json(const Opened& opened);
nlohmann::json to_json(const Verification& verification);
nlohmann::json to_json(const Calibration& calibration);
nlohmann::json to_json(const Samples& samples);
nlohmann::json failure(Status status, const std::string& reason);

// Throw nlohmann::json::exception when fields are missing, of another type or out of range.
Greeting greeting_from(const nlohmann::json& message);
Opened opened_from(const nlohmann::json& message);
Verification verification_from(const nlohmann::json& message);
Calibration calibration_from(const nlohmann::json& message);
Samples samples_from(const nlohmann::json& message);

}  // namespace rooflane::protocol
