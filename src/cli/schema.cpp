// `rooflane schema`: JSON Schemas of the verbs' --json documents. This file has those of `bench`
// and the machine, schema_documents.cpp those of other verbs. Rows come from the table of columns
// (io/json.hpp). A test finds fields of a real document that are missing here.
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/schema.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "io/json.hpp"

namespace rooflane {
namespace {

using namespace schema;
using nlohmann::ordered_json;

ordered_json machine_schema() {
  return object("The machine of the run.",
                {{"cpu", value("string", "model name of the CPU")},
                 {"host", value("string", "node name")},
                 {"os", value("string", "kernel, version and architecture")},
                 {"logical_cpus", value("integer", "logical CPUs that may be used")},
                 {"physical_cores", value("integer", "number of physical cores among them")},
                 {"placement", list_of({{"type", "integer"}},
                                       "logical CPUs in the order in which threads take them")},
                 {"cpus", list_of(object("A logical CPU; indices count from 0.",
                                         {{"cpu", value("integer", "its number in the system")},
                                          {"core", value("integer", "its physical core")},
                                          {"l3_cache", value("integer", "its L3 cache")},
                                          {"node", value("integer", "its NUMA node")},
                                          {"package", value("integer", "its socket")},
                                          {"kind", value("integer", "kind of core; 0: fastest")}}),
                                  "logical CPUs that may be used")},
                 {"l1d_bytes", value("integer", "L1 data cache; 0 when not known")},
                 {"l2_bytes", value("integer", "L2 cache; 0 when not known")},
                 {"l3_bytes", value("integer", "L3 cache; 0 when not known")},
                 {"memory_bytes", value("integer", "memory")}});
}

ordered_json worker_schema() {
  ordered_json variables = value("object", "environment variables it was started with");
  variables["additionalProperties"] = {{"type", "string"}};
  return object("A process that ran cases.",
                {{"variant", value("string", "the variant it ran")},
                 {"threads", value("integer", "its threads; 0 on a GPU")},
                 {"command", list_of({{"type", "string"}}, "its command line; empty: in process")},
                 {"environment", variables}});
}

ordered_json slowdown_schema() {
  return object("Something that slows this machine down.",
                {{"what", value("string", "what")}, {"mend", value("string", "what fixes it")}});
}

ordered_json fma_schema() {
  return object("A peak of multiply-adds.",
                {{"math", value("string", "arithmetic used")},
                 {"isa", value("string", "Highway target; empty on a device")},
                 {"threads", value("integer", "threads; 0 on a GPU")},
                 {"device", value("string", "OpenCL device; empty for the CPU itself")},
                 {"gflops", value("number", "1e9 floating-point operations per second")}});
}

ordered_json rate_schema() {
  return object("Rates of other operations than multiply-adds, in registers.",
                {{"isa", value("string", "Highway target; empty on a device")},
                 {"threads", value("integer", "threads; 0 on a GPU")},
                 {"device", value("string", "OpenCL device; empty for the CPU itself")},
                 {"exp_g_s", value("number", "1e9 float32 exponentials per second")},
                 {"unfused_gflops", value("number", "1e9 adds, products and maxima per second")}});
}

ordered_json bandwidth_schema() {
  const ordered_json point =
      object("Bandwidth at one footprint.",
             {{"footprint_bytes", value("number", "all arrays of the loop together")},
              {"read_gb_s", value("number", "1e9 bytes per second")},
              {"write_gb_s", value("number", "1e9 bytes per second")},
              {"copy_gb_s", value("number", "1e9 bytes per second, read and written together")},
              {"read_method", value("string", "the loop that was best")},
              {"write_method", value("string", "the loop that was best")},
              {"copy_method", value("string", "the loop that was best")}});
  const ordered_json plateau =
      object("A level of memory.", {{"label", value("string", "L1, L2, L3 or memory")},
                                    {"largest_footprint_bytes", value("number", "it ends here")}});
  return object("A curve of bandwidth over footprint.",
                {{"threads", value("integer", "threads; 0 on a GPU")},
                 {"device", value("string", "OpenCL device; empty for the CPU itself")},
                 {"points", list_of(point, "by rising footprint")},
                 {"plateaus", list_of(plateau, "by rising footprint")}});
}

ordered_json transfer_schema() {
  return object("Transfers between host and device.",
                {{"device", value("string", "OpenCL device")},
                 {"h2d_gb_s", value("number", "to the device, 1e9 bytes per second")},
                 {"d2h_gb_s", value("number", "from the device, 1e9 bytes per second")},
                 {"pageable_h2d_gb_s", value("number", "to it, of ordinary host memory")},
                 {"pageable_d2h_gb_s", value("number", "from it, to ordinary host memory")},
                 {"pinned_h2d_gb_s", value("number", "to it, of memory that its driver allocated")},
                 {"pinned_d2h_gb_s", value("number", "from it, to such memory")}});
}

ordered_json launch_schema() {
  return object("Time of an empty kernel, median.",
                {{"device", value("string", "OpenCL device")},
                 {"threads", value("integer", "threads; 0 on a GPU")},
                 {"host_ns", value("number", "from enqueueing to its end, ns")},
                 {"device_ns", value("number", "by the device's clock, ns")}});
}

ordered_json ceilings_schema() {
  const ordered_json text = {{"type", "string"}};
  return object("Limits of this machine, measured in this run.",
                {{"fma", list_of(definition("fma"), "peaks of multiply-adds")},
                 {"rates", list_of(definition("rate"), "other arithmetic")},
                 {"bandwidth", list_of(definition("bandwidth"), "curves of memory")},
                 {"transfer", list_of(definition("transfer"), "links to devices")},
                 {"launch", list_of(definition("launch"), "launch times of devices")},
                 {"notes", list_of(text, "cross-checks that held")},
                 {"warnings", list_of(text, "cross-checks that did not hold")}});
}

ordered_json context_schema() {
  return object(
      "How and where the rows were measured.",
      {{"run_id", value("string", "the run, as in the rows")},
       {"version", value("string", "version of rooflane")},
       {"build_commit", value("string", "git commit of the build")},
       {"compiler", value("string", "compiler and version")},
       {"arguments", list_of({{"type", "string"}}, "arguments of bench")},
       {"seed", value("integer", "seed of inputs and order")},
       {"launches", value("integer", "requested number of fresh processes per row")},
       {"interval_pct",
        value("number", "requested half width of the interval of medians, per cent")},
       {"max_time", value("number", "limit of seconds for a group")},
       {"machine", definition("machine")},
       {"workers", list_of(definition("worker"), "the processes that ran cases")},
       {"slowdowns", list_of(definition("slowdown"), "what disturbed the machine at the start")},
       {"ceilings", definition("ceilings")}});
}

}  // namespace

namespace schema {

ordered_json machine_definitions() {
  return {{"machine", machine_schema()},   {"slowdown", slowdown_schema()},
          {"ceilings", ceilings_schema()}, {"fma", fma_schema()},
          {"rate", rate_schema()},         {"bandwidth", bandwidth_schema()},
          {"transfer", transfer_schema()}, {"launch", launch_schema()}};
}

ordered_json versioned_row() {
  ordered_json row = row_schema();
  row["properties"]["schema_version"] = version_field();
  return row;
}

ordered_json version_field() {
  ordered_json version = value("integer", "version of this schema; it grows when fields change");
  version["const"] = Row().schema_version;
  return version;
}

ordered_json document(const std::string& verb, const ordered_json& fields,
                      const ordered_json& definitions) {
  ordered_json all = {{"schema_version", version_field()}};
  all.update(fields);
  ordered_json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"$id", verb == "bench" ? "urn:rooflane:results:1" : "urn:rooflane:" + verb + ":1"},
      {"title", "What rooflane " + verb + " --json writes"}};
  schema.update(object("The document.", all));
  schema["$defs"] = definitions;
  return schema;
}

}  // namespace schema

namespace {

ordered_json fusion_schema() {
  return object(
      "A fused row and one that does something differently.",
      {{"fused", value("integer", "position of its row")},
       {"other", value("integer", "position of the other's row")},
       {"changed", value("string", "difference of the other")},
       {"gain", nullable("object", "its time divided by the fused one")},
       {"bytes_fused", nullable("number", "bytes through memory")},
       {"bytes_other", nullable("number", "bytes through memory of the product and its passes")},
       {"roof_gain", nullable("number", "what the measured ceilings allow")}});
}

ordered_json bench_schema() {
  ordered_json definitions = machine_definitions();
  definitions["row"] = versioned_row();
  definitions["context"] = context_schema();
  definitions["worker"] = worker_schema();
  ordered_json schema = document("bench",
                                 {{"context", definition("context")},
                                  {"rows", list_of(definition("row"), "in the order of the CSV")}},
                                 definitions);
  schema["properties"]["fusions"] = list_of(fusion_schema(), "of --fusion: the gain of fusing");
  return schema;
}

const std::pair<const char*, ordered_json (*)()> schemas[] = {
    {"bench", bench_schema},
    {"list", schema::list_document},
    {"doctor", schema::doctor_document},
    {"ceilings", schema::ceilings_document},
    {"calibrate", schema::calibrate_document},
    {"compare", schema::compare_document},
    {"roofline", schema::roofline_document},
    {"generate", schema::generate_document},
    {"judge", schema::judge_document_schema},
    {"tuned", schema::tuned_document}};

void declare_schema(Arguments& arguments) {
  arguments.positional(
      "VERB",
      "bench (default), list, doctor, ceilings, calibrate, compare, judge or roofline; "
      "or tuned, the file that --tuned reads");
  arguments.examples(
      {"rooflane schema", "rooflane schema > rooflane.schema.json", "rooflane schema roofline"});
}

int run_schema(const Arguments& arguments, Catalogue&, const CliSettings&) {
  const std::string verb = arguments.value("VERB").value_or("bench");
  std::vector<std::string> names;
  for (const auto& [name, make] : schemas) {
    if (verb == name) {
      std::cout << make().dump(2) << "\n";
      return 0;
    }
    names.emplace_back(name);
  }
  throw argument_error(unknown_name("verb with --json", verb, names));
}

}  // namespace

const Verb schema_verb = {"schema", "prints the JSON Schema of a verb's --json output",
                          declare_schema, run_schema};

}  // namespace rooflane
