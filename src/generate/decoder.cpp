// See decoder.hpp.
#include "generate/decoder.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/stopwatch.hpp"

namespace rooflane::generate {
namespace {

// A new time counts this much, as depth grows slowly. What takes more than twice as long was
// disturbed by something else.
constexpr double weight_of_new = 0.25, most_times = 2;
double undisturbed(double known, double now) {
  return known == 0 ? now : std::min(now, most_times * known);
}
void blend(double& known, double now) {
  known = known == 0 ? now : known + weight_of_new * (undisturbed(known, now) - known);
}

// Guesses may lose so much of the time: of a token, and a share of all. Together 3 % of 60 tokens.
constexpr double tokens_to_lose = 1, share_to_lose = 0.012;

// The prior of each class of trust: how often a guess is right, and how many guesses that prior
// counts for: text that agrees in a few tokens is copied more often than not.
constexpr double believed[Drafter::trusts] = {0, 0.15, 0.35, 0.55, 0.7, 0.8, 0.85, 0.9};
constexpr double weight_of_belief = 3;

}  // namespace

Decoder::Decoder(LanguageModel& model, TokenSampler& sampler, Drafter* drafter, Guessing guessing,
                 std::span<const std::int32_t> prompt)
    : model_(model),
      sampler_(sampler),
      drafter_(drafter),
      guessing_(guessing),
      prompt_(std::ssize(prompt)),
      text_(prompt.begin(), prompt.end()) {
  for (int trust = 0; trust < Drafter::trusts; ++trust) {
    records_.push_back({weight_of_belief * believed[trust], weight_of_belief});
  }
  if (drafter != nullptr) {
    for (const std::int64_t rows : draft_rows) {
      if (guessing == Guessing::where_it_pays || rows == draft_rows.back())
        widths_.push_back({rows, 0});
    }
  }
  try_passes();
  const Stopwatch watch;
  const std::span<const float> logits = model.prefill(prompt, 0);
  counts_.prompt_seconds = watch.seconds();
  take(logits);
}

// Times the passes and compares their logits with those of decoding one by one, bit for bit; equal
// logits mean equal caches. Its tokens lie behind the future prompt: their place in the caches is
// written again later.
void Decoder::try_passes() {
  if (widths_.empty()) return;
  std::vector<std::int32_t> tokens;
  std::vector<float> alone;
  for (std::int64_t i = 0; i < draft_rows.back(); ++i) {
    tokens.push_back(text_[static_cast<std::size_t>(i % prompt_)]);
    const std::span<const float> logits = model_.decode(tokens.back(), prompt_ + i);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  for (Width& width : widths_) {
    const auto first = std::span(tokens).first(static_cast<std::size_t>(width.rows));
    // The first pass touches its memory.
    const std::span<const float> logits = model_.verify(first, prompt_);
    counts_.differs |= std::memcmp(alone.data(), logits.data(), logits.size_bytes()) != 0;
    for (int i = 0; i < 2; ++i) {
      const Stopwatch watch;
      model_.verify(first, prompt_);
      const double seconds = watch.seconds();
      width.seconds = i == 0 ? seconds : std::min(width.seconds, seconds);
    }
  }
}

void Decoder::take(std::span<const float> logits) {
  const auto number = static_cast<std::uint64_t>(size() - prompt_);
  const std::int32_t token = sampler_.choose(logits, number);
  text_.push_back(token);
  chosen_.push_back({token, logits});
}

Decoder::Token Decoder::next() {
  if (given_ == chosen_.size()) {
    chosen_.clear();
    given_ = 0;
    const Stopwatch watch;
    const int trust = drafter_ == nullptr ? 0 : drafter_->trust(text_);
    Width* const width = trust == 0 ? nullptr : worth(trust);
    if (width == nullptr) {
      decode_one();
    } else {
      verify(*width, trust);
    }
    counts_.tokens += std::ssize(chosen_);
    counts_.seconds += watch.seconds();
  }
  return chosen_[given_++];
}

void Decoder::decode_one() {
  const Stopwatch watch;
  const std::int64_t past = size() - 1;
  const std::span<const float> logits = model_.decode(text_.back(), past);
  take(logits);
  blend(one_seconds_, watch.seconds());
  ++counts_.passes;
  counts_.bytes += model_.decode_bytes(past);
}

Decoder::Width* Decoder::worth(int trust) {
  if (counts_.differs) return nullptr;
  if (guessing_ == Guessing::always) return &widths_.back();
  if (one_seconds_ == 0) return nullptr;
  const Record& record = records_[static_cast<std::size_t>(trust)];
  const double right = record.right / record.all;
  Width* best = nullptr;
  double most = 1;  // tokens in the time of one
  const double allowed = tokens_to_lose * one_seconds_ + share_to_lose * counts_.seconds;
  for (Width& width : widths_) {
    const double seconds = width.seconds + static_cast<double>(width.rows - 1) * draft_seconds_;
    double tokens = 1, chance = 1;
    for (std::int64_t i = 1; i < width.rows; ++i) tokens += chance *= right;
    const double gain = tokens * one_seconds_ / seconds;
    if (gain <= most || lost_ + seconds - one_seconds_ > allowed) continue;
    most = gain;
    best = &width;
  }
  return best;
}

void Decoder::verify(Width& width, int trust) {
  const Stopwatch watch;
  const std::int64_t past = size() - 1;
  const double expected = width.seconds + static_cast<double>(width.rows - 1) * draft_seconds_;
  const std::span<const std::int32_t> draft = drafter_->draft(text_, width.rows - 1);
  blend(draft_seconds_, watch.seconds() / static_cast<double>(width.rows - 1));
  std::vector<std::int32_t> tokens = {text_.back()};
  tokens.insert(tokens.end(), draft.begin(), draft.end());
  const double before = watch.seconds();
  const std::span<const float> logits = model_.verify(tokens, past);
  blend(width.seconds, watch.seconds() - before);
  const auto vocabulary = static_cast<std::size_t>(model_.sizes().vocabulary);
  std::size_t row = 0;
  do {
    take(logits.subspan(row * vocabulary, vocabulary));
    ++row;
  } while (row < tokens.size() && text_.back() == tokens[row]);
  ++counts_.passes;
  counts_.bytes += model_.decode_bytes(past);
  counts_.drafted += std::ssize(draft);
  const auto accepted = static_cast<double>(row - 1);
  counts_.accepted += static_cast<std::int64_t>(row - 1);
  Record& record = records_[static_cast<std::size_t>(trust)];
  record.right += accepted;
  record.all += accepted + (row < tokens.size() ? 1 : 0);
  // What was gained before does not pay for what is lost later.
  const double pass = undisturbed(expected, watch.seconds());
  lost_ = std::max(0.0, lost_ + pass - (accepted + 1) * one_seconds_);
}

}  // namespace rooflane::generate
