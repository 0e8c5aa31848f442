// Groups of rows, speed-ups and verdicts.
#include "io/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/text.hpp"

namespace rooflane {
namespace {

// What must be equal for two rows to be compared, thread count aside.
using ProblemKey = std::tuple<std::string, std::string, std::string, std::string, std::string,
                              std::string, std::string, std::string>;
ProblemKey problem_key(const Row& row, const std::string& math) {
  return {row.kernel, row.shape, row.dtype, math, row.cache, row.cpu, row.step, row.distribution};
}

// "OpenBLAS 0.3.21 SkylakeX" and "OpenBLAS 0.3.21 Haswell" are one library by name.
std::string library_name(const Row& row) { return row.library.substr(0, row.library.find(' ')); }

// Where it ran, and whether with a tuned schedule.
using Identity = std::pair<std::array<std::string, 5>, bool>;
Identity identity_in_group(const Row& row) {
  return {{row.variant, library_name(row), row.isa, row.device, chosen_placement(row)},
          is_tuned(row)};
}

using Members = std::vector<const MeasuredRow*>;
using AtThreads = std::optional<std::int64_t>;

// Kernel and variant.
using Implementation = std::pair<std::string, std::string>;

// Variants that only ever ran a kernel on one thread, while others ran it on more.
std::set<Implementation> one_thread_variants(std::span<const MeasuredRow> rows) {
  std::set<Implementation> one, many;
  std::set<std::string> kernels;  // that ran on more
  for (const MeasuredRow& measured : rows) {
    const Row& row = measured.row;
    if (!row.threads || step_of(row)) continue;
    (*row.threads > 1 ? many : one).insert({row.kernel, row.variant});
    if (*row.threads > 1) kernels.insert(row.kernel);
  }
  std::set<Implementation> result;
  for (const Implementation& implementation : one) {
    if (!many.contains(implementation) && kernels.contains(implementation.first)) {
      result.insert(implementation);
    }
  }
  return result;
}

// Rows of one problem by identity, each with the row that stands for it, fastest first.
std::vector<SummaryLine> lines_of(const Members& members) {
  std::vector<Identity> seen;
  std::map<Identity, SameRows> same;
  for (const MeasuredRow* m : members) {
    SameRows& list = same[identity_in_group(m->row)];
    if (list.empty()) seen.push_back(identity_in_group(m->row));
    list.push_back(m);
  }
  std::vector<SummaryLine> lines;
  for (const Identity& identity : seen) {
    const SameRows& rows = same[identity];
    lines.push_back({.row = &representative(rows)->row, .same = rows});
  }
  std::stable_sort(lines.begin(), lines.end(), [](const SummaryLine& x, const SummaryLine& y) {
    if (has_time(*x.row) != has_time(*y.row)) return has_time(*x.row);
    return has_time(*x.row) && *x.row->p50_ns < *y.row->p50_ns;
  });
  return lines;
}

// The lines of a variant measured with a tuned schedule and with its own choice.
void relate_tuned(std::vector<SummaryLine>& lines) {
  for (SummaryLine& tuned : lines) {
    if (!is_tuned(*tuned.row)) continue;
    for (SummaryLine& own : lines) {
      if (is_tuned(*own.row) ||
          identity_in_group(*own.row).first != identity_in_group(*tuned.row).first) {
        continue;
      }
      own.beside_tuned = true;
      if (has_time(*own.row) && has_time(*tuned.row)) {
        tuned.over_model = time_ratio(own.same, tuned.same);
      }
    }
  }
}

using Verdict = SummaryLine::Verdict;

template <class Counts>
std::optional<std::size_t> first_that(const std::vector<SummaryLine>& lines, Counts&& counts) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (may_win(*lines[i].row) && counts(lines[i])) return i;
  }
  return std::nullopt;
}

std::vector<SummaryLine> peers_of(const std::vector<SummaryLine>& lines) {
  std::vector<SummaryLine> peers;
  for (const SummaryLine& line : lines) {
    if (may_be_peer(*line.row) && is_peer(*line.row)) peers.push_back(line);
  }
  return peers;
}

// A row over itself is 1, whatever its noise.
Ratio times_as_fast(const SummaryLine& line, const SummaryLine& other) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  return line.row == other.row ? Ratio{{0, unknown, 1}} : time_ratio(other.same, line.same);
}

void add_speed_ups(SummaryGroup& group) {
  const auto scalar =
      first_that(group.lines, [](const auto& line) { return line.row->variant == "scalar"; });
  for (SummaryLine& line : group.lines) {
    if (!has_time(*line.row)) continue;
    if (scalar) line.over_scalar = times_as_fast(line, group.lines[*scalar]);
    if (!group.peers.empty()) line.over_peer = times_as_fast(line, group.peers.front());
  }
}

void add_verdicts(SummaryGroup& group) {
  std::vector<Contender> field;
  std::vector<std::size_t> lines;
  for (std::size_t i = 0; i < group.lines.size(); ++i) {
    const SummaryLine& line = group.lines[i];
    if (!may_win(*line.row) || is_other_build(*line.row) || line.beside_tuned) continue;
    field.push_back({line.same, *line.row->p50_ns});
    lines.push_back(i);
  }
  if (field.empty()) return;
  const Ranking ranking = rank(field);
  group.fastest = lines[ranking.leader];
  group.state = ranking.state;
  const auto shown = ranking.state == Ranking::State::winner ? Verdict::winner
                     : ranking.state == Ranking::State::tie  ? Verdict::tie
                                                             : Verdict::undecided;
  group.lines[*group.fastest].verdict = shown;
  for (std::size_t k = 0; k < field.size(); ++k) {
    if (k == ranking.leader) continue;
    const PairVerdict against = ranking.against[k];
    SummaryLine& line = group.lines[lines[k]];
    if (against == PairVerdict::equal) {
      line.verdict = shown == Verdict::tie ? shown : Verdict::undecided;
    } else if (against == PairVerdict::undecided) {
      line.verdict = Verdict::undecided;
      const double more = repetitions_to_decide(ranking.over_leader[k].log);
      group.more_repetitions = std::max(group.more_repetitions.value_or(1), more);
    }
    if (!group.next || ranking.over_leader[k].value() < group.over_next->value()) {
      group.next = lines[k];
      group.over_next = ranking.over_leader[k];
    }
  }
}

// The memory level of the rows at the group's threads; a row of one thread in a group of two has
// caches of its own.
std::string size_of(const SummaryGroup& group) {
  std::string any;
  for (const SummaryLine& line : group.lines) {
    if (line.row->roof_level.empty()) continue;
    if (line.row->threads == group.threads) return line.row->roof_level;
    if (any.empty()) any = line.row->roof_level;
  }
  return any;
}

// The problem as float32 operands have it.
std::string shape_of_floats(const std::string& shape) {
  std::vector<std::string> parts;
  for (const std::string_view part : split(shape, ',')) {
    const std::string_view key = part.substr(0, part.find('='));
    if (!key.ends_with("type")) parts.emplace_back(part);
  }
  return join(parts, ",");
}

// Time of the fastest float32 row in fp32 of a group's problem; nothing where none was measured.
std::optional<double> float_time(std::span<const SummaryGroup> groups, const SummaryGroup& of) {
  for (const SummaryGroup& group : groups) {
    if (group.math != "fp32" || group.dtype != "float32" || !group.fastest) continue;
    if (group.kernel != of.kernel || group.cache != of.cache || group.cpu != of.cpu ||
        group.distribution != of.distribution || group.threads != of.threads ||
        group.shape != shape_of_floats(of.shape)) {
      continue;
    }
    return group.lines[*group.fastest].row->p50_ns;
  }
  return std::nullopt;
}

void mark_cliffs(std::vector<SummaryGroup>& groups) {
  constexpr double least_share = 10;  // per cent of the roof
  for (SummaryGroup& group : groups) {
    const std::optional<double> floats =
        group.dtype == "float32" ? std::nullopt : float_time(groups, group);
    for (SummaryLine& line : group.lines) {
      const Row& row = *line.row;
      if (row.variant == "scalar" || !has_time(row)) continue;
      line.cliff =
          (row.roof_pct && *row.roof_pct < least_share) || (floats && *row.p50_ns > *floats);
    }
  }
}

}  // namespace

std::vector<SummaryGroup> summarise_rows(std::span<const MeasuredRow> rows) {
  const std::set<Implementation> one_thread = one_thread_variants(rows);
  const auto everywhere = [&](const Row& row) {
    return !row.threads || one_thread.contains({row.kernel, row.variant});
  };
  const auto at_threads = [&](const Members& members, const AtThreads& threads) {
    Members chosen;
    std::copy_if(members.begin(), members.end(), std::back_inserter(chosen),
                 [&](const auto* m) { return everywhere(m->row) || m->row.threads == threads; });
    return chosen;
  };

  std::vector<ProblemKey> order;
  std::map<ProblemKey, Members> problems;
  for (const MeasuredRow& measured : rows) {
    if (step_of(measured.row)) continue;
    const ProblemKey key = problem_key(measured.row, measured.row.math);
    Members& members = problems[key];
    if (members.empty()) order.push_back(key);
    members.push_back(&measured);
  }

  std::vector<SummaryGroup> groups;
  for (const ProblemKey& key : order) {
    const Members& members = problems[key];
    std::set<AtThreads> counts;
    for (const MeasuredRow* m : members) {
      if (!everywhere(m->row)) counts.insert(m->row.threads);
    }
    if (counts.empty()) counts.insert(members.front()->row.threads);
    for (const AtThreads& threads : counts) {
      const Row& first = members.front()->row;
      SummaryGroup group{.kernel = first.kernel,
                         .shape = first.shape,
                         .dtype = first.dtype,
                         .math = first.math,
                         .cache = first.cache,
                         .cpu = first.cpu,
                         .distribution = first.distribution,
                         .threads = threads,
                         .size = {},
                         .lines = lines_of(at_threads(members, threads)),
                         .fastest = {},
                         .next = {},
                         .state = {},
                         .more_repetitions = {},
                         .over_next = {},
                         .peers = {}};
      relate_tuned(group.lines);
      group.peers = peers_of(group.lines);
      const auto strict = problems.find(problem_key(first, "fp32"));
      if (group.peers.empty() && strict != problems.end()) {
        group.peers = peers_of(lines_of(at_threads(strict->second, threads)));
      }
      group.size = size_of(group);
      add_speed_ups(group);
      add_verdicts(group);
      groups.push_back(std::move(group));
    }
  }
  mark_cliffs(groups);
  return groups;
}

std::optional<double> longer_max_time(const SummaryGroup& group) {
  if (!group.is_undecided() || !group.more_repetitions) return std::nullopt;
  const std::optional<double>& taken = group.lines[*group.fastest].row->group_s;
  if (!taken || *taken <= 0) return std::nullopt;
  return std::exp2(std::ceil(std::log2(*taken * *group.more_repetitions)));
}

}  // namespace rooflane
