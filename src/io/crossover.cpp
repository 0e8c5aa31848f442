// Families of shapes and where the device overtakes. See crossover.hpp.
#include "io/crossover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

Parameters parameters_of(const std::string& shape) {
  Parameters parameters;
  for (const std::string_view part : split(shape, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) return {};
    parameters.emplace_back(part.substr(0, equals), part.substr(equals + 1));
  }
  return parameters;
}

// The line on which two shapes lie: fixed parameters as they are, growing ones as "*" with their
// proportion. Empty when there is none.
struct Line {
  std::string family;
  std::vector<std::int64_t> proportion;
  auto operator<=>(const Line&) const = default;
};

std::optional<Line> line_through(const Parameters& x, const Parameters& y) {
  if (x.size() != y.size()) return std::nullopt;
  std::vector<std::string> words;
  std::vector<std::pair<std::int64_t, std::int64_t>> growing;
  std::int64_t common = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i].first != y[i].first) return std::nullopt;
    if (x[i].second == y[i].second) {
      words.push_back(x[i].first + "=" + x[i].second);
      continue;
    }
    const auto a = parse_integer(x[i].second);
    const auto b = parse_integer(y[i].second);
    if (!a || !b || *a <= 0 || *b <= 0) return std::nullopt;  // flags and scales do not grow
    growing.emplace_back(*a, *b);
    common = std::gcd(common, *a);
    words.push_back(x[i].first + "=*");
  }
  if (growing.empty()) return std::nullopt;
  Line line;
  for (const auto& [a, b] : growing) {
    const auto& [first_a, first_b] = growing.front();
    if (static_cast<double>(a) * static_cast<double>(first_b) !=
        static_cast<double>(b) * static_cast<double>(first_a)) {
      return std::nullopt;
    }
    line.proportion.push_back(a / common);
  }
  auto factor = line.proportion.begin();
  for (std::string& word : words) {
    if (!word.ends_with('*')) continue;
    if (*factor != 1) word.insert(word.size() - 1, std::to_string(*factor));
    ++factor;
  }
  line.family = join(words, ",");
  return line;
}

bool is_timed(const Row& row) { return may_win(row) && !is_other_build(row) && !step_of(row); }
bool is_device(const Row& row) { return !row.threads && !row.device.empty(); }

void keep_least(std::optional<double>& least, const std::optional<double>& value) {
  if (value && *value > 0) least = std::min(least.value_or(*value), *value);
}

// The first point from which on the device is faster at every larger one.
std::optional<std::size_t> wins_from(const std::vector<CrossoverPoint>& points,
                                     std::optional<double> CrossoverPoint::*device) {
  std::size_t from = points.size();
  while (from > 0) {
    const CrossoverPoint& point = points[from - 1];
    if (!(point.*device) || *(point.*device) >= *point.cpu->p50_ns) break;
    --from;
  }
  return from == points.size() ? std::nullopt : std::optional(from);
}

std::string where(const Crossover& crossover, const std::optional<std::size_t>& from) {
  if (!from) return "never in this range";
  if (*from == 0) return "at every size";
  return "from " + crossover.points[*from].shape + " on";
}

}  // namespace

std::vector<ShapeFamily> shape_families(const std::vector<std::string>& shapes) {
  std::vector<Parameters> parameters;
  for (const std::string& shape : shapes) parameters.push_back(parameters_of(shape));
  std::map<Line, std::set<std::string>> members;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t j = i + 1; j < shapes.size(); ++j) {
      if (const auto line = line_through(parameters[i], parameters[j])) {
        members[*line].insert({shapes[i], shapes[j]});
      }
    }
  }
  std::vector<ShapeFamily> families;
  while (true) {
    const auto largest = std::max_element(
        members.begin(), members.end(),
        [](const auto& x, const auto& y) { return x.second.size() < y.second.size(); });
    if (largest == members.end() || largest->second.size() < 2) return families;
    const std::set<std::string> taken = largest->second;
    families.push_back({largest->first.family, {taken.begin(), taken.end()}});
    for (auto& [line, others] : members) {
      for (const std::string& shape : taken) others.erase(shape);
    }
  }
}

std::vector<DeviceComparison> device_comparisons(std::span<const MeasuredRow> rows) {
  const auto setting_of = [](const Row& row, const std::string& device) {
    return DeviceSetting{row.kernel, row.dtype, row.math, row.cache, row.cpu, device};
  };
  std::vector<DeviceSetting> order;
  for (const MeasuredRow& measured : rows) {
    const DeviceSetting setting = setting_of(measured.row, measured.row.device);
    if (is_timed(measured.row) && is_device(measured.row) &&
        std::find(order.begin(), order.end(), setting) == order.end()) {
      order.push_back(setting);
    }
  }
  std::vector<DeviceComparison> compared;
  for (const DeviceSetting& setting : order) {
    std::map<std::string, CrossoverPoint> points;  // by shape
    for (const MeasuredRow& measured : rows) {
      const Row& row = measured.row;
      if (!is_timed(row) || setting_of(row, setting.device) != setting) continue;
      CrossoverPoint& point = points[row.shape];
      point.shape = row.shape;
      point.flops = row.flops.value_or(0);
      if (is_device(row) && row.device == setting.device) {
        keep_least(point.device_kernel_ns, row.kernel_ns ? row.kernel_ns : row.p50_ns);
        keep_least(point.device_end_to_end_ns, row.e2e_ns);
      } else if (row.threads && (point.cpu == nullptr || *row.p50_ns < *point.cpu->p50_ns)) {
        point.cpu = &row;
      }
    }
    DeviceComparison one{setting, {}};
    for (const auto& [shape, point] : points) {
      if (point.cpu != nullptr && point.device_kernel_ns) one.points.push_back(point);
    }
    std::stable_sort(
        one.points.begin(), one.points.end(),
        [](const CrossoverPoint& x, const CrossoverPoint& y) { return x.flops < y.flops; });
    if (!one.points.empty()) compared.push_back(std::move(one));
  }
  return compared;
}

std::vector<Crossover> crossovers(std::span<const MeasuredRow> rows) {
  std::vector<Crossover> result;
  for (const DeviceComparison& compared : device_comparisons(rows)) {
    std::vector<std::string> shapes;
    for (const CrossoverPoint& point : compared.points) shapes.push_back(point.shape);
    std::sort(shapes.begin(), shapes.end());
    for (const ShapeFamily& family : shape_families(shapes)) {
      Crossover crossover{compared.setting, family.name, {}, {}, {}, true};
      for (const CrossoverPoint& point : compared.points) {
        if (std::find(family.shapes.begin(), family.shapes.end(), point.shape) ==
            family.shapes.end()) {
          continue;
        }
        crossover.points.push_back(point);
        crossover.has_end_to_end = crossover.has_end_to_end && point.device_end_to_end_ns;
      }
      crossover.kernel_from = wins_from(crossover.points, &CrossoverPoint::device_kernel_ns);
      if (crossover.has_end_to_end) {
        crossover.end_to_end_from =
            wins_from(crossover.points, &CrossoverPoint::device_end_to_end_ns);
      }
      result.push_back(std::move(crossover));
    }
  }
  return result;
}

std::string crossover_sentence(const Crossover& c) {
  std::string text = fmt::format(
      "{}:{} ({} sizes, {} to {}), {} faster than the CPU: ", c.setting.kernel, c.family,
      c.points.size(), c.points.front().shape, c.points.back().shape, c.setting.device);
  if (c.has_end_to_end) text += "end to end " + where(c, c.end_to_end_from) + ", ";
  return text + "kernel alone " + where(c, c.kernel_from);
}

std::string crossover_text(std::span<const MeasuredRow> rows, bool markdown) {
  std::string text;
  for (const Crossover& c : crossovers(rows)) {
    const std::string sentence = crossover_sentence(c);
    text += (markdown ? "- " + markdown_text(sentence) : sentence) + "\n";
  }
  return text;
}

}  // namespace rooflane
