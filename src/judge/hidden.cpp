// Problems that nobody saw. See judge.hpp.
#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "judge/judge.hpp"

namespace rooflane::judge {

std::vector<Problem> hidden_problems(const std::vector<Problem>& listed, int count,
                                     std::uint64_t seed) {
  constexpr double most_flops = 2e8, most_bytes = 64e6;
  constexpr int most_tries = 1000;
  std::vector<Problem> hidden;
  const SeededStream stream(seed, "judge", "hidden");
  std::uint64_t draw = 0;
  for (int i = 0, tries = 0; i < count && tries < most_tries; ++tries) {
    Problem problem = listed[static_cast<std::size_t>(i / 2) % listed.size()];
    bool listed_again = false;
    try {
      for (const ParamSpec& param : problem.kernel().params) {
        if (param.kind != ParamKind::size || !problem.has(param.name)) continue;
        const auto was = static_cast<double>(problem.size(param.name));
        const double u = (stream.value(draw++) + 1) / 2;
        double size = std::floor(std::exp2(u * std::log2(std::max(2.0, 2 * was))));
        if (i % 2 == 0 && was >= 64) {
          size = std::max(64.0, std::round(size / 64) * 64);
          listed_again = listed_again || size == was;
        }
        if (was < 16) size = std::clamp(size, 1.0, 2 * was);
        problem.set(param.name, std::max(size, static_cast<double>(param.least)));
      }
      if (listed_again) continue;
      problem.check();
    } catch (const Error&) {
      continue;  // heads must stay a multiple of kv_heads, say
    }
    if (problem.kernel().cost(problem).flops > most_flops || operand_bytes(problem) > most_bytes) {
      continue;
    }
    hidden.push_back(problem);
    ++i;
  }
  return hidden;
}

}  // namespace rooflane::judge
