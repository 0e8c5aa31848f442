// Greedy choice and nucleus sampling. See token_sampler.hpp.
#include "generate/token_sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/seeds.hpp"

namespace rooflane::generate {

TokenSampler::TokenSampler(const SamplerSettings& settings, std::int64_t vocabulary)
    : settings_(settings) {
  if (settings.temperature > 0) weights_.reserve(static_cast<std::size_t>(vocabulary));
}

std::int32_t TokenSampler::choose(std::span<const float> logits, std::uint64_t number) {
  std::size_t best = 0;
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > largest) {
      largest = logits[i];
      best = i;
    }
  }
  if (settings_.temperature == 0 || !std::isfinite(largest)) return static_cast<std::int32_t>(best);
  return draw(logits, largest, number);
}

std::int32_t TokenSampler::draw(std::span<const float> logits, float largest,
                                std::uint64_t number) {
  weights_.clear();
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp((double{logits[i]} - largest) / settings_.temperature);
    if (!(weight > 0)) continue;  // NaN, or too unlikely for a double
    weights_.emplace_back(weight, static_cast<std::int32_t>(i));
    sum += weight;
  }
  // A heap gives the likeliest first, and only as many as are needed; the first of equal ones.
  const auto less_likely = [](const auto& x, const auto& y) {
    return x.first < y.first || (x.first == y.first && x.second > y.second);
  };
  auto end = weights_.end();
  if (settings_.top_p < 1) {
    std::make_heap(weights_.begin(), weights_.end(), less_likely);
    double kept = 0;
    do {
      std::pop_heap(weights_.begin(), end, less_likely);
      kept += (--end)->first;
    } while (end != weights_.begin() && kept < settings_.top_p * sum);
    sum = kept;
  } else {
    end = weights_.begin();
  }
  // 53 random bits are a number in [0,1); each token owns as much of [0,sum) as it weighs.
  const std::uint64_t bits = splitmix64(settings_.seed + (number + 1) * 0x9E3779B97F4A7C15);
  double left = static_cast<double>(bits >> 11) * 0x1p-53 * sum;
  auto token = weights_.end() - 1;
  while (token != end && left >= token->first) {
    left -= token->first;
    --token;
  }
  return token->second;
}

}  // namespace rooflane::generate
