// Contenders and their verdicts. See race.hpp.
#include "bench/race.hpp"

#include <algorithm>
#include <limits>

namespace rooflane {

namespace {

constexpr double narrow_pct = 3;
// One look is enough for what takes so many times as long as the fastest.
constexpr double far_behind = 3;
// Where every figure is asked for: a run that takes so long, and so many times as long as the
// fastest, would make minutes of a group of milliseconds.
constexpr double long_run_ns = 1e8;
constexpr double far_behind_in_ladder = 20;

double time_of(const Measured& measured) {
  return measured.ns.empty() ? measured.calibration.run_ns : median(measured.ns);
}

bool is_of_other_build(const Measured& measured) {
  return measured.planned->measured.variant.find('@') != std::string::npos;
}

// The case of this build that a case of another one is held against; nothing without one.
const Measured* own_case_of(const Measured& other, std::span<const Measured> measured) {
  const Case& c = other.planned->measured;
  const std::string name = c.variant.substr(0, c.variant.find('@'));
  const auto own = std::find_if(measured.begin(), measured.end(), [&](const Measured& m) {
    const Case& candidate = m.planned->measured;
    return candidate.variant == name && candidate.isa == c.isa && candidate.threads == c.threads &&
           candidate.placement == c.placement;
  });
  return own == measured.end() ? nullptr : &*own;
}

bool is_timed(const Measured& measured) {
  return has_speed(measured.status) && time_of(measured) > 0;
}

// Infinite where nothing is timed.
double fastest_of(std::span<const Measured> measured) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Measured& m : measured) {
    if (is_timed(m)) fastest = std::min(fastest, time_of(m));
  }
  return fastest;
}

class Judge {
 public:
  Judge(std::span<const Measured> measured, const BenchOptions& options, Race& race)
      : measured_(measured), options_(options), race_(race) {
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const Measured& m = measured[i];
      if (m.status != Status::passed || m.ns.empty() || is_of_other_build(m)) continue;
      racing_.push_back(i);
      field_.push_back({{&m.taken}, median(m.ns)});
    }
    fastest_ns_ = fastest_of(measured);
  }

  void judge() {
    judge_field();
    judge_inaccurate();
    judge_builds();
  }

 private:
  bool is_outrun(const Measured& measured, const Ratio& over_leader) const {
    return time_of(measured) > far_behind * fastest_ns_ ||
           certainly_above(over_leader.log, outrun_ratio);
  }

  void note_width(const Estimate& log_ratio) {
    if (!(log_ratio.half_width_pct() <= narrow_pct)) race_.narrow = false;
  }

  void judge_field() {
    if (field_.empty()) {
      for (std::size_t i = 0; i < measured_.size(); ++i) {
        if (time_of(measured_[i]) > far_behind * fastest_ns_) race_.contender[i] = false;
      }
      return;
    }
    const Ranking ranking = rank(field_);
    leader_ = &measured_[racing_[ranking.leader]];
    for (std::size_t k = 0; k < racing_.size(); ++k) {
      if (k == ranking.leader) continue;
      const bool undecided = ranking.against[k] == PairVerdict::undecided;
      if (undecided) race_.decided = false;
      race_.wanted[racing_[k]] = undecided;
      if (is_outrun(measured_[racing_[k]], ranking.over_leader[k])) {
        race_.contender[racing_[k]] = false;
        continue;
      }
      note_width(ranking.over_leader[k].log);
    }
    const Estimate own = estimate_over_repetitions(log_times({&leader_->taken}, false));
    if (!(own.half_width_pct() <= options_.interval_pct)) race_.narrow = false;
  }

  // They never win, but others are held against them.
  void judge_inaccurate() {
    if (leader_ == nullptr) return;
    for (std::size_t i = 0; i < measured_.size(); ++i) {
      const Measured& m = measured_[i];
      if (m.status != Status::inaccurate || m.ns.empty()) continue;
      const Ratio ratio = time_ratio({&m.taken}, {&leader_->taken});
      if (is_outrun(m, ratio)) race_.contender[i] = false;
    }
  }

  void judge_builds() {
    for (std::size_t i = 0; i < measured_.size(); ++i) {
      const Measured& m = measured_[i];
      const Measured* const own = is_of_other_build(m) ? own_case_of(m, measured_) : nullptr;
      if (own == nullptr || !has_speed(m.status) || !has_speed(own->status)) continue;
      race_.contender[static_cast<std::size_t>(own - measured_.data())] = true;
      if (m.ns.empty() || own->ns.empty()) continue;
      const Ratio ratio = time_ratio({&m.taken}, {&own->taken});
      if (verdict_of(ratio.log) == PairVerdict::undecided) race_.decided = false;
      note_width(ratio.log);
    }
  }

  std::span<const Measured> measured_;
  const BenchOptions& options_;
  Race& race_;
  std::vector<std::size_t> racing_;  // positions of those that may win
  std::vector<Contender> field_;     // the same
  const Measured* leader_ = nullptr;
  double fastest_ns_ = 0;
};

// Where every figure is asked for.
void judge_figures(std::span<const Measured> measured, const BenchOptions& options, Race& race) {
  const double fastest_ns = fastest_of(measured);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Measured& m = measured[i];
    if (time_of(m) > long_run_ns && time_of(m) > far_behind_in_ladder * fastest_ns) {
      race.contender[i] = false;
    } else if (has_speed(m.status) && !m.ns.empty()) {
      const Estimate own = estimate_over_repetitions(log_times({&m.taken}, false));
      if (!(own.half_width_pct() <= options.interval_pct)) race.narrow = false;
    }
  }
}

}  // namespace

Race race_of(const Group& group, std::span<const Measured> measured, const BenchOptions& options) {
  Race race;
  race.contender.assign(group.cases.size(), true);
  race.wanted.assign(group.cases.size(), false);
  if (options.ladder || options.fusion || options.tuned_beside_model) {
    judge_figures(measured, options, race);
  } else {
    Judge(measured, options, race).judge();
  }
  for (std::size_t i = 0; i < measured.size(); ++i) {
    race.wanted[i] = race.wanted[i] || race.contender[i] || measured[i].ns.size() < fewest_samples;
  }
  return race;
}

}  // namespace rooflane
