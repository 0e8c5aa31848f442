// Names and metrics of rows. See tracking.hpp.
#include "io/tracking.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/text.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

// The rate of `count` a run, from the time of a run and its bounds.
ordered_json rate(double count, double ns, const std::optional<Interval>& interval) {
  const auto per_second = [&](double time) { return 1e9 * count / time; };
  ordered_json metric = {{"value", per_second(ns)}};
  if (interval) {
    metric["lower_value"] = per_second(interval->high);
    metric["upper_value"] = per_second(interval->low);
  }
  return metric;
}

ordered_json metrics_of(const Row& row) {
  const double ns = *row.p50_ns;
  const std::optional<Interval> interval = median_interval_ns(row);
  ordered_json latency = {{"value", ns}};
  if (interval) {
    latency["lower_value"] = interval->low;
    latency["upper_value"] = interval->high;
  }
  ordered_json metrics = {{"latency", latency}};
  if (row.flops && *row.flops > 0) metrics["throughput"] = rate(*row.flops, ns, interval);
  if (row.bytes && *row.bytes > 0) metrics["bandwidth"] = rate(*row.bytes, ns, interval);
  if (row.roof_pct) {
    ordered_json share = {{"value", *row.roof_pct}};
    if (row.roof_pct_lo && row.roof_pct_hi) {
      share["lower_value"] = *row.roof_pct_lo;
      share["upper_value"] = *row.roof_pct_hi;
    }
    metrics["roof-share"] = share;
  }
  return metrics;
}

}  // namespace

std::string benchmark_name(const Row& row) {
  std::string name = row.kernel + "/" + row.variant + "/" + row.shape;
  if (row.threads) name += fmt::format("/threads:{}", *row.threads);
  const std::string library = row.library.substr(0, row.library.find(' '));
  const std::pair<const char*, std::string> others[] = {
      {"", row.cache},
      {"isa:", row.isa == "baseline" ? "" : row.isa},
      {"placement:", chosen_placement(row)},
      {"", row.math == "fp32" ? "" : row.math},
      {"", is_other_build(row) ? "" : library},
      {"", row.device},
      {"inputs:", row.distribution},
      {"", step_of(row) ? row.tuning : ""},
      {"", row.step}};
  for (const auto& [prefix, text] : others) {
    if (!text.empty()) name += "/" + (prefix + text);
  }
  return name;
}

TrackedRows tracked_rows(std::span<const MeasuredRow> rows, bool builds) {
  // A variant has one name, whatever its schedule, unless its own choice is measured beside the
  // tuned one.
  std::set<std::string> own;
  for (const MeasuredRow& measured : rows) {
    if (!is_tuned(measured.row)) own.insert(benchmark_name(measured.row));
  }
  std::vector<std::string> order;
  std::map<std::string, SameRows> passed;
  std::map<std::string, std::vector<std::string>> others;
  for (const MeasuredRow& measured : rows) {
    std::string name = benchmark_name(measured.row);
    if (is_tuned(measured.row) && own.contains(name)) name += "/tuned";
    if (!may_win(measured.row)) {
      others[measured.row.status].push_back(name);
    } else if (!builds && is_other_build(measured.row)) {
      others["from another build"].push_back(name);
    } else {
      SameRows& same = passed[name];
      if (same.empty()) order.push_back(name);
      same.push_back(&measured);
    }
  }
  TrackedRows tracked;
  for (const std::string& name : order) {
    tracked.rows.push_back({name, representative(passed[name])});
  }
  for (const auto& [why, names] : others) {
    tracked.left_out.push_back(fmt::format("{} row{} left out, {}: {}", names.size(),
                                           names.size() == 1 ? "" : "s", why, join(names, ", ")));
  }
  return tracked;
}

std::optional<Interval> median_interval_ns(const Row& row) {
  if (!row.p50_ns || !row.interval_pct) return std::nullopt;
  const double half = *row.p50_ns * *row.interval_pct / 100;
  // A half width of the whole median or more says nothing of the lower end but its sign.
  if (half >= *row.p50_ns) return std::nullopt;
  return Interval{*row.p50_ns - half, *row.p50_ns + half};
}

ordered_json bmf_json(const TrackedRows& tracked) {
  ordered_json document = ordered_json::object();
  for (const TrackedRow& row : tracked.rows) document[row.name] = metrics_of(row.measured->row);
  return document;
}

}  // namespace rooflane
