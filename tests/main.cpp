// The entry point of every doctest program. It closes with `cases: N passed, N failed, N skipped`,
// which scripts/count_tests.py adds up; exit status 77 when every case was skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "skip.hpp"

namespace {

constexpr int skipped_status = 77;  // Meson's, and automake's before it

using Lack = std::pair<std::string, std::string>;  // what is missing, what to install

struct Count {
  int cases = 0;
  int parts = 0;
};

struct Tally {
  int passed = 0;
  int failed = 0;
  int skipped = 0;  // whole cases and parts of others
  std::map<Lack, Count> lacks;
  // State of the running case.
  bool case_skipped = false;
  std::set<Lack> parts;
};

Tally& tally() {
  static Tally all;
  return all;
}

// Counts cases beside doctest's own reporter, which takes a case that returned early for passed.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData&) override {
    tally().case_skipped = false;
    tally().parts.clear();
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    Tally& all = tally();
    ++(stats.failure_flags != 0 ? all.failed : all.case_skipped ? all.skipped : all.passed);
    for (const Lack& lack : all.parts) ++all.lacks[lack].parts;
    all.skipped += static_cast<int>(all.parts.size());
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("counter", 1, Counter);

void print_skipped(const char* part, int count, const Lack& lack) {
  if (count == 0) return;
  std::printf("skipped: %s%d case%s: %s", part, count, count == 1 ? "" : "s", lack.first.c_str());
  if (!lack.second.empty()) std::printf("; install %s", lack.second.c_str());
  std::printf("\n");
}

}  // namespace

namespace rooflane::test {

bool require_or_skip(bool condition, const std::string& missing, const std::string& packages) {
  if (condition || tally().case_skipped) return condition;
  tally().case_skipped = true;
  ++tally().lacks[{missing, packages}].cases;
  return false;
}

void skip_part(const std::string& missing, const std::string& packages) {
  tally().parts.insert({missing, packages});
}

}  // namespace rooflane::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (context.shouldExit()) return status;  // cases were listed, not run
  const Tally& all = tally();
  for (const auto& [lack, count] : all.lacks) {
    print_skipped("", count.cases, lack);
    print_skipped("parts of ", count.parts, lack);
  }
  std::printf("cases: %d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped);
  if (status != 0 || all.passed > 0) return status;
  if (all.skipped > 0) return skipped_status;
  std::fprintf(stderr, "no case ran\n");
  return EXIT_FAILURE;
}
