// Rounds and turns. See rounds.hpp.
#include "bench/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/seeds.hpp"
#include "core/statistics.hpp"
#include "measure/interference.hpp"
#include "measure/sampler.hpp"

namespace rooflane {

namespace {

// Over all launches: enough for an interval of the median, and for when time runs out or a variant
// is far slower than the rest.
constexpr int fewest_rounds = 7;
constexpr int fewest_rounds_in_haste = 3;
constexpr int most_rounds = 1000;
// A variant is slow when one run takes 20 times as long as the fastest of the group and longer than
// 0.1 s: it would turn a group of milliseconds into one of minutes.
constexpr double slow_ratio = 20;
constexpr double slow_run_ns = 1e8;
constexpr int most_repeats_of_a_turn = 2;

int share_of(int rounds, int launches) { return (rounds + launches - 1) / launches; }

bool has_sample(const Measured& measured, Position position) {
  return std::find(measured.positions.begin(), measured.positions.end(), position) !=
         measured.positions.end();
}

// Seconds of timed work in this launch.
double timed_seconds(const Measured& measured, std::int64_t launch) {
  double ns = 0;
  for (std::size_t i = 0; i < measured.ns.size(); ++i) {
    if (measured.positions[i].launch == launch) ns += measured.ns[i];
  }
  return ns * static_cast<double>(measured.calibration.runs_per_sample) * 1e-9;
}

std::optional<double> only(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(values.front());
}

class Launch {
 public:
  Launch(std::span<Member> members, const Rounds& rounds) : rounds_(rounds) {
    double fastest_ns = std::numeric_limits<double>::infinity();
    for (Member& member : members) {
      if (!member.active) continue;
      order_.push_back(&member);
      fastest_ns = std::min(fastest_ns, member.measured->calibration.run_ns);
    }
    for (Member* member : order_) {
      const double run_ns = member->measured->calibration.run_ns;
      member->slow =
          rounds_.exactly == 0 && run_ns > slow_run_ns && run_ns > slow_ratio * fastest_ns;
    }
    all_ = order_;
  }

  void run() {
    const int most =
        rounds_.exactly > 0 ? rounds_.exactly : share_of(most_rounds, rounds_.launches);
    begin_ns_ = steady_clock_ns();
    int round = 0;
    for (; round < most; ++round) {
      std::erase_if(order_, [&](const Member* member) {
        return !member->active || (member->slow && round >= in_haste());
      });
      if (order_.empty() || (rounds_.exactly == 0 && enough(round))) break;
      rounds_.on_progress(progress(round));
      take_round(round);
    }
    for (Member* member : all_) {
      Measured& measured = *member->measured;
      measured.stop = median_half_width_pct(measured.ns) <= rounds_.interval_pct ? "interval"
                      : round == most && !member->slow                           ? "rounds"
                                                                                 : "time";
    }
  }

 private:
  bool enough(int rounds) const {
    return (rounds >= in_haste() && elapsed() >= rounds_.seconds) ||
           (rounds >= share_of(fewest_rounds, rounds_.launches) && all_known_enough());
  }
  int in_haste() const { return share_of(fewest_rounds_in_haste, rounds_.launches); }
  double elapsed() const { return (steady_clock_ns() - begin_ns_) * 1e-9; }

  bool has_min_time(const Member& member) const {
    return timed_seconds(*member.measured, rounds_.launch) >= rounds_.min_time / rounds_.launches;
  }
  // The width falls with the root of the number of samples: after l of L launches it may be
  // √(L/l) times as wide as at the end.
  bool all_known_enough() const {
    const double enough = rounds_.interval_pct *
                          std::sqrt(static_cast<double>(rounds_.launches) /
                                    static_cast<double>(std::max<std::int64_t>(rounds_.launch, 1)));
    return std::all_of(order_.begin(), order_.end(), [&](const Member* member) {
      return has_min_time(*member) && median_half_width_pct(member->measured->ns) <= enough;
    });
  }
  double progress(int round) const {
    const double of_rounds = static_cast<double>(round) / share_of(fewest_rounds, rounds_.launches);
    const double of_time = rounds_.seconds > 0 ? elapsed() / rounds_.seconds : 1;
    return std::clamp(std::min(of_rounds, std::max(of_time, 0.5 * of_rounds)), 0.0, 1.0);
  }

  struct Probed {
    double ns;
    bool moved;  // off the others all the same
  };
  // The group's probe; taken again, at most twice, while it lies off the others.
  Probed probe() {
    for (int repeat = 0;; ++repeat) {
      const double ns = rounds_.probe();
      probes_.push_back(ns);
      const bool moved = probe_moved(probes_);
      if (!moved || repeat == most_repeats_of_a_turn || elapsed() >= rounds_.seconds) {
        return {ns, moved};
      }
    }
  }

  void take_round(int round) {
    const Position position{rounds_.launch, round};
    std::vector<Member*> turns;
    for (Member* member : order_) {
      if (!has_sample(*member->measured, position)) turns.push_back(member);
    }
    if (turns.empty()) return;
    const Probed probed = probe();
    // Fisher and Yates' shuffle; std::shuffle's order is the library's choice.
    std::uint64_t random =
        rounds_.seed ^ fnv1a64(fmt::format("{} {} {}", rounds_.title, rounds_.launch, round));
    for (std::size_t i = turns.size(); i > 1; --i) {
      random += 0x9e3779b97f4a7c15;
      std::swap(turns[i - 1], turns[splitmix64(random) % i]);
    }
    for (Member* member : turns) {
      std::string already = probed.moved ? "probe" : "";
      if (!settled_) already += already.empty() ? "unsettled" : "+unsettled";
      member->attempt([&] { take_turn(*member, position, probed.ns, already); });
    }
  }

  void take_turn(Member& member, Position position, double probe_ns, const std::string& already) {
    Measured& measured = *member.measured;
    Samples samples;
    std::string disturbance;
    for (int repeat = 0;; ++repeat) {
      const auto before = interference_counts(member.cpus, member.worker->process());
      samples = member.worker->sample(1, measured.calibration.runs_per_sample);
      const auto after = interference_counts(member.cpus, member.worker->process());
      disturbance = interference_between(before, after, member.cpus.size());
      settled_ = member.worker->settle();
      const bool may_repeat = repeat < most_repeats_of_a_turn && elapsed() < rounds_.seconds &&
                              2 * measured.repeats <= static_cast<int>(measured.ns.size()) + 1;
      if (disturbance.empty() || !may_repeat) break;
      ++measured.repeats;
    }
    if (!already.empty()) disturbance += (disturbance.empty() ? "" : "+") + already;
    const Sample sample{measured.planned->row,
                        position.launch,
                        position.round,
                        samples.ns.front(),
                        probe_ns,
                        only(samples.h2d_ns),
                        only(samples.kernel_ns),
                        only(samples.d2h_ns),
                        only(samples.e2e_ns),
                        disturbance};
    add_sample(measured, sample);
    rounds_.on_sample(sample);
  }

  const Rounds& rounds_;
  std::vector<Member*> all_;
  std::vector<Member*> order_;  // those that still take turns
  std::vector<double> probes_;
  bool settled_ = true;  // the last turn's worker rests
  double begin_ns_ = 0;
};

}  // namespace

void take_rounds(std::span<Member> members, const Rounds& rounds) { Launch(members, rounds).run(); }

}  // namespace rooflane
