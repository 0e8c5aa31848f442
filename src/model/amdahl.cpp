// Shares, predictions and proofs. See amdahl.hpp.
#include "model/amdahl.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/seeds.hpp"

namespace rooflane::model {
namespace {

// As median_interval has: the ends of a 95 % interval then repeat from seed to seed.
constexpr int resamples = 1000;

using Rounds = std::vector<std::size_t>;  // which of the rounds, some more than once

Rounds all_rounds(std::size_t count) {
  Rounds rounds(count);
  std::iota(rounds.begin(), rounds.end(), 0);
  return rounds;
}

template <class Value>
double median_over(const Rounds& rounds, const Value& value) {
  std::vector<double> values;
  values.reserve(rounds.size());
  for (const std::size_t round : rounds) values.push_back(value(round));
  return median(values);
}

// A figure of rounds, and its spread over rounds drawn with replacement.
Figure bootstrap(std::size_t count, std::uint64_t seed,
                 const std::function<double(const Rounds&)>& figure) {
  Figure result;
  result.value = figure(all_rounds(count));
  std::vector<double> values;
  Rounds drawn(count);
  std::uint64_t random = splitmix64(seed + 1);
  for (int i = 0; i < resamples; ++i) {
    for (std::size_t& round : drawn) {
      random = splitmix64(random + 0x9e3779b97f4a7c15);
      round = static_cast<std::size_t>((random >> 32) * count >> 32);
    }
    values.push_back(figure(drawn));
  }
  result.interval = {quantile(values, 0.025), quantile(values, 0.975)};
  return result;
}

double share(const PhaseRounds& rounds, const Rounds& of, std::size_t step) {
  return median_over(of, [&](std::size_t r) { return rounds.steps[r][step] / rounds.whole[r]; });
}

// The time of a step's calls over their time with the runner; 1 where one of the two was never
// drawn.
double ratio(const PhaseRounds& rounds, const Rounds& of, std::size_t step, std::uint8_t runner) {
  return median_over(of, [&](std::size_t r) {
    const std::vector<double>& drawn = rounds.drawn[r][step];
    return drawn[0] > 0 && drawn[runner] > 0 ? drawn[0] / drawn[runner] : 1.0;
  });
}

double predicted(const PhaseRounds& rounds, const Rounds& of, const Swap& swap) {
  double rest = 1;
  for (std::size_t step = 0; step < swap.of_step.size(); ++step) {
    if (swap.of_step[step] == 0) continue;
    const double f = share(rounds, of, step);
    rest += f / ratio(rounds, of, step, swap.of_step[step]) - f;
  }
  return 1 / rest;
}

}  // namespace

std::vector<Share> shares_of(const PhaseRounds& rounds, std::uint64_t seed) {
  std::vector<Share> shares;
  const std::size_t count = rounds.whole.size();
  const std::size_t steps = rounds.steps.empty() ? 0 : rounds.steps.front().size();
  for (std::size_t step = 0; step < steps; ++step) {
    Share result;
    result.share =
        bootstrap(count, seed, [&](const Rounds& of) { return share(rounds, of, step); });
    const double left = 1 - result.share.value;
    result.limit = left > 0 ? 1 / left : std::numeric_limits<double>::infinity();
    shares.push_back(result);
  }
  return shares;
}

Proof prove(const PhaseRounds& rounds, std::size_t index, std::uint64_t seed) {
  const Swap& swap = rounds.swaps[index];
  const std::size_t count = rounds.whole.size();
  Proof proof;
  proof.predicted =
      bootstrap(count, seed, [&](const Rounds& of) { return predicted(rounds, of, swap); });
  proof.measured = bootstrap(count, seed, [&](const Rounds& of) {
    return median_over(
        of, [&](std::size_t r) { return rounds.whole[r] / rounds.swap_whole[index][r]; });
  });
  proof.difference = 100 * (proof.measured.value - proof.predicted.value);

  // With T the whole as it is, P the predicted and M the measured time: T/M - T/P = (T/M)·(P-M)/P,
  // and P - M is a sum over steps.
  const Rounds all = all_rounds(count);
  for (std::size_t step = 0; step < swap.of_step.size(); ++step) {
    const double f = share(rounds, all, step);
    const bool swapped = swap.of_step[step] != 0;
    const double expected = swapped ? f / ratio(rounds, all, step, swap.of_step[step]) : f;
    const double got = median_over(
        all, [&](std::size_t r) { return rounds.swap_steps[index][r][step] / rounds.whole[r]; });
    const double points = 100 * proof.measured.value * proof.predicted.value * (expected - got);
    (swapped ? proof.from_swapped : proof.from_others) += points;
  }
  return proof;
}

}  // namespace rooflane::model
