// Groups, classes, families and devices to JSON. See summary_json.hpp.
#include "io/summary_json.hpp"

#include <algorithm>
#include <map>

#include "io/crossover.hpp"
#include "io/json.hpp"
#include "io/size_classes.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;
using Verdict = SummaryLine::Verdict;
using Positions = std::map<const Row*, std::size_t>;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::winner:
      return "winner";
    case Verdict::tie:
      return "tie";
    case Verdict::undecided:
      return "undecided";
    case Verdict::none:
      return "none";
  }
  return "";
}

ordered_json line_json(const SummaryGroup& group, const SummaryLine& line,
                       const Positions& positions) {
  ordered_json object = {{"row", positions.at(line.row)},
                         {"variant", line.row->variant},
                         {"verdict", name_of(line.verdict)},
                         {"cliff", line.cliff},
                         {"over_scalar", ratio_json(line.over_scalar)},
                         {"over_best_peer", ratio_json(line.over_peer)},
                         {"over_model", ratio_json(line.over_model)}};
  ordered_json over = ordered_json::object();
  if (may_win(*line.row) && line.row->library.empty() && !is_other_build(*line.row)) {
    for (const SummaryLine& peer : group.peers) {
      if (!over.contains(peer.row->variant)) {
        over[peer.row->variant] = ratio_json(time_ratio(peer.same, line.same));
      }
    }
  }
  object["over"] = over;
  object["roof_pct"] = ratio_json(roof_share(*line.row));
  return object;
}

ordered_json group_json(const SummaryGroup& group, const Positions& positions) {
  const auto position_of = [&](const std::optional<std::size_t>& line) {
    return line ? ordered_json(positions.at(group.lines[*line].row)) : ordered_json();
  };
  ordered_json lines = ordered_json::array();
  for (const SummaryLine& line : group.lines) lines.push_back(line_json(group, line, positions));
  ordered_json peers = ordered_json::array();
  for (const SummaryLine& peer : group.peers) peers.push_back(positions.at(peer.row));
  return {{"problem", group.kernel + ":" + group.shape},
          {"kernel", group.kernel},
          {"shape", group.shape},
          {"dtype", group.dtype},
          {"math", group.math},
          {"cache", group.cache},
          {"cpu", group.cpu},
          {"distribution", group.distribution},
          {"threads", or_null(group.threads)},
          {"size", group.size},
          {"fastest", position_of(group.fastest)},
          {"tie", group.is_tie()},
          {"undecided", group.is_undecided()},
          {"longer", or_null(longer_max_time(group))},
          {"next", position_of(group.next)},
          {"over_next", ratio_json(group.over_next)},
          {"peers", peers},
          {"lines", lines}};
}

ordered_json key_json(const ClassKey& key, const char* label) {
  return {{"kernel", key.kernel}, {"dtype", key.dtype}, {"math", key.math},
          {"cache", key.cache},   {"cpu", key.cpu},     {"threads", or_null(key.threads)},
          {label, key.label}};
}

ordered_json classes_json(std::span<const SizeClass> classes, const Positions& positions) {
  ordered_json list = ordered_json::array();
  for (const SizeClass& one : classes) {
    ordered_json instead = ordered_json::array();
    for (const Instead& other : one.instead) {
      instead.push_back({{"shape", other.group->shape},
                         {"variant", other.row->variant},
                         {"row", positions.at(other.row)},
                         {"faster", ratio_json(other.faster)}});
    }
    ordered_json object = key_json(one.key, "size");
    object["problems"] = one.problems;
    object["use"] = one.use;
    object["wins"] = one.wins;
    object["ties"] = one.ties;
    object["undecided"] = one.undecided;
    object["over_next"] = ratio_json(one.over_next);
    object["over_best_peer"] = ratio_json(one.over_peer);
    object["roof_pct"] = ratio_json(one.roof);
    object["least_roof_pct"] = or_null(one.least_roof);
    object["instead"] = instead;
    object["text"] = class_sentence(one);
    list.push_back(std::move(object));
  }
  return list;
}

ordered_json presets_json(std::span<const SummaryGroup> groups) {
  ordered_json list = ordered_json::array();
  for (const PresetFigures& figures : preset_figures(groups)) {
    ordered_json best;
    ordered_json over = ordered_json::object();
    for (const auto& [peer, mean] : figures.against) {
      (peer.empty() ? best : over[peer]) = ratio_json(mean);
    }
    ordered_json object = key_json(figures.key, "preset");
    object["variant"] = figures.variant;
    object["problems"] = figures.problems;
    object["over_best_peer"] = best;
    object["over"] = over;
    object["roof_pct"] = ratio_json(figures.roof);
    list.push_back(std::move(object));
  }
  return list;
}

ordered_json families_json(std::span<const MeasuredRow> rows) {
  std::vector<std::string> kernels;
  std::map<std::string, std::vector<std::string>> shapes;
  for (const MeasuredRow& measured : rows) {
    const Row& row = measured.row;
    if (!may_win(row) || step_of(row)) continue;
    std::vector<std::string>& known = shapes[row.kernel];
    if (known.empty()) kernels.push_back(row.kernel);
    if (std::find(known.begin(), known.end(), row.shape) == known.end()) known.push_back(row.shape);
  }
  ordered_json list = ordered_json::array();
  for (const std::string& kernel : kernels) {
    for (const ShapeFamily& family : shape_families(shapes[kernel])) {
      list.push_back({{"kernel", kernel}, {"family", family.name}, {"shapes", family.shapes}});
    }
  }
  return list;
}

ordered_json devices_json(std::span<const MeasuredRow> rows, const Positions& positions) {
  const std::vector<Crossover> all = crossovers(rows);
  ordered_json list = ordered_json::array();
  for (const DeviceComparison& compared : device_comparisons(rows)) {
    ordered_json points = ordered_json::array();
    for (const CrossoverPoint& point : compared.points) {
      points.push_back({{"shape", point.shape},
                        {"flops", point.flops},
                        {"cpu_row", positions.at(point.cpu)},
                        {"kernel_ns", or_null(point.device_kernel_ns)},
                        {"end_to_end_ns", or_null(point.device_end_to_end_ns)}});
    }
    ordered_json families = ordered_json::array();
    for (const Crossover& crossover : all) {
      if (!(crossover.setting == compared.setting)) continue;
      ordered_json shapes = ordered_json::array();
      for (const CrossoverPoint& point : crossover.points) shapes.push_back(point.shape);
      families.push_back({{"family", crossover.family},
                          {"shapes", shapes},
                          {"text", crossover_sentence(crossover)}});
    }
    const DeviceSetting& setting = compared.setting;
    list.push_back({{"kernel", setting.kernel},
                    {"dtype", setting.dtype},
                    {"math", setting.math},
                    {"cache", setting.cache},
                    {"cpu", setting.cpu},
                    {"device", setting.device},
                    {"points", points},
                    {"families", families}});
  }
  return list;
}

}  // namespace

ordered_json ratio_json(const std::optional<Ratio>& ratio) {
  if (!ratio) return {};
  const std::optional<Interval> interval = ratio->interval();
  return {{"value", ratio->value()},
          {"low", interval ? ordered_json(interval->low) : ordered_json()},
          {"high", interval ? ordered_json(interval->high) : ordered_json()}};
}

ordered_json summary_json(std::span<const MeasuredRow> rows, std::span<const ReadFile> files) {
  Positions positions;
  ordered_json all = ordered_json::array();
  ordered_json rungs = ordered_json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    positions[&rows[i].row] = i;
    all.push_back(row_json(rows[i].row));
    if (step_of(rows[i].row)) rungs.push_back(i);
  }
  ordered_json read = ordered_json::array();
  for (const ReadFile& file : files) read.push_back({{"path", file.path}, {"rows", file.rows}});
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  ordered_json list = ordered_json::array();
  for (const SummaryGroup& group : groups) list.push_back(group_json(group, positions));
  return {{"schema_version", 1},
          {"files", read},
          {"principle", size_principle},
          {"classes", classes_json(size_classes(groups), positions)},
          {"kernels", classes_json(size_classes(groups, false), positions)},
          {"presets", presets_json(groups)},
          {"groups", list},
          {"families", families_json(rows)},
          {"devices", devices_json(rows, positions)},
          {"rungs", rungs},
          {"rows", all}};
}

}  // namespace rooflane
