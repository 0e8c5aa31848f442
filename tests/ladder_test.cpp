// Ladders: rungs stay hidden unless asked for by `step=I`, never count as their variant's own row,
// and have tables of their own. That rungs are right is tested with the variants
// (conformance_test.cpp and the kernels' tests).
#include <doctest/doctest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absent_variants.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "io/compare.hpp"
#include "io/crossover.hpp"
#include "io/ladder.hpp"
#include "io/summary_text.hpp"
#include "measure/case.hpp"

using namespace rooflane;

namespace {

const Catalogue& catalogue() {
  static const Catalogue built_in = Catalogue::built_in();
  return built_in;
}

// Every variant that has a ladder and can be planned here.
std::vector<const Variant*> with_ladder() {
  for (const Kernel* kernel : catalogue().kernels()) {
    test::skip_absent(catalogue(), *kernel, "opencl");
  }
  std::vector<const Variant*> found;
  for (const CatalogueEntry& entry : catalogue().entries()) {
    if (!entry.variant->ladder.empty() && !absent_reason(entry)) found.push_back(entry.variant);
  }
  REQUIRE(!found.empty());
  return found;
}

Problem some_problem(const Variant& variant) {
  for (const char* text :
       {"gemm:m=33,n=35,k=37", "softmax:rows=9,cols=70", "layernorm:rows=9,cols=70",
        "attention:batch=1,heads=2,q_len=9,kv_len=20,head_dim=24"}) {
    Problem problem = parse_problem(text, catalogue().kernels());
    if (&problem.kernel() == variant.kernel) return problem;
  }
  FAIL("no problem of ", variant.kernel->name);
  return {};
}

std::string refusal(const Variant& variant, const std::string& text) {
  try {
    parse_tuning(variant, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

MeasuredRow row(const std::string& variant, int threads, double p50, const std::string& tuning) {
  MeasuredRow m;
  Row& r = m.row;
  r.kernel = "gemm";
  r.shape = "m=8,n=8,k=8";
  r.variant = variant;
  r.tuning = tuning;
  r.dtype = "float32";
  r.math = "fp32";
  r.cache = "warm";
  r.cpu = "Some CPU";
  r.isa = "AVX3";
  r.bound = "compute";
  r.status = "PASSED";
  r.threads = threads;
  r.p50_ns = r.p20_ns = r.p80_ns = p50;
  r.gflops = 1024 / p50;
  return m;
}

// Samples of three launches with three rounds each.
void add_samples(MeasuredRow& m, double ns) {
  for (std::int64_t launch = 1; launch <= 3; ++launch) {
    for (std::int64_t round = 0; round < 3; ++round) {
      m.samples.push_back({0, launch, round, ns + static_cast<double>(round) * 0.01, 1000});
    }
  }
}

std::vector<MeasuredRow> some_ladder() {
  return {row("hwy", 1, 800, "step=0"), row("hwy", 1, 400, "step=1"), row("hwy", 1, 200, "step=2"),
          row("hwy", 2, 100, "step=2"), row("hwy", 1, 160, "mc=96"),  row("hwy", 2, 80, "mc=96")};
}

const SummaryLine* line_of(const SummaryGroup& group, const std::string& variant) {
  for (const SummaryLine& line : group.lines) {
    if (line.row->variant == variant) return &line;
  }
  return nullptr;
}

}  // namespace

TEST_CASE(
    "gemm, softmax, layernorm and attention have a variant with a ladder of 3 to 5 named rungs, "
    "beside what only `bench --fusion` runs") {
  std::set<std::string> kernels;
  for (const Variant* variant : with_ladder()) {
    kernels.insert(variant->kernel->name);
    std::set<std::string> names;
    std::size_t climbed = 0;
    for (const Rung& rung : variant->ladder) {
      names.insert(rung.name);
      if (rung.name != std::string("separate")) ++climbed;
      CHECK(std::string(rung.idea).size() > 10);
      CHECK((rung.threads == Threads::device) == (variant->threads == Threads::device));
    }
    CHECK(climbed >= 3);
    CHECK(climbed <= 5);
    CHECK(names.size() == variant->ladder.size());
  }
  CHECK(kernels == std::set<std::string>{"attention", "gemm", "layernorm", "softmax"});
}

TEST_CASE("rungs are in no search space, no first guess and no tunable") {
  for (const CatalogueEntry& entry : catalogue().entries()) {
    for (const Tunable& tunable : entry.variant->tunables) CHECK(tunable.name != step_key);
  }
  for (const Variant* variant : with_ladder()) {
    const Problem problem = some_problem(*variant);
    for (const Tuning& tuning : variant->tunings(problem, {})) {
      CHECK_FALSE(tuning.find(step_key).has_value());
      CHECK(rung_of(*variant, tuning) == nullptr);
    }
    CHECK_FALSE(complete_tuning(*variant, problem, {}, {}).find(step_key).has_value());
    const auto plan = make_plan(*variant, problem, {}, {}, {});
    CHECK_FALSE(plan->facts().tuning.find(step_key).has_value());
  }
}

TEST_CASE("step=I selects rung I, stays as given and stands in the row's tuning") {
  for (const Variant* variant : with_ladder()) {
    const Problem problem = some_problem(*variant);
    const std::vector<Tuning> steps = step_tunings(*variant);
    REQUIRE(steps.size() == variant->ladder.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CHECK(parse_tuning(*variant, "step=" + std::to_string(i)) == steps[i]);
      CHECK(rung_of(*variant, steps[i]) == &variant->ladder[i]);
      CHECK(threads_of(*variant, steps[i]) == variant->ladder[i].threads);
      CHECK(complete_tuning(*variant, problem, {}, steps[i]) == steps[i]);
      CHECK_NOTHROW(require_tuning(*variant, problem, {}, steps[i]));
      const auto plan = make_plan(*variant, problem, steps[i], {}, {});
      CHECK(plan->facts().tuning == steps[i]);
      CHECK(step_of(row("hwy", 1, 1, plan->facts().tuning.text()).row) ==
            static_cast<std::int64_t>(i));
    }
    Case c;
    c.problem = problem;
    c.variant = variant->name;
    c.tuning = steps.back();
    CHECK(parse_case(c.text(), catalogue()).tuning == steps.back());
  }
}

TEST_CASE(
    "a step that does not exist, or has company, or no ladder, is refused with what is allowed") {
  for (const Variant* variant : with_ladder()) {
    const auto count = static_cast<std::int64_t>(variant->ladder.size());
    for (const std::string& bad : {std::to_string(count), std::string("-1"), std::string("x")}) {
      CHECK(contains(refusal(*variant, "step=" + bad),
                     "allowed is an integer from 0 to " + std::to_string(count - 1)));
    }
    REQUIRE(!variant->tunables.empty());
    const Tunable& tunable = variant->tunables.front();
    const std::string other = tunable.name + ("=" + std::to_string(tunable.least));
    CHECK(contains(refusal(*variant, "step=0," + other), "stands alone"));
    CHECK(contains(refusal(*variant, other + ",step=0"), "stands alone"));
    CHECK(contains(refusal(*variant, "stp=0"), "nearest is 'step'"));
    CHECK_THROWS_AS(
        (void)make_plan(*variant, some_problem(*variant), Tuning{{"step", count}}, {}, {}), Error);
  }
  for (const CatalogueEntry& entry : catalogue().entries()) {
    if (!entry.variant->ladder.empty()) continue;
    CHECK(contains(refusal(*entry.variant, "step=0"), "unknown tunable"));
  }
}

TEST_CASE("only a tuning that is a step and nothing else makes a row a rung") {
  CHECK(step_of(row("hwy", 1, 1, "step=3").row) == 3);
  for (const char* tuning : {"", "mc=96,kc=384", "steps=3", "step=", "step=x"}) {
    CHECK_FALSE(step_of(row("hwy", 1, 1, tuning).row));
  }
}

TEST_CASE("rungs neither win nor count in the summary, however fast") {
  std::vector<MeasuredRow> rows = {row("scalar", 1, 1000, ""), row("hwy", 1, 100, "mc=96"),
                                   row("hwy", 1, 10, "step=1"), row("hwy", 2, 5, "step=1"),
                                   row("blas", 1, 50, "")};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 1);  // the rung alone had 2 threads
  CHECK(groups[0].lines.size() == 3);
  CHECK(groups[0].lines[0].row->variant == "blas");
  CHECK(groups[0].lines[0].verdict == SummaryLine::Verdict::winner);
  REQUIRE(line_of(groups[0], "hwy") != nullptr);
  CHECK(line_of(groups[0], "hwy")->row->p50_ns == 100.0);
  CHECK(line_of(groups[0], "hwy")->over_scalar->value() == doctest::Approx(10));
  // Nor do they stand for the variant where it was not measured itself.
  const std::vector<MeasuredRow> alone = {row("hwy", 1, 10, "step=1")};
  CHECK(summarise_rows(alone).empty());
}

TEST_CASE("compare sets rungs against the same rung only") {
  std::vector<MeasuredRow> before = {row("hwy", 1, 100, "mc=96"), row("hwy", 1, 800, "step=0")};
  std::vector<MeasuredRow> after = {row("hwy", 1, 100, "mc=48"), row("hwy", 1, 400, "step=0"),
                                    row("hwy", 1, 200, "step=1")};
  for (auto* rows : {&before, &after}) {
    for (MeasuredRow& m : *rows) add_samples(m, *m.row.p50_ns);
  }
  const Comparison comparison = compare_rows(before, after);
  REQUIRE(comparison.rows.size() == 3);
  CHECK(comparison.count(Change::same) == 1);    // the variant, whatever its tuning
  CHECK(comparison.count(Change::faster) == 1);  // step 0
  CHECK(comparison.count(Change::only_new) == 1);
}

TEST_CASE("a rung is not the CPU's best in a crossover") {
  std::vector<MeasuredRow> rows;
  for (const char* size : {"8", "16"}) {
    for (const auto& [variant, tuning, ns] :
         {std::tuple{"hwy", "mc=96", 100.0}, {"hwy", "step=1", 10.0}, {"opencl", "", 50.0}}) {
      MeasuredRow m = row(variant, 1, ns, tuning);
      m.row.shape = std::string("m=") + size + ",n=8,k=8";
      m.row.flops = 1e3;
      if (variant == std::string("opencl")) {
        m.row.threads = std::nullopt;
        m.row.device = "GPU";
      }
      rows.push_back(m);
    }
  }
  const std::vector<Crossover> found = crossovers(rows);
  REQUIRE(found.size() == 1);
  for (const CrossoverPoint& point : found[0].points) CHECK(point.cpu->tuning == "mc=96");
}

TEST_CASE("a ladder is told rung by rung: over the one before, at its threads, and over step 0") {
  const std::vector<MeasuredRow> rows = some_ladder();
  const std::vector<Ladder> ladders = ladders_of(rows);
  REQUIRE(ladders.size() == 1);
  const std::vector<LadderLine>& lines = ladders[0].lines;
  REQUIRE(lines.size() == 6);
  const auto is = [&](std::size_t i, std::optional<std::int64_t> step, int threads,
                      std::optional<double> before, double first) {
    CHECK(lines[i].step == step);
    CHECK(lines[i].row->threads == threads);
    CHECK(lines[i].over_before.has_value() == before.has_value());
    if (before) CHECK(lines[i].over_before->value() == doctest::Approx(*before));
    REQUIRE(lines[i].over_first);
    CHECK(lines[i].over_first->value() == doctest::Approx(first));
  };
  is(0, 0, 1, std::nullopt, 1);
  is(1, 1, 1, 2, 2);
  is(2, 2, 1, 2, 4);
  is(3, 2, 2, 4, 8);  // step 1 has one thread only
  is(4, std::nullopt, 1, 1.25, 5);
  is(5, std::nullopt, 2, 1.25, 10);
}

TEST_CASE("ratios of a ladder are of shared rounds") {
  std::vector<MeasuredRow> rows = some_ladder();
  rows[0].samples = {{0, 1, 0, 300, 1000}, {0, 1, 1, 600, 1000}, {0, 1, 2, 900, 1000}};
  rows[1].samples = {{1, 1, 0, 100, 1000}, {1, 1, 1, 200, 1000}, {1, 1, 2, 300, 1000}};
  const std::vector<Ladder> ladders = ladders_of(rows);
  const LadderLine& line = ladders[0].lines[1];
  REQUIRE(line.over_before);
  CHECK(line.over_before->value() == doctest::Approx(3));
  const RungTexts texts = [](const auto&...) { return RungText{}; };
  CHECK(contains(terminal_ladders(ladders, texts), "3.00x [2.96, 3.04]"));
}

TEST_CASE(
    "a rung without a time breaks the chain, and its reason is shown; ISA targets stand apart") {
  std::vector<MeasuredRow> rows = some_ladder();
  rows[0].row.status = "SKIPPED";
  rows[0].row.reason = "one run would take about 9.0 s";
  rows[0].row.p50_ns = std::nullopt;
  rows[0].row.isa = "";  // a plan was never made
  MeasuredRow other = row("hwy", 1, 300, "step=1");
  other.row.isa = "AVX2";
  rows.push_back(other);
  const std::vector<Ladder> ladders = ladders_of(rows);
  REQUIRE(ladders.size() == 2);
  CHECK(ladders[0].isa == "AVX3");
  REQUIRE(ladders[0].lines.size() == 6);
  CHECK_FALSE(ladders[0].lines[1].over_before);
  CHECK_FALSE(ladders[0].lines[5].over_first);
  REQUIRE(ladders[0].lines[2].over_before);
  CHECK(ladders[0].lines[2].over_before->value() == doctest::Approx(2));
  CHECK(ladders[1].lines.size() == 1);
  const RungTexts texts = [](const std::string&, const std::string&, std::int64_t step) {
    return RungText{"rung" + std::to_string(step), "idea" + std::to_string(step)};
  };
  const std::string text = terminal_ladders(ladders, texts);
  CHECK(contains(text, "gemm:m=8,n=8,k=8  ladder of hwy  AVX3  warm  fp32"));
  CHECK(contains(text, "idea0 [SKIPPED]\n"));
  CHECK(contains(text, "step 0 SKIPPED: one run would take about 9.0 s\n"));
  for (const char* part : {"rung0", "rung1", "rung2", "the variant itself", "GFLOP/s"}) {
    CHECK(contains(text, part));
  }
  CHECK(contains(markdown_ladders(ladders, texts), "| 1 | rung1 | 1 |"));
}

TEST_CASE("rows without a rung make no ladder") {
  const std::vector<MeasuredRow> rows = {row("hwy", 1, 100, "mc=96"), row("scalar", 1, 1000, "")};
  CHECK(ladders_of(rows).empty());
  CHECK(terminal_ladders({}, {}).empty());
}
