// Cases as one line: what is accepted prints as a line that reads back as the same case.
#include "measure/case.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {

void cases_target(std::string_view input) {
  static const Catalogue catalogue = Catalogue::built_in();
  const Case accepted = parse_case(input, catalogue);
  const std::string text = accepted.text();
  require(parse_case(text, catalogue).text() == text);
}

}  // namespace rooflane::fuzz
