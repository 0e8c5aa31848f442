// The parts of all verbs' schemas: one file per group of documents; schema.cpp is the verb.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rooflane::schema {

using nlohmann::ordered_json;

inline ordered_json value(const char* type, const char* description) {
  return {{"description", description}, {"type", type}};
}

// A value of that type, or null where it is not known or does not apply.
inline ordered_json nullable(const char* type, const char* description) {
  return {{"description", description}, {"type", {type, "null"}}};
}

inline ordered_json list_of(const ordered_json& item, const char* description) {
  return {{"description", description}, {"type", "array"}, {"items", item}};
}

// From names, which are data, to values.
inline ordered_json map_of(const ordered_json& item, const char* description) {
  return {{"description", description}, {"type", "object"}, {"additionalProperties", item}};
}

// Every one of `fields` is required, those of `optional` are not; more may come with later
// versions.
inline ordered_json object(const char* description, const ordered_json& fields,
                           const ordered_json& optional = ordered_json::object()) {
  ordered_json required = ordered_json::array();
  for (const auto& [name, ignored] : fields.items()) required.push_back(name);
  ordered_json properties = fields;
  properties.update(optional);
  return {{"description", description},
          {"type", "object"},
          {"required", required},
          {"properties", properties}};
}

inline ordered_json definition(const char* name) {
  return {{"$ref", std::string("#/$defs/") + name}};
}

ordered_json version_field();
// machine, slowdown, ceilings and what those hold.
ordered_json machine_definitions();
// A row with this schema_version.
ordered_json versioned_row();
// The schema of a verb's document: schema_version and `fields`.
ordered_json document(const std::string& verb, const ordered_json& fields,
                      const ordered_json& definitions);

ordered_json list_document();
ordered_json judge_document_schema();
ordered_json doctor_document();
ordered_json ceilings_document();
ordered_json calibrate_document();
ordered_json compare_document();
// The schema of files of tuned schedules; no verb writes these with --json.
ordered_json tuned_document();
ordered_json roofline_document();
ordered_json generate_document();

}  // namespace rooflane::schema
