// Drawing problems. See random_problems.hpp.
#include "bench/random_problems.hpp"

#include <cmath>
#include <string>
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

std::string drawn_text(const Kernel& kernel, Draw& draw, bool formats) {
  std::string text = std::string(kernel.name) + ":";
  const auto add_text = [&](const char* key, const std::string& value) {
    text += (text.back() == ':' ? "" : ",") + std::string(key) + "=" + value;
  };
  const auto add = [&](const char* key, std::int64_t value) {
    add_text(key, std::to_string(value));
  };
  for (const ParamSpec& param : kernel.params) {
    if (param.kind == ParamKind::size && param.required) add(param.name, draw.size());
    if (param.kind == ParamKind::size && !param.required && draw.uniform() < 0.2) {
      add(param.name, draw.size());
    }
    if (param.kind == ParamKind::choice && (param.required || (formats && draw.uniform() < 0.5))) {
      add_text(param.name, draw.one_of(choices_of(param)));
    }
    if (param.kind == ParamKind::chain && formats && draw.uniform() < 0.5) {
      add_text(param.name, drawn_chain(param, draw));
    }
    if (param.kind == ParamKind::flag && draw.uniform() < 0.25) add(param.name, 1);
  }
  return text;
}

}  // namespace

std::vector<Problem> random_problems(const Kernel& kernel, const RandomProblems& asked) {
  Draw draw(splitmix64(asked.seed ^ fnv1a64(kernel.name)), asked.largest);
  const Kernel* const kernels[] = {&kernel};
  std::vector<Problem> problems;
  while (static_cast<int>(problems.size()) < asked.count) {
    try {
      Problem problem = parse_problem(drawn_text(kernel, draw, asked.formats), kernels);
      const Cost cost = kernel.cost(problem);
      if (cost.flops <= largest_flops && cost.bytes <= largest_bytes) {
        problems.push_back(std::move(problem));
      }
    } catch (const Error&) {  // sizes that do not go together: drawn anew
    }
  }
  return problems;
}

}  // namespace rooflane
