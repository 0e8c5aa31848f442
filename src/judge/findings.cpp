// See findings.hpp.
#include "judge/findings.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "core/kernel.hpp"
#include "jail/jailed_plugin.hpp"

namespace rooflane::judge {

namespace {

constexpr std::array<Cheat, 20> cheats = {{{1, "patched-timer"},
                                           {2, "late-return"},
                                           {3, "work-in-bind"},
                                           {4, "replay"},
                                           {5, "skipped-calls"},
                                           {6, "packed-constants"},
                                           {7, "cache-games"},
                                           {8, "recognises-verification"},
                                           {9, "low-precision"},
                                           {10, "easy-inputs"},
                                           {11, "unwritten-or-outside"},
                                           {12, "reads-reference"},
                                           {13, "disturbs-peers"},
                                           {14, "load-time"},
                                           {15, "foreign-library"},
                                           {16, "forged-result"},
                                           {17, "knows-shapes"},
                                           {18, "nan-games"},
                                           {19, "race"},
                                           {20, "late-crash"}}};

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view names[] = {"WINNER", "TIE",     "LOSER", "UNDECIDED", "INACCURATE",
                                        "FAILED", "SUSPECT", "CRASH", "TIMEOUT",   "BUILD"};
  return names[static_cast<std::size_t>(verdict)];
}

bool is_right(Verdict verdict) { return verdict <= Verdict::undecided; }

std::optional<Cheat> cheat_in(std::string_view reason) {
  for (const Cheat& cheat : cheats) {
    if (reason.starts_with(fmt::format("{}: ", cheat.name))) return cheat;
  }
  return std::nullopt;
}

const Cheat& cheat_number(int number) { return cheats[static_cast<std::size_t>(number) - 1]; }

std::optional<FirstWrong> wrong_element(const std::string& reason, const Problem& problem) {
  const std::size_t at = reason.find("element ");
  if (at == std::string::npos) return std::nullopt;
  FirstWrong wrong;
  const std::string text = reason.substr(at + 8);
  const std::size_t bracket = text.find('[');
  if (bracket == std::string::npos || bracket >= 64) return std::nullopt;
  wrong.tensor = text.substr(0, bracket);
  const char* at_text = text.c_str() + bracket;
  const auto number_behind = [&](std::string_view words, double& number) {
    if (!std::string_view(at_text).starts_with(words)) return false;
    const char* const begin = at_text + words.size();
    char* end = nullptr;
    number = std::strtod(begin, &end);
    if (end == begin) return false;
    at_text = end;
    return true;
  };
  double row = 0, col = 0;
  if (!number_behind("[", row) || !number_behind(",", col) || !number_behind("] is ", wrong.got)) {
    return std::nullopt;
  }
  // A Freivalds product has no expected value.
  if (number_behind(", expected ", wrong.expected)) number_behind(" within ", wrong.bound);
  wrong.row = static_cast<std::int64_t>(row);
  wrong.col = static_cast<std::int64_t>(col);
  if (wrong.tensor.empty()) {
    for (const TensorSpec& spec : problem.kernel().tensors(problem)) {
      if (is_written(spec.role)) wrong.tensor = spec.name;
    }
  }
  wrong.shape = problem.text();
  return wrong;
}

Verdict verdict_of(Status status, const std::string& reason) {
  if (reason.find(jail::crashed) != std::string::npos) return Verdict::crash;
  if (reason.find(jail::hung) != std::string::npos || status == Status::timeout) {
    return Verdict::timeout;
  }
  if (status == Status::inaccurate) return Verdict::inaccurate;
  if (status == Status::suspect) return Verdict::suspect;
  return Verdict::failed;
}

bool ended_in_a_call(const std::string& reason) {
  return reason.find(jail::crashed) != std::string::npos ||
         reason.find(jail::hung) != std::string::npos ||
         reason.find("run failed") != std::string::npos;
}

std::string without_prefix(const std::string& reason) {
  if (cheat_in(reason)) return reason;
  for (const char* const begin : {jail::crashed, jail::hung}) {
    const std::size_t at = reason.find(begin);
    if (at != std::string::npos) return reason.substr(at);
  }
  for (const Cheat& cheat : cheats) {
    const std::size_t at = reason.find(fmt::format("{}: ", cheat.name));
    if (at != std::string::npos) return reason.substr(at);
  }
  return reason;
}

std::string suspicion(const std::string& reason, const std::optional<FirstWrong>& wrong,
                      const Circumstances& circumstances) {
  const auto named = [](int number) { return fmt::format("{}: ", cheat_number(number).name); };
  if (reason.find("outside the output") != std::string::npos) return named(11);
  if (!circumstances.uniform) return named(10);
  if (wrong && std::isnan(wrong->got) && std::isfinite(wrong->expected)) return named(18);
  if (circumstances.hidden && circumstances.round) return named(17);
  if (circumstances.other_threads) return named(19);
  // Right to a digit or more, and no further: no wrong element, too few bits.
  constexpr double digits_lost = 0.1;
  const bool close =
      wrong && std::abs(wrong->got - wrong->expected) < digits_lost * std::abs(wrong->expected);
  return close ? named(9) : "";
}

}  // namespace rooflane::judge
