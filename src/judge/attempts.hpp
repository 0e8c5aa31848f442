// The archive of attempts: a file of JSON lines, one judgement each with its source, in order.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rooflane::judge {

// The archive's path unless the user names another. Throws Error(argument) without a home.
std::string default_archive();

// Appends an attempt; its number, from 1. Throws Error(argument): the file cannot be written.
std::int64_t keep_attempt(const std::string& path, nlohmann::ordered_json document,
                          const std::string& source);

// All attempts at a kernel, oldest first; of every kernel where the name is empty. A line that is
// not an attempt (a run that was ended while it wrote) is left out. No file: none.
std::vector<nlohmann::ordered_json> attempts_in(const std::string& path, const std::string& kernel);

}  // namespace rooflane::judge
