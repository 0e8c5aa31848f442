// Ceilings as JSON: what is accepted is written as a text that reads back as itself.
#include <nlohmann/json.hpp>

#include "io/json.hpp"
#include "measure/ceilings_json.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void ceilings_target(std::string_view input) {
  using nlohmann::json;
  try {
    const json written = json::parse(input).get<Ceilings>();
    const json again = json::parse(json_text(written)).get<Ceilings>();
    require(json_text(again) == json_text(written));
  } catch (const json::exception&) {
    // Whoever reads ceilings reports it.
  }
}

}  // namespace rooflane::fuzz
