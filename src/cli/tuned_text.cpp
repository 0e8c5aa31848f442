// Reading --tuned; lines and JSON of tuned schedules. See tuned_text.hpp.
#include "cli/tuned_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal.hpp"
#include "cli/traits_text.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/traits.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

std::size_t count_of(const TunedSource& source) {
  return source.schedules ? source.schedules->entries.size() : 0;
}

// ISO 8601 times of one zone sort as text.
std::string newest(const TunedSource& source) {
  std::string time;
  if (!source.schedules) return time;
  for (const TunedEntry& entry : source.schedules->entries) time = std::max(time, entry.time);
  return time;
}

// "2026-01-31T12:00:00Z" as calibrations write it; another text as it is.
std::string date_of(std::string time) {
  constexpr std::size_t length = 20, day = 10;
  if (time.size() != length || time[day] != 'T' || time.back() != 'Z') return time;
  time[day] = ' ';
  time.pop_back();
  return time + " UTC";
}

void note_defects(const TunedSource& source, const Catalogue& catalogue) {
  const std::string here = machine_key(machine());
  if (source.named && source.schedules && source.schedules->machine != here) {
    print_note(fmt::format("'{}' was tuned on another machine ({}; this is {})",
                           source.file.string(), source.schedules->machine, here));
  }
  const std::vector<std::string> unused = unused_entries(source, catalogue);
  if (unused.empty()) return;
  print_note(fmt::format("{} of {} entries of '{}' are not used; the first: {}", unused.size(),
                         count_of(source), source.file.string(), unused.front()));
}

// Why the entry serves nothing in this build; empty where it may serve something.
std::string defect_of(const TunedEntry& entry, const Catalogue& catalogue) {
  if (!entry.problem) return "";
  for (const CatalogueEntry* known : catalogue.variants(entry.problem->kernel())) {
    if (known->name != entry.variant || known->foreign()) continue;
    try {
      parse_tuning(*known->variant, entry.tuning);
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> unused_entries(const TunedSource& source, const Catalogue& catalogue) {
  std::vector<std::string> unused;
  if (!source.schedules) return unused;
  for (const TunedEntry& entry : source.schedules->entries) {
    const std::string defect = defect_of(entry, catalogue);
    if (defect.empty()) continue;
    unused.push_back(
        fmt::format("{} {} {}: {}", entry.problem->text(), entry.variant, entry.tuning, defect));
  }
  return unused;
}

std::shared_ptr<const TunedSchedules> tuned_of(const std::optional<std::string>& option,
                                               const Catalogue& catalogue) {
  if (!option) {
    const TunedSchedules& schedules = tuned_schedules();
    note_defects(tuned_source(), catalogue);
    return std::make_shared<const TunedSchedules>(schedules);
  }
  if (*option == "none") return std::make_shared<const TunedSchedules>();
  TunedSource source = read_tuned(*option, true);
  if (!source.schedules) {
    throw argument_error(fmt::format("--tuned '{}': {}", *option, source.problem));
  }
  note_defects(source, catalogue);
  return std::make_shared<const TunedSchedules>(std::move(*source.schedules));
}

std::string tuned_summary(const TunedSource& source, std::time_t now) {
  const std::string file = source.file.string();
  if (file.empty()) return "none used (ROOFLANE_TUNED, or no cache folder)";
  if (!source.problem.empty())
    return fmt::format("none, because {} cannot be used: {}", file, source.problem);
  if (!source.schedules) return fmt::format("none yet; they would be in {}", file);
  const std::size_t count = count_of(source);
  const std::string last = newest(source);
  return fmt::format("{} entr{}{}, {}{}", count, count == 1 ? "y" : "ies",
                     last.empty() ? "" : ", the last " + traits_age(date_of(last), now), file,
                     source.named ? " (ROOFLANE_TUNED)" : "");
}

ordered_json tuned_json(const TunedSource& source, const std::vector<std::string>& unused) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? ordered_json() : ordered_json(text);
  };
  const char* const origin = source.file.empty() ? "none"
                             : source.named      ? "ROOFLANE_TUNED"
                                                 : "store";
  const Machine& here = machine();
  return {{"origin", origin},
          {"file", or_null(source.file.string())},
          {"problem", or_null(source.problem)},
          {"entries", count_of(source)},
          {"unused", unused},
          {"newest", or_null(newest(source))},
          {"store", or_null(tuned_store().string())},
          {"machine", {{"key", machine_key(here)}, {"cpu", here.cpu}, {"cores", here.all_cores}}}};
}

}  // namespace rooflane
