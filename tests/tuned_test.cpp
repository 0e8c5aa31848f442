// Tuned schedules: which entry serves a problem, what files may hold, and what plans, workers and
// the benchmark make of them. Made-up tunables say what was looked up; nothing is timed.
#include "core/tuned.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "backends/highway.hpp"
#include "bench/groups.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/temporary_folder.hpp"
#include "core/traits.hpp"
#include "fakes.hpp"
#include "measure/worker.hpp"

using namespace rooflane;

namespace {

const Catalogue& built_in() {
  static const Catalogue all = fake_catalogue();
  return all;
}

Problem problem(const std::string& text) { return parse_problem(text, built_in().kernels()); }

// A variant with a plan that fails at block=9 and refuses blocks above the number of rows.
constexpr Tunable tunables[] = {{"block", "made up", 1, 1000}, {"other", "made up", 0, 9}};
const Backend backend = {.name = "made up", .isa = "baseline"};

std::unique_ptr<Plan> plan_scalar(const Problem& p, const Tuning& tuning, const Environment& env,
                                  const Operands& constants) {
  if (tuning.get("block", 1) == 9) throw UnfitTuning("too large for this device");
  const Variant& scalar = *built_in().variant(p.kernel(), "scalar").variant;
  struct Told final : Plan {
    Told(std::unique_ptr<Plan> plan, Tuning told)
        : Plan(plan->problem()), inner(std::move(plan)), tuning(std::move(told)) {}
    void run() override { inner->run(); }
    PlanFacts facts() const override {
      PlanFacts facts = inner->facts();
      facts.tuning = tuning;
      return facts;
    }
    void on_bind(const Operands& operands) override { inner->bind(operands); }
    std::unique_ptr<Plan> inner;
    Tuning tuning;
  };
  const Tuning complete = tuning.values().empty() ? Tuning{{"block", 1}, {"other", 0}} : tuning;
  return std::make_unique<Told>(scalar.plan(p, {}, env, constants), complete);
}

const Variant made_up = {.name = "made-up",
                         .kernel = &built_in().kernel("gemm"),
                         .backend = &backend,
                         .threads = Threads::many,
                         .tunables = tunables,
                         .unsupported = nullptr,
                         .tunings = [](const Problem&, const Environment&) -> std::vector<Tuning> {
                           return {Tuning{{"block", 1}, {"other", 0}}};
                         },
                         .plan = plan_scalar,
                         .tuning_defect = [](const Problem& p, const Tuning& t,
                                             const Environment&) -> std::optional<std::string> {
                           if (t.get("block", 0) <= p.size("m")) return std::nullopt;
                           return "block exceeds m";
                         }};

const Catalogue& catalogue() {
  static const Catalogue all = [] {
    Catalogue more = fake_catalogue();
    more.add(CatalogueEntry{"made-up", &made_up, ""});
    return more;
  }();
  return all;
}

TunedEntry entry(const std::string& shape, const std::string& tuning) {
  TunedEntry made;
  made.kernel = "gemm";
  made.variant = "made-up";
  made.math = "fp32";
  made.isa = "baseline";
  made.threads = 2;
  made.tuning = tuning;
  made.problem = problem(shape);
  return made;
}

Environment two_threads() {
  Environment env;
  env.threads = 2;
  return env;
}

std::string found(const TunedSchedules& schedules, const std::string& shape,
                  const Environment& env = two_threads()) {
  const auto choice = find_tuned(schedules, "made-up", made_up, problem(shape), env);
  return choice ? choice->tuning.text() : "model";
}

std::string refusal_of(const std::string& text) {
  try {
    parse_tuned(text, built_in().kernels());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    return error.what();
  }
  return "accepted";
}

std::string file_with(const std::string& entries, const std::string& machine) {
  return fmt::format(R"({{"rooflane_tuned":1,"machine":{{"key":"{}"}},"entries":[{}]}})", machine,
                     entries);
}

constexpr const char* one_entry =
    R"({"kernel":"gemm","variant":"made-up","shape":"gemm:m=8,n=8,k=8","math":"fp32","threads":2,)"
    R"("isa":"baseline","device":"","tuning":"block=4"})";

}  // namespace

TEST_CASE("an entry that was timed with the problem's usual state of the caches comes first") {
  const std::string cold = "gemm:m=16,n=64,k=64,prepack=1", warm = "gemm:m=17,n=64,k=64,prepack=1";
  TunedSchedules schedules;
  schedules.entries = {entry(cold, "block=2"), entry(cold, "block=3"), entry(warm, "block=4")};
  schedules.entries[1].cold = true;
  CHECK(found(schedules, cold) == "block=3,other=0");
  CHECK(found(schedules, warm) == "block=4,other=0");
  CHECK(found(schedules, "gemm:m=18,n=64,k=64,prepack=1") == "block=4,other=0");
  schedules.entries.erase(schedules.entries.begin() + 1);
  CHECK(found(schedules, cold) == "block=2,other=0");
}

TEST_CASE("the state of the caches is read, and is the usual one where a file does not say it") {
  const auto cold = [](const std::string& shape, const std::string& field) {
    std::string text = one_entry;
    text.replace(text.find("gemm:m=8,n=8,k=8"), 16, shape);
    text.replace(text.find("\"math\""), 0, field);
    return parse_tuned(file_with(text, "a"), built_in().kernels()).entries[0].cold;
  };
  CHECK(!cold("gemm:m=8,n=8,k=8", ""));
  CHECK(cold("gemm:m=8,n=8,k=8,prepack=1", ""));
  CHECK(!cold("gemm:m=8,n=8,k=8,prepack=1", R"("cache":"warm",)"));
  CHECK(cold("gemm:m=8,n=8,k=8", R"("cache":"cold",)"));
}

TEST_CASE("the problem's own entry comes before a nearer line of the file, that before the model") {
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=64,n=64,k=100", "block=2"),
                       entry("gemm:m=64,n=64,k=64", "block=3"),
                       entry("gemm:m=64,n=64,k=64", "block=4")};
  CHECK(found(schedules, "gemm:m=64,n=64,k=64") == "block=3,other=0");
  CHECK(found(schedules, "gemm:m=64,n=64,k=66") == "block=3,other=0");
  CHECK(found(schedules, "gemm:m=64,n=64,k=99") == "block=2,other=0");
  CHECK(found(schedules, "gemm:m=64,n=64,k=1000") == "model");
  CHECK(found(no_tuned_schedules(), "gemm:m=64,n=64,k=64") == "model");
}

TEST_CASE("no size may be more than doubled or halved, and of equal distances the first serves") {
  CHECK(*tuned_distance(problem("gemm:m=64,n=64,k=64"), problem("gemm:m=32,n=64,k=128")) == 1);
  CHECK(*tuned_distance(problem("gemm:m=3,n=5,k=7"), problem("gemm:m=3,n=5,k=7")) == 0);
  CHECK_FALSE(tuned_distance(problem("gemm:m=0,n=5,k=7"), problem("gemm:m=1,n=5,k=7")));
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=64,n=64,k=50", "block=2"),
                       entry("gemm:m=64,n=64,k=200", "block=3")};
  CHECK(found(schedules, "gemm:m=64,n=64,k=100") == "block=2,other=0");
  CHECK(found(schedules, "gemm:m=128,n=32,k=100") == "block=2,other=0");
  CHECK(found(schedules, "gemm:m=129,n=64,k=100") == "model");
  CHECK(found(schedules, "gemm:m=64,n=31,k=100") == "model");
}

TEST_CASE(
    "a family has equal types, flags and numbers; defaults that follow from sizes are equal") {
  for (const char* other : {"trans_b=1", "alpha=2", "beta=1", "prepack=1"}) {
    INFO(other);
    CHECK_FALSE(tuned_distance(problem("gemm:m=8,n=8,k=8"),
                               problem(std::string("gemm:m=8,n=8,k=8,") + other)));
  }
  CHECK_FALSE(
      tuned_distance(problem("softmax:rows=8,cols=8"), problem("softmax:rows=8,cols=8,type=f16")));
  const std::string attention = "attention:batch=1,heads=2,q_len=8,kv_len=8,head_dim=";
  CHECK(*tuned_distance(problem(attention + "64"), problem(attention + "32")) == 1);
  CHECK_FALSE(tuned_distance(problem(attention + "64"), problem(attention + "32,scale=0.5")));
  CHECK_FALSE(tuned_distance(problem(attention + "64"), problem(attention + "64,causal=1")));
}

TEST_CASE("an exact entry serves its own shape only") {
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=64,n=64,k=64", "block=2"),
                       entry("gemm:m=64,n=64,k=66", "block=3")};
  schedules.entries[1].exact = true;
  CHECK(found(schedules, "gemm:m=64,n=64,k=66") == "block=3,other=0");
  CHECK(found(schedules, "gemm:m=64,n=64,k=67") == "block=2,other=0");
}

TEST_CASE("a tuning that is illegal for the problem, or unknown, gives way to the next nearest") {
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=64,n=64,k=64", "block=64"),
                       entry("gemm:m=64,n=64,k=64", "blok=3"),
                       entry("gemm:m=64,n=64,k=64", "block=1001"),
                       entry("gemm:m=64,n=64,k=100", "block=60,other=7")};
  CHECK(found(schedules, "gemm:m=64,n=64,k=64") == "block=64,other=0");
  CHECK(found(schedules, "gemm:m=63,n=64,k=64") == "block=60,other=7");
  CHECK(found(schedules, "gemm:m=59,n=64,k=64") == "model");
}

TEST_CASE("kernel, variant, math, threads, ISA target and device must agree") {
  const std::string shape = "gemm:m=64,n=64,k=64";
  const auto without = [&](auto&& spoil) {
    TunedSchedules schedules;
    schedules.entries = {entry(shape, "block=2")};
    spoil(schedules.entries[0]);
    return found(schedules, shape);
  };
  CHECK(without([](TunedEntry&) {}) == "block=2,other=0");
  CHECK(without([](TunedEntry& e) { e.variant = "scalar"; }) == "model");
  CHECK(without([](TunedEntry& e) { e.math = "3xtf32"; }) == "model");
  CHECK(without([](TunedEntry& e) { e.threads = 1; }) == "model");
  CHECK(without([](TunedEntry& e) { e.isa = "AVX2"; }) == "model");
  CHECK(without([](TunedEntry& e) { e.device = "a GPU"; }) == "model");
  CHECK(without([](TunedEntry& e) { e.problem.reset(); }) == "model");
  // Where the ISA target is left open, it is the CPU's best.
  TunedSchedules schedules;
  schedules.entries = {entry(shape, "path=4")};
  schedules.entries[0].variant = "hwy";
  schedules.entries[0].isa = isa_targets().front();
  const Variant& hwy = *built_in().variant(built_in().kernel("gemm"), "hwy").variant;
  Environment env = two_threads();
  CHECK(find_tuned(schedules, "hwy", hwy, problem(shape), env));
  env.isa = isa_targets().back();
  CHECK(find_tuned(schedules, "hwy", hwy, problem(shape), env).has_value() ==
        (isa_targets().size() == 1));
}

TEST_CASE("a file that is broken says where and what is allowed") {
  const auto entry_without = [](const std::string& part, const std::string& instead) {
    std::string text = one_entry;
    const std::size_t at = text.find(part);
    REQUIRE(at != std::string::npos);
    return file_with(text.replace(at, part.size(), instead), "m");
  };
  CHECK(refusal_of(file_with(one_entry, "m")) == "accepted");
  CHECK(refusal_of("[").starts_with("is no JSON: parse error at line 1, column 2"));
  CHECK(refusal_of("[]") == "an object {...} expected");
  CHECK(refusal_of("{}") == "field rooflane_tuned is missing");
  CHECK(refusal_of(R"({"rooflane_tuned":2})") == "rooflane_tuned: 1 expected, not 2");
  CHECK(refusal_of(R"({"rooflane_tuned":1,"machine":{}})") == "machine: field key is missing");
  CHECK(refusal_of(R"({"rooflane_tuned":1,"machine":{"key":"m"},"entries":{}})") ==
        "entries: a list [...] expected");
  CHECK(refusal_of(file_with("1", "m")) == "entry 1: an object {...} expected");
  CHECK(refusal_of(entry_without("\"math\":\"fp32\",", "")) == "entry 1: field math is missing");
  CHECK(refusal_of(entry_without("\"fp32\"", "32")) == "entry 1: math: a text expected, not 32");
  CHECK(refusal_of(entry_without("\"threads\":2", "\"threads\":1.5")) ==
        "entry 1: threads: a whole number from 0 to 65536 expected, not 1.5");
  CHECK(refusal_of(entry_without("\"gemm:m=8", "\"softmax:m=8"))
            .starts_with("entry 1: shape: a problem of gemm expected"));
  CHECK(refusal_of(entry_without("k=8", "q=8")).starts_with("entry 1: shape: "));
  CHECK(refusal_of(entry_without("block=4", "")) == "entry 1: tuning: it names no tunable");
  CHECK(refusal_of(entry_without("block=4\"", "block=4\",\"ratio\":{\"value\":1}")) ==
        "entry 1: ratio: field low is missing");
  CHECK(refusal_of(entry_without("block=4\"", "block=4\",\"exact\":1")) ==
        "entry 1: exact: true or false expected, not 1");
}

TEST_CASE("kernels of another build are kept, and serve nothing") {
  const std::string text = R"({"kernel":"fft","variant":"hwy","shape":"fft:n=8","math":"fp32",)"
                           R"("threads":1,"isa":"","device":"","tuning":"a=1"})";
  const TunedSchedules schedules =
      parse_tuned(file_with(text + "," + one_entry, "m"), built_in().kernels());
  REQUIRE(schedules.entries.size() == 2);
  CHECK_FALSE(schedules.entries[0].problem);
  CHECK(found(schedules, "gemm:m=8,n=8,k=8") == "block=4,other=0");
}

TEST_CASE("a named file must exist and may be of another machine, the store need not and may not") {
  const TemporaryFolder folder;
  const auto file = folder / "tuned.json";
  CHECK(read_tuned(file, true).problem == "there is no such file");
  CHECK(read_tuned(file, false).problem.empty());
  CHECK_FALSE(read_tuned(file, false).schedules);
  std::ofstream(file) << file_with(one_entry, "a toaster");
  CHECK(read_tuned(file, true).schedules->machine == "a toaster");
  CHECK(read_tuned(file, false).problem == "of another machine (a toaster)");
  std::ofstream(file) << file_with(one_entry, machine_key(machine()));
  CHECK(read_tuned(file, false).schedules->entries.size() == 1);
  std::ofstream(file) << "{";
  for (const bool named : {false, true}) {
    CHECK(read_tuned(file, named).problem.starts_with("is no JSON: "));
    CHECK_FALSE(read_tuned(file, named).schedules);
  }
}

TEST_CASE("tests never see what this machine has tuned") {
  REQUIRE(std::getenv("ROOFLANE_TUNED") != nullptr);
  CHECK(tuned_source().file.empty());
  CHECK(tuned_schedules().entries.empty());
}

TEST_CASE("what another process stored is seen when it is read again") {
  const TemporaryFolder folder;
  const auto file = folder / "tuned.json";
  setenv("ROOFLANE_TUNED", file.c_str(), 1);
  std::ofstream(file) << file_with("", "m");
  reread_tuned();
  const TunedSchedules& before = tuned_schedules();
  std::ofstream(file) << file_with(one_entry, "m");
  CHECK(tuned_schedules().entries.empty());
  reread_tuned();
  CHECK(tuned_schedules().entries.size() == 1);
  CHECK(before.entries.empty());
  setenv("ROOFLANE_TUNED", "", 1);
  reread_tuned();
  CHECK(tuned_schedules().entries.empty());
}

TEST_CASE("a plan without a tuning takes the stored one; one that fails gives way to the model") {
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=64,n=64,k=64", "block=4"),
                       entry("gemm:m=300,n=64,k=64", "block=9")};
  Environment env = two_threads();
  env.tuned = &schedules;
  const auto tuning_at = [&](const std::string& shape, const Tuning& given) {
    return make_plan(made_up, problem(shape), given, env, {})->facts().tuning.text();
  };
  CHECK(tuning_at("gemm:m=64,n=64,k=64", {}) == "block=4,other=0");
  CHECK(tuning_at("gemm:m=64,n=64,k=64", {{"block", 2}}) == "block=2");
  CHECK(tuning_at("gemm:m=300,n=64,k=64", {}) == "block=1,other=0");
  CHECK(tuning_at("gemm:m=8,n=8,k=8", {}) == "block=1,other=0");
  env.tuned = &no_tuned_schedules();
  CHECK(tuning_at("gemm:m=64,n=64,k=64", {}) == "block=1,other=0");
}

TEST_CASE("a case carries its stored tuning as text, and a worker says where tunings come from") {
  Case c = parse_case("gemm:m=8,n=8,k=8 variant=made-up threads=2", catalogue());
  const auto worker = local_worker(catalogue());
  CHECK(worker->open(c).tuning_source == "model");
  c.tuning = {{"block", 4}, {"other", 0}};
  CHECK(worker->open(c).tuning_source == "given");
  c.stored = true;
  CHECK(c.text() ==
        "gemm:m=8,n=8,k=8 variant=made-up tuning=block=4,other=0 tuning_source=store threads=2");
  const Case again = parse_case(c.text(), catalogue());
  CHECK((again.stored && again.tuning == c.tuning));
  CHECK(worker->open(again).tuning_source == "store");
  c.tuning = {{"block", 9}};  // fails
  const Opened opened = worker->open(c);
  CHECK(opened.tuning_source == "model");
  CHECK(opened.facts.tuning.text() == "block=1,other=0");
  c.stored = false;
  CHECK_THROWS_AS(worker->open(c), WorkerError);
  const Case scalar = parse_case("gemm:m=8,n=8,k=8 variant=scalar", catalogue());
  CHECK(worker->open(scalar).tuning_source.empty());
  for (const char* bad : {" tuning_source=store", " tuning=block=4 tuning_source=shop"}) {
    CHECK_THROWS_AS(parse_case(std::string("gemm:m=8,n=8,k=8 variant=made-up") + bad, catalogue()),
                    Error);
  }
}

TEST_CASE("the suite takes stored tunings, and with a named file the variant's own choice too") {
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=8,n=8,k=8", "block=4")};
  BenchOptions options;
  options.catalogue = &catalogue();
  options.problems = {{problem("gemm:m=8,n=8,k=8"), ""}, {problem("gemm:m=80,n=8,k=8"), ""}};
  options.variants = {"made-up", "scalar"};
  options.threads = {2};
  const auto cases = [&] {
    std::vector<std::string> texts;
    const Suite suite = make_suite(options);
    for (const GroupCase* c : suite.cases()) {
      texts.push_back(fmt::format("{} {}", c->name, tuning_source_of(c->measured, made_up)));
    }
    return texts;
  };
  const std::string near = "gemm/made-up/m=8,n=8,k=8/threads:2/warm";
  const std::string far = "gemm/made-up/m=80,n=8,k=8/threads:2/warm";
  const std::string scalars[] = {"gemm/scalar/m=8,n=8,k=8/threads:1/warm model",
                                 "gemm/scalar/m=80,n=8,k=8/threads:1/warm model"};
  CHECK(cases() == std::vector{near + " model", scalars[0], far + " model", scalars[1]});
  options.tuned = std::make_shared<const TunedSchedules>(schedules);
  CHECK(cases() == std::vector{near + " store", scalars[0], far + " model", scalars[1]});
  options.tuned_beside_model = true;
  CHECK(cases() == std::vector{near + "/tuned store", near + " model", scalars[0], far + " model",
                               scalars[1]});
  CHECK(make_suite(options).groups.size() == 2);
  options.tunings = {{"made-up", "block=2"}};
  CHECK(cases() == std::vector{near + " given", scalars[0], far + " given", scalars[1]});
  options.tunings.clear();
  options.ladder = true;
  CHECK_THROWS_WITH_AS(make_suite(options), doctest::Contains("--tuned has no place"), Error);
}

TEST_CASE("rows of both are measured in the same rounds and say which is which") {
  TunedSchedules schedules;
  schedules.entries = {entry("gemm:m=8,n=8,k=8", "block=4")};
  BenchOptions options;
  options.catalogue = &catalogue();
  options.problems = {{problem("gemm:m=8,n=8,k=8"), ""}};
  options.variants = {"made-up"};
  options.threads = {2};
  options.tuned = std::make_shared<const TunedSchedules>(schedules);
  options.tuned_beside_model = true;
  options.in_process = true;
  options.min_time = 0;
  options.launches = 1;
  const Ceilings none;
  options.ceilings = &none;
  struct Recorder final : RowSink {
    void on_sample(const Sample& sample) override { ++rounds[sample.row][sample.round]; }
    void on_row(const Row&) override {}
    std::map<std::int64_t, std::map<std::int64_t, int>> rounds;
  } recorder;
  const std::vector<Row> rows = run_bench(options, make_suite(options), {&recorder}).rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].status == "PASSED");
  CHECK((rows[0].tuning == "block=4,other=0" && rows[0].tuning_source == "store"));
  CHECK((rows[1].tuning == "block=1,other=0" && rows[1].tuning_source == "model"));
  CHECK(recorder.rounds[0].size() == recorder.rounds[1].size());
}
