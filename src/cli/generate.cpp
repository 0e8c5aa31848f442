// `rooflane generate`: text from a language model. Ids are taken and given here; a text is handed
// to scripts/generate.py, which makes ids of it and calls this verb again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#include "cli/generate_session.hpp"
#include "cli/options.hpp"
#include "cli/scripts.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/stopwatch.hpp"
#include "core/text.hpp"
#include "generate/language_model.hpp"
#include "generate/token_sampler.hpp"
#include "io/files.hpp"
#include "io/gguf_json.hpp"
#include "io/npy.hpp"

namespace rooflane {
namespace {

constexpr std::int64_t default_tokens = 128;

void declare(Arguments& arguments) {
  arguments.positional("PROMPT", "the text to go on with");
  arguments.option("--weights", "FILE.gguf", "a model of the architecture llama");
  arguments.option("--weight-type", "T",
                   "f32: dequantise when the file is read; default: file: when weights are used");
  arguments.option("--tokens", "N", "at most so many; default: 128");
  arguments.option("--temperature", "T",
                   "0: always the likeliest token (default); 1: as it is likely");
  arguments.option(
      "--top-p", "P",
      "draw among the likeliest tokens that together have this probability; default: 1");
  arguments.option("--seed", "N", "of what is drawn; default: 1");
  arguments.repeatable("--stop", "TEXT", "end before this text; with --ids at this id");
  arguments.flag("--ignore-end", "go on where the model ends its text");
  arguments.flag("--chat", "PROMPT is a message: put it into the file's chat template");
  arguments.option("--threads", "N", "default: all physical cores");
  arguments.flag("--times", "tell tokens per second at the end");
  arguments.option("--ids", "I,J,...", "instead of PROMPT: token ids; prints ids, one a line");
  arguments.option("--logits", "FILE.npy", "keep the logits by which each token was chosen");
  arguments.flag("--metadata", "print what the file says of itself as JSON, and nothing else");
  arguments.flag("--measure", "answer requests on standard input with times: docs/generate.md");
  arguments.examples(
      {"rooflane generate --weights SmolLM2-135M-Instruct.Q4_1.gguf --chat 'Why is the "
       "sky blue?'",
       "rooflane generate --weights SmolLM2-135M-Instruct.Q4_1.gguf --ids 72,101 "
       "--tokens 8"});
}

double parse_number(const Arguments& arguments, const std::string& option, double otherwise,
                    double least, double most) {
  const auto text = arguments.value(option);
  if (!text) return otherwise;
  const auto value = parse_real(*text);
  if (value && *value >= least && *value <= most) return *value;
  throw argument_error(fmt::format("{} '{}': allowed is a number from {} to {}", option, *text,
                                   print_real(least), print_real(most)));
}

std::vector<std::int32_t> parse_ids(const std::string& option,
                                    const std::vector<std::string>& words) {
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> ids;
  for (const std::string& word : words) {
    ids.push_back(static_cast<std::int32_t>(parse_count(option, word, 0, largest)));
  }
  return ids;
}

struct Request {
  std::string weights;
  std::vector<std::int32_t> ids, stops;
  std::int64_t tokens = default_tokens;
  generate::SamplerSettings sampler;
  generate::RunnerSettings runner;
  bool ignore_end = false, times = false;
  std::optional<std::string> logits;
};

// Exactly one of what may be asked for.
void check_kind(const Arguments& arguments) {
  std::vector<std::string> given;
  for (const char* name : {"PROMPT", "--ids"}) {
    if (arguments.value(name)) given.emplace_back(name);
  }
  for (const char* name : {"--metadata", "--measure"}) {
    if (arguments.has(name)) given.emplace_back(name);
  }
  if (given.size() == 1) return;
  throw argument_error(given.empty()
                           ? "PROMPT is missing; or give --ids, --metadata or --measure"
                           : fmt::format("{} and {}: allowed is one of them", given[0], given[1]));
}

Request read_request(const Arguments& arguments) {
  Complaints complaints;
  Request request;
  complaints.check([&] {
    check_kind(arguments);
    const auto weights = arguments.value("--weights");
    if (!weights) throw argument_error("--weights is missing: a GGUF file");
    request.weights = *weights;
    return true;
  });
  const auto integer = [&](const std::string& option, std::int64_t otherwise, std::int64_t least,
                           std::int64_t most) {
    return complaints.check([&] {
      const auto text = arguments.value(option);
      return text ? parse_count(option, *text, least, most) : otherwise;
    });
  };
  request.tokens = integer("--tokens", default_tokens, 1, 1 << 20);
  request.sampler.seed =
      static_cast<std::uint64_t>(integer("--seed", 1, 0, std::numeric_limits<std::int64_t>::max()));
  request.sampler.temperature =
      complaints.check([&] { return parse_number(arguments, "--temperature", 0, 0, 100); });
  // 0 leaves the likeliest token.
  request.sampler.top_p =
      complaints.check([&] { return parse_number(arguments, "--top-p", 1, 0, 1); }, 1.0);
  request.runner.threads = complaints.check([&] {
    const auto text = arguments.value("--threads");
    return text ? parse_threads({*text}).front() : default_threads(Many::no).front();
  });
  complaints.check([&] {
    if (arguments.value("--ids")) {
      request.ids = parse_ids("--ids", arguments.list("--ids"));
      request.stops = parse_ids("--stop", arguments.values("--stop"));
    }
    return true;
  });
  request.runner.stored_formats = complaints.check([&] {
    const std::string type = arguments.value("--weight-type").value_or("file");
    if (type != "file" && type != "f32") {
      throw argument_error("--weight-type: " + unknown_name("type", type, {"file", "f32"}));
    }
    return type == "file";
  });
  request.logits = arguments.value("--logits");
  complaints.check([&] {
    try {
      if (request.logits) require_writable(*request.logits);
    } catch (const Error& error) {
      throw Error(error.kind(), std::string("--logits: ") + error.what());
    }
    return true;
  });
  request.ignore_end = arguments.has("--ignore-end");
  request.times = arguments.has("--times");
  complaints.raise();
  return request;
}

void check_ids(const std::string& option, const std::vector<std::int32_t>& ids,
               std::int64_t vocabulary) {
  for (const std::int32_t id : ids) {
    if (id < vocabulary) continue;
    throw argument_error(
        fmt::format("{}: {} is no token; allowed are 0 to {}", option, id, vocabulary - 1));
  }
}

void print_times(std::size_t prompt, double prefill_s, std::int64_t decoded, double decode_s) {
  std::string text = fmt::format("prompt: {} tokens, {:.1f} tokens/s", prompt,
                                 static_cast<double>(prompt) / prefill_s);
  if (decoded > 0) {
    text += fmt::format("; then {} tokens, {:.1f} tokens/s", decoded,
                        static_cast<double>(decoded) / decode_s);
  }
  print_note(text);
}

int generate_ids(const Request& request, const Gguf& gguf, const Catalogue& catalogue) {
  const generate::LlamaSizes sizes = generate::read_llama_sizes(gguf);
  check_ids("--ids", request.ids, sizes.vocabulary);
  check_ids("--stop", request.stops, sizes.vocabulary);
  const std::int64_t prompt = std::ssize(request.ids);
  generate::LanguageModel model(gguf, {prompt, prompt + request.tokens}, catalogue, request.runner);
  std::vector<std::int32_t> stops = request.stops;
  if (!request.ignore_end) {
    stops.insert(stops.end(), model.end_tokens().begin(), model.end_tokens().end());
  }
  generate::TokenSampler sampler(request.sampler, sizes.vocabulary);
  std::vector<float> kept;
  const Stopwatch watch;
  std::span<const float> logits = model.prefill(request.ids, 0);
  const double prefilled = watch.seconds();
  std::int64_t count = 0;
  while (true) {
    if (request.logits) kept.insert(kept.end(), logits.begin(), logits.end());
    const std::int32_t token = sampler.next(logits);
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    std::cout << token << '\n' << std::flush;  // at once, for who reads along
    if (++count == request.tokens || !std::cout) break;
    logits = model.decode(token, prompt + count - 1);
  }
  const std::int64_t decoded = std::min(count, request.tokens - 1);
  if (request.times) {
    print_times(request.ids.size(), prefilled, decoded, watch.seconds() - prefilled);
  }
  if (request.logits) {
    write_npy(*request.logits,
              Shape{static_cast<std::int64_t>(kept.size()) / sizes.vocabulary, sizes.vocabulary},
              &float32, kept.data());
  }
  return 0;
}

int run(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  const Request request = read_request(arguments);
  const Gguf gguf(request.weights);
  if (arguments.has("--metadata")) {
    std::cout << gguf_json(gguf).dump(1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
    return 0;
  }
  if (arguments.has("--measure")) {
    return serve_generate_session(gguf, catalogue, request.runner, std::cin, std::cout);
  }
  if (arguments.value("--ids")) return generate_ids(request, gguf, catalogue);
  const generate::LlamaSizes sizes = generate::read_llama_sizes(gguf);
  const generate::LlamaWeights checked(gguf, sizes);
  become_script("generate.py", "ROOFLANE_GENERATE", "generate", arguments.words());
}

}  // namespace

const Verb generate_verb = {"generate", "text from a language model in a GGUF file", declare, run};

}  // namespace rooflane
