// Slots and rounds of whole models. See rounds.hpp.
#include "model/rounds.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/seeds.hpp"
#include "core/statistics.hpp"
#include "measure/interference.hpp"
#include "measure/sampler.hpp"

namespace rooflane::model {

Choice choice_of(const Phase& phase, const std::vector<std::uint8_t>& of_step) {
  Choice choice(phase.calls.size());
  for (std::size_t call = 0; call < choice.size(); ++call) {
    choice[call] = of_step[phase.calls[call].step];
  }
  return choice;
}

std::vector<Choice> as_it_is(const Chain& chain) {
  std::vector<Choice> choices;
  for (const Phase& phase : chain.instance().phases) {
    choices.emplace_back(phase.calls.size(), std::uint8_t{0});
  }
  return choices;
}

namespace {

constexpr int fewest_in_haste = 3;
constexpr int most_rounds = 1000;
constexpr int most_repeats_of_a_turn = 2;
// The chain as it is has two slots in a round, since all swaps are compared with it.
constexpr std::size_t plain_turns = 2;
// A slot takes at least so long: a timer interrupt of a few microseconds is lost in it.
constexpr double least_turn_ns = 5e6;
constexpr double most_runs = 1000;
// A longer run displaces by itself what the slot before left in the caches: it moves more than 0.5
// GB at the 10 GB/s that any machine has.
constexpr double long_run_ns = 5e7;

std::uint64_t mixed(std::uint64_t x, std::uint64_t y) {
  return splitmix64(x * 0x9e3779b97f4a7c15 + y + 1);
}

// The runners that some swap gives a step, and 0.
std::vector<std::vector<std::uint8_t>> options_of(const Phase& phase,
                                                  const std::vector<Swap>& swaps) {
  std::vector<std::vector<std::uint8_t>> options(phase.steps.size(), {0});
  for (const Swap& swap : swaps) {
    for (std::size_t step = 0; step < options.size(); ++step) {
      const std::uint8_t runner = swap.of_step[step];
      if (std::find(options[step].begin(), options[step].end(), runner) == options[step].end()) {
        options[step].push_back(runner);
      }
    }
  }
  return options;
}

struct TurnTimes {
  double whole = 0;
  std::vector<double> calls;
};

class PhaseRun {
 public:
  PhaseRun(Chain& chain, std::size_t phase, const std::vector<Swap>& swaps)
      : chain_(chain), phase_(chain.phase(phase)), options_(options_of(phase_, swaps)) {
    result_.phase = phase;
    result_.swaps = swaps;
    result_.swap_whole.resize(swaps.size());
    result_.swap_steps.resize(swaps.size());
    base_ = choice_of(phase_, std::vector<std::uint8_t>(phase_.steps.size(), 0));
    for (const auto& options : options_) draws_ = std::max(draws_, options.size());
    if (draws_ == 1) draws_ = 0;
    calibrate();
  }

  // As it is, the swaps, the drawn runs. Every swap is held against the first.
  std::size_t turns() const { return plain_turns + result_.swaps.size() + draws_; }

  // `may_repeat`: there is time to repeat slots.
  void begin_round(int round, bool may_repeat) {
    round_ = round;
    may_repeat_ = may_repeat;
    result_.whole.push_back(0);
    result_.steps.emplace_back(phase_.steps.size());
    if (draws_ == 0) return;
    result_.drawn.emplace_back(phase_.steps.size());
    counts_.assign(phase_.steps.size(), {});
    for (std::size_t step = 0; step < phase_.steps.size(); ++step) {
      const std::size_t runners = chain_.runners(result_.phase, phase_.steps[step].calls[0]).size();
      result_.drawn.back()[step].assign(runners, 0);
      counts_[step].assign(runners, 0);
    }
  }

  void take_turn(std::size_t turn) {
    if (turn < plain_turns) {
      const TurnTimes times = timed(base_);
      const std::vector<double> steps = by_step(times);
      result_.whole.back() += times.whole / plain_turns;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        result_.steps.back()[i] += steps[i] / plain_turns;
      }
      return;
    }
    const std::size_t swap = turn - plain_turns;
    if (swap < result_.swaps.size()) {
      const TurnTimes times = timed(choice_of(phase_, result_.swaps[swap].of_step));
      result_.swap_whole[swap].push_back(times.whole);
      result_.swap_steps[swap].push_back(by_step(times));
      return;
    }
    const Choice choice = drawn_choice(swap - result_.swaps.size());
    const TurnTimes times = timed(choice);
    for (std::size_t call = 0; call < choice.size(); ++call) {
      const std::size_t step = phase_.calls[call].step;
      result_.drawn.back()[step][choice[call]] += times.calls[call];
      ++counts_[step][choice[call]];
    }
  }

  void end_round() {
    if (draws_ == 0) return;
    for (std::size_t step = 0; step < counts_.size(); ++step) {
      for (std::size_t runner = 0; runner < counts_[step].size(); ++runner) {
        if (counts_[step][runner] > 0) result_.drawn.back()[step][runner] /= counts_[step][runner];
      }
    }
  }

  bool known_enough(double interval_pct) const {
    const auto enough = [&](const std::vector<double>& ns) {
      return median_half_width_pct(ns) <= interval_pct;
    };
    return enough(result_.whole) &&
           std::all_of(result_.swap_whole.begin(), result_.swap_whole.end(), enough);
  }

  // The round that ended last, and such a round of before.
  PhaseRound last() const {
    PhaseRound round;
    round.runs_per_turn = result_.runs_per_turn;
    round.whole = result_.whole.back();
    round.steps = result_.steps.back();
    round.disturbed = result_.disturbed;
    round.repeated = result_.repeated;
    for (std::size_t swap = 0; swap < result_.swaps.size(); ++swap) {
      round.swap_whole.push_back(result_.swap_whole[swap].back());
      round.swap_steps.push_back(result_.swap_steps[swap].back());
    }
    if (draws_ > 0) round.drawn = result_.drawn.back();
    return round;
  }
  void add(const PhaseRound& round) {
    require_fitting(round);
    result_.runs_per_turn = round.runs_per_turn;
    result_.whole.push_back(round.whole);
    result_.steps.push_back(round.steps);
    for (std::size_t swap = 0; swap < result_.swaps.size(); ++swap) {
      result_.swap_whole[swap].push_back(round.swap_whole[swap]);
      result_.swap_steps[swap].push_back(round.swap_steps[swap]);
    }
    if (draws_ > 0) result_.drawn.push_back(round.drawn);
    result_.disturbed = round.disturbed;
    result_.repeated = round.repeated;
  }

  PhaseRounds take() { return std::move(result_); }

 private:
  void require_fitting(const PhaseRound& round) const {
    const std::size_t steps = phase_.steps.size(), swaps = result_.swaps.size();
    bool fits = round.runs_per_turn >= 1 && round.steps.size() == steps &&
                round.swap_whole.size() == swaps && round.swap_steps.size() == swaps &&
                round.drawn.size() == (draws_ > 0 ? steps : 0);
    for (const auto& of_swap : round.swap_steps) fits = fits && of_swap.size() == steps;
    for (std::size_t step = 0; fits && step < round.drawn.size(); ++step) {
      fits = round.drawn[step].size() ==
             chain_.runners(result_.phase, phase_.steps[step].calls[0]).size();
    }
    if (!fits) throw argument_error("--resume: the earlier rounds are of other steps");
  }

  // Also warms everything up, and runs every plan once.
  void calibrate() {
    std::vector<double> unused(phase_.calls.size());
    for (const Swap& swap : result_.swaps) {
      chain_.run(result_.phase, choice_of(phase_, swap.of_step), unused);
    }
    chain_.run(result_.phase, base_, unused);
    // A thread preempted in the only run would leave short runs with one run a slot for good.
    constexpr int timings = 5;
    run_ns_ = chain_.run(result_.phase, base_, unused);
    for (int i = 1; i < timings && run_ns_ < long_run_ns; ++i) {
      run_ns_ = std::min(run_ns_, chain_.run(result_.phase, base_, unused));
    }
    result_.runs_per_turn = static_cast<std::int64_t>(
        std::clamp(std::ceil(least_turn_ns / std::max(run_ns_, 1.0)), 1.0, most_runs));
  }

  // In the d-th of the drawn runs of a round a call takes the d-th of its runners, counted from one
  // that the round draws for it.
  Choice drawn_choice(std::size_t d) const {
    Choice choice(phase_.calls.size());
    for (std::size_t call = 0; call < choice.size(); ++call) {
      const auto& options = options_[phase_.calls[call].step];
      const std::uint64_t first =
          mixed(mixed(chain_.settings().seed, static_cast<std::uint64_t>(round_)), call);
      choice[call] = options[(first + d) % options.size()];
    }
    return choice;
  }

  TurnTimes timed(const Choice& choice) {
    const std::vector<int>& placement = machine().placement;
    const auto used =
        std::min(placement.size(), static_cast<std::size_t>(chain_.settings().threads));
    const std::span<const int> cpus(placement.data(), used);
    TurnTimes times;
    for (int repeat = 0;; ++repeat) {
      times = {0, std::vector<double>(phase_.calls.size())};
      if (run_ns_ < long_run_ns) {
        std::vector<double> unused(phase_.calls.size());
        chain_.run(result_.phase, choice, unused);
      }
      const InterferenceCounts before = interference_counts(cpus, getpid());
      for (std::int64_t i = 0; i < result_.runs_per_turn; ++i) {
        times.whole += chain_.run(result_.phase, choice, times.calls);
      }
      const InterferenceCounts after = interference_counts(cpus, getpid());
      const bool disturbed = !interference_between(before, after, cpus.size()).empty();
      if (!disturbed) break;
      if (repeat == most_repeats_of_a_turn || !may_repeat_) {
        ++result_.disturbed;
        break;
      }
      ++result_.repeated;
    }
    const auto runs = static_cast<double>(result_.runs_per_turn);
    times.whole /= runs;
    for (double& ns : times.calls) ns /= runs;
    return times;
  }

  std::vector<double> by_step(const TurnTimes& times) const {
    std::vector<double> steps(phase_.steps.size());
    for (std::size_t call = 0; call < times.calls.size(); ++call) {
      steps[phase_.calls[call].step] += times.calls[call];
    }
    return steps;
  }

  Chain& chain_;
  const Phase& phase_;
  std::vector<std::vector<std::uint8_t>> options_;
  std::size_t draws_ = 1;
  Choice base_;
  double run_ns_ = 0;
  int round_ = 0;
  std::vector<std::vector<int>> counts_;
  PhaseRounds result_;
  bool may_repeat_ = true;
};

// Every slot of every phase once, in an order that depends on seed and round.
void take_round(std::vector<PhaseRun>& phases, std::uint64_t seed, int round, bool may_repeat) {
  std::vector<std::pair<std::size_t, std::size_t>> order;  // phase, slot
  for (std::size_t p = 0; p < phases.size(); ++p) {
    phases[p].begin_round(round, may_repeat);
    for (std::size_t turn = 0; turn < phases[p].turns(); ++turn) order.emplace_back(p, turn);
  }
  std::uint64_t random = mixed(seed, static_cast<std::uint64_t>(round));
  for (std::size_t i = order.size(); i > 1; --i) {  // Fisher and Yates
    random = splitmix64(random + 0x9e3779b97f4a7c15);
    std::swap(order[i - 1], order[random % i]);
  }
  for (const auto& [phase, turn] : order) phases[phase].take_turn(turn);
  for (PhaseRun& phase : phases) phase.end_round();
}

}  // namespace

std::vector<std::vector<PhaseRounds>> take_rounds(const std::vector<ChainSwaps>& chains,
                                                  const RoundsSettings& settings) {
  std::vector<PhaseRun> phases;
  for (const ChainSwaps& each : chains) {
    for (std::size_t p = 0; p < each.of_phase.size(); ++p) {
      phases.emplace_back(*each.chain, p, each.of_phase[p]);
    }
  }
  const std::uint64_t seed = chains.front().chain->settings().seed;
  const double begin_ns = steady_clock_ns();
  const auto elapsed = [&] { return (steady_clock_ns() - begin_ns) * 1e-9; };
  const auto add = [&](const Round& round) {
    if (round.size() != phases.size()) {
      throw argument_error("--resume: the earlier rounds are of other phases");
    }
    for (std::size_t p = 0; p < phases.size(); ++p) phases[p].add(round[p]);
  };
  std::for_each(settings.earlier.begin(), settings.earlier.end(), add);
  const auto first = static_cast<int>(settings.earlier.size());
  for (int round = first; round < most_rounds; ++round) {
    const bool late = elapsed() >= settings.seconds;
    if (late && round >= fewest_in_haste) break;
    if (round >= settings.fewest &&
        std::all_of(phases.begin(), phases.end(), [&](const PhaseRun& phase) {
          return phase.known_enough(settings.interval_pct);
        })) {
      break;
    }
    if (settings.progress) settings.progress(round);
    take_round(phases, seed, round, !late);
    if (!settings.on_round) continue;
    Round taken;
    for (const PhaseRun& phase : phases) taken.push_back(phase.last());
    settings.on_round(taken);
  }
  std::vector<std::vector<PhaseRounds>> result;
  auto phase = phases.begin();
  for (const ChainSwaps& each : chains) {
    result.emplace_back();
    for (std::size_t p = 0; p < each.of_phase.size(); ++p)
      result.back().push_back((phase++)->take());
  }
  return result;
}

std::vector<PhaseRounds> take_rounds(Chain& chain, const std::vector<std::vector<Swap>>& swaps,
                                     const RoundsSettings& settings) {
  return take_rounds({{&chain, swaps}}, settings).front();
}

}  // namespace rooflane::model
