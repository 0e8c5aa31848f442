// Drawing problems. See random_problems.hpp.
#include "bench/random_problems.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"

namespace rooflane {
namespace {

constexpr double largest_size = 4096, largest_flops = 4e9, largest_bytes = 256 << 20;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  double uniform() {  // in [0,1)
    return static_cast<double>(splitmix64(state_ += 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
  }
  std::int64_t size() {
    return static_cast<std::int64_t>(std::exp(uniform() * std::log(largest_size + 1)));
  }

 private:
  std::uint64_t state_;
};

std::string drawn_text(const Kernel& kernel, Draw& draw) {
  std::string text = std::string(kernel.name) + ":";
  const auto add = [&](const char* key, std::int64_t value) {
    text += (text.back() == ':' ? "" : ",") + std::string(key) + "=" + std::to_string(value);
  };
  for (const ParamSpec& param : kernel.params) {
    if (param.kind == ParamKind::size && param.required) add(param.name, draw.size());
    if (param.kind == ParamKind::size && !param.required && draw.uniform() < 0.2) {
      add(param.name, draw.size());
    }
    if (param.kind == ParamKind::choice && param.required) {
      const std::vector<std::string> choices = choices_of(param);
      text +=
          "," + std::string(param.name) + "=" +
          choices[static_cast<std::size_t>(draw.uniform() * static_cast<double>(choices.size()))];
    }
    if (param.kind == ParamKind::flag && draw.uniform() < 0.25) add(param.name, 1);
  }
  return text;
}

}  // namespace

std::vector<Problem> random_problems(const Kernel& kernel, int count, std::uint64_t seed) {
  Draw draw(splitmix64(seed ^ fnv1a64(kernel.name)));
  const Kernel* const kernels[] = {&kernel};
  std::vector<Problem> problems;
  while (static_cast<int>(problems.size()) < count) {
    try {
      Problem problem = parse_problem(drawn_text(kernel, draw), kernels);
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
