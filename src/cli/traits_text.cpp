// Tables, lines and JSON of traits. See traits_text.hpp.
#include "cli/traits_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

constexpr const char* level_names[levels] = {"L1", "L2", "L3", "memory"};

std::string giga(double rate) { return fmt::format("{:.1f}", rate * 1e-9); }
std::string micro(double seconds) { return fmt::format("{:.2f}", seconds * 1e6); }
std::string nano(double seconds) { return fmt::format("{:.1f}", seconds * 1e9); }

ordered_json levels_json(const double (&rates)[levels]) {
  ordered_json json = ordered_json::object();
  for (int level = 0; level < levels; ++level) json[level_names[level]] = rates[level];
  return json;
}

ordered_json rates_json(const Traits::Rates& rates) {
  return {{"fma_flops_s", rates.fma},
          {"read_bytes_s", levels_json(rates.read)},
          {"write_bytes_s", levels_json(rates.write)},
          {"stream_bytes_s", rates.stream},
          {"copy_bytes_s",
           {{"in_order", rates.copy[in_order]},
            {"in_four", rates.copy[in_four]},
            {"within_l3", rates.copy[within_l3]}}}};
}

ordered_json units_json(const std::map<std::string, Traits::Peak>& units) {
  ordered_json json = ordered_json::array();
  for (const auto& [name, peak] : units) {
    json.push_back({{"instruction", name}, {"one_ops_s", peak.one}, {"many_ops_s", peak.many}});
  }
  return json;
}

ordered_json constants_json(ModelConstants constants) {
  ordered_json json = ordered_json::array();
  for (const NamedConstant& constant : named_constants(constants)) {
    json.push_back({{"name", constant.name}, {"value", *constant.value}});
  }
  return json;
}

}  // namespace

std::string traits_table(const MeasuredTraits& measured) {
  const Traits& traits = measured.at_isa;
  const bool several = traits.threads > 1;
  TextTable table{{{"trait"}, {"1 thread", true}, {"unit"}}, {}};
  if (several) {
    table.columns.insert(table.columns.begin() + 2,
                         {fmt::format("each of {}", traits.threads), true});
  }
  const auto add = [&](const std::string& name, const std::string& one, const std::string& many,
                       const char* unit) {
    table.rows.push_back({name, one, unit});
    if (several) table.rows.back().insert(table.rows.back().begin() + 2, many);
  };
  add("L1 of a core", print_bytes(traits.l1_bytes), "", "");
  add("L2 of a core", print_bytes(traits.l2_bytes), "", "");
  add("L3, as far as it is fast", print_bytes(traits.l3_bytes), "", "");
  for (const auto& [isa, peak] : measured.fma) {
    add("FMA at " + isa, giga(peak.one), giga(peak.many), "GFLOP/s");
  }
  for (const auto& [name, peak] : traits.units) {
    add(name, giga(peak.one), giga(peak.many), "Gop/s");
  }
  for (int level = 0; level < levels; ++level) {
    add(std::string("read ") + level_names[level], giga(traits.one.read[level]),
        giga(traits.many.read[level]), "GB/s");
  }
  for (int level = 0; level < levels; ++level) {
    add(std::string("write ") + level_names[level], giga(traits.one.write[level]),
        giga(traits.many.write[level]), "GB/s");
  }
  add("store past the caches", giga(traits.one.stream), giga(traits.many.stream), "GB/s");
  add("copy past the caches", giga(traits.one.copy[in_order]), giga(traits.many.copy[in_order]),
      "GB/s");
  add("the same, four places at once", giga(traits.one.copy[in_four]),
      giga(traits.many.copy[in_four]), "GB/s");
  add("copy within L3", giga(traits.one.copy[within_l3]), giga(traits.many.copy[within_l3]),
      "GB/s");
  add("transposed copy in L2", giga(traits.transpose), "", "GB/s read");
  if (several) add("parallel region", "", micro(traits.region), "us");
  if (several)
    add("delay of the slowest thread", "", fmt::format("{:.0f}", 100 * traits.jitter), "%");
  add("pages in the TLB", fmt::format("{:.0f}", traits.pages), "", "");
  add("another page", nano(traits.page_walk), "", "ns");
  add("task assigned", several ? "" : nano(traits.task), nano(traits.task), "ns");
  return terminal_table(table);
}

std::string traits_age(const std::string& date, std::time_t now) {
  std::tm parts{};
  const char* rest = strptime(date.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  if (rest == nullptr || std::string_view(rest) != " UTC") return "at " + date;
  constexpr double minute = 60, hour = 60 * minute, day = 24 * hour;
  const double seconds = std::max(0.0, std::difftime(now, timegm(&parts)));
  if (seconds < minute) return "just now";
  constexpr std::array<std::pair<double, const char*>, 3> units = {
      {{day, "day"}, {hour, "hour"}, {minute, "minute"}}};
  const auto unit =
      std::find_if(units.begin(), units.end(), [&](const auto& u) { return seconds >= u.first; });
  const auto count = static_cast<std::int64_t>(seconds / unit->first);
  return fmt::format("{} {}{} ago", count, unit->second, count == 1 ? "" : "s");
}

std::string traits_origin(const TraitsSource& source, std::time_t now) {
  if (source.measured) {
    const bool learned = !(source.measured->at_isa.constants == ModelConstants());
    return fmt::format("measured {}, {}{}", traits_age(source.measured->date, now),
                       source.file.string(), learned ? "; with learned constants" : "");
  }
  if (!source.problem.empty()) {
    return fmt::format(
        "derived, because {} cannot be used: {}; `rooflane calibrate` writes it again",
        source.file.string(), source.problem);
  }
  if (source.file.empty()) return "derived; storing is off (ROOFLANE_TRAITS, or no cache folder)";
  return "derived; `rooflane calibrate` measures them";
}

std::string traits_summary(const Traits& traits) {
  std::string text = fmt::format(
      "L1 {}, L2 {}, L3 {}; one thread: FMA {} GFLOP/s, L2 {}, L3 {}, memory {} GB/s read",
      print_bytes(traits.l1_bytes), print_bytes(traits.l2_bytes), print_bytes(traits.l3_bytes),
      giga(traits.one.fma), giga(traits.one.read[in_l2]), giga(traits.one.read[in_l3]),
      giga(traits.one.read[in_memory]));
  for (const auto& [name, peak] : traits.units) {
    text += fmt::format(", {} {} Gop/s", name, giga(peak.one));
  }
  if (traits.threads > 1) {
    text +=
        fmt::format("\neach of {}: FMA {} GFLOP/s, memory {} GB/s; a region {} us", traits.threads,
                    giga(traits.many.fma), giga(traits.many.read[in_memory]), micro(traits.region));
  }
  return text;
}

ordered_json traits_json(const TraitsSource& source, const std::string& isa, const Traits& traits) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? ordered_json() : ordered_json(text);
  };
  return {{"origin", source.measured ? "measured" : "derived"},
          {"date", source.measured ? ordered_json(source.measured->date) : ordered_json()},
          {"file", or_null(source.file.string())},
          {"problem", or_null(source.problem)},
          {"isa", isa},
          {"threads", traits.threads},
          {"l1_bytes", traits.l1_bytes},
          {"l2_bytes", traits.l2_bytes},
          {"l3_bytes", traits.l3_bytes},
          {"one", rates_json(traits.one)},
          {"many", rates_json(traits.many)},
          {"units", units_json(traits.units)},
          {"transpose_bytes_s", traits.transpose},
          {"region_s", traits.region},
          {"task_s", traits.task},
          {"jitter", traits.jitter},
          {"pages", traits.pages},
          {"page_walk_s", traits.page_walk},
          {"constants", constants_json(traits.constants)}};
}

}  // namespace rooflane
