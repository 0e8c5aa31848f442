// The roofline summary: groups, speed-ups, winners and ties, from rows and samples alone.
#include "io/summary.hpp"

#include <doctest/doctest.h>

#include "core/temporary_folder.hpp"
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
  if (variant.starts_with("blas")) r.library = "OpenBLAS 0.3.21 SkylakeX";
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
  CHECK(*line_of(groups[0], "hwy").over_peer == 2);
  CHECK(*line_of(groups[0], "blas@old").over_peer == 1.25);
}

TEST_CASE("a slower variant is ranked below a faster one, with its speed-ups") {
  const std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("hwy", 1, 50),
                                         row("blas", 1, 100)};
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].lines[0].row->variant == "hwy");
  CHECK(groups[0].lines[2].row->variant == "scalar");
  CHECK(*line_of(groups[0], "hwy").over_scalar == 20);
  CHECK(*line_of(groups[0], "hwy").over_peer == 2);
  CHECK(*line_of(groups[0], "scalar").over_peer == 0.1);
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
  CHECK(*line_of(groups[1], "hwy").over_scalar == 20);
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

TEST_CASE("no PASSED row, no winner") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 10)};
  rows[0].row.status = "TIMEOUT";
  rows[0].row.p50_ns = std::nullopt;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(groups[0].lines[0].verdict == Verdict::none);
  CHECK(summary_sentences(groups)[0] == "gemm: 1 without a PASSED row");
}

TEST_CASE("per-round ratios whose interval holds 1 are a TIE, others a win") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 100.5)};
  add_samples(rows[0], {100, 103, 99, 101, 100, 98, 102, 100, 99});
  add_samples(rows[1], {101, 101, 100, 100, 101, 100, 99, 101, 98});
  std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(groups[0].lines[0].verdict == Verdict::tie);
  CHECK(groups[0].lines[1].verdict == Verdict::tie);
  // The same wide spread of times, but the second is slower in every single round.
  rows[1].samples.clear();
  add_samples(rows[1], {101, 104, 100, 102, 101, 99, 103, 101, 100});
  groups = summarise_rows(rows);
  CHECK(groups[0].lines[0].verdict == Verdict::winner);
  CHECK(groups[0].lines[1].verdict == Verdict::none);
}

TEST_CASE("rounds that say the opposite of the medians decide nothing") {
  // The first has the lower median of all its times, yet is slower in every shared round.
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 101)};
  add_samples(rows[0], {100, 102, 104, 103, 101});
  add_samples(rows[1], {95, 97, 99, 98, 96});
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(groups[0].lines[0].verdict == Verdict::tie);
  CHECK(groups[0].lines[1].verdict == Verdict::tie);
}

TEST_CASE("speed-ups are medians of per-round ratios, of rounds with the same probe only") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("scalar", 1, 1000)};
  add_samples(rows[0], {50, 100, 200});
  add_samples(rows[1], {200, 1000, 800});
  CHECK(*line_of(summarise_rows(rows)[0], "hwy").over_scalar == 4);
  for (Sample& sample : rows[1].samples) sample.probe_ns = 1001;  // another group's rounds
  CHECK(*line_of(summarise_rows(rows)[0], "hwy").over_scalar == 10);
}

TEST_CASE("without samples the intervals of the roof's share decide, then percentiles") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 100), row("blas", 1, 101)};
  CHECK(summarise_rows(rows)[0].lines[0].verdict == Verdict::tie);  // percentiles overlap
  for (MeasuredRow& m : rows) {
    m.row.roof_pct = 8000 / *m.row.p50_ns;
    m.row.roof_pct_lo = *m.row.roof_pct * 0.999;
    m.row.roof_pct_hi = *m.row.roof_pct * 1.001;
  }
  CHECK(summarise_rows(rows)[0].lines[0].verdict == Verdict::winner);
}

TEST_CASE("rows of one identity from several launches count once, by their median") {
  std::vector<MeasuredRow> rows = {row("hwy", 1, 300), row("hwy", 1, 100), row("hwy", 1, 200)};
  rows[1].row.library = rows[0].row.library;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  REQUIRE(groups[0].lines.size() == 1);
  CHECK(*groups[0].lines[0].row->p50_ns == 200);
}

TEST_CASE("one line per kernel in words") {
  std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("hwy", 1, 100), row("blas", 1, 200),
                                   row("scalar", 1, 10, "softmax"), row("hwy", 1, 20, "softmax")};
  rows[1].row.roof_pct = 81.2;
  rows[1].row.bound = "compute";
  const std::vector<std::string> sentences = summary_sentences(summarise_rows(rows));
  REQUIRE(sentences.size() == 2);
  CHECK(sentences[0] ==
        "gemm: hwy wins 1 of 1 case, at 81 % of the roof (compute-bound), 10.0 times as fast as "
        "scalar, 2.00 times as fast as the best peer");
  CHECK(sentences[1] == "softmax: scalar wins 1 of 1 case, 1.0 times as fast as scalar");
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
    return summary_table(summarise_rows(rows)[0]).columns.at(column).title;
  };
  CHECK(title_at(7) == "bound");
  rows[0].row.model_pct = 97.25;
  CHECK(title_at(6) == "% of roof [95 %]");
  CHECK(title_at(7) == "% of model");
  CHECK(title_at(8) == "bound");
  const TextTable table = summary_table(summarise_rows(rows)[0]);
  CHECK(table.rows[0][7] == "97.2");
  CHECK(table.rows[1][7] == "");
  for (const auto& cells : table.rows) CHECK(cells.size() == table.columns.size());
}

TEST_CASE("a row within three times an empty kernel is bound by its launch, and a note says so") {
  std::vector<MeasuredRow> rows = {row("opencl", 1, 2.9e4), row("hwy", 1, 1e4)};
  for (MeasuredRow& m : rows) m.row.bound = "memory";
  rows[0].row.device = "Some GPU";
  CHECK(terminal_summary(summarise_rows(rows)).find("launch") == std::string::npos);
  rows[0].row.empty_kernel_ns = 1e4;
  const std::vector<SummaryGroup> groups = summarise_rows(rows);
  CHECK(summary_table(groups[0]).rows[1][7] == "launch");
  CHECK(summary_table(groups[0]).rows[0][7] == "memory");
  CHECK(terminal_summary(groups).find("an empty kernel's 10 us on Some GPU") != std::string::npos);
  CHECK(markdown_summary(groups).find("an empty kernel's 10 us on Some GPU") != std::string::npos);
  rows[0].row.p50_ns = 3.1e4;
  CHECK(summary_table(summarise_rows(rows)[0]).rows[1][7] == "memory");
}

TEST_CASE("Markdown has one table per problem") {
  const std::vector<MeasuredRow> rows = {row("scalar", 1, 1000), row("hwy", 1, 100)};
  const std::string text = markdown_summary(summarise_rows(rows));
  CHECK(text.find("**gemm:m=8,n=8,k=8  1 thread  warm  fp32**") != std::string::npos);
  CHECK(text.find("| hwy | 100 ns |") != std::string::npos);
}

}  // namespace
}  // namespace rooflane
