// What the schemas of all verbs are made of: one file per group of documents, schema.cpp the verb.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rooflane::schema {

using nlohmann::ordered_json;

inline ordered_json value(const char* type, const char* description) {
  return {{"description", description}, {"type", type}};
}

// Of that type, or null where it is not known or does not apply.
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
// A row whose schema_version is this one.
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
// Of files of tuned schedules, which no verb writes with --json.
ordered_json tuned_document();
ordered_json roofline_document();

}  // namespace rooflane::schema
