// Profiles as lines of CSV, and back. See phases_file.hpp.
#include "io/phases_file.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "io/files.hpp"

namespace rooflane {

namespace {

// No cell holds a comma or a quote.
constexpr std::string_view header = "row,thread,what,ns,count";
constexpr std::string_view recorded = "recorded", plain = "plain";

std::string line(std::int64_t row, std::string_view thread, std::string_view what,
                 std::string_view ns, std::string_view count) {
  return fmt::format("{},{},{},{},{}\n", row, thread, what, ns, count);
}

// One line's cells into the profile of its row; false when they are no such line.
bool read_line(const std::vector<std::string_view>& cells,
               std::map<std::int64_t, PhaseProfile>& profiles) {
  const auto row = parse_integer(cells[0]);
  const auto ns = parse_real(cells[3]), count = parse_real(cells[4]);
  if (!row || *row < 0 || (!ns && !cells[3].empty()) || (!count && !cells[4].empty())) return false;
  PhaseProfile& profile = profiles[*row];
  const std::string_view what = cells[2];
  if (!cells[1].empty()) {
    const auto thread = parse_integer(cells[1]);
    const auto phase = parse_phase(what);
    if (!thread || *thread < 0 || *thread >= 1 << 16 || !phase || !ns || !count) return false;
    profile.phases.push_back({static_cast<int>(*thread), *phase, *ns, *count});
  } else if (what == recorded) {
    const auto runs = parse_integer(cells[4]);
    if (!ns || !runs) return false;
    profile.run_ns = *ns;
    profile.runs = *runs;
  } else if (what == plain) {
    if (!ns) return false;
    profile.plain_ns = *ns;
  } else {
    if (what.empty() || !count) return false;
    profile.counters.emplace_back(what, *count);
  }
  return true;
}

}  // namespace

std::string phases_path(const std::string& csv_path) { return csv_path + ".phases.csv"; }

PhasesWriter::PhasesWriter(const std::string& path) : file_(path, Open::anew) {
  file_.append(fmt::format("{}\n", header));
}

void PhasesWriter::append(std::int64_t row, const PhaseProfile& profile) {
  std::string lines =
      line(row, "", recorded, print_real(profile.run_ns), std::to_string(profile.runs)) +
      line(row, "", plain, print_real(profile.plain_ns), "");
  for (const ThreadPhase& phase : profile.phases) {
    lines += line(row, std::to_string(phase.thread), name_of(phase.phase), print_real(phase.ns),
                  print_real(phase.times));
  }
  for (const auto& [name, count] : profile.counters) {
    lines += line(row, "", name, "", print_real(count));
  }
  file_.append(lines);
}

std::map<std::int64_t, PhaseProfile> read_phases(const std::string& path) {
  const std::string text = read_text_file(path);
  // A line that a killed run left half written ends with no line end.
  const std::size_t whole = text.rfind('\n') + 1;
  std::map<std::int64_t, PhaseProfile> profiles;
  std::int64_t number = 0;
  for (std::string_view one : split(std::string_view(text).substr(0, whole), '\n')) {
    ++number;
    if (one.ends_with('\r')) one.remove_suffix(1);
    if (number == 1) {
      if (one == header) continue;
      throw argument_error(
          fmt::format("{}: not a phases file: the header is not {}", path, header));
    }
    if (one.empty()) continue;
    const std::vector<std::string_view> cells = split(one, ',');
    if (cells.size() != 5 || !read_line(cells, profiles)) {
      throw argument_error(fmt::format("{}: line {} has no phase", path, number));
    }
  }
  return profiles;
}

}  // namespace rooflane
