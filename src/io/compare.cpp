// Matching rows, estimates of their change, verdicts.
#include "io/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/statistics.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

// All rows of one identity in one file.
struct Side {
  const Row* row = nullptr;  // the first that did not pass, else the first
  SameRows members;
};

std::string base_variant(const Row& row) { return row.variant.substr(0, row.variant.find('@')); }
std::string build_name(const Row& row) {
  const std::size_t at = row.variant.find('@');
  return at == std::string::npos ? "" : row.variant.substr(at + 1);
}

using Identity = std::vector<std::string>;
Identity identity_of(const Row& row) {
  return {row.kernel,
          row.shape,
          row.dtype,
          row.math,
          row.variant,
          row.library.substr(0, row.library.find(' ')),
          row.isa,
          row.threads ? fmt::format("{}", *row.threads) : "",
          chosen_placement(row),
          row.cache,
          row.device,
          row.distribution,
          step_of(row) ? row.tuning : "",
          row.step};
}
// Two builds of one variant in one file: a build is not a library.
Identity identity_across_builds(const Row& row) {
  Identity identity = identity_of(row);
  identity[4] = base_variant(row);
  identity[5].clear();
  // A tuned schedule beside another build is a third: builds are compared at their own choices.
  if (is_tuned(row)) identity.push_back(row.tuning_source);
  return identity;
}

// What is compared, of rows that one file holds with a tuned schedule and with the variant's own
// choice: these are two then. Else a variant is one, whichever it took: that is what changed.
class TunedApart {
 public:
  explicit TunedApart(std::initializer_list<std::span<const MeasuredRow>> files) {
    for (const auto& rows : files) {
      std::set<Identity> tuned, own;
      for (const MeasuredRow& measured : rows) {
        (is_tuned(measured.row) ? tuned : own).insert(identity_of(measured.row));
      }
      std::set_intersection(tuned.begin(), tuned.end(), own.begin(), own.end(),
                            std::inserter(apart_, apart_.end()));
    }
  }
  Identity operator()(const Row& row) const {
    Identity identity = identity_of(row);
    const bool apart = is_tuned(row) && apart_.contains(identity);
    identity.emplace_back(apart ? row.tuning_source : "");
    return identity;
  }

 private:
  std::set<Identity> apart_;
};

struct Sides {
  std::vector<Identity> order;
  std::map<Identity, Side> by_identity;
};

bool passed(const Row& row) { return row.status == "PASSED"; }

template <class Key, class Wanted>
Sides sides_of(std::span<const MeasuredRow> rows, Key&& key, Wanted&& wanted) {
  Sides sides;
  for (const MeasuredRow& measured : rows) {
    if (!wanted(measured.row)) continue;
    const Identity identity = key(measured.row);
    Side& side = sides.by_identity[identity];
    if (side.members.empty()) sides.order.push_back(identity);
    side.members.push_back(&measured);
    if (side.row == nullptr || (passed(*side.row) && !passed(measured.row))) {
      side.row = &measured.row;
    }
  }
  return sides;
}

bool not_asked_for(const Row& row) {
  return row.status == "SKIPPED" || row.status == "UNSUPPORTED";
}

// One row while it is being judged. One estimate must be beyond the margin, or two in agreement.
struct Judged {
  ComparedRow compared;
  std::vector<Estimate> estimates;  // of log(new / old); the first is the one shown
};

std::string too_few(std::size_t before, std::size_t after) {
  if (before == 0 || after == 0) {
    return fmt::format("no samples of {}", before == 0 ? (after == 0 ? "either" : "OLD") : "NEW");
  }
  return fmt::format("{} and {} repetitions; {} on each side are needed", before, after,
                     compare_least_repetitions);
}

// Fills in what needs no statistics; true when the times are to be compared. A row that became
// INACCURATE is failing, one that was so before is not.
bool both_timed(ComparedRow& compared) {
  const Row& before = *compared.before;
  const Row& after = *compared.after;
  if (may_be_peer(before) && may_be_peer(after) && (passed(after) || !passed(before))) return true;
  const auto said = [](const Row& row) {
    return row.reason.empty() ? row.status : row.status + ": " + row.reason;
  };
  compared.reason = "was " + before.status + ", is " + said(after);
  if (passed(before) && !not_asked_for(after)) compared.change = Change::failing;
  return false;
}

Judged judge_files(const Side& before, const Side& after) {
  Judged judged;
  judged.compared.before = before.row;
  judged.compared.after = after.row;
  if (!both_timed(judged.compared)) return judged;
  for (const bool normalised : {true, false}) {
    const Repetitions x = log_times(before.members, normalised);
    const Repetitions y = log_times(after.members, normalised);
    if (x.size() < compare_least_repetitions || y.size() < compare_least_repetitions) {
      judged.estimates.clear();
      judged.compared.reason = too_few(x.size(), y.size());
      return judged;
    }
    judged.estimates.push_back(
        difference(estimate_over_repetitions(y), estimate_over_repetitions(x)));
  }
  return judged;
}

Judged judge_builds(const Side& before, const Side& after) {
  Judged judged;
  judged.compared.before = before.row;
  judged.compared.after = after.row;
  if (!both_timed(judged.compared)) return judged;
  const Repetitions ratios = log_ratios(after.members, before.members);
  if (ratios.size() < compare_least_repetitions) {
    judged.compared.reason = ratios.empty()
                                 ? "no rounds in common"
                                 : fmt::format("{} {}; {} are needed", ratios.size(),
                                               ratios.size() == 1 ? "repetition" : "repetitions",
                                               compare_least_repetitions);
    return judged;
  }
  judged.estimates.push_back(estimate_over_repetitions(ratios));
  return judged;
}

double square(double x) { return x * x; }

// The variance that the machine's drift between the runs adds, from rows that cannot have changed:
// what their changes spread beyond their own errors. Fewer than three rows measure no spread.
constexpr std::size_t least_controls = 3;
// For normal deviates: the standard deviation over the median of their absolute values.
constexpr double deviation_over_median = 1.4826;

void widen_by_drift(std::vector<Judged>& rows) {
  std::vector<const Judged*> controls;
  for (const Judged& judged : rows) {
    if (judged.estimates.empty()) continue;
    const Row& before = *judged.compared.before;
    if (!before.library.empty() && before.library == judged.compared.after->library &&
        build_name(before).empty()) {
      controls.push_back(&judged);
    }
  }
  if (controls.size() < least_controls) return;
  const std::size_t kinds = controls.front()->estimates.size();
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    std::vector<double> changes, variances;
    for (const Judged* control : controls) {
      changes.push_back(std::abs(control->estimates[kind].value));
      variances.push_back(square(control->estimates[kind].error));
    }
    const double drift = square(deviation_over_median * median(changes)) - median(variances);
    if (drift <= 0) continue;
    for (Judged& judged : rows) {
      if (judged.estimates.empty()) continue;
      Estimate& estimate = judged.estimates[kind];
      estimate.error = std::sqrt(square(estimate.error) + drift);
    }
  }
}

void give_verdicts(std::vector<Judged>& rows) {
  const double margin = std::log1p(compare_margin);
  std::vector<double> p_values;
  for (const Judged& judged : rows) {
    // All estimates must be beyond: the largest p-value is that of their intersection (Berger,
    // Technometrics 24, 1982).
    double p = judged.estimates.empty() ? std::numeric_limits<double>::quiet_NaN() : 0;
    for (const Estimate& estimate : judged.estimates) p = std::max(p, estimate.p_beyond(margin));
    p_values.push_back(p);
  }
  const std::vector<double> adjusted = adjusted_for_false_discoveries(p_values);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<Estimate>& estimates = rows[i].estimates;
    if (estimates.empty()) continue;
    ComparedRow& compared = rows[i].compared;
    const Interval shown = estimates.front().interval();
    compared.ratio = std::exp(estimates.front().value);
    compared.low = std::exp(shown.low);
    compared.high = std::exp(shown.high);
    const auto beyond = [&](double sign) {
      return [=](const Estimate& estimate) {
        const Interval interval = estimate.interval();
        return sign > 0 ? interval.low > margin : interval.high < -margin;
      };
    };
    const bool slower = std::all_of(estimates.begin(), estimates.end(), beyond(1));
    const bool faster = std::all_of(estimates.begin(), estimates.end(), beyond(-1));
    const bool some = std::any_of(estimates.begin(), estimates.end(), beyond(1)) ||
                      std::any_of(estimates.begin(), estimates.end(), beyond(-1));
    if (slower || faster) {
      if (adjusted[i] <= compare_false_discoveries) {
        compared.change = slower ? Change::slower : Change::faster;
      } else {
        compared.reason = "may be chance among so many rows";
      }
    } else if (some) {
      compared.reason = "samples and probe-normalised samples disagree";
    } else if (shown.low >= -margin && shown.high <= margin) {
      compared.change = Change::same;
    } else {
      compared.reason = fmt::format("the interval crosses {:g} %", 100 * compare_margin);
    }
  }
}

template <class Judge>
std::vector<Judged> judge_all(const Sides& before, const Sides& after, Judge&& judge,
                              bool list_unmatched) {
  std::vector<Judged> rows;
  for (const Identity& identity : after.order) {
    const Side& now = after.by_identity.at(identity);
    const auto found = before.by_identity.find(identity);
    if (found != before.by_identity.end()) {
      if (not_asked_for(*found->second.row) && not_asked_for(*now.row)) continue;
      rows.push_back(judge(found->second, now));
    } else if (list_unmatched && !not_asked_for(*now.row)) {
      rows.push_back({{Change::only_new, nullptr, now.row, {}, {}, {}, {}}, {}});
    }
  }
  for (const Identity& identity : before.order) {
    const Side& then = before.by_identity.at(identity);
    if (after.by_identity.contains(identity) || not_asked_for(*then.row)) continue;
    rows.push_back({{Change::only_old, then.row, nullptr, {}, {}, {}, {}}, {}});
  }
  return rows;
}

Comparison sorted(std::vector<Judged> rows) {
  Comparison comparison;
  for (Judged& judged : rows) comparison.rows.push_back(std::move(judged.compared));
  std::stable_sort(comparison.rows.begin(), comparison.rows.end(),
                   [](const ComparedRow& x, const ComparedRow& y) { return x.change < y.change; });
  return comparison;
}

std::string quoted(const std::set<std::string>& names) {
  return "'" + join({names.begin(), names.end()}, "', '") + "'";
}

}  // namespace

const char* change_name(Change change) {
  constexpr std::array names = {"FAILING",  "SLOWER",   "FASTER", "UNSURE",
                                "only OLD", "only NEW", "SAME"};
  return names[static_cast<std::size_t>(change)];
}

std::size_t Comparison::count(Change change) const {
  return static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(),
                    [&](const ComparedRow& compared) { return compared.change == change; }));
}

Comparison compare_rows(std::span<const MeasuredRow> before, std::span<const MeasuredRow> after) {
  const auto all = [](const Row&) { return true; };
  const TunedApart identity({before, after});
  std::vector<Judged> rows =
      judge_all(sides_of(before, identity, all), sides_of(after, identity, all), judge_files, true);
  widen_by_drift(rows);
  give_verdicts(rows);
  return sorted(std::move(rows));
}

Comparison compare_against(std::span<const MeasuredRow> rows, const std::string& name) {
  const auto of_build = [](const std::string& build) {
    return [build](const Row& row) { return build_name(row) == build; };
  };
  // Variants of NEW that the other build was never asked for are no loss, hence not listed.
  std::vector<Judged> judged =
      judge_all(sides_of(rows, identity_across_builds, of_build(name)),
                sides_of(rows, identity_across_builds, of_build("")), judge_builds, false);
  give_verdicts(judged);
  return sorted(std::move(judged));
}

std::vector<std::string> other_builds(std::span<const MeasuredRow> rows) {
  std::vector<std::string> names;
  for (const MeasuredRow& measured : rows) {
    const std::string name = build_name(measured.row);
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

std::string machine_difference(std::span<const MeasuredRow> before,
                               std::span<const MeasuredRow> after) {
  struct Facts {
    std::set<std::string> cpus;
    std::set<std::int64_t> threads;
    std::map<std::string, std::set<std::string>> drivers;  // by device
    std::set<std::string> devices;
  };
  const auto facts_of = [](std::span<const MeasuredRow> rows) {
    Facts facts;
    for (const MeasuredRow& measured : rows) {
      const Row& row = measured.row;
      facts.cpus.insert(row.cpu);
      if (row.threads) facts.threads.insert(*row.threads);
      if (row.device.empty()) continue;
      facts.devices.insert(row.device);
      if (!row.driver.empty()) facts.drivers[row.device].insert(row.driver);
    }
    return facts;
  };
  const Facts x = facts_of(before);
  const Facts y = facts_of(after);
  if (x.cpus != y.cpus) return fmt::format("CPU {} and {}", quoted(x.cpus), quoted(y.cpus));
  // If the user gave the thread counts of a run, the greatest one of a machine is alone.
  if (!x.threads.empty() && !y.threads.empty() && !x.threads.contains(*y.threads.rbegin()) &&
      !y.threads.contains(*x.threads.rbegin())) {
    return fmt::format("up to {} and up to {} threads", *x.threads.rbegin(), *y.threads.rbegin());
  }
  const bool shared = std::any_of(x.devices.begin(), x.devices.end(),
                                  [&](const std::string& d) { return y.devices.contains(d); });
  if (!x.devices.empty() && !y.devices.empty() && !shared) {
    return fmt::format("device {} and {}", quoted(x.devices), quoted(y.devices));
  }
  for (const auto& [device, drivers] : x.drivers) {
    const auto found = y.drivers.find(device);
    if (found != y.drivers.end() && found->second != drivers) {
      return fmt::format("driver {} and {} of {}", quoted(drivers), quoted(found->second), device);
    }
  }
  return "";
}

}  // namespace rooflane
