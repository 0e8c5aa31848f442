// Rows, machine and documents as JSON.
#include "io/json.hpp"

#include "core/text.hpp"
#include "io/files.hpp"

namespace rooflane {

using nlohmann::ordered_json;

ordered_json row_json(const Row& row) {
  struct Converter {
    const Row& row;
    ordered_json operator()(std::string Row::*m) const {
      return (row.*m).empty() ? ordered_json() : ordered_json(row.*m);
    }
    ordered_json operator()(std::int64_t Row::*m) const { return row.*m; }
    ordered_json operator()(std::optional<std::int64_t> Row::*m) const {
      return row.*m ? ordered_json(*(row.*m)) : ordered_json();
    }
    ordered_json operator()(std::optional<double> Row::*m) const {
      return row.*m ? ordered_json(*(row.*m)) : ordered_json();
    }
  };
  ordered_json object = ordered_json::object();
  for (const Column& column : columns()) {
    object[column.name] = std::visit(Converter{row}, column.member);
  }
  return object;
}

ordered_json row_schema() {
  struct TypeName {
    const char* operator()(std::string Row::*) const { return "string"; }
    const char* operator()(std::int64_t Row::*) const { return "integer"; }
    const char* operator()(std::optional<std::int64_t> Row::*) const { return "integer"; }
    const char* operator()(std::optional<double> Row::*) const { return "number"; }
  };
  ordered_json properties = ordered_json::object();
  ordered_json required = ordered_json::array();
  for (const Column& column : columns()) {
    const char* const type = std::visit(TypeName{}, column.member);
    ordered_json property = {{"description", column.meaning}, {"type", type}};
    if (column.nullable) property["type"] = {type, "null"};
    if (column.values != nullptr) {
      property["enum"] = split(column.values, '|');
      if (column.nullable) property["enum"].push_back(nullptr);
    }
    properties[column.name] = property;
    required.push_back(column.name);
  }
  return {
      {"description",
       "One variant on one problem: the columns of the CSV by name, null where a cell is empty or "
       "its number infinite. Columns may be appended."},
      {"type", "object"},
      {"required", required},
      {"properties", properties}};
}

ordered_json machine_json(const Machine& machine) {
  ordered_json cpus = ordered_json::array();
  for (const LogicalCpu& cpu : machine.cpus) {
    cpus.push_back({{"cpu", cpu.number},
                    {"core", cpu.core},
                    {"l3_cache", cpu.cache},
                    {"node", cpu.node},
                    {"package", cpu.package},
                    {"kind", cpu.kind}});
  }
  return {{"cpu", machine.cpu},
          {"host", machine.host},
          {"os", machine.os},
          {"logical_cpus", machine.logical_cpus},
          {"physical_cores", machine.physical_cores},
          {"placement", machine.placement},
          {"cpus", cpus},
          {"l1d_bytes", machine.l1d_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"memory_bytes", machine.memory_bytes}};
}

ordered_json document_json(std::span<const Row> rows, const ordered_json& context) {
  ordered_json list = ordered_json::array();
  for (const Row& row : rows) list.push_back(row_json(row));
  return {{"schema_version", 1}, {"context", context}, {"rows", list}};
}

std::string json_text(const ordered_json& document) {
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void write_json(const std::string& path, const ordered_json& document) {
  ReplacedFile file(path);
  file.write(json_text(document));
  file.commit();
}

}  // namespace rooflane
