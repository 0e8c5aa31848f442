// Verdicts to JSON. See compare_json.hpp.
#include "io/compare_json.hpp"

#include "io/json.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json time_of(const Row* row) {
  return row != nullptr && row->p50_ns ? ordered_json(*row->p50_ns) : ordered_json();
}

ordered_json row_of(const ComparedRow& compared) {
  const Row& row = compared.after != nullptr ? *compared.after : *compared.before;
  ordered_json ratio;
  if (compared.ratio) {
    ratio = {{"value", *compared.ratio}, {"low", *compared.low}, {"high", *compared.high}};
  }
  return {{"verdict", change_name(compared.change)},
          {"kernel", row.kernel},
          {"shape", row.shape},
          {"dtype", row.dtype},
          {"math", row.math},
          {"variant", row.variant},
          {"tuning_source", text_or_null(row.tuning_source)},
          {"isa", text_or_null(row.isa)},
          {"threads", row.threads ? ordered_json(*row.threads) : ordered_json()},
          {"cache", row.cache},
          {"device", text_or_null(row.device)},
          {"distribution", text_or_null(row.distribution)},
          {"old_ns", time_of(compared.before)},
          {"new_ns", time_of(compared.after)},
          {"ratio", ratio},
          {"reason", text_or_null(compared.reason)}};
}

}  // namespace

ordered_json comparison_json(const Comparison& comparison, const std::string& before,
                             const std::string& after) {
  ordered_json counts = ordered_json::object();
  for (const Change change : {Change::failing, Change::slower, Change::faster, Change::unsure,
                              Change::only_old, Change::only_new, Change::same}) {
    counts[change_name(change)] = comparison.count(change);
  }
  ordered_json rows = ordered_json::array();
  for (const ComparedRow& compared : comparison.rows) rows.push_back(row_of(compared));
  return {{"schema_version", 1}, {"old", before},
          {"new", after},        {"regressed", comparison.regressed()},
          {"counts", counts},    {"rows", rows}};
}

}  // namespace rooflane
