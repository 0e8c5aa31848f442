// The name of a run, and the time of a measurement.
#pragma once

#include <string>

namespace rooflane {

std::string utc_now();     // "2026-01-31T12:34:56Z"
std::string new_run_id();  // "20260131T123456Z-1a2b", the end at random

}  // namespace rooflane
