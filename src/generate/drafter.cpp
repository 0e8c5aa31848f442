// See drafter.hpp.
#include "generate/drafter.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rooflane::generate {

int NgramDrafter::trust(std::span<const std::int32_t> text) {
  const std::int64_t size = std::ssize(text);
  std::int64_t longest = 0;
  for (std::int64_t end = size - 1; end > 0 && longest < trusts - 1; --end) {
    std::int64_t same = 0;
    while (same < std::min<std::int64_t>(end, trusts - 1) &&
           text[end - 1 - same] == text[size - 1 - same]) {
      ++same;
    }
    if (same <= longest) continue;
    longest = same;
    behind_ = end;
  }
  return static_cast<int>(longest);
}

std::span<const std::int32_t> NgramDrafter::draft(std::span<const std::int32_t> text,
                                                  std::int64_t count) {
  draft_.clear();
  for (std::int64_t i = behind_; std::ssize(draft_) < count; ++i) {
    // Beyond the text's end it repeats itself.
    draft_.push_back(i < std::ssize(text) ? text[i] : draft_[i - std::ssize(text)]);
  }
  return draft_;
}

namespace {

const Gguf& of_vocabulary(const Gguf& gguf, const Gguf& large) {
  const std::int64_t size = read_llama_sizes(gguf).vocabulary;
  const std::int64_t wanted = read_llama_sizes(large).vocabulary;
  if (size != wanted) {
    throw gguf.bad(fmt::format("a vocabulary of {} tokens; drafts for {} need its {}", size,
                               large.path(), wanted));
  }
  const std::string_view key = "tokenizer.ggml.tokens";
  const GgufValue* const tokens = gguf.find_value(key);
  const GgufValue* const others = large.find_value(key);
  const bool same =
      tokens == nullptr || others == nullptr ? tokens == others : tokens->bytes == others->bytes;
  if (!same) {
    throw gguf.bad(fmt::format("another vocabulary ('{}') than that of {}", key, large.path()));
  }
  return gguf;
}

}  // namespace

ModelDrafter::ModelDrafter(const Gguf& gguf, const Gguf& large,
                           std::span<const std::int32_t> prompt, std::int64_t tokens,
                           const Catalogue& catalogue, const RunnerSettings& runner,
                           const SamplerSettings& sampler)
    : prompt_(std::ssize(prompt)),
      tokens_(tokens),
      model_(of_vocabulary(gguf, large), {prompt_, tokens}, catalogue, runner),
      sampler_(sampler, model_.sizes().vocabulary),
      seen_(prompt.begin(), prompt.end()) {
  model_.prefill(prompt, 0);
}

int ModelDrafter::trust(std::span<const std::int32_t> text) {
  return std::ssize(text) < tokens_ ? 1 : 0;
}

std::span<const std::int32_t> ModelDrafter::draft(std::span<const std::int32_t> text,
                                                  std::int64_t count) {
  const auto same = static_cast<std::size_t>(
      std::mismatch(seen_.begin(), seen_.end(), text.begin(), text.end()).first - seen_.begin());
  // The last token is read again where it was: its logits are asked for.
  seen_.resize(std::min(same, text.size() - 1));
  const auto read = [&](std::int32_t token) {
    seen_.push_back(token);
    return model_.decode(token, std::ssize(seen_) - 1);
  };
  while (seen_.size() + 1 < text.size()) read(text[seen_.size()]);
  draft_.assign(1, text.back());
  for (std::int64_t i = 0; i < count && std::ssize(seen_) < tokens_; ++i) {
    const auto number = static_cast<std::uint64_t>(std::ssize(text) - prompt_ + i);
    draft_.push_back(sampler_.choose(read(draft_.back()), number));
  }
  // Where the room is used up any token will do.
  draft_.resize(static_cast<std::size_t>(count) + 1, text.back());
  return std::span(draft_).subspan(1);
}

}  // namespace rooflane::generate
