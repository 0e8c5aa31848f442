// Verdicts of `compare` over made-up rows: what is found, and what is not found in noise.
#include "io/compare.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include "core/statistics.hpp"
#include "io/compare_text.hpp"

namespace rooflane {
namespace {

MeasuredRow row(const std::string& variant, int size = 8) {
  MeasuredRow m;
  Row& r = m.row;
  r.kernel = "gemm";
  r.shape = "m=" + std::to_string(size) + ",n=8,k=8";
  r.variant = variant;
  r.dtype = "float32";
  r.math = "fp32";
  r.cache = "warm";
  r.cpu = "Some CPU";
  r.status = "PASSED";
  r.threads = 1;
  r.p50_ns = 1000;
  return m;
}

// How the made-up machine disturbs a row: standard deviations of logarithms.
struct Noise {
  double drift = 0;   // of each launch, the same for all its samples
  double sample = 0;  // of each sample; one in ten is up to 30 % longer besides
  bool tails = false;
};

constexpr int rounds = 12;

// `slowdown` 1.05: 5 % slower. std::mt19937_64 is exact everywhere, its distributions are not: sums
// of twelve uniform numbers replace normal ones.
double normal(std::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
  return sum;
}

void measure(MeasuredRow& m, double slowdown, const Noise& noise, std::mt19937_64& random,
             int launches = 3) {
  m.samples.clear();
  for (int launch = 1; launch <= launches; ++launch) {
    const double drift = noise.drift * normal(random);
    for (int round = 0; round < rounds; ++round) {
      double log_ns = std::log(1000 * slowdown) + drift + noise.sample * normal(random);
      if (noise.tails && random() % 10 == 0) log_ns += 0.3 * static_cast<double>(random() % 2);
      const double probe = 500 * std::exp(0.002 * normal(random));
      m.samples.push_back({0, launch, round, std::exp(log_ns), probe});
    }
  }
}

std::vector<MeasuredRow> file(int count, double slowdown, const Noise& noise,
                              std::mt19937_64& random) {
  std::vector<MeasuredRow> rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back(row("hwy", i + 1));
    measure(rows.back(), slowdown, noise, random);
  }
  return rows;
}

TEST_CASE("a variant is matched whoever chose its tuning, unless one file holds both") {
  std::mt19937_64 random(5);
  const auto rows_of = [&](const std::vector<std::string>& sources) {
    std::vector<MeasuredRow> rows;
    for (const std::string& source : sources) {
      rows.push_back(row("hwy", 1));
      rows.back().row.tuning_source = source;
      measure(rows.back(), source == "store" ? 0.8 : 1, {0, 0.001}, random);
    }
    return rows;
  };
  const auto matched = [](const Comparison& comparison) {
    std::vector<std::string> pairs;
    for (const ComparedRow& compared : comparison.rows) {
      const auto source = [](const Row* r) { return r == nullptr ? "-" : r->tuning_source; };
      pairs.push_back(source(compared.before) + " " + source(compared.after));
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  };
  const std::vector<MeasuredRow> model = rows_of({"model"}), tuned = rows_of({"store"}),
                                 both = rows_of({"store", "model"}), old = rows_of({""});
  using Pairs = std::vector<std::string>;
  CHECK(matched(compare_rows(model, tuned)) == Pairs{"model store"});
  CHECK(matched(compare_rows(old, tuned)) == Pairs{" store"});
  CHECK(matched(compare_rows(model, both)) == Pairs{"- store", "model model"});
  CHECK(matched(compare_rows(old, both)) == Pairs{" model", "- store"});
  CHECK(matched(compare_rows(both, tuned)) == Pairs{"model -", "store store"});
  CHECK(matched(compare_rows(both, both)) == Pairs{"model model", "store store"});
}

TEST_CASE("Student's tail and quantile agree with printed tables") {
  CHECK(student_tail(0, 4) == doctest::Approx(0.5).epsilon(1e-6));
  CHECK(student_tail(2.776445, 4) == doctest::Approx(0.025).epsilon(1e-5));
  CHECK(student_tail(-2.776445, 4) == doctest::Approx(0.975).epsilon(1e-5));
  CHECK(student_quantile(0.025, 2) == doctest::Approx(4.302653).epsilon(1e-5));
  CHECK(student_quantile(0.025, 1) == doctest::Approx(12.7062).epsilon(1e-5));
  CHECK(student_quantile(0.025, 1000) == doctest::Approx(1.962339).epsilon(1e-5));
  CHECK(student_quantile(0.0005, 5) == doctest::Approx(6.868827).epsilon(1e-6));
  CHECK(student_tail(std::numeric_limits<double>::infinity(), 3) == 0);
}

TEST_CASE("Student's tail and quantile agree with closed forms, for whole df and between") {
  for (const double t : {1e-9, 0.1, 0.7, 1.0, 3.0, 50.0, 1e6}) {
    CHECK(student_tail(t, 1) ==
          doctest::Approx(std::atan2(1, t) / std::numbers::pi).epsilon(1e-12));
    const double root = std::sqrt(2 + t * t);
    CHECK(student_tail(t, 2) == doctest::Approx(1 / (root * (root + t))).epsilon(1e-12));
  }
  for (const double df : {0.5, 1.5, 7.25, 333.0, 1e5}) {
    double before = std::numeric_limits<double>::infinity();
    for (const double tail : {1e-12, 1e-4, 0.005, 0.2, 0.499}) {
      const double t = student_quantile(tail, df);
      CHECK(student_tail(t, df) == doctest::Approx(tail).epsilon(1e-11));
      CHECK(t < before);
      before = t;
    }
  }
}

TEST_CASE("p-values grow by the number of rows over their rank, and keep their order") {
  const double nan = std::nan("");
  const std::vector<double> p = {0.01, nan, 0.04, 0.03, 0.5};
  const std::vector<double> adjusted = adjusted_for_false_discoveries(p);
  CHECK(adjusted[0] == doctest::Approx(0.04));
  CHECK(std::isnan(adjusted[1]));
  CHECK(adjusted[2] == doctest::Approx(0.04 * 4 / 3));
  CHECK(adjusted[3] == doctest::Approx(0.04 * 4 / 3));
  CHECK(adjusted[4] == doctest::Approx(0.5));
}

TEST_CASE("one build against itself: drifting launches, noise, heavy tails; at most 1 % flagged") {
  std::mt19937_64 random(20);
  std::size_t flagged = 0, all = 0;
  for (int pair = 0; pair < 20; ++pair) {
    const Noise noise{0.03, 0.02, true};
    const auto before = file(40, 1, noise, random);
    const auto after = file(40, 1, noise, random);
    const Comparison comparison = compare_rows(before, after);
    all += comparison.rows.size();
    flagged += comparison.count(Change::slower) + comparison.count(Change::faster);
  }
  CHECK(all == 800);
  CHECK(flagged <= all / 100);
}

TEST_CASE("10 % are found at low noise, 1 % is never called a change, equal rows are SAME") {
  std::mt19937_64 random(21);
  const Noise noise{0.003, 0.005, false};
  const auto before = file(40, 1, noise, random);
  CHECK(compare_rows(before, file(40, 1.10, noise, random)).count(Change::slower) >= 38);
  CHECK(compare_rows(before, file(40, 1 / 1.10, noise, random)).count(Change::faster) >= 38);
  const Comparison little = compare_rows(before, file(40, 1.01, noise, random));
  CHECK(little.count(Change::slower) + little.count(Change::faster) == 0);
  const Comparison none = compare_rows(before, file(40, 1, {0.001, 0.002, false}, random));
  CHECK(none.count(Change::slower) + none.count(Change::faster) == 0);
  const Noise quiet{0.001, 0.003, false};
  const auto calm = file(40, 1, quiet, random);
  CHECK(compare_rows(calm, file(40, 1, quiet, random)).count(Change::same) >= 36);
}

TEST_CASE("interleaved builds: 5 % are found although the launches drift by 3 %, 0 % is not") {
  std::mt19937_64 random(22);
  std::vector<MeasuredRow> rows;
  for (int i = 0; i < 20; ++i) {
    MeasuredRow now = row("hwy", i + 1);
    MeasuredRow then = row("hwy@old", i + 1);
    then.row.library = "Rooflane 0.1.0";
    measure(then, 1, {0.03, 0.01, true}, random);
    now.samples = then.samples;  // what a round suffers, both suffer
    for (Sample& sample : now.samples) {
      sample.ns *= (i < 10 ? 1.05 : 1.0) * std::exp(0.005 * normal(random));
    }
    rows.push_back(now);
    rows.push_back(then);
  }
  REQUIRE(other_builds(rows) == std::vector<std::string>{"old"});
  const Comparison comparison = compare_against(rows, "old");
  REQUIRE(comparison.rows.size() == 20);
  CHECK(comparison.regressed());
  CHECK(comparison.count(Change::slower) == 10);
  CHECK(comparison.count(Change::faster) == 0);
  for (const ComparedRow& compared : comparison.rows) {
    const int size = std::stoi(compared.after->shape.substr(2));
    CHECK((compared.change == Change::slower) == (size <= 10));
    CHECK(compared.before->variant == "hwy@old");
  }
}

TEST_CASE("only a probe that moved, or only the times: UNSURE, because the two disagree") {
  std::mt19937_64 random(23);
  const Noise noise{0.001, 0.002, false};
  const auto before = file(1, 1, noise, random);
  auto after = file(1, 1, noise, random);
  for (Sample& sample : after[0].samples) *sample.probe_ns /= 1.1;
  const Comparison moved = compare_rows(before, after);
  CHECK(moved.rows[0].change == Change::unsure);
  CHECK(moved.rows[0].reason.find("disagree") != std::string::npos);
  after = file(1, 1.1, noise, random);
  for (Sample& sample : after[0].samples) *sample.probe_ns *= 1.1;
  CHECK(compare_rows(before, after).rows[0].change == Change::unsure);
}

TEST_CASE("libraries that cannot have changed measure the drift between two runs") {
  std::mt19937_64 random(24);
  const Noise noise{0.002, 0.005, false};
  std::vector<MeasuredRow> before, after;
  for (int i = 0; i < 8; ++i) {
    before.push_back(row(i < 4 ? "hwy" : "blas", i + 1));
    after.push_back(before.back());
    measure(before.back(), 1, noise, random);
    measure(after.back(), 1.06, noise, random);
  }
  CHECK(compare_rows(before, after).count(Change::slower) == 8);
  for (std::vector<MeasuredRow>* rows : {&before, &after}) {
    for (int i = 4; i < 8; ++i) {
      (*rows)[static_cast<std::size_t>(i)].row.library = "OpenBLAS 0.3.21 SkylakeX";
    }
  }
  CHECK(compare_rows(before, after).count(Change::slower) == 0);
  for (int i = 4; i < 8; ++i) {
    after[static_cast<std::size_t>(i)].row.library = "OpenBLAS 0.3.29 SkylakeX";
  }
  CHECK(compare_rows(before, after).count(Change::slower) == 8);  // another version may be slower
}

TEST_CASE("too few repetitions, no samples and other statuses are UNSURE with the reason") {
  std::mt19937_64 random(25);
  auto before = file(1, 1, {}, random);
  auto after = file(1, 2, {}, random);
  CHECK(compare_rows(before, after).rows[0].change == Change::slower);
  measure(after[0], 2, {}, random, 2);
  Comparison comparison = compare_rows(before, after);
  CHECK(comparison.rows[0].change == Change::unsure);
  CHECK(comparison.rows[0].reason == "3 and 2 repetitions; 3 on each side are needed");
  after[0].samples.clear();
  comparison = compare_rows(before, after);
  CHECK(comparison.rows[0].change == Change::unsure);
  CHECK(comparison.rows[0].reason == "no samples of NEW");
  after[0].row.status = "FAILED";
  after[0].row.reason = "wrong";
  comparison = compare_rows(before, after);
  CHECK(comparison.rows[0].change == Change::failing);
  CHECK(comparison.rows[0].reason == "was PASSED, is FAILED: wrong");
  CHECK(comparison.regressed());
  after[0].row.status = "INACCURATE";
  CHECK(compare_rows(before, after).rows[0].change == Change::failing);
  before[0].row.status = "INACCURATE";
  CHECK(compare_rows(before, after).rows[0].reason == "no samples of NEW");
  before[0].row.status = "PASSED";
  after[0].row.status = "UNSUPPORTED";
  CHECK(compare_rows(before, after).rows[0].change == Change::unsure);
  before[0].row.status = "SKIPPED";
  CHECK(compare_rows(before, after).rows.empty());
}

TEST_CASE("rows on one side only are listed; rows of one identity are its launches") {
  std::mt19937_64 random(26);
  auto before = file(2, 1, {}, random);
  auto after = file(2, 1, {}, random);
  after[0].row.isa = "AVX3";
  Comparison comparison = compare_rows(before, after);
  CHECK(comparison.count(Change::only_old) == 1);
  CHECK(comparison.count(Change::only_new) == 1);
  CHECK(comparison.count(Change::same) == 1);

  before = file(1, 1, {}, random);
  after = {before[0], before[0], before[0]};
  for (std::size_t i = 0; i < 3; ++i) {
    std::erase_if(after[i].samples, [&](const Sample& sample) {
      return sample.launch != static_cast<std::int64_t>(i + 1);
    });
  }
  comparison = compare_rows(before, after);
  REQUIRE(comparison.rows.size() == 1);
  CHECK(comparison.rows[0].change == Change::same);
}

TEST_CASE("disturbed samples are left out where enough others remain") {
  std::mt19937_64 random(27);
  const auto before = file(1, 1, {0, 0.002, false}, random);
  auto after = file(1, 1, {0, 0.002, false}, random);
  for (Sample& sample : after[0].samples) {
    if (sample.round >= 4) sample.ns *= 1.5;
  }
  CHECK(compare_rows(before, after).rows[0].change == Change::slower);
  for (Sample& sample : after[0].samples) {
    if (sample.round >= 4) sample.disturbance = "steal";
  }
  CHECK(compare_rows(before, after).rows[0].change == Change::same);
}

TEST_CASE("machines differ by CPU, thread counts, device or driver; a selection is none") {
  const auto one = [](int threads, const std::string& device, const std::string& driver) {
    MeasuredRow m = row("opencl");
    m.row.threads = threads;
    m.row.device = device;
    m.row.driver = driver;
    return std::vector<MeasuredRow>{m};
  };
  const auto plain = one(2, "", "");
  CHECK(machine_difference(plain, plain).empty());
  auto other = plain;
  other[0].row.cpu = "Another CPU";
  CHECK(machine_difference(plain, other).find("Another CPU") != std::string::npos);
  CHECK(!machine_difference(plain, one(16, "", "")).empty());
  auto both = plain;
  both.push_back(one(16, "", "")[0]);
  CHECK(machine_difference(plain, both).empty());
  CHECK(!machine_difference(one(2, "A", "1"), one(2, "B", "1")).empty());
  CHECK(!machine_difference(one(2, "A", "1"), one(2, "A", "2")).empty());
  CHECK(machine_difference(one(2, "A", "1"), plain).empty());
}

TEST_CASE("the text has every row, its change and the counts; Markdown folds what did not change") {
  std::mt19937_64 random(28);
  const auto before = file(2, 1, {}, random);
  auto after = before;
  measure(after[0], 1.25, {}, random);
  const Comparison comparison = compare_rows(before, after);
  CHECK(counts_line(comparison) == "2 rows: 1 SLOWER, 1 SAME");
  const std::string header = "old against new";
  const std::string text = terminal_comparison(comparison, {&header, 1});
  CHECK(text.find("old against new") == 0);
  CHECK(text.find("SLOWER") < text.find("SAME"));
  CHECK(text.find("gemm:m=1,n=8,k=8") != std::string::npos);
  CHECK(text.find("+25.") != std::string::npos);
  const std::string markdown = markdown_comparison(comparison, {&header, 1});
  CHECK(markdown.starts_with("**2 rows: 1 SLOWER, 1 SAME**"));
  CHECK(markdown.find("gemm:m=1,") < markdown.find("<details>"));
  CHECK(markdown.find("gemm:m=2,") > markdown.find("<details>"));
}

}  // namespace
}  // namespace rooflane
