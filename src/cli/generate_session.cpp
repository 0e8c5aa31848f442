// See generate_session.hpp.
#include "cli/generate_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/generate_times.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/stopwatch.hpp"
#include "core/text.hpp"
#include "generate/language_model.hpp"
#include "measure/stream_bench.hpp"

namespace rooflane {
namespace {

// What llama-bench calls pp512; and tokens before and behind it that one request may ask for.
constexpr std::int64_t prompt_tokens = 512;
constexpr std::int64_t most_depth = 4096;
constexpr std::int64_t most_tokens = 1024;

// Tokens that the session has room for.
std::int64_t room_in(const Gguf& gguf) {
  const std::int64_t context = generate::read_llama_sizes(gguf).context;
  if (context < prompt_tokens) {
    throw gguf.bad(fmt::format("the model's context is {} tokens; a session's prompts have {}",
                               context, prompt_tokens));
  }
  return std::min(context, most_depth + most_tokens);
}

struct Answer {
  double ns = 0;
  double bytes = 0;
  double operations = 0;
};

class Session {
 public:
  Session(const Gguf& gguf, const Catalogue& catalogue, const generate::RunnerSettings& settings)
      : settings_(settings),
        room_(room_in(gguf)),
        model_(gguf, {prompt_tokens, room_}, catalogue, settings),
        reader_(settings.threads, footprint()) {
    for (std::int64_t i = 0; i < room_; ++i) {
      const std::uint64_t random = splitmix64(static_cast<std::uint64_t>(i));
      ids_.push_back(static_cast<std::int32_t>(
          random % static_cast<std::uint64_t>(model_.sizes().vocabulary)));
    }
  }

  Answer answer(const std::string& line) {
    const std::vector<std::string_view> words = split(line, ' ');
    if (line == "read") return read();
    if (line == "peak") return peak();
    const bool three = words.size() == 3;
    const std::int64_t depth = three ? parse_integer(words[1]).value_or(-1) : -1;
    const std::int64_t tokens = three ? parse_integer(words[2]).value_or(-1) : -1;
    const bool known = words[0] == "decode" || (words[0] == "prefill" && tokens == prompt_tokens);
    if (!known || depth < 0 || depth % prompt_tokens != 0 || tokens < 1 || tokens > most_tokens ||
        depth > room_ - tokens) {
      throw argument_error(fmt::format(
          "request '{}': allowed are read, peak, prefill DEPTH {} and decode DEPTH TOKENS, DEPTH a "
          "multiple of {}, all within {} tokens",
          line, prompt_tokens, prompt_tokens, room_));
    }
    for (std::int64_t past = 0; past < depth; past += prompt_tokens) prefill(past);
    if (words[0] == "decode") return decode(depth, tokens);
    return {prefill(depth), 0, model_.prefill_operations(depth)};
  }

 private:
  std::size_t footprint() const { return static_cast<std::size_t>(model_.decode_bytes(0)); }

  double prefill(std::int64_t past) {
    const Stopwatch watch;
    model_.prefill(std::span(ids_).first(prompt_tokens), past);
    return watch.seconds() * 1e9;
  }

  Answer decode(std::int64_t past, std::int64_t tokens) {
    Answer answer;
    for (std::int64_t i = past; i < past + tokens; ++i) {
      answer.bytes += model_.decode_bytes(i);
      answer.operations += model_.decode_operations(i);
    }
    const Stopwatch watch;
    for (std::int64_t i = past; i < past + tokens; ++i) model_.decode(ids_[i], i);
    answer.ns = watch.seconds() * 1e9;
    return answer;
  }

  Answer read() {
    const auto bytes = static_cast<double>(footprint());
    return {bytes / best_read_gb_s(reader_, footprint()), bytes, 0};
  }

  Answer peak() const {
    constexpr double second = 1e9;  // ns
    const double g_operations_s =
        peak_g_operations_s(model_.prefill_instruction(), settings_.threads);
    return {second, 0, g_operations_s * second};
  }

  generate::RunnerSettings settings_;
  std::int64_t room_;
  generate::LanguageModel model_;
  StreamBench reader_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

int serve_generate_session(const Gguf& gguf, const Catalogue& catalogue,
                           const generate::RunnerSettings& settings, std::istream& requests,
                           std::ostream& answers) {
  Session session(gguf, catalogue, settings);
  for (std::string line; std::getline(requests, line);) {
    const Answer answer = session.answer(line);
    answers << fmt::format("{{\"ns\":{:.0f},\"bytes\":{:.0f},\"operations\":{:.0f}}}", answer.ns,
                           answer.bytes, answer.operations)
            << '\n'
            << std::flush;
  }
  return 0;
}

}  // namespace rooflane
