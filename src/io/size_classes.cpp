// Classes of problems and what they come to. See size_classes.hpp.
#include "io/size_classes.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace rooflane {

const char* const size_principle =
    "sizes: the plateau of the measured bandwidth (L1, L2, L3, memory) that a problem's operands "
    "fit "
    "in";

namespace {

using Verdict = SummaryLine::Verdict;
using Groups = std::vector<const SummaryGroup*>;

// By the order of levels; unknown ones last.
std::size_t level_of(const std::string& size) {
  constexpr std::string_view levels[] = {"L1", "L2", "L3", "L4", "memory"};
  return static_cast<std::size_t>(std::find(std::begin(levels), std::end(levels), size) -
                                  std::begin(levels));
}

// The group's line of a variant that has a time and passed; the fastest of several, but the tuned
// one of two.
const SummaryLine* line_of(const SummaryGroup& group, const std::string& variant) {
  const auto found =
      std::find_if(group.lines.begin(), group.lines.end(), [&](const SummaryLine& line) {
        return line.row->variant == variant && may_win(*line.row) && !line.beside_tuned;
      });
  return found == group.lines.end() ? nullptr : &*found;
}

// Time of the fastest other variant / time of `line`.
std::optional<Ratio> over_next_of(const SummaryGroup& group, const SummaryLine& line) {
  if (&line == &group.lines[*group.fastest]) return group.over_next;
  const auto other = std::find_if(group.lines.begin(), group.lines.end(), [&](const auto& one) {
    return one.row->variant != line.row->variant && may_win(*one.row) &&
           !is_other_build(*one.row) && !one.beside_tuned;
  });
  if (other == group.lines.end()) return std::nullopt;
  return time_ratio(other->same, line.same);
}

// How a variant does over the problems of a class.
struct Showing {
  std::string variant;
  int good = 0, wins = 0;  // winner or tie; winner
  std::vector<Ratio> next;

  // Slower than the next, all problems together, unless it ties wherever it is measured.
  bool is_behind() const {
    const std::optional<Ratio> mean = geometric_mean(next);
    return mean && mean->value() < 1 && (wins > 0 || good < static_cast<int>(next.size()));
  }
};

// The variant that is fastest or ties in most problems; of equals the one that wins more, then the
// first. One that is behind all the same is not named.
std::string variant_to_use(const Groups& groups) {
  std::vector<Showing> showings;
  for (const SummaryGroup* group : groups) {
    for (const SummaryLine& line : group->lines) {
      if (line.verdict == Verdict::none) continue;
      const auto known = std::find_if(showings.begin(), showings.end(), [&](const Showing& one) {
        return one.variant == line.row->variant;
      });
      Showing& one = known == showings.end()
                         ? showings.emplace_back(Showing{line.row->variant, 0, 0, {}})
                         : *known;
      one.good += line.verdict == Verdict::winner || line.verdict == Verdict::tie;
      one.wins += line.verdict == Verdict::winner;
    }
  }
  for (Showing& one : showings) {
    for (const SummaryGroup* group : groups) {
      const SummaryLine* const line = group->fastest ? line_of(*group, one.variant) : nullptr;
      if (line == nullptr) continue;
      if (const auto ratio = over_next_of(*group, *line)) one.next.push_back(*ratio);
    }
  }
  std::erase_if(showings, [](const Showing& one) { return one.good == 0 || one.is_behind(); });
  const auto best =
      std::max_element(showings.begin(), showings.end(), [](const Showing& x, const Showing& y) {
        return std::pair(x.good, x.wins) < std::pair(y.good, y.wins);
      });
  return best == showings.end() ? "" : best->variant;
}

SizeClass class_of(const ClassKey& key, const Groups& groups) {
  SizeClass made;
  made.key = key;
  made.problems = groups.size();
  made.use = variant_to_use(groups);
  std::vector<Ratio> next, peer, roof;
  for (const SummaryGroup* group : groups) {
    if (!group->fastest) {
      ++made.undecided;
      continue;
    }
    made.undecided += group->is_undecided();
    const SummaryLine& best = group->lines[*group->fastest];
    const SummaryLine* line = line_of(*group, made.use);
    if (line != nullptr) {
      made.wins += line->verdict == Verdict::winner;
      made.ties += line->verdict == Verdict::tie;
      if (const auto ratio = over_next_of(*group, *line)) next.push_back(*ratio);
      if (line->over_peer && !is_peer(*line->row)) peer.push_back(*line->over_peer);
      if (const auto share = roof_share(*line->row)) {
        roof.push_back(*share);
        made.least_roof = std::min(made.least_roof.value_or(share->value()), share->value());
      }
    }
    if (best.verdict == Verdict::winner && best.row->variant != made.use) {
      made.instead.push_back(
          {group, best.row,
           line == nullptr ? std::nullopt : std::optional(time_ratio(line->same, best.same))});
    }
  }
  made.over_next = geometric_mean(next);
  made.over_peer = geometric_mean(peer);
  made.roof = geometric_mean(roof);
  return made;
}

template <class Label>
std::map<ClassKey, Groups> sorted_by(std::span<const SummaryGroup> groups, Label&& label) {
  std::map<ClassKey, Groups> classes;
  for (const SummaryGroup& group : groups) {
    classes[{group.kernel, group.dtype, group.math, group.cache, group.cpu, group.threads,
             label(group)}]
        .push_back(&group);
  }
  return classes;
}

}  // namespace

std::vector<SizeClass> size_classes(std::span<const SummaryGroup> groups, bool by_size) {
  std::vector<SizeClass> classes;
  for (const auto& [key, members] : sorted_by(groups, [&](const SummaryGroup& group) {
         return by_size ? group.size : std::string();
       })) {
    classes.push_back(class_of(key, members));
  }
  std::vector<std::string> kernels;
  for (const SummaryGroup& group : groups) kernels.push_back(group.kernel);
  const auto order = [&](const SizeClass& one) {
    const auto kernel = std::find(kernels.begin(), kernels.end(), one.key.kernel) - kernels.begin();
    return std::tuple(kernel, one.key.dtype, one.key.math, one.key.cache, one.key.cpu,
                      one.key.threads, level_of(one.key.label));
  };
  std::stable_sort(classes.begin(), classes.end(),
                   [&](const SizeClass& x, const SizeClass& y) { return order(x) < order(y); });
  return classes;
}

namespace {

// What a preset's class knows of one variant while it is gathered.
struct Gathered {
  std::size_t problems = 0;
  std::vector<std::pair<std::string, std::vector<Ratio>>> against;
  std::vector<Ratio> roof;

  void add(const std::string& peer, const Ratio& ratio) {
    auto found = std::find_if(against.begin(), against.end(),
                              [&](const auto& known) { return known.first == peer; });
    if (found == against.end()) {
      against.push_back({peer, {}});
      found = against.end() - 1;
    }
    found->second.push_back(ratio);
  }
};

void gather(const SummaryGroup& group, const SummaryLine& line, Gathered& gathered) {
  ++gathered.problems;
  if (!may_win(*line.row)) return;
  if (line.over_peer) gathered.add("", *line.over_peer);
  for (const SummaryLine& peer : group.peers) {
    gathered.add(peer.row->variant, time_ratio(peer.same, line.same));
  }
  if (const auto share = roof_share(*line.row)) gathered.roof.push_back(*share);
}

}  // namespace

std::vector<PresetFigures> preset_figures(std::span<const SummaryGroup> groups) {
  std::map<std::pair<ClassKey, std::string>, Gathered> classes;
  for (const SummaryGroup& group : groups) {
    for (const SummaryLine& line : group.lines) {
      const Row& row = *line.row;
      if (!row.library.empty() || is_other_build(row) || row.preset.empty() || line.beside_tuned) {
        continue;
      }
      const ClassKey key{group.kernel, group.dtype,   group.math, group.cache,
                         group.cpu,    group.threads, row.preset};
      gather(group, line, classes[{key, row.variant}]);
    }
  }
  std::vector<PresetFigures> figures;
  for (auto& [key, gathered] : classes) {
    PresetFigures one{key.first, key.second, gathered.problems, {}, geometric_mean(gathered.roof)};
    for (const auto& [peer, ratios] : gathered.against) {
      one.against.emplace_back(peer, *geometric_mean(ratios));
    }
    figures.push_back(std::move(one));
  }
  return figures;
}

}  // namespace rooflane
