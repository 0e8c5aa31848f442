// The judgement of a source: built, verified, timed beside the lab's variants and peers. Nothing is
// printed here; cli/judge.cpp reads the arguments and writes the document.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "io/summary.hpp"
#include "jail/jail.hpp"
#include "judge/build.hpp"
#include "judge/findings.hpp"
#include "judge/hot_loop.hpp"

namespace rooflane::judge {

// What a judged kernel is called among the variants.
inline constexpr const char* judged_name = "judged";

struct Request {
  Source source;
  std::vector<Problem> problems;     // listed: verified and timed
  std::vector<std::string> against;  // variants; empty: the lab's best and the libraries
  std::string flags;
  int threads = 1;
  int hidden = 6;  // problems that nobody saw: verified
  std::uint64_t seed = 1;
  double budget_seconds = 20;  // for timing
  jail::Kind kind = jail::Kind::bubblewrap;
  std::function<void(const std::string&)> progress;  // may be null
};

struct PeerFigure {
  std::string variant;
  double p50_us = 0;
  std::optional<Ratio> ratio;  // the peer's time / the judged kernel's
};

struct ShapeFigures {
  Problem problem;
  Verdict verdict = Verdict::undecided;
  Row row;  // of the judged kernel
  double overhead_us = 0;
  double overhead_spread_us = 0;
  std::optional<double> roof_us, sol;
  std::vector<PeerFigure> peers;
};

struct Judgement {
  Verdict verdict = Verdict::undecided;
  std::string reason;
  std::optional<Cheat> cheat;
  std::optional<FirstWrong> first_wrong;
  Build build;
  std::vector<Problem> hidden;
  std::vector<ShapeFigures> shapes;
  std::optional<HotLoop> hot_loop;
  std::vector<std::string> maps;
  std::string next;
};

// `worker_command` and the catalogue as `bench` has them. Throws Error: arguments that are wrong,
// no jail.
Judgement judge(const Request& request, const Catalogue& catalogue,
                const std::vector<std::string>& worker_command, const Row& stamp);

// Problems like the listed ones that nobody saw: other sizes, the same flags. The first of each
// pair has sizes that are multiples of 64 where possible, and not the listed ones.
std::vector<Problem> hidden_problems(const std::vector<Problem>& listed, int count,
                                     std::uint64_t seed);

// The next thing to try, in one sentence from what is known.
std::string next_step(const Judgement& judgement);

}  // namespace rooflane::judge
