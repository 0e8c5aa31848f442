// Compares the request of a resumed run (--resume) with that of the interrupted run.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace rooflane {

// Throws Error(argument): --resume cannot go on from the file at `path`, and why.
[[noreturn]] void refuse_resume(const std::string& path, const std::string& why);

// Refuses unless `before` contains all of `now`, an object. Where entry `i` of one of its lists
// differs, `difference` says so; "nothing" takes the place of an entry that is missing.
using ListDifference = std::function<std::string(
    const std::string& list, std::size_t i, const nlohmann::json& was, const nlohmann::json& is)>;
void require_same_request(const std::string& path, const nlohmann::json& before,
                          const nlohmann::json& now, const ListDifference& difference);

}  // namespace rooflane
