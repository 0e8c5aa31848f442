// Models at work: buffers that live at once never share memory, runs allocate nothing, steps and
// wholes are held against references, and Amdahl's arithmetic.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <set>
#include <vector>

#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/tuned.hpp"
#include "model/amdahl.hpp"
#include "model/check.hpp"
#include "model/library.hpp"
#include "model/swaps.hpp"

namespace {
std::atomic<long> allocations{0};
}  // namespace

// Counts what this program allocates, the library's plans included. Not inlined: the compiler would
// see malloc's memory given to delete.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace rooflane::model {
namespace {

const Catalogue& catalogue() {
  static const Catalogue all = Catalogue::built_in();
  return all;
}

Instance tiny(const std::string& name) {
  return instantiate(read_model(name), "tiny", {}, catalogue().kernels());
}

ChainSettings settings_of(int threads) {
  ChainSettings settings;
  settings.threads = threads;
  static const TunedSchedules none;
  settings.tuned = &none;
  return settings;
}

TEST_CASE("buffers that are needed at the same time never share memory") {
  std::uint64_t random = 7;
  const auto draw = [&](std::uint64_t below) {
    random = splitmix64(random + 0x9e3779b97f4a7c15);
    return random % below;
  };
  constexpr std::size_t calls = 12;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Life> lives(2 + draw(14));
    for (Life& life : lives) {
      life.bytes = static_cast<std::int64_t>(1 + draw(3000));
      std::size_t at = draw(calls);
      while (at < calls) {
        const std::size_t last = std::min(calls - 1, at + draw(4));
        life.spans.emplace_back(at, last);
        at = last + 1 + draw(6);
      }
    }
    const Arena arena = plan_arena(lives);
    const auto live = live_bytes(lives, calls);
    for (std::size_t call = 0; call < calls; ++call) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < lives.size(); ++i) {
        const auto held = [&](const Life& life) {
          return std::any_of(life.spans.begin(), life.spans.end(), [&](const auto& span) {
            return span.first <= call && call <= span.second;
          });
        };
        if (!held(lives[i])) continue;
        sum += lives[i].bytes;
        const std::int64_t begin = arena.offsets[i], end = begin + lives[i].bytes;
        CHECK((begin >= 0 && begin % 64 == 0 && end <= arena.bytes));
        for (std::size_t j = 0; j < i; ++j) {
          if (!held(lives[j])) continue;
          const std::int64_t other = arena.offsets[j];
          CHECK((end <= other || other + lives[j].bytes <= begin));
        }
      }
      CHECK(live[call] == sum);
    }
  }
}

TEST_CASE("a buffer's life ends where every element is written anew, and not before") {
  const auto lives = [](const std::string& steps) {
    const std::string text =
        "model m\ninput x [2,4]\nbuffer b [2,4]\nbuffer c [2,4]\noutput y [2,4]\n" + steps;
    const Instance instance =
        instantiate(read_model_text(text, "m"), "", {}, catalogue().kernels());
    return lives_of(instance.phases[0])[1].spans;
  };
  using Spans = std::vector<std::pair<std::size_t, std::size_t>>;
  CHECK(lives("step p softmax x=x y=b\nstep q softmax x=b y=y\nstep r softmax x=x y=c\n"
              "step s softmax x=c y=b\nstep t softmax x=b y=y\n") == Spans{{0, 1}, {3, 4}});
  CHECK(lives("step p softmax x=x y=b\nstep q softmax x=b y=y\n"
              "step r softmax x=x[:,0:2] y=b[:,0:2]\nstep s softmax x=b y=y\n") == Spans{{0, 3}});
  CHECK(lives("step p softmax x=x y=b\nstep q softmax x=b y=b\nstep r softmax x=b y=y\n") ==
        Spans{{0, 2}});
}

TEST_CASE("a run allocates nothing, whichever variants it takes") {
  for (const std::string& name : model_names()) {
    const Instance instance = tiny(name);
    for (const char* variant : {"hwy", "scalar"}) {
      const auto weights = seeded_weights(instance.model, 1, 2);
      Chain chain(instance, *weights, settings_of(2));
      plan_chain(chain, catalogue(), {variant, "scalar"}, {});
      for (std::size_t p = 0; p < instance.phases.size(); ++p) {
        CAPTURE(name + " " + instance.phases[p].name + " " + variant);
        const Choice choice = as_it_is(chain)[p];
        std::vector<double> ns(choice.size());
        chain.run(p, choice, ns);
        const long before = allocations;
        chain.run(p, choice, ns);
        CHECK(allocations == before);
      }
    }
  }
}

TEST_CASE("every model of the library is right, step by step and as a whole") {
  for (const std::string& name : model_names()) {
    CAPTURE(name);
    const Instance instance = tiny(name);
    const auto weights = seeded_weights(instance.model, 1, 2);
    Chain chain(instance, *weights, settings_of(2));
    plan_chain(chain, catalogue(), {"hwy", "scalar"}, {});
    plan_levels(chain, catalogue(), {"scalar", "blas"});
    const auto checks = check_steps(chain);
    std::set<std::size_t> seen;
    for (const StepCheck& check : checks) {
      CAPTURE(instance.phases[check.phase].steps[check.step].name + " " + check.entry->name);
      CHECK(check.verification.usable());
      CHECK(check.calls == instance.phases[check.phase].steps[check.step].calls.size());
      seen.insert(check.phase * 1000 + check.step);
    }
    for (std::size_t p = 0; p < instance.phases.size(); ++p) CHECK(not_finite(chain, p).empty());
    std::size_t steps = 0;
    for (const Phase& phase : instance.phases) steps += phase.steps.size();
    CHECK(seen.size() == steps);
    const auto wholes = check_whole(chain, *weights, as_it_is(chain));
    CHECK(!wholes.empty());
    for (const WholeCheck& whole : wholes) {
      CAPTURE(whole.tensor);
      CHECK(whole.passed());
      CHECK(std::isfinite(whole.bound));
    }
    const std::uint64_t hash = output_hash(chain, 0);
    chain.drop_packed_weights();
    std::vector<double> ns(instance.phases[0].calls.size());
    chain.reset_states();
    chain.run(0, as_it_is(chain)[0], ns);
    CHECK(output_hash(chain, 0) == hash);
  }
}

Instance mine(const std::string& tensors_and_steps) {
  return instantiate(read_model_text("model m\n" + tensors_and_steps, "m"), "", {},
                     catalogue().kernels());
}

TEST_CASE("outputs of 16 bits are judged by their own format") {
  const Instance instance = mine(
      "input x [3,8]\nweight w [8,8]\noutput y [3,8] type=bf16\noutput z [3,8] type=f16\n"
      "step one gemm a=x b=w c=y\nstep two gemm a=x b=w c=z\n");
  const auto weights = seeded_weights("m", 1, 1);
  Chain chain(instance, *weights, settings_of(1));
  plan_chain(chain, catalogue(), {"hwy"}, {});
  for (const StepCheck& check : check_steps(chain)) CHECK(check.verification.usable());
  CHECK(not_finite(chain, 0).empty());
  for (const WholeCheck& whole : check_whole(chain, *weights, as_it_is(chain))) {
    CHECK(whole.passed());
  }
  const auto tensor = [&](const std::string& name) {
    const auto& all = instance.phases[0].tensors;
    return static_cast<std::size_t>(
        std::find_if(all.begin(), all.end(), [&](const Tensor& t) { return t.name == name; }) -
        all.begin());
  };
  auto& element = chain.memory().all_of(0, tensor("z")).as<std::uint16_t>()[17];
  element = 0x7C00;
  CHECK(not_finite(chain, 0) == "z element 17 is inf");
  element = 0;
  chain.memory().all_of(0, tensor("y")).as<std::uint16_t>()[23] = 0x7FC0;
  CHECK(not_finite(chain, 0) == "y element 23 is nan");
}

TEST_CASE("where the reference overflows nothing passes, whatever came") {
  const Instance instance = mine(
      "input x [3,8]\nweight w [8,8]\nbuffer a [3,8]\noutput y [3,8]\n"
      "step one gemm alpha=1e30 a=x b=w c=a\nstep two gemm alpha=1e30 a=a b=w c=y\n");
  const auto weights = seeded_weights("m", 1, 1);
  Chain chain(instance, *weights, settings_of(1));
  plan_chain(chain, catalogue(), {"hwy"}, {});
  for (const WholeCheck& whole : check_whole(chain, *weights, as_it_is(chain))) {
    CHECK_FALSE(whole.reference_is_finite);
    CHECK_FALSE(whole.passed());
  }
}

// A variant that is right for a kernel by itself but off by a few float32 roundings too many.
class SlopPlan final : public Plan {
 public:
  explicit SlopPlan(const Problem& problem) : Plan(problem) {}
  void run() override {
    const View& y = bound_.at("y");
    for (std::int64_t row = 0; row < y.rows(); ++row) {
      for (std::int64_t i = 0; i < y.cols(); ++i) {
        reinterpret_cast<float*>(y.row(row))[i] = 1.0f / static_cast<float>(y.cols());
      }
    }
  }
  PlanFacts facts() const override { return {}; }

 private:
  void on_bind(const Operands&) override {}
};

TEST_CASE("a step that computes wrongly is found, also where the whole hides it") {
  Catalogue all = Catalogue::built_in();
  const Kernel& softmax = all.kernel("softmax");
  static Variant slop = *all.variant(softmax, "scalar").variant;
  slop.name = "slop";
  slop.plan = [](const Problem& problem, const Tuning&, const Environment&,
                 const Operands&) -> std::unique_ptr<Plan> {
    return std::make_unique<SlopPlan>(problem);
  };
  slop.ladder = {};
  all.add(CatalogueEntry{"slop", &slop});
  const Instance instance = tiny("block");
  const auto weights = seeded_weights(instance.model, 1, 1);
  Chain chain(instance, *weights, settings_of(1));
  plan_chain(chain, all, {"hwy", "scalar"}, {});
  const auto swaps = plan_swaps(chain, all, {{"softmax", "slop"}}, [](const std::string&) {});
  REQUIRE(swaps[0].size() == 1);
  int failed = 0;
  for (const StepCheck& check : check_steps(chain)) {
    const bool wrong = check.entry->name == "slop";
    CHECK(check.verification.usable() == !wrong);
    failed += wrong;
  }
  CHECK(failed == 1);
}

TEST_CASE("swaps are steps alone, kernels, and all together") {
  const std::string text =
      "model m\ninput x [4,8]\nweight w [8,8]\nbuffer a [4,8]\noutput y [4,8]\n"
      "step one gemm a=x b=w c=a\nstep soft softmax x=a y=a\nstep two gemm a=a b=w c=y\n";
  const Instance instance = instantiate(read_model_text(text, "m"), "", {}, catalogue().kernels());
  const auto weights = seeded_weights("m", 1, 1);
  Chain chain(instance, *weights, settings_of(1));
  plan_chain(chain, catalogue(), {"hwy"}, {{"two", "scalar"}});
  CHECK(chain.runners(0, 2)[0].entry->name == "scalar");
  std::vector<std::string> notes;
  const auto swaps = plan_swaps(chain, catalogue(), {{"gemm", "scalar"}, {"softmax", "scalar"}},
                                [&](const std::string& note) { notes.push_back(note); });
  std::vector<std::string> names;
  for (const Swap& swap : swaps[0]) names.push_back(swap.name);
  CHECK(names ==
        std::vector<std::string>{"gemm=scalar", "softmax=scalar", "gemm=scalar,softmax=scalar"});
  CHECK(notes.size() == 1);  // `two` is its variant already
  CHECK_THROWS_AS(check_changes({{"gem", "scalar"}}, instance, catalogue()), Error);
  CHECK_THROWS_AS(check_changes({{"gemm", "scalr"}}, instance, catalogue()), Error);
}

// Made-up rounds: a step of 60 % and one of 40 %. The second one's calls take half as long when
// swapped.
PhaseRounds made_up(double measured) {
  PhaseRounds rounds;
  rounds.swaps = {{"second", {0, 1}}};
  rounds.swap_whole.resize(1);
  rounds.swap_steps.resize(1);
  for (int r = 0; r < 9; ++r) {
    const double slow = 1 + 0.01 * (r % 3);  // the machine, not a step
    rounds.whole.push_back(100 * slow);
    rounds.steps.push_back({60 * slow, 40 * slow});
    rounds.drawn.push_back({{60 * slow}, {40 * slow, 20 * slow}});
    rounds.swap_whole[0].push_back(measured * slow);
    rounds.swap_steps[0].push_back({60 * slow + measured * slow - 80 * slow, 20 * slow});
  }
  return rounds;
}

TEST_CASE("Amdahl's law: predicted, limited, and what a difference is made of") {
  const PhaseRounds rounds = made_up(80);
  const auto shares = shares_of(rounds, 1);
  CHECK(shares[1].share.value == doctest::Approx(0.4));
  CHECK(shares[1].limit == doctest::Approx(1 / 0.6));
  const Proof proof = prove(rounds, 0, 1);
  CHECK(proof.predicted.value == doctest::Approx(1.25));
  CHECK(proof.measured.value == doctest::Approx(1.25));
  CHECK(proof.measured.interval.contains(1.25));
  CHECK(proof.difference == doctest::Approx(0).epsilon(1e-9));

  const Proof slower = prove(made_up(90), 0, 1);  // the first step took 10 more
  CHECK(slower.difference == doctest::Approx(100 * (1 / 0.9 - 1.25)));
  CHECK(slower.from_others == doctest::Approx(slower.difference));
  CHECK(slower.from_swapped == doctest::Approx(0).epsilon(1e-9));
}

TEST_CASE("rounds measure every phase, swap and drawn call") {
  const Instance instance = tiny("block");
  const auto weights = seeded_weights(instance.model, 1, 1);
  Chain chain(instance, *weights, settings_of(1));
  plan_chain(chain, catalogue(), {"hwy", "scalar"}, {});
  const auto swaps = plan_swaps(chain, catalogue(), {{"gemm", "scalar"}, {"layernorm", "scalar"}},
                                [](const std::string&) {});
  RoundsSettings settings;
  settings.seconds = 0;
  const auto rounds = take_rounds(chain, swaps, settings);
  REQUIRE(rounds.size() == 1);
  CHECK(rounds[0].whole.size() == 3);
  CHECK(rounds[0].swap_whole.size() == 3);
  for (std::size_t r = 0; r < 3; ++r) {
    double sum = 0;
    for (const double ns : rounds[0].steps[r]) sum += ns;
    CHECK(sum == doctest::Approx(rounds[0].whole[r]));
    CHECK(rounds[0].drawn[r][0].size() == 2);
    for (const double ns : rounds[0].drawn[r][0]) CHECK(ns > 0);
    CHECK(rounds[0].drawn[r][1].size() == 1);
  }
}

TEST_CASE("rounds of before are taken up, and those of other steps refused") {
  const Instance instance = tiny("block");
  const auto weights = seeded_weights(instance.model, 1, 1);
  Chain chain(instance, *weights, settings_of(1));
  plan_chain(chain, catalogue(), {"hwy", "scalar"}, {});
  const auto swaps =
      plan_swaps(chain, catalogue(), {{"gemm", "scalar"}}, [](const std::string&) {});
  RoundsSettings settings;
  settings.seconds = 0;
  std::vector<Round> taken;
  settings.on_round = [&](const Round& round) { taken.push_back(round); };
  const auto first = take_rounds(chain, swaps, settings);
  REQUIRE(taken.size() == 3);

  settings.earlier = {taken[0], taken[1]};
  taken.clear();
  const auto second = take_rounds(chain, swaps, settings);
  CHECK(taken.size() == 1);
  REQUIRE(second[0].whole.size() == 3);
  for (const std::size_t r : {0, 1}) {
    CHECK(second[0].whole[r] == first[0].whole[r]);
    CHECK(second[0].steps[r] == first[0].steps[r]);
    CHECK(second[0].swap_whole[0][r] == first[0].swap_whole[0][r]);
    CHECK(second[0].swap_steps[0][r] == first[0].swap_steps[0][r]);
    CHECK(second[0].drawn[r] == first[0].drawn[r]);
  }
  CHECK(second[0].runs_per_turn == first[0].runs_per_turn);

  settings.earlier[0][0].steps.pop_back();
  CHECK_THROWS_AS(take_rounds(chain, swaps, settings), Error);
  settings.earlier = {Round()};
  CHECK_THROWS_AS(take_rounds(chain, swaps, settings), Error);
}

}  // namespace
}  // namespace rooflane::model
