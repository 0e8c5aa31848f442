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

// Guesses may lose so much of the time: so many tokens, and a share of all. Together less than 3 %
// from 128 tokens on.
constexpr double tokens_to_lose = 2, share_to_lose = 0.012;

// How often a guess of each class of trust is believed to be right before anything is seen, and as
// how many guesses that counts: text that agrees in a few tokens is copied more often than not.
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
    logits_.resize(static_cast<std::size_t>(draft_rows.back() * model.sizes().vocabulary));
  }
  time_passes();
  const Stopwatch watch;
  const std::span<const float> logits = model.prefill(prompt, 0);
  counts_.prompt_seconds = watch.seconds();
  take(logits);
}

// Of tokens behind the prompt, whose place in the caches is written anew later. The first pass
// touches its memory.
void Decoder::time_passes() {
  for (Width& width : widths_) {
    const std::vector<std::int32_t> any(static_cast<std::size_t>(width.rows), text_.front());
    model_.verify(any, prompt_);
    for (int i = 0; i < 2; ++i) {
      const Stopwatch watch;
      model_.verify(any, prompt_);
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
      if (!width->checked) check(*width);
      counts_.differs ? decode_one() : verify(*width, trust);
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
  keep(logits);
}

std::span<float> Decoder::kept(std::int64_t token) {
  const std::int64_t row = token % draft_rows.back(), size = model_.sizes().vocabulary;
  return std::span(logits_).subspan(static_cast<std::size_t>(row * size),
                                    static_cast<std::size_t>(size));
}

// The logits behind the token before the last one.
void Decoder::keep(std::span<const float> logits) {
  const bool checked =
      std::all_of(widths_.begin(), widths_.end(), [](const Width& width) { return width.checked; });
  if (checked) return;
  std::copy(logits.begin(), logits.end(), kept(size() - 2).begin());
  ++kept_;
}

Decoder::Width* Decoder::worth(int trust) {
  if (counts_.differs || one_seconds_ == 0) return nullptr;
  if (guessing_ == Guessing::always) {
    Width& width = widths_.back();
    return width.checked || kept_ >= width.rows ? &width : nullptr;
  }
  const Record& record = records_[static_cast<std::size_t>(trust)];
  const double right = record.right / record.all;
  Width* best = nullptr;
  double most = 1;  // tokens in the time of one
  const double allowed = tokens_to_lose * one_seconds_ + share_to_lose * counts_.seconds;
  for (Width& width : widths_) {
    const double seconds = width.seconds + static_cast<double>(width.rows - 1) * draft_seconds_;
    double tokens = 1, chance = 1;
    for (std::int64_t i = 1; i < width.rows; ++i) tokens += chance *= right;
    // The check takes a pass from which nothing is gained.
    const double risk = seconds - one_seconds_ + (width.checked ? 0 : width.seconds);
    const double gain = tokens * one_seconds_ / seconds;
    if (gain <= most || lost_ + risk > allowed || (!width.checked && kept_ < width.rows)) continue;
    most = gain;
    best = &width;
  }
  return best;
}

// The last tokens that were decoded one by one again, together: bits must be the same. What the
// caches hold of them is then the same, too.
void Decoder::check(Width& width) {
  const std::int64_t past = size() - 1 - width.rows;
  const auto tokens = std::span(text_).subspan(static_cast<std::size_t>(past),
                                               static_cast<std::size_t>(width.rows));
  const std::span<const float> logits = model_.verify(tokens, past);
  width.checked = true;
  lost_ += width.seconds;
  ++counts_.passes;
  const auto vocabulary = static_cast<std::size_t>(model_.sizes().vocabulary);
  for (std::int64_t i = 0; i < width.rows; ++i) {
    const float* const together = logits.data() + static_cast<std::size_t>(i) * vocabulary;
    const std::span<const float> alone = kept(past + i);
    counts_.differs |= std::memcmp(alone.data(), together, alone.size_bytes()) != 0;
  }
  if (!counts_.differs) return;
  for (std::int64_t i = 0; i < width.rows; ++i) {
    model_.decode(tokens[static_cast<std::size_t>(i)], past + i);
  }
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
    const std::span<const float> of_row = logits.subspan(row * vocabulary, vocabulary);
    take(of_row);
    keep(of_row);
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
