// Rounds and slots. See rounds.hpp.
#include "bench/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/seeds.hpp"
#include "core/statistics.hpp"
#include "measure/interference.hpp"
#include "measure/sampler.hpp"

namespace rooflane {

namespace {

constexpr int most_rounds = 1000;
constexpr int most_repeats_of_a_slot = 2;
// A slot of short runs takes so many samples and keeps their median: a neighbour that takes the CPU
// for a millisecond spoils one of them, and the first ones pay for what the slot before left in the
// caches.
constexpr int samples_of_a_slot = 3;
constexpr double short_run_ns = 2e6;

bool has_sample(const Measured& measured, std::int64_t repetition, std::int64_t round) {
  const auto& samples = measured.taken.samples;
  return std::any_of(samples.begin(), samples.end(), [&](const Sample& sample) {
    return sample.launch == repetition && sample.round == round;
  });
}

std::vector<double> times_of(const Measured& measured, std::int64_t repetition) {
  std::vector<double> ns;
  for (const Sample& sample : measured.taken.samples) {
    if (sample.launch == repetition) ns.push_back(sample.ns);
  }
  return ns;
}

std::optional<double> only(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median(values));
}

class Repetition {
 public:
  Repetition(std::span<Member> members, const Rounds& rounds) : rounds_(rounds) {
    for (Member& member : members) {
      if (member.active) order_.push_back(&member);
    }
  }

  void run() {
    const int most = rounds_.exactly > 0 ? rounds_.exactly : most_rounds;
    const std::vector<Member*> all = order_;
    begin_ns_ = steady_clock_ns();
    int round = 0;
    for (; round < most; ++round) {
      std::erase_if(order_, [&](const Member* member) {
        return !member->active || (!member->contender && round >= rounds_.few);
      });
      if (order_.empty() || (rounds_.exactly == 0 && enough(round))) break;
      rounds_.on_progress(progress(round));
      take_round(round);
    }
    for (Member* member : all) {
      const bool narrow = known_enough(*member);
      member->measured->stop = narrow                               ? "interval"
                               : round == most && member->contender ? "rounds"
                                                                    : "time";
    }
  }

 private:
  bool enough(int rounds) const {
    if (rounds < std::max(rounds_.fewest, rounds_.few)) return false;
    return elapsed() >= rounds_.seconds ||
           std::all_of(order_.begin(), order_.end(), [&](const Member* member) {
             return has_min_time(*member) && known_enough(*member);
           });
  }
  double elapsed() const { return (steady_clock_ns() - begin_ns_) * 1e-9; }

  bool has_min_time(const Member& member) const {
    double seconds = 0;
    for (const double ns : times_of(*member.measured, rounds_.repetition)) {
      seconds += ns * 1e-9 * static_cast<double>(member.measured->calibration.runs_per_sample);
    }
    return seconds >= rounds_.min_time;
  }
  bool known_enough(const Member& member) const {
    return median_half_width_pct(times_of(*member.measured, rounds_.repetition)) <=
           rounds_.interval_pct;
  }
  double progress(int round) const {
    const double of_rounds = static_cast<double>(round) / rounds_.fewest;
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
      const double ns = rounds_.use->timed("probe", rounds_.probe);
      probes_.push_back(ns);
      const bool moved = probe_moved(probes_);
      if (!moved || repeat == most_repeats_of_a_slot || elapsed() >= rounds_.seconds) {
        return {ns, moved};
      }
    }
  }

  void take_round(int round) {
    std::vector<Member*> slots;
    for (Member* member : order_) {
      if (!has_sample(*member->measured, rounds_.repetition, round)) slots.push_back(member);
    }
    if (slots.empty()) return;
    const Probed probed = probe();
    // Fisher and Yates' shuffle; std::shuffle's order is the library's choice.
    std::uint64_t random =
        rounds_.seed ^ fnv1a64(fmt::format("{} {} {}", rounds_.title, rounds_.repetition, round));
    for (std::size_t i = slots.size(); i > 1; --i) {
      random += 0x9e3779b97f4a7c15;
      std::swap(slots[i - 1], slots[splitmix64(random) % i]);
    }
    for (Member* member : slots) {
      std::string already = probed.moved ? "probe" : "";
      if (!settled_) already += already.empty() ? "unsettled" : "+unsettled";
      member->attempt([&] { take_slot(*member, round, probed.ns, already); });
    }
  }

  // One sample, as the worker takes it: timed runs, and what is run before them.
  Samples sample(Member& member, int count) {
    const std::int64_t runs = member.measured->calibration.runs_per_sample;
    const double begin_ns = steady_clock_ns();
    Samples samples = member.worker->sample(count, runs);
    double timed = 0;
    for (const double ns : samples.ns) timed += ns * 1e-9 * static_cast<double>(runs);
    rounds_.use->add("timed runs", timed);
    rounds_.use->add("runs before", (steady_clock_ns() - begin_ns) * 1e-9 - timed);
    return samples;
  }

  void take_slot(Member& member, int round, double probe_ns, const std::string& already) {
    Measured& measured = *member.measured;
    const bool is_short = measured.calibration.run_ns <= short_run_ns && !measured.is_cold();
    Samples samples;
    std::string disturbance;
    for (int repeat = 0;; ++repeat) {
      const auto before = interference_counts(member.cpus, member.worker->process());
      samples = sample(member, is_short ? samples_of_a_slot : 1);
      const auto after = interference_counts(member.cpus, member.worker->process());
      disturbance = interference_between(before, after, member.cpus.size());
      settled_ = rounds_.use->timed("settle", [&] { return member.worker->settle(); });
      const bool may_repeat = repeat < most_repeats_of_a_slot && elapsed() < rounds_.seconds &&
                              2 * measured.repeats <= static_cast<int>(measured.ns.size()) + 1;
      if (disturbance.empty() || !may_repeat) break;
      ++measured.repeats;
    }
    if (!already.empty()) disturbance += (disturbance.empty() ? "" : "+") + already;
    const Sample taken{measured.planned->row,
                       rounds_.repetition,
                       round,
                       median(samples.ns),
                       probe_ns,
                       only(samples.h2d_ns),
                       only(samples.kernel_ns),
                       only(samples.d2h_ns),
                       only(samples.e2e_ns),
                       disturbance};
    add_sample(measured, taken);
    rounds_.on_sample(taken);
  }

  const Rounds& rounds_;
  std::vector<Member*> order_;  // those that still take slots
  std::vector<double> probes_;
  bool settled_ = true;  // the last slot's worker rests
  double begin_ns_ = 0;
};

}  // namespace

void take_rounds(std::span<Member> members, const Rounds& rounds) {
  Repetition(members, rounds).run();
}

}  // namespace rooflane
