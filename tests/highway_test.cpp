// ISA targets: names, resolution, and that each target's own code runs when it is asked for. The
// file is compiled once per target.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "highway_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rooflane {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

std::int64_t TargetOfThisCode() { return HWY_TARGET; }

// Σ x[i]·2 with this target's vectors, so that its instructions really execute.
float TwiceTheSum(const float* x, std::size_t count) {
  const hn::ScalableTag<float> d;
  auto sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    sum = hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, 2.0f), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) total += 2 * x[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace rooflane
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "backends/highway.hpp"
#include "core/error.hpp"

namespace rooflane {

HWY_EXPORT(TargetOfThisCode);
HWY_EXPORT(TwiceTheSum);

namespace {

std::vector<float> first_integers(int count) {
  std::vector<float> x;
  for (int i = 1; i <= count; ++i) x.push_back(static_cast<float>(i));
  return x;
}

}  // namespace

namespace {

// What is said of a target that is unavailable.
std::string unavailable_text(const std::string& name) {
  try {
    resolve_isa(name);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unavailable);
    return error.what();
  }
  FAIL("no error");
  return "";
}

}  // namespace

TEST_CASE("every target of this CPU runs its own code") {
  const std::vector<std::string> targets = isa_targets();
  REQUIRE(!targets.empty());
  const std::vector<float> x = first_integers(100);
  for (const std::string& name : targets) {
    CAPTURE(name);
    const std::int64_t target = resolve_isa(name);
    CHECK(isa_name(target) == name);
    CHECK(ROOFLANE_HWY_FUNCTION(TargetOfThisCode, target)() == target);
    CHECK(ROOFLANE_HWY_FUNCTION(TwiceTheSum, target)(x.data(), x.size()) == 10100);
  }
}

TEST_CASE("no name means the best target, which is the first") {
  CHECK(isa_name(resolve_isa("")) == isa_targets().front());
}

TEST_CASE("what runs here was generated, and no name stands twice") {
  const std::vector<std::string> generated = generated_isa_targets();
  for (const std::string& name : isa_targets()) {
    CHECK(std::count(generated.begin(), generated.end(), name) == 1);
  }
  for (const std::string& name : generated) {
    CHECK(std::count(generated.begin(), generated.end(), name) == 1);
  }
}

TEST_CASE("an unknown target is an argument error with the nearest name") {
  for (const std::string& name : isa_targets()) {
    const std::string wrong = name + "x";
    try {
      resolve_isa(wrong);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::argument);
      CHECK(std::string(error.what()).find("'" + wrong + "'") != std::string::npos);
      CHECK(std::string(error.what()).find("'" + name + "'") != std::string::npos);
    }
  }
}

TEST_CASE("a target that was generated but that this CPU lacks is unavailable") {
  const std::vector<std::string> here = isa_targets();
  for (const std::string& name : generated_isa_targets()) {
    if (std::find(here.begin(), here.end(), name) != here.end()) continue;
    CAPTURE(name);
    unavailable_text(name);
  }
}

TEST_CASE("a target that Highway knows but this build lacks is unavailable") {
  const std::vector<std::string> generated = generated_isa_targets();
  for (int bit = 0; bit < 63; ++bit) {
    const std::string name = hwy::TargetName(std::int64_t{1} << bit);
    if (name == "Unknown") continue;
    if (std::find(generated.begin(), generated.end(), name) != generated.end()) continue;
    CAPTURE(name);
    unavailable_text(name);
  }
}

// A native build has one target beside the baseline; a build of all lacks none.
TEST_CASE(
    "a target that this build leaves out is unavailable, and the option that adds it is named") {
  const std::string absent = absent_isa_targets();
  const std::vector<std::string> generated = generated_isa_targets();
  if (!absent.empty()) CHECK(generated.size() <= 2);
  for (const std::string name : {"AVX3", "AVX2", "SSE4"}) {
    if (absent.find(name) == std::string::npos) continue;
    if (std::find(generated.begin(), generated.end(), name) != generated.end()) continue;
    CAPTURE(name);
    CHECK(unavailable_text(name).find("-Disa-targets=all") != std::string::npos);
  }
}

TEST_CASE("threads use different targets at the same time") {
  const std::vector<std::string> targets = isa_targets();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  const std::vector<float> x = first_integers(64);
  for (std::size_t i = 0; i < std::max<std::size_t>(2, targets.size()); ++i) {
    threads.emplace_back([&, name = targets[i % targets.size()]] {
      for (int n = 0; n < 20000; ++n) {
        const std::int64_t target = resolve_isa(name);
        if (ROOFLANE_HWY_FUNCTION(TargetOfThisCode, target)() != target) ++wrong;
        if (ROOFLANE_HWY_FUNCTION(TwiceTheSum, target)(x.data(), x.size()) != 4160) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace rooflane
#endif  // HWY_ONCE
