// The roofline summary: groups, speed-ups, winners and ties, from rows and samples alone.
#include "io/summary.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "core/temporary_folder.hpp"
#include "core/text.hpp"
#include "io/size_classes.hpp"
#include "io/summary_json.hpp"
#include "io/summary_text.hpp"

namespace rooflane {
namespace {

MeasuredRow row(const std::string& variant, int threads, double p50,
                const std::string& kernel = "gemm") {
  MeasuredRow m;
  Row& r = m.row;
  r.kernel = kernel;
  r.shape = "m=8,n=8,k=8";
  r.variant = variant;
  r.dtype = "float32";
  r.math = "fp32";
  r.cache = "warm";
  r.cpu = "Some CPU";
  r.status = "PASSED";
  r.threads = threads;
  r.p50_ns = p50;
  r.p20_ns = p50 * 0.99;
  r.p80_ns = p50 * 1.01;
  if (variant.starts_with("blas") || variant == "numpy") r.library = "OpenBLAS 0.3.21 SkylakeX";
  return m;
}

// Samples of rounds 0, 1, ... with these times.
void add_samples(MeasuredRow& m, const std::vector<double>& times) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    m.samples.push_back({0, 1, static_cast<std::int64_t>(i), times[i], 1000});
  }
}

const SummaryLine& line_of(const SummaryGroup& group, const std::string& variant) {
  for (const SummaryLine& line : group.lines) {
    if (line.row->variant == variant) return line;
  }
  FAIL("no line of ", variant);
  return group.lines.front();
}

using Verdict = SummaryLine::Verdict;

TEST_CASE("another build's variant is no peer, whatever library it uses") {
  const std::vector<MeasuredRow> rows = {row("hwy", 1, 50), row("blas", 1, 100),
                                         row("blas@old", 1, 80)};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 1);
  REQUIRE(line_of(groups[0], "blas@old").row->library == line_of(groups[0], "blas").row->library);
  CHECK(line_of(groups[0], "hwy").over_peer->value() == doctest::Approx(2));
  CHECK(line_of(groups[0], "blas@old").over_peer->value() == doctest::Approx(1.25));
}

TEST_CASE("a slower variant is ranked below a faster one, with its speed-ups") {
  const std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("hwy", 1, 50),
                                         row("blas", 1, 100)};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].lines[0].row->variant == "hwy");
  CHECK(groups[0].lines[2].row->variant == "scalar");
  CHECK(line_of(groups[0], "hwy").over_scalar->value() == doctest::Approx(20));
  CHECK(line_of(groups[0], "hwy").over_peer->value() == doctest::Approx(2));
  CHECK(line_of(groups[0], "scalar").over_peer->value() == doctest::Approx(0.1));
  CHECK(line_of(groups[0], "hwy").verdict == Verdict::winner);
  CHECK(line_of(groups[0], "blas").verdict == Verdict::none);
}

TEST_CASE("a variant with one thread is compared against every thread count") {
  const std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("hwy", 1, 100),
                                         row("hwy", 2, 50)};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 2);
  CHECK(*groups[0].threads == 1);
  CHECK(*groups[1].threads == 2);
  CHECK(line_of(groups[1], "hwy").over_scalar->value() == doctest::Approx(20));
  CHECK(groups[1].lines.size() == 2);
}

TEST_CASE("a GPU row, which has no threads, stands in every group") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("hwy", 2, 50), row("opencl", 1, 10)};
  rows[2].row.threads = std::nullopt;
  rows[2].row.device = "GPU";
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 2);
  CHECK(line_of(groups[0], "opencl").verdict == Verdict::winner);
  CHECK(line_of(groups[1], "opencl").verdict == Verdict::winner);
}

TEST_CASE("prepack, cache mode, math and CPU keep rows apart") {
  std::vector<MeasuredRow> rows(5, row("hwy", 1, 100));
  rows[1].row.shape += ",prepack=1";
  rows[2].row.cache = "cold";
  rows[3].row.math = "tf32";
  rows[4].row.cpu = "Another CPU";
  CHECK(summarise_rows(rows).size() == 5);
}

TEST_CASE("of a tuned schedule and the variant's own choice only the tuned one may win") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 90), row("hwy", 1, 100), row("blas", 1, 180)};
  rows[0].row.tuning_source = "store";
  rows[1].row.tuning_source = "model";
  std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 1);
  REQUIRE(groups[0].lines.size() == 3);
  CHECK(groups[0].lines[0].over_model->value() == doctest::Approx(100.0 / 90));
  CHECK_FALSE(groups[0].lines[1].over_model);
  CHECK(groups[0].lines[0].verdict == Verdict::winner);
  CHECK(groups[0].lines[1].verdict == Verdict::none);
  CHECK(groups[0].lines[*groups[0].next].row->variant == "blas");
  const std::string text = terminal_summary(groups, Shown::all);
  CHECK(text.find("hwy tuned: 1.11x") != std::string::npos);
  CHECK(text.find("\nhwy tuned ") != std::string::npos);
  CHECK(text.find("\nhwy  ") != std::string::npos);
  CHECK(size_classes(groups)[0].wins == 1);
  // Alone, a variant is one, whoever chose.
  rows.erase(rows.begin() + 1);
  groups = summarise_rows(rows);
  CHECK(terminal_summary(groups).find("tuned") == std::string::npos);
}

TEST_CASE("rows that failed or are suspect never win, but are shown") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 10), row("blas", 1, 20), row("scalar", 1, 100)};
  rows[0].row.status = "SUSPECT";
  rows[1].row.status = "FAILED";
  rows[1].row.reason = "element [0,0]: 1 instead of 2";
  rows[1].row.p50_ns = std::nullopt;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(line_of(groups[0], "scalar").verdict == Verdict::winner);
  CHECK(line_of(groups[0], "hwy").verdict == Verdict::none);
  CHECK_FALSE(line_of(groups[0], "scalar").over_peer);
  const std::string text = terminal_summary(groups);
  CHECK(text.find("SUSPECT") != std::string::npos);
  CHECK(text.find("FAILED: element [0,0]: 1 instead of 2") != std::string::npos);
}

TEST_CASE("an INACCURATE row keeps its speed, is a peer that a note names, and never wins") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 50), row("numpy", 1, 200)};
  rows[1].row.status = "INACCURATE";
  rows[1].row.reason = "element [0,0] is 2, expected 1 within 0.2";
  rows[1].row.err_value = 4.6;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 1);
  CHECK(line_of(groups[0], "hwy").verdict == Verdict::winner);
  CHECK(line_of(groups[0], "hwy").over_peer->value() == doctest::Approx(0.5));
  CHECK(line_of(groups[0], "blas").verdict == Verdict::none);
  const std::string text = terminal_summary(groups, Shown::all);
  CHECK(text.find("best peer: blas, with an error of 4.6 bounds") != std::string::npos);
  CHECK(text.find("INACCURATE: element [0,0] is 2") != std::string::npos);
}

TEST_CASE("no PASSED row, no winner") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 10)};
  rows[0].row.status = "TIMEOUT";
  rows[0].row.p50_ns = std::nullopt;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(groups[0].lines[0].verdict == Verdict::none);
  CHECK(size_classes(groups)[0].undecided == 1);
  CHECK(size_classes(groups)[0].use.empty());
}

TEST_CASE(
    "the pairs of a group decide: a tie is shown, a winner beyond doubt, else it is undecided") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 100.5)};
  rows[0].row.group_s = rows[1].row.group_s = 3;
  add_samples(rows[0], {100, 103, 99, 101, 100, 98, 102, 100, 99});
  add_samples(rows[1], {101, 103, 99.5, 101, 101, 98, 102, 101, 99});
  std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(groups[0].is_tie());
  CHECK(groups[0].lines[0].verdict == Verdict::tie);
  CHECK(groups[0].lines[1].verdict == Verdict::tie);
  CHECK_FALSE(longer_max_time(groups[0]));
  // The same spread of times, but the second is slower in every single round.
  rows[1].samples.clear();
  add_samples(rows[1], {105, 108, 104, 106, 105, 103, 107, 105, 104});
  groups = summarise_rows(rows);
  CHECK(groups[0].state == Ranking::State::winner);
  CHECK(groups[0].lines[0].verdict == Verdict::winner);
  CHECK(groups[0].lines[1].verdict == Verdict::none);
  // Rounds that disagree by 10 % show neither.
  rows[1].samples.clear();
  add_samples(rows[1], {95, 112, 92, 109, 96, 104, 110, 93, 101});
  groups = summarise_rows(rows);
  CHECK(groups[0].is_undecided());
  CHECK(groups[0].lines[0].verdict == Verdict::undecided);
  CHECK(groups[0].lines[1].verdict == Verdict::undecided);
  REQUIRE(longer_max_time(groups[0]));
  CHECK(*longer_max_time(groups[0]) > 3);
  CHECK(terminal_summary(groups).find("UNDECIDED") != std::string::npos);
  CHECK(terminal_summary(groups).find("would decide it") != std::string::npos);
  const SizeClass open = size_classes(groups)[0];
  CHECK(open.use.empty());
  CHECK(open.undecided == 1);
  CHECK(terminal_classes(size_classes(groups)).find("undecided") != std::string::npos);
}

TEST_CASE("what is far behind is no part of a tie, and does not keep it from being one") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 100.2),
                                   row("scalar", 1, 900)};
  for (std::int64_t repetition = 1; repetition <= 4; ++repetition) {
    for (std::int64_t round = 0; round < 3; ++round) {
      rows[0].samples.push_back({0, repetition, round, 100.0, 1000});
      rows[1].samples.push_back({1, repetition, round, 100.2, 1000});
      if (round == 0) rows[2].samples.push_back({2, repetition, round, 900.0, 1000});
    }
  }
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(groups[0].is_tie());
  CHECK(line_of(groups[0], "scalar").verdict == Verdict::none);
}

TEST_CASE("`use` never names a variant that is slower than the next over its class") {
  // hwy wins two of three problems by 5 %, and loses the third by ten times.
  std::vector<MeasuredRow> rows;
  for (const auto& [shape, blas] : {std::pair{"m=1", 105.0}, {"m=2", 105.0}, {"m=3", 10.0}}) {
    for (MeasuredRow m : {row("hwy", 1, 100), row("blas", 1, blas)}) {
      m.row.shape = shape;
      m.row.roof_pct = 5000 / *m.row.p50_ns;
      m.row.roof_pct_lo = *m.row.roof_pct * 0.999;
      m.row.roof_pct_hi = *m.row.roof_pct * 1.001;
      rows.push_back(m);
    }
  }
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  const std::vector<SizeClass> classes = size_classes(groups);
  REQUIRE(classes.size() == 1);
  CHECK(classes[0].use == "blas");
  CHECK(classes[0].over_next->value() > 1);
}

TEST_CASE("rounds decide, whatever the medians of all times say") {
  // The first has the lower median of all its times, yet is slower in every shared round.
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 101)};
  add_samples(rows[0], {100, 102, 104, 103, 101});
  add_samples(rows[1], {95, 97, 99, 98, 96});
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(line_of(groups[0], "blas").verdict == Verdict::winner);
  CHECK(line_of(groups[0], "hwy").verdict == Verdict::none);
  CHECK(groups[0].lines[*groups[0].fastest].row->variant == "blas");
}

TEST_CASE("speed-ups are medians of per-round ratios, of rounds with the same probe only") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("scalar", 1, 1000)};
  add_samples(rows[0], {50, 100, 200});
  add_samples(rows[1], {200, 1000, 800});
  CHECK(line_of(summarise_rows(rows)[0], "hwy").over_scalar->value() == doctest::Approx(4));
  for (Sample& sample : rows[1].samples) sample.probe_ns = 1001;  // another group's rounds
  CHECK(line_of(summarise_rows(rows)[0], "hwy").over_scalar->value() == doctest::Approx(8));
}

TEST_CASE("without samples the intervals of the roof's share decide, then percentiles") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 102.5)};
  for (MeasuredRow& m : rows) m.row.p80_ns = *m.row.p50_ns * 1.05;
  CHECK(summarise_rows(rows)[0].is_undecided());  // percentiles overlap
  for (MeasuredRow& m : rows) {
    m.row.roof_pct = 8000 / *m.row.p50_ns;
    m.row.roof_pct_lo = *m.row.roof_pct * 0.999;
    m.row.roof_pct_hi = *m.row.roof_pct * 1.001;
  }
  CHECK(summarise_rows(rows)[0].lines[0].verdict == Verdict::winner);
}

TEST_CASE("rows of one identity from several runs count once, by their median") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 300), row("hwy", 1, 100), row("hwy", 1, 200)};
  rows[1].row.library = rows[0].row.library;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups[0].lines.size() == 1);
  CHECK(*groups[0].lines[0].row->p50_ns == 200);
}

TEST_CASE("a class of sizes says what to use, by how much, and where to use something else") {
  std::vector<MeasuredRow> rows;
  for (const auto& [shape, level, hwy, blas] :
       {std::tuple{"m=1", "L2", 100.0, 200.0}, std::tuple{"m=2", "L2", 100.0, 400.0},
        std::tuple{"m=3", "L2", 300.0, 100.0}, std::tuple{"m=4", "memory", 100.0, 100.1}}) {
    for (MeasuredRow m : {row("scalar", 1, 1000), row("hwy", 1, hwy), row("blas", 1, blas)}) {
      m.row.shape = shape;
      m.row.roof_level = level;
      m.row.roof_pct = 5000 / *m.row.p50_ns;
      rows.push_back(m);
    }
  }
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  const std::vector<SizeClass> classes = size_classes(groups);
  REQUIRE(classes.size() == 2);
  const SizeClass& l2 = classes[0];
  CHECK(l2.key.label == "L2");
  CHECK(l2.use == "hwy");
  CHECK(l2.problems == 3);
  CHECK(l2.wins == 2);
  CHECK(l2.over_next->value() == doctest::Approx(std::cbrt(2.0 * 4.0 / 3.0)));
  CHECK(l2.over_peer->value() == doctest::Approx(std::cbrt(2.0 * 4.0 / 3.0)));
  CHECK(l2.roof->value() == doctest::Approx(50 / std::cbrt(3.0)));
  CHECK(*l2.least_roof == doctest::Approx(50.0 / 3));
  REQUIRE(l2.instead.size() == 1);
  CHECK(l2.instead[0].row->variant == "blas");
  CHECK(l2.instead[0].faster->value() == doctest::Approx(3));
  CHECK(classes[1].ties == 1);
  const std::string text = terminal_classes(classes);
  CHECK(text.find("gemm L2, 1 thread: blas instead of hwy at m=3 (3.00x)\n") != std::string::npos);
  CHECK(text.find(size_principle) != std::string::npos);
  CHECK(markdown_classes(classes).find("| gemm | L2 | 1 thread | hwy | 2 of 3 |") !=
        std::string::npos);
  CHECK(class_sentence(l2).starts_with("gemm L2, 1 thread: use hwy, fastest in 2 of 3, 1.39x"));
  const std::vector<SizeClass> whole = size_classes(groups, false);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].problems == 4);
}

TEST_CASE("a variant that runs a kernel on one thread only meets every thread count of it") {
  const std::vector<MeasuredRow> rows = {row("numpy", 1, 80, "softmax"),
                                         row("hwy", 2, 50, "softmax"), row("numpy", 2, 60, "gemm"),
                                         row("hwy", 2, 50, "gemm")};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 2);
  CHECK(*line_of(groups[0], "numpy").row->p50_ns == 80);
  CHECK(*groups[0].threads == 2);
}

TEST_CASE("another build's variant never wins") {
  const std::vector<MeasuredRow> rows = {row("hwy@old", 1, 10), row("hwy", 1, 50)};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(line_of(groups[0], "hwy").verdict == Verdict::winner);
  CHECK(line_of(groups[0], "hwy@old").verdict == Verdict::none);
  CHECK_FALSE(groups[0].next);
}

TEST_CASE("a math without peers of its own is held against strict ones of the same problem") {
  std::vector<MeasuredRow> rows = {row("opencl", 1, 100), row("blas", 1, 90), row("opencl", 1, 45)};
  rows[2].row.math = "3xtf32";
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 2);
  CHECK(groups[1].lines.size() == 1);
  CHECK(groups[1].lines[0].over_peer->value() == doctest::Approx(2));
}

TEST_CASE("short operands that are slower than float32, or far below their roof, are a CLIFF") {
  const auto short_row = [](const char* variant, double p50, double roof_pct) {
    MeasuredRow m = row(variant, 1, p50);
    m.row.shape = "m=8,n=8,k=8,a_type=bf16,b_type=bf16";
    m.row.dtype = "bfloat16+float32";
    m.row.math = "bf16";
    m.row.path = variant == std::string("scalar") ? "scalar" : "vdpbf16ps";
    m.row.roof_pct = roof_pct;
    return m;
  };
  const std::vector<MeasuredRow> rows = {row("hwy", 1, 100), short_row("avx512", 50, 60),
                                         short_row("hwy", 120, 20), short_row("amx", 60, 5),
                                         short_row("scalar", 900, 1)};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 2);
  CHECK_FALSE(line_of(groups[0], "hwy").cliff);
  CHECK_FALSE(line_of(groups[1], "avx512").cliff);
  CHECK(line_of(groups[1], "hwy").cliff);
  CHECK(line_of(groups[1], "amx").cliff);
  CHECK_FALSE(line_of(groups[1], "scalar").cliff);
}

TEST_CASE("peers, rows without a path and float32 ones may be a CLIFF, scalar alone never") {
  const auto weights_row = [](const char* variant, double p50) {
    MeasuredRow m = row(variant, 1, p50);
    m.row.shape = "m=8,n=8,k=8,b_type=bf16";
    m.row.dtype = "float32+bfloat16";
    return m;
  };
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("numpy", 1, 2000),
                                   row("scalar", 1, 9000), weights_row("hwy", 90),
                                   weights_row("onednn", 110)};
  rows[0].row.roof_pct = 50;
  rows[1].row.roof_pct = 2.5;
  rows[2].row.roof_pct = 0.5;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 2);
  CHECK_FALSE(line_of(groups[0], "hwy").cliff);
  CHECK(line_of(groups[0], "numpy").cliff);
  CHECK_FALSE(line_of(groups[0], "scalar").cliff);
  CHECK_FALSE(line_of(groups[1], "hwy").cliff);
  CHECK(line_of(groups[1], "onednn").cliff);
}

TEST_CASE("ratios come with the interval of repetitions; a row over itself is 1") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 200)};
  for (const auto& [launch, factor] : {std::pair{1, 1.9}, std::pair{2, 2.0}, std::pair{3, 2.1}}) {
    for (int round = 0; round < 5; ++round) {
      rows[0].samples.push_back({0, launch, round, 100.0, 1000});
      rows[1].samples.push_back({1, launch, round, 100.0 * factor, 1000});
    }
  }
  const SummaryGroup group = summarise_rows(rows)[0];
  const Ratio& ratio = *line_of(group, "hwy").over_peer;
  CHECK(ratio.value() == doctest::Approx(std::cbrt(1.9 * 2.0 * 2.1)));
  REQUIRE(ratio.interval());
  // Three repetitions that differ by 5 % say little.
  CHECK(ratio.interval()->low < 1.9);
  CHECK(ratio.interval()->high > 2.1);
  CHECK(line_of(group, "blas").over_peer->value() == 1);
  CHECK_FALSE(line_of(group, "blas").over_peer->interval());
}

TEST_CASE("figures of a preset are geometric means over its problems, against each peer") {
  std::vector<MeasuredRow> rows;
  for (const auto& [shape, blas, blas_b] :
       {std::tuple{"m=1", 200.0, 300.0}, std::tuple{"m=2", 800.0, 300.0}}) {
    for (MeasuredRow m : {row("hwy", 1, 100), row("blas", 1, blas), row("blas-b", 1, blas_b)}) {
      m.row.shape = shape;
      m.row.preset = "gemm-small";
      rows.push_back(m);
    }
  }
  const std::vector<PresetFigures> figures = preset_figures(summarise_rows(rows));
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].variant == "hwy");
  CHECK(figures[0].problems == 2);
  std::map<std::string, double> against;
  for (const auto& [peer, mean] : figures[0].against) against[peer] = mean.value();
  CHECK(against[""] == doctest::Approx(std::sqrt(2.0 * 3.0)));
  CHECK(against["blas"] == doctest::Approx(4));
  CHECK(against["blas-b"] == doctest::Approx(3));
}

TEST_CASE("rows that lose by far are folded unless all are asked for; the best peer never is") {
  const std::vector<MeasuredRow> rows = {row("hwy", 1, 10), row("near", 1, 29), row("far", 1, 31),
                                         row("blas", 1, 400), row("blas-b", 1, 500)};
  const SummaryGroup group = summarise_rows(rows)[0];
  const auto variants = [&](Shown shown) {
    std::vector<std::string> names;
    for (const auto& cells : summary_table(group, shown).rows) names.push_back(cells[0]);
    return names;
  };
  CHECK(variants(Shown::close) == std::vector<std::string>{"hwy", "near", "blas"});
  CHECK(variants(Shown::all).size() == 5);
  CHECK(terminal_summary({&group, 1}).find("folded (--all): far 3.10x, blas-b 50.0x\n") !=
        std::string::npos);
  CHECK(terminal_summary({&group, 1}, Shown::all).find("folded") == std::string::npos);
}

TEST_CASE("long names of variants and shapes stay whole, and lines fit the terminal") {
  std::vector<MeasuredRow> rows;
  for (int i = 0; i < 8; ++i) {
    MeasuredRow m = row("blas-mkl-2024@v" + std::to_string(i), 1, 1e8 + i, "segment_softmax");
    m.row.shape = "batch=32,heads=128,kv_heads=128,q_len=16384,kv_len=16384,head_dim=128,causal=1";
    m.row.library = "Library" + std::to_string(i) + " with settings that are told at some length";
    m.row.roof_pct = m.row.roof_pct_lo = m.row.roof_pct_hi = 100;
    m.row.model_pct = 99;
    m.row.gflops = m.row.gb_s = 123456;
    m.row.bound = "compute";
    for (int round = 0; round < 9; ++round) {
      m.samples.push_back({0, round / 3, round % 3, 1e8 * (1 + i * round / 3), 1000});
    }
    rows.push_back(m);
  }
  rows[7].row.status = "RUNTIME_ERROR";
  rows[7].row.reason = std::string(110, 'x') + " and many words, " + rows[0].row.library;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  const std::string text =
      terminal_summary(groups, Shown::all) + terminal_classes(size_classes(groups));
  for (const std::string_view line : split(text, '\n')) CHECK(line.size() <= terminal_width);
  for (const MeasuredRow& m : rows) CHECK(text.find("\n" + m.row.variant) != std::string::npos);
  CHECK(text.find("\nsegment_softmax ") != std::string::npos);
  CHECK(text.find("\n  " + std::string(110, 'x')) != std::string::npos);  // below, and goes on
}

TEST_CASE("ratios have three digits") {
  for (const auto& [slower, text] :
       {std::pair{94.9, "0.95x"}, std::pair{999.4, "9.99x"}, std::pair{999.6, "10.0x"},
        std::pair{2264.0, "22.6x"}, std::pair{9996.0, "100x"}, std::pair{2e5, "2000x"}}) {
    const std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, slower)};
    const std::string ratio = ratio_text(line_of(summarise_rows(rows)[0], "hwy").over_peer);
    CHECK(ratio.substr(0, ratio.find(' ')) == text);
  }
}

TEST_CASE("the summary as JSON names rows by position and tells ratios, winners and classes") {
  std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("blas", 1, 100), row("hwy", 1, 50),
                                   row("hwy", 1, 70)};
  rows[3].row.tuning = "step=0";
  const nlohmann::ordered_json json = summary_json(rows, std::vector<ReadFile>{{"a.csv", 4}});
  CHECK(json["files"][0]["rows"] == 4);
  CHECK(json["rungs"] == std::vector<int>{3});
  CHECK(json["rows"].size() == 4);
  REQUIRE(json["groups"].size() == 1);
  const auto& group = json["groups"][0];
  CHECK(group["fastest"] == 2);
  CHECK(group["next"] == 1);
  CHECK(group["tie"] == false);
  CHECK(group["peers"] == std::vector<int>{1});
  CHECK(group["over_next"]["value"].get<double>() == doctest::Approx(2));
  CHECK(group["lines"][0]["over"]["blas"]["value"].get<double>() == doctest::Approx(2));
  CHECK(group["lines"][0]["over_scalar"]["value"].get<double>() == doctest::Approx(20));
  CHECK(group["lines"][1]["over"].empty());
  CHECK(json["classes"][0]["use"] == "hwy");
}

TEST_CASE("rows and samples come back from files; samples without a row are left out") {
  const TemporaryFolder folder;
  const std::string path = folder / "rows.csv";
  CsvWriter(path).append(row("hwy", 1, 100).row);
  SamplesWriter samples(samples_path(path));
  samples.append({0, 1, 0, 100, 1000});
  samples.append({7, 1, 0, 100, 1000});
  const std::vector<MeasuredRow> rows = read_measured_rows({path, path});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].samples.size() == 1);
  CHECK(rows[1].samples.size() == 1);
}

TEST_CASE("the share of the model has a column where it differs from the roof's, and only there") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 50), row("scalar", 1, 1000)};
  rows[0].row.roof_pct = rows[0].row.model_pct = 90;
  const auto title_at = [&](std::size_t column) {
    return summary_table(summarise_rows(rows)[0], Shown::all).columns.at(column).title;
  };
  CHECK(title_at(5) == "bound");
  rows[0].row.model_pct = 97.25;
  CHECK(title_at(4) == "% of roof [95 %]");
  CHECK(title_at(5) == "% of model");
  CHECK(title_at(6) == "bound");
  const TextTable table = summary_table(summarise_rows(rows)[0], Shown::all);
  CHECK(table.rows[0][5] == "97");
  CHECK(table.rows[1][5] == "");
  for (const auto& cells : table.rows) CHECK(cells.size() == table.columns.size());
}

TEST_CASE("a row within three times an empty kernel is bound by its launch, and a note says so") {
  std::vector<MeasuredRow> rows = {row("opencl", 1, 2.9e4), row("hwy", 1, 1e4)};
  for (MeasuredRow& m : rows) m.row.bound = "memory";
  rows[0].row.device = "Some GPU";
  CHECK(terminal_summary(summarise_rows(rows)).find("launch") == std::string::npos);
  rows[0].row.empty_kernel_ns = 1e4;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(summary_table(groups[0], Shown::all).rows[1][5] == "launch");
  CHECK(summary_table(groups[0], Shown::all).rows[0][5] == "memory");
  CHECK(terminal_summary(groups).find("the 10 us of an empty kernel on Some GPU") !=
        std::string::npos);
  CHECK(markdown_summary(groups).find("the 10 us of an empty kernel on Some GPU") !=
        std::string::npos);
  rows[0].row.p50_ns = 3.1e4;
  CHECK(summary_table(summarise_rows(rows)[0], Shown::all).rows[1][5] == "memory");
}

TEST_CASE("Markdown has one table per problem") {
  const std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("hwy", 1, 100)};
  const std::string text = markdown_summary(summarise_rows(rows));
  CHECK(text.find("**gemm:m=8,n=8,k=8  1 thread  warm  fp32**") != std::string::npos);
  CHECK(text.find("| hwy | 100 ns |") != std::string::npos);
}

}  // namespace
}  // namespace rooflane
