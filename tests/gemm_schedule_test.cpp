// Schedules of hwy's GEMM: the text of one is the execution, what is illegal is refused with its
// reason, and whatever is legal is right.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/highway.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/hwy_cost.hpp"
#include "kernels/gemm/hwy_floats.hpp"
#include "kernels/gemm/hwy_units.hpp"
#include "kernels/gemm/unit_schedule.hpp"
#include "tests/gemm_ways.hpp"

using namespace rooflane;
using namespace rooflane::gemm_ways;
using gemm::MicroTile;
using gemm::Path;
using gemm::Schedule;
using std::int64_t;

namespace {

constexpr MicroTile wide = {.lanes = 16, .mr = 8, .nv = 3, .most_nv = 8};
constexpr MicroTile narrow = {.lanes = 8, .mr = 6, .nv = 2, .most_nv = 6};

template <class T>
T one_of(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

std::string any_problem(std::mt19937& random) {
  const auto size = [&] {
    return one_of(random, {1, 2, 3, 5, 8, 13, 16, 17, 31, 48, 49, 64, 97, 150});
  };
  std::string text = "m=" + std::to_string(size()) + ",n=" + std::to_string(size()) +
                     ",k=" + std::to_string(one_of(random, {1, 2, 7, 16, 33, 64, 129, 300}));
  for (const char* flag : {"trans_a", "trans_b"}) {
    if (random() % 2 == 0) text += "," + std::string(flag) + "=1";
  }
  if (random() % 4 == 0) text += ",prepack=1";
  if (random() % 3 == 0) text += ",batch=3";
  if (random() % 2 == 0) text += ",alpha=2,beta=-1";
  return text;
}

std::vector<float> result(const Problem& problem, const Tuning& tuning, const Environment& env,
                          OwnedOperands& operands, Tuning* used = nullptr) {
  operands.poison_output();
  const auto plan = make_plan(gemm::hwy, problem, tuning, env, operands.all());
  plan->bind(operands.all());
  plan->run();
  if (used != nullptr) *used = plan->facts().tuning;
  const View c = operands.output();
  return {c.f32(), c.f32() + c.elements()};
}

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("candidates are legal, predicted in order, and their text rebuilds them") {
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    const std::string text = any_problem(random);
    const gemm::Gemm g = gemm::as_row(gemm::Gemm(gemm_problem(text)));
    for (const MicroTile& tile : {wide, narrow}) {
      Environment env;
      env.threads = one_of(random, {1, 2, 3, 4, 16, 100});
      env.isa = isa_targets().front();
      INFO(text, " threads=", env.threads);
      const std::vector<Schedule> all = gemm::candidates(g, tile, env);
      REQUIRE(!all.empty());
      CHECK(all.size() <= 40);
      double last = 0;
      for (const Schedule& schedule : all) {
        INFO(gemm::tuning_of(schedule).text());
        CHECK(gemm::defect_of(schedule, g, tile) == std::nullopt);
        CHECK(gemm::with(Schedule(), gemm::tuning_of(schedule)) == schedule);
        const double seconds = gemm::predict(schedule, g, tile, traits(env.isa, schedule.threads));
        CHECK(seconds >= last);
        CHECK(seconds < 1);
        last = seconds;
      }
    }
  }
}

TEST_CASE("a plan has the first of all candidates, though its search leaves out most of them") {
  std::mt19937 random(seed);
  const char* const formats[] = {"", ",a_type=s8,b_type=s8,c_type=s32", ",trans_b=1,b_type=q4_0",
                                 ",trans_b=1,a_type=bf16,b_type=bf16"};
  const auto size = [&] { return one_of(random, {1, 3, 17, 64, 178, 450, 1400}); };
  for (int i = 0; i < 200; ++i) {
    std::string text = "m=" + std::to_string(size()) + ",n=" + std::to_string(size()) +
                       ",k=" + std::to_string(one_of(random, {32, 96, 480, 2048}));
    if (random() % 4 == 0) text += ",batch=9";
    text += formats[random() % 4];
    CAPTURE(text);
    const Problem problem = gemm_problem(text);
    Environment env;
    env.threads = one_of(random, {1, 2, 7, 16});
    env.math = math_for(problem, "fp32");
    CAPTURE(env.threads);
    const auto seconds = [&](const Tuning& tuning) {
      return gemm::hwy.predicted_seconds(problem, tuning, env);
    };
    const Tuning first = gemm::hwy.tunings(problem, env).front();
    CHECK(seconds(Tuning()) == doctest::Approx(seconds(first)).epsilon(1e-9));
  }
}

TEST_CASE("a row's tuning replays its execution bit for bit") {
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    const Problem problem = gemm_problem(any_problem(random));
    OwnedOperands operands(problem, seed, 1);
    for (const std::string& isa : isa_targets()) {
      Environment env;
      env.isa = isa;
      env.threads = one_of(random, {1, 2, 4});
      Tuning used, again;
      const std::vector<float> first = result(problem, {}, env, operands, &used);
      INFO(problem.text(), " ", isa, " ", used.text());
      CHECK(same_bits(first, result(problem, used, env, operands, &again)));
      CHECK(used == again);
    }
  }
}

TEST_CASE("whatever schedule is legal is right") {
  std::mt19937 random(seed + 1);
  int tried = 0;
  for (int i = 0; i < 250; ++i) {
    const Problem problem = gemm_problem(any_problem(random));
    OwnedOperands operands(problem, seed, 1);
    for (const std::string& isa : isa_targets()) {
      Environment env;
      env.isa = isa;
      env.threads = one_of(random, {1, 2, 3, 4});
      const std::vector<Tuning> candidates = gemm::hwy.tunings(problem, env);
      Tuning tuning = candidates[random() % candidates.size()];
      // Changed in a few fields at random, as far as that is legal.
      for (int change = 0; change < 6; ++change) {
        Tuning changed = tuning;
        const char* const name =
            one_of(random, {"mr", "nr", "mc", "kc", "nc", "kb", "pack_a", "pack_b", "order",
                            "static", "m_parts", "n_parts", "k_parts", "batch_parts"});
        if (!changed.find(name)) continue;
        changed.set(name, one_of(random, {0, 1, 2, 3, 4, 7, 8, 16, 20, 32, 48, 100}));
        const auto tunable =
            std::find_if(gemm::hwy.tunables.begin(), gemm::hwy.tunables.end(),
                         [&](const Tunable& t) { return name == std::string(t.name); });
        const int64_t value = changed.get(name, 0);
        if (value < tunable->least || value > tunable->most) continue;
        if (!gemm::hwy.tuning_defect(problem, changed, env)) tuning = changed;
      }
      INFO(problem.text(), " ", isa, " threads=", env.threads, " ", tuning.text());
      result(problem, tuning, env, operands);
      check_right(problem, operands.all(), operands.output());
      ++tried;
    }
  }
  CHECK(tried >= 250);
}

TEST_CASE("what cannot be executed is refused, with the reason") {
  struct Case {
    const char* problem;
    Tuning tuning;
    const char* reason;
  };
  Case cases[] = {
      {"m=20,n=20,k=20", {{"path", 0}}, "path=0 forms no product"},
      {"m=20,n=20,k=20,alpha=0", {{"path", 3}}, "there is no product to form: path=0"},
      {"m=20,n=20,k=20", {{"path", 1}, {"transposed", 0}}, "needs a b that is contiguous along k"},
      {"m=20,n=20,k=20,trans_b=1", {{"path", 3}, {"pack_b", 0}}, "a transposed b needs pack_b=1"},
      {"m=20,n=20,k=20,prepack=1", {{"path", 3}}, "a b packed beforehand needs path=4 or 1"},
      {"m=20,n=20,k=20", {{"path", 3}, {"transposed", 1}}, "path=3 forms c itself: transposed=0"},
      {"m=20,n=20,k=20", {{"path", 4}, {"k_parts", 2}}, "path=4 has no pack_b and no k_parts"},
      {"m=20,n=20,k=20", {{"path", 3}, {"kc", 20}, {"k_parts", 2}}, "exceeds the 1 blocks of k"},
      {"m=20,n=20,k=20", {{"path", 3}, {"mr", 64}}, "mr is at most"},
      {"m=20,n=20,k=20", {{"path", 3}, {"nr", 3}}, "nr must be a multiple of"},
      {"m=13,n=900,k=90", {{"path", 2}, {"order", 1}}, "serves up to 12 rows"},
      {"m=4000,n=9000,k=9000",
       {{"path", 4}, {"nc", 9024}, {"kc", 9000}, {"kb", 9000}},
       "MiB of workspace; allowed are 64 MiB"},
      // Packed operands fit; the states of their pieces do not.
      {"m=1000,n=1000,k=8380",
       {{"path", 4}, {"pack_a", 1}, {"share_a", 1}, {"nc", 1008}, {"kc", 64}, {"kb", 8380}},
       "MiB of workspace; allowed are 64 MiB"},
      // 2^73 floats, which 64 bits would take for few.
      {"m=16777216,n=16777216,k=16777216",
       {{"path", 3}, {"kc", 128}, {"k_parts", 65536}},
       "MiB of workspace; allowed are 64 MiB"},
  };
  Environment env;
  env.isa = isa_targets().front();
  if (env.isa == "SCALAR" || env.isa == "EMU128") return;  // any nr is a multiple of a lane
  for (Case& c : cases) {
    if (c.tuning.get("pack_a", 0)) c.tuning.set("mr", gemm::micro_tile_at(resolve_isa(env.isa)).mr);
    INFO(c.problem, " ", c.tuning.text());
    const auto defect = gemm::hwy.tuning_defect(gemm_problem(c.problem), c.tuning, env);
    REQUIRE(defect.has_value());
    CHECK_MESSAGE(defect->find(c.reason) != std::string::npos, *defect);
  }
}

TEST_CASE("the model: more work takes longer, and threads pay for being started") {
  const Traits t = derived_traits(machine(), isa_targets().front(), 2);
  const auto g = [](const char* text) { return gemm::Gemm(gemm_problem(text)); };
  Environment env;
  env.isa = isa_targets().front();
  for (const Schedule& s : gemm::candidates(g("m=100,n=110,k=120"), wide, env)) {
    const double time = gemm::predict(s, g("m=100,n=110,k=120"), wide, t);
    CHECK(gemm::predict(s, g("m=200,n=110,k=120"), wide, t) > time);
    CHECK(gemm::predict(s, g("m=100,n=220,k=120"), wide, t) > time);
    CHECK(gemm::predict(s, g("m=100,n=110,k=240"), wide, t) > time);
  }
  env.threads = 2;
  const auto threads_of = [&](const char* text) {
    return gemm::candidates(g(text), wide, env).front().threads;
  };
  CHECK(threads_of("m=4,n=4,k=4") == 1);
  CHECK(threads_of("m=1000,n=1000,k=1000") == 2);
}

TEST_CASE("the model: rows in place that meet in a set of L1 with fewer ways evict each other") {
  Traits t = derived_traits(machine(), isa_targets().front(), 1);
  t.l1_bytes = 32 << 10;  // 8 ways of 4 KiB
  const MicroTile tile = {.lanes = 8, .mr = 6, .nv = 2, .most_nv = 4};
  // The time with 12 rows a micro-tile over that with 6.
  const auto twelve_rows = [&](const char* problem) {
    const gemm::Gemm g(gemm_problem(problem));
    Schedule s;
    s.path = gemm::Path::packed, s.transposed = true;
    s.nr = 16, s.nc = 16, s.mc = 60, s.kc = 512, s.kb = g.k;
    s.mr = 12;
    const double time = gemm::predict(s, g, tile, t);
    s.mr = 6;
    return time / gemm::predict(s, g, tile, t);
  };
  // Rows 12 KiB apart meet, rows 12.06 KiB apart do not.
  CHECK(twelve_rows("m=8,n=768,k=3072,trans_b=1") > 1.2);
  CHECK(twelve_rows("m=8,n=768,k=3088,trans_b=1") < 1.05);
  t.l1_bytes = 48 << 10;  // 12 ways
  CHECK(twelve_rows("m=8,n=768,k=3072,trans_b=1") < 1.05);
}

TEST_CASE(
    "the model: packed weights beyond the caches come from memory, however small a task's share") {
  Traits t = derived_traits(machine(), isa_targets().front(), 2);
  t.l3_bytes = 32 << 20;
  const Problem problem = gemm_problem("m=8,n=4096,k=4096,trans_b=1,prepack=1,b_type=q4_0");
  Environment env;
  env.isa = isa_targets().front();
  env.threads = 2;
  const gemm::Unit unit =
      gemm::fma_unit(problem.dtype("a_type"), problem.dtype("b_type"), resolve_isa(env.isa));
  const gemm::UnitProblem of(problem, env, unit);
  Schedule s;
  s.path = Path::packed;
  s.threads = 2, s.n_parts = 8;
  s.mc = unit.mr, s.nc = 4096, s.kc = 4096;
  constexpr double bytes = 4.0 * 4096 * 4096;
  CHECK(gemm::predict(gemm::rounded(s, of), of, t) > bytes / 2 / t.many.read[in_memory]);
}

TEST_CASE("a single column is a row of the transpose, whose operands lie as they did") {
  const gemm::Gemm g = gemm::as_row(gemm::Gemm(gemm_problem("m=30,n=1,k=7,trans_a=1")));
  CHECK(g.m == 1);
  CHECK(g.n == 30);
  CHECK(g.trans_a);
  CHECK_FALSE(g.trans_b);
  CHECK(gemm::as_row(gemm::Gemm(gemm_problem("m=30,n=1,k=7,prepack=1"))).n == 1);
}
