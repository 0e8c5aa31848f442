// `rooflane generate`: text from a language model. Ids are taken and given here; a text is handed
// to scripts/generate.py, which makes ids of it and calls this verb again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>

#include "cli/generate_session.hpp"
#include "cli/generate_times.hpp"
#include "cli/options.hpp"
#include "cli/scripts.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/stopwatch.hpp"
#include "core/text.hpp"
#include "generate/decoder.hpp"
#include "generate/language_model.hpp"
#include "generate/token_sampler.hpp"
#include "io/files.hpp"
#include "io/gguf_json.hpp"
#include "io/npy.hpp"

namespace rooflane {
namespace {

constexpr std::int64_t default_tokens = 128;

void declare_generate(Arguments& arguments) {
  arguments.positional("PROMPT", "the text to continue");
  arguments.option("--weights", "FILE.gguf", "a model of the architecture llama");
  arguments.option(
      "--weight-type", "T",
      "format of the matrices: f32, bf16 or s8c converts them when the file is read; default: "
      "file, as they are");
  arguments.option(
      "--math", "M",
      "arithmetic of products by weights, where their format allows it: bf16, int8-dynamic; "
      "default: fp32");
  arguments.option("--kv-type", "T",
                   "format of cached keys and values: f16, bf16, q8_0; default: f32");
  arguments.flag("--no-fuse", "do not fuse steps: each is a kernel of its own");
  arguments.option("--tokens", "N", "the most tokens to write; default: 128");
  arguments.option(
      "--temperature", "T",
      "0: always the likeliest token (default); 1: tokens drawn with the model's probabilities");
  arguments.option(
      "--top-p", "P",
      "draw among the likeliest tokens that together have this probability; default: 1");
  arguments.option("--seed", "N", "seed of drawn tokens; default: 1");
  arguments.repeatable("--stop", "TEXT", "end before this text; with --ids at this id");
  arguments.flag("--ignore-end", "continue after the model's end of text");
  arguments.flag("--chat", "PROMPT is a message: put it into the file's chat template");
  arguments.option("--threads", "N", "default: all physical cores");
  arguments.option(
      "--draft", "ngram|FILE.gguf",
      "guess tokens from the text so far, or with a small model of the same vocabulary, "
      "and verify them together: the same text in less time");
  arguments.option("--draft-rows", "8",
                   "with --draft: always verify so many tokens together; default: none, 4 or 8, "
                   "whichever is predicted to be fastest");
  arguments.flag(
      "--times",
      "print at the end: tokens per second, shares of the read bandwidth and of the peak, "
      "memory, drafts");
  arguments.option("--json", "FILE", "the output of --times as JSON");
  arguments.option("--ids", "I,J,...", "token ids in place of PROMPT; prints ids, one a line");
  arguments.flag("--score",
                 "with --ids: write nothing, but report how well the model predicts these tokens");
  arguments.option("--logits", "FILE.npy", "write the logits from which each token was chosen");
  arguments.flag("--metadata",
                 "print the file's keys, vocabulary and tensors as JSON, and nothing else");
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
  bool ignore_end = false, score = false;
  TimesRequest times;
  std::optional<std::string> draft;
  generate::Guessing guessing = generate::Guessing::where_it_pays;
  std::optional<std::string> logits;
};

// Checks that exactly one kind of output is asked for.
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

// A format by its short name; `otherwise` where the option is not given.
DType parse_type(const Arguments& arguments, const std::string& option, DType otherwise,
                 const std::vector<std::pair<std::string, DType>>& allowed) {
  const auto text = arguments.value(option);
  if (!text) return otherwise;
  std::vector<std::string> names;
  for (const auto& [name, dtype] : allowed) {
    if (*text == name) return dtype;
    names.push_back(name);
  }
  throw argument_error(option + ": " + unknown_name("type", *text, names));
}

void read_formats(const Arguments& arguments, generate::RunnerSettings& runner,
                  Complaints& complaints) {
  runner.weight_type = complaints.check([&] {
    return parse_type(
        arguments, "--weight-type", nullptr,
        {{"file", nullptr}, {"f32", &float32}, {"bf16", &bfloat16}, {"s8c", &int8_per_channel}});
  });
  runner.kv_type = complaints.check(
      [&] {
        return parse_type(
            arguments, "--kv-type", &float32,
            {{"f32", &float32}, {"f16", &float16}, {"bf16", &bfloat16}, {"q8_0", &q8_0}});
      },
      &float32);
  runner.math = complaints.check(
      [&] {
        const std::string math = arguments.value("--math").value_or("fp32");
        const std::vector<std::string> names = {"fp32", "bf16", "int8-dynamic"};
        if (std::find(names.begin(), names.end(), math) == names.end()) {
          throw argument_error("--math: " + unknown_name("math", math, names));
        }
        return math;
      },
      std::string("fp32"));
  runner.fuse = !arguments.has("--no-fuse");
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
  read_formats(arguments, request.runner, complaints);
  request.score = arguments.has("--score");
  complaints.check([&] {
    if (request.score && request.ids.size() < 2) {
      throw argument_error("--score: --ids gives fewer than two tokens");
    }
    return true;
  });
  request.draft = arguments.value("--draft");
  complaints.check([&] {
    if (request.draft && request.score) {
      throw argument_error("--draft and --score: allowed is one of them");
    }
    const auto rows = arguments.value("--draft-rows");
    if (!rows) return true;
    if (!request.draft) throw argument_error("--draft-rows: --draft is missing");
    const std::int64_t most = generate::draft_rows.back();
    parse_count("--draft-rows", *rows, most, most);
    request.guessing = generate::Guessing::always;
    return true;
  });
  request.logits = arguments.value("--logits");
  request.times.json = arguments.value("--json").value_or("");
  for (const char* name : {"--logits", "--json"}) {
    complaints.check([&] {
      try {
        if (const auto file = arguments.value(name)) require_writable(*file);
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("{}: {}", name, error.what()));
      }
      return true;
    });
  }
  request.ignore_end = arguments.has("--ignore-end");
  request.times.note = arguments.has("--times");
  complaints.raise();
  return request;
}

void check_ids(const std::string& option, const std::vector<std::int32_t>& ids,
               std::int64_t vocabulary) {
  for (const std::int32_t id : ids) {
    if (id < vocabulary) continue;
    throw argument_error(
        fmt::format("{}: {} is not a token; allowed are 0 to {}", option, id, vocabulary - 1));
  }
}

void tell_times(const Request& request, const generate::LanguageModel& model,
                const generate::DecoderCounts& counts, std::int64_t prompt) {
  if (!request.times.note && request.times.json.empty()) return;
  report_times(request.times, model, counts, prompt, request.runner.threads,
               request.draft.has_value());
}

void keep_logits(const Request& request, const std::vector<float>& kept, std::int64_t vocabulary) {
  if (!request.logits) return;
  write_npy(*request.logits, Shape{static_cast<std::int64_t>(kept.size()) / vocabulary, vocabulary},
            &float32, kept.data());
}

// -log of the probability that these logits give a token.
double surprise(std::span<const float> logits, std::int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) + most - logits[static_cast<std::size_t>(token)];
}

// Every id after the first, given those before it.
int score_ids(const Request& request, const Gguf& gguf, const Catalogue& catalogue) {
  const generate::LlamaSizes sizes = generate::read_llama_sizes(gguf);
  check_ids("--ids", request.ids, sizes.vocabulary);
  const std::int64_t count = std::ssize(request.ids);
  generate::LanguageModel model(gguf, {1, count}, catalogue, request.runner);
  std::vector<float> kept;
  double total = 0;
  const Stopwatch watch;
  std::span<const float> logits = model.prefill(std::span(request.ids).first(1), 0);
  generate::DecoderCounts counts;
  counts.prompt_seconds = watch.seconds();
  counts.tokens = counts.passes = count - 2;
  for (std::int64_t i = 1; i < count; ++i) {
    if (request.logits) kept.insert(kept.end(), logits.begin(), logits.end());
    total += surprise(logits, request.ids[static_cast<std::size_t>(i)]);
    if (i + 1 == count) break;
    logits = model.decode(request.ids[static_cast<std::size_t>(i)], i);
    counts.bytes += model.decode_bytes(i);
  }
  counts.seconds = watch.seconds() - counts.prompt_seconds;
  std::cout << fmt::format("{} tokens, perplexity {:.4f}\n", count - 1,
                           std::exp(total / static_cast<double>(count - 1)));
  tell_times(request, model, counts, 1);
  keep_logits(request, kept, sizes.vocabulary);
  return 0;
}

// What guesses, as --draft names it; null: nothing does.
std::unique_ptr<generate::Drafter> drafter_of(const Request& request, const Gguf& gguf,
                                              const Catalogue& catalogue) {
  if (!request.draft) return nullptr;
  if (*request.draft == "ngram") return std::make_unique<generate::NgramDrafter>();
  try {
    const Gguf small(*request.draft);
    return std::make_unique<generate::ModelDrafter>(small, gguf, request.ids,
                                                    std::ssize(request.ids) + request.tokens,
                                                    catalogue, request.runner, request.sampler);
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("--draft, which is ngram or a GGUF file: {}", error.what()));
  }
}

int generate_ids(const Request& request, const Gguf& gguf, const Catalogue& catalogue) {
  const generate::LlamaSizes sizes = generate::read_llama_sizes(gguf);
  check_ids("--ids", request.ids, sizes.vocabulary);
  check_ids("--stop", request.stops, sizes.vocabulary);
  const std::int64_t prompt = std::ssize(request.ids);
  generate::Room room = {prompt, prompt + request.tokens};
  if (request.draft) room.rows = generate::draft_rows;
  generate::LanguageModel model(gguf, room, catalogue, request.runner);
  std::vector<std::int32_t> stops = request.stops;
  if (!request.ignore_end) {
    stops.insert(stops.end(), model.end_tokens().begin(), model.end_tokens().end());
  }
  generate::TokenSampler sampler(request.sampler, sizes.vocabulary);
  const std::unique_ptr<generate::Drafter> drafter = drafter_of(request, gguf, catalogue);
  std::vector<float> kept;
  generate::Decoder decoder(model, sampler, drafter.get(), request.guessing, request.ids);
  for (std::int64_t count = 0; count < request.tokens && std::cout; ++count) {
    const auto [token, logits] = decoder.next();
    if (request.logits) kept.insert(kept.end(), logits.begin(), logits.end());
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    std::cout << token << '\n' << std::flush;  // at once, for who reads along
  }
  tell_times(request, model, decoder.counts(), prompt);
  keep_logits(request, kept, sizes.vocabulary);
  return 0;
}

int run_generate(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
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
  if (request.score) return score_ids(request, gguf, catalogue);
  if (arguments.value("--ids")) return generate_ids(request, gguf, catalogue);
  const generate::LlamaSizes sizes = generate::read_llama_sizes(gguf);
  const generate::LlamaWeights checked(gguf, sizes);
  become_script("generate.py", "ROOFLANE_GENERATE", "generate", arguments.words());
}

}  // namespace

const Verb generate_verb = {"generate", "text from a language model in a GGUF file",
                            declare_generate, run_generate};

}  // namespace rooflane
