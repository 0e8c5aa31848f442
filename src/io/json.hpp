// Rows and facts as JSON, by the same table of columns as the CSV; empty cells are null.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "core/machine.hpp"
#include "io/row.hpp"

namespace rooflane {

nlohmann::ordered_json row_json(const Row& row);
// JSON Schema (draft 2020-12) of row_json's result, from the same table.
nlohmann::ordered_json row_schema();
nlohmann::ordered_json machine_json(const Machine& machine);

// {"schema_version":1,"context":{...},"rows":[...]}
nlohmann::ordered_json document_json(std::span<const Row> rows,
                                     const nlohmann::ordered_json& context);

// The document on many lines with the last line's end. Text from drivers may hold bytes that are no
// UTF-8: they become U+FFFD.
std::string json_text(const nlohmann::ordered_json& document);
// Replaces the file when complete; throws Error(argument) when it cannot be written.
void write_json(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace rooflane
