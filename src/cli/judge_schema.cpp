// The JSON Schema of the documents of `judge --json` (judge_document.cpp).
#include "cli/schema.hpp"
#include "judge/judge.hpp"

namespace rooflane::schema {
namespace {

const ordered_json text = {{"type", "string"}};

ordered_json verdict_schema(const char* description) {
  ordered_json verdict = value("string", description);
  verdict["enum"] = {"WINNER", "TIE",     "LOSER", "UNDECIDED", "INACCURATE",
                     "FAILED", "SUSPECT", "CRASH", "TIMEOUT",   "BUILD"};
  return verdict;
}

ordered_json nullable_object(ordered_json schema) {
  schema["type"] = {"object", "null"};
  return schema;
}

ordered_json shape_schema() {
  const ordered_json peer = object(
      "A variant timed in the same rounds.",
      {{"variant", value("string", "its name")},
       {"p50_us", value("number", "its median time in us")},
       {"ratio", nullable("number", "its time / the judged kernel's: above 1, that is faster")},
       {"ratio_low", nullable("number", "95 % interval of the ratio")},
       {"ratio_high", nullable("number", "95 % interval of the ratio")}});
  return object(
      "A listed problem.",
      {{"shape", value("string", "the problem")},
       {"hidden", value("boolean", "false: hidden ones are verified and not timed")},
       {"threads", value("integer", "threads")},
       {"verdict", verdict_schema("of this problem")},
       {"p50_us", value("number", "median time in us, the overhead subtracted")},
       {"low_us", value("number", "95 % interval of the median, that of the overhead within")},
       {"high_us", value("number", "95 % interval of the median, that of the overhead within")},
       {"overhead_us", value("number", "what a call through the jail costs")},
       {"overhead_spread_us", value("number", "median absolute deviation of that")},
       {"roof_us", nullable("number", "the least time that the measured ceilings allow")},
       {"roof_pct", nullable("number", "the roof's time in per cent of p50_us")},
       {"binds", value("string", "memory or compute; empty: no roof")},
       {"sol",
        nullable("number", "(best peer - this) / (best peer - roof): 0 like it, 1 the roof")},
       {"peers", list_of(peer, "beside it")}});
}

ordered_json source_schema() {
  ordered_json kind = value("string", "what the source is");
  kind["enum"] = {"function", "table", "opencl", "library"};
  return object("The source.",
                {{"path", value("string", "as given")},
                 {"sha256", value("string", "of its bytes")},
                 {"kind", kind},
                 {"flags", value("string", "of the compiler")},
                 {"compiler", value("string", "cc or c++; empty: none was needed")}},
                {{"text", value("string", "in the archive: the source itself")}});
}

}  // namespace

ordered_json judge_document_schema() {
  ordered_json jail_kind = value("string", "unsafe: it ran as the user's own process");
  jail_kind["enum"] = {"bubblewrap", "unsafe"};
  const ordered_json wrong = nullable_object(object(
      "The first wrong element; null: none.",
      {{"shape", value("string", "the problem")},
       {"seed", value("integer", "of its inputs")},
       {"distribution", value("string", "of its inputs")},
       {"threads", value("integer", "threads")},
       {"tensor", value("string", "the output")},
       {"index", list_of({{"type", "integer"}}, "along the tensor's axes")},
       {"got", {{"description", "a number, or nan, inf, -inf"}, {"type", {"number", "string"}}}},
       {"expected", {{"description", "likewise"}, {"type", {"number", "string"}}}},
       {"bound", {{"description", "the error allowed"}, {"type", {"number", "string"}}}}}));
  const ordered_json cheat =
      nullable_object(object("What the source was caught at; null: nothing.",
                             {{"number", value("integer", "1 to 20, of the documentation's list")},
                              {"name", value("string", "its name there")},
                              {"evidence", value("string", "one sentence")}}));
  const ordered_json loop = nullable_object(
      object("The innermost loop with the most vector instructions; null: not known.",
             {{"function", value("string", "where it is")},
              {"instructions", list_of(text, "in order")},
              {"width_bits", value("integer", "of its widest vectors")},
              {"spills", value("integer", "vectors moved to and from the stack")},
              {"gathers", value("integer", "gathers and scatters")},
              {"calls", value("integer", "calls of functions")}}));
  ordered_json schema_name = value("string", "of this document");
  schema_name["const"] = "rooflane-judge-1";
  return document(
      "judge",
      {{"schema", schema_name},
       {"kernel", value("string", "what the source computes")},
       {"source", source_schema()},
       {"jail",
        object("What held it.", {{"kind", jail_kind},
                                 {"has", list_of(text, "its parts")},
                                 {"lacks", list_of(text, "parts that this machine lacks")}})},
       {"verdict", verdict_schema("of all problems")},
       {"cheat", cheat},
       {"reason", value("string", "one sentence")},
       {"first_wrong", wrong},
       {"build", object("How it was built.",
                        {{"ok", value("boolean", "whether it was")},
                         {"messages", value("string", "the compiler's, cut")},
                         {"not_vectorised", list_of(text, "file:line:column: why not")}})},
       {"seed", value("integer", "of inputs and hidden problems")},
       {"hidden", list_of(text, "problems that were verified unseen")},
       {"shapes", list_of(shape_schema(), "listed problems that were timed")},
       {"hot_loop", loop},
       {"maps", list_of(text, "files that the kernel's process had mapped beyond the C library")},
       {"next", value("string", "what to try next")},
       {"attempt", value("integer", "its number in the archive")},
       {"archive", value("string", "the archive's file")}},
      ordered_json::object());
}

}  // namespace rooflane::schema
