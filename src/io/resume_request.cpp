// Comparing the requests of two parts of a run. See resume_request.hpp.
#include "io/resume_request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace rooflane {

using nlohmann::json;

void refuse_resume(const std::string& path, const std::string& why) {
  throw argument_error(
      fmt::format("--resume: '{}' {}; without --resume the run starts again", path, why));
}

void require_same_request(const std::string& path, const json& before, const json& now,
                          const ListDifference& difference) {
  for (const auto& [name, value] : now.items()) {
    const json& earlier = before.at(name);
    if (earlier == value) continue;
    if (!value.is_array()) {
      refuse_resume(path, fmt::format("belongs to a run with {} {}, now it is {}", name,
                                      earlier.dump(), value.dump()));
    }
    for (std::size_t i = 0; i < std::max(earlier.size(), value.size()); ++i) {
      const json was = i < earlier.size() ? earlier[i] : json("nothing");
      const json is = i < value.size() ? value[i] : json("nothing");
      if (was != is) refuse_resume(path, difference(name, i, was, is));
    }
  }
}

}  // namespace rooflane
