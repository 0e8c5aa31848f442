// Drawing problems. See random_problems.hpp.
#include "bench/random_problems.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"

namespace rooflane {
namespace {

constexpr double largest_flops = 4e9, largest_bytes = 256 << 20;

class Draw {
 public:
  Draw(std::uint64_t seed, std::int64_t largest)
      : state_(seed), sizes_(std::log(static_cast<double>(largest) + 1)) {}
  double uniform() {  // in [0,1)
    return static_cast<double>(splitmix64(state_ += 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
  }
  std::int64_t size() { return static_cast<std::int64_t>(std::exp(uniform() * sizes_)); }
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(uniform() * static_cast<double>(list.size()))];
  }

 private:
  std::uint64_t state_;
  double sizes_;
};

// One to four of a chain's words, in any order.
std::string drawn_chain(const ParamSpec& param, Draw& draw) {
  std::vector<std::string> words(param.words.begin(), param.words.end());
  std::string chain;
  for (auto count = 1 + static_cast<int>(draw.uniform() * 4); count > 0 && !words.empty();
       --count) {
    const std::string word = draw.one_of(words);
    std::erase(words, word);
    chain += (chain.empty() ? "" : "+") + word;
  }
  return chain;
}

// Text in a problem's form, which begins with "KERNEL:".
void add(std::string& text, const char* key, const std::string& value) {
  text += (text.back() == ':' ? "" : ",") + std::string(key) + "=" + value;
}

std::string drawn_choices(const Kernel& kernel, Draw& draw) {
  std::string text = std::string(kernel.name) + ":";
  for (const ParamSpec& param : kernel.params) {
    if (param.kind == ParamKind::choice) add(text, param.name, draw.one_of(choices_of(param)));
  }
  return text;
}

// The rest of a problem; `text` has its drawn choices, if any. With formats: every second size is
// one of whole blocks, as quantised weights need them.
std::string drawn_text(const Kernel& kernel, Draw& draw, bool formats, std::string text) {
  const auto size = [&] {
    const std::int64_t drawn = draw.size();
    return std::to_string(formats && draw.uniform() < 0.5 ? (drawn + 31) / 32 * 32 : drawn);
  };
  for (const ParamSpec& param : kernel.params) {
    if (param.kind == ParamKind::size && param.required) add(text, param.name, size());
    if (param.kind == ParamKind::size && !param.required && draw.uniform() < 0.2) {
      add(text, param.name, size());
    }
    if (param.kind == ParamKind::choice && param.required && !formats) {
      add(text, param.name, draw.one_of(choices_of(param)));
    }
    if (param.kind == ParamKind::chain && formats && draw.uniform() < 0.5) {
      add(text, param.name, drawn_chain(param, draw));
    }
    if (param.kind == ParamKind::flag && draw.uniform() < 0.25) add(text, param.name, "1");
  }
  return text;
}

std::optional<Problem> drawn_problem(const Kernel& kernel, Draw& draw, bool formats,
                                     const std::string& choices) {
  const Kernel* const kernels[] = {&kernel};
  try {
    Problem problem = parse_problem(drawn_text(kernel, draw, formats, choices), kernels);
    const Cost cost = kernel.cost(problem);
    if (cost.flops <= largest_flops && cost.bytes <= largest_bytes) return problem;
  } catch (const Error&) {  // what does not go together
  }
  return std::nullopt;
}

}  // namespace

std::vector<Problem> random_problems(const Kernel& kernel, const RandomProblems& asked) {
  // Formats that go together have sizes and flags within so many draws, all but surely.
  constexpr int draws = 100;
  Draw draw(splitmix64(asked.seed ^ fnv1a64(kernel.name)), asked.largest);
  std::vector<Problem> problems;
  while (static_cast<int>(problems.size()) < asked.count) {
    const std::string choices =
        asked.formats ? drawn_choices(kernel, draw) : std::string(kernel.name) + ":";
    for (int tries = 0; tries < draws; ++tries) {
      if (auto problem = drawn_problem(kernel, draw, asked.formats, choices)) {
        problems.push_back(std::move(*problem));
        break;
      }
    }
  }
  return problems;
}

}  // namespace rooflane
