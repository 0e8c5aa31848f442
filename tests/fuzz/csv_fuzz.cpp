// Rows as CSV: what is accepted is written as lines that read back as the same rows, and as JSON.
#include <nlohmann/json.hpp>

#include "io/csv.hpp"
#include "io/json.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

std::string written(const std::vector<Row>& rows) {
  std::string text = csv_header();
  for (const Row& row : rows) text += csv_line(row);
  return text;
}

}  // namespace

void csv_target(std::string_view input) {
  const std::vector<Row> rows = parse_csv(input, "fuzz.csv");
  const std::string text = written(rows);
  require(written(parse_csv(text, "fuzz.csv")) == text);
  require(nlohmann::json::accept(json_text(document_json(rows, nlohmann::ordered_json::object()))));
}

}  // namespace rooflane::fuzz
