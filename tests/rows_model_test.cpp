// The schedules that are predicted for softmax, LayerNorm and RMSNorm, on machines made up for the
// purpose: nothing is run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "kernels/common/rows_schedule.hpp"
#include "made_up_traits.hpp"

using namespace rooflane;
using namespace rooflane::common;
using rooflane::test::Draws;
using rooflane::test::made_up_machine;
using rooflane::test::MadeUpMachine;

namespace {

constexpr RowWork work = {
    .vector_ops = 12, .row_ops = 45, .short_ops = 2.4, .long_rows = Prefetch::pages};
constexpr std::uint64_t machines = 40;

RowShape shape_of(std::int64_t rows, std::int64_t cols) {
  RowShape shape;
  shape.rows = rows, shape.cols = cols;
  shape.read = shape.written = 4.0 * static_cast<double>(rows * cols);
  return shape;
}

RowSchedule best_of(const MadeUpMachine& machine, const RowShape& shape, int threads) {
  std::map<int, Traits> traits;
  return row_schedules(shape, work, threads,
                       [&](int count) -> const Traits& {
                         return traits.try_emplace(count, machine.traits(count)).first->second;
                       })
      .front();
}

double seconds_of(const MadeUpMachine& machine, const RowShape& shape, const RowSchedule& s) {
  return predict(s, shape, work, machine.traits(s.threads));
}

}  // namespace

TEST_CASE("rows that stay in L2 are not streamed") {
  for (std::uint64_t seed = 1; seed <= machines; ++seed) {
    INFO("seed ", seed);
    const MadeUpMachine machine = made_up_machine(seed);
    for (const std::int64_t cols : {11, 300, 5000}) {
      const std::int64_t rows = machine.measured.at_isa.l2_bytes / 2 / (8 * cols);
      CHECK(!best_of(machine, shape_of(std::max<std::int64_t>(rows, 1), cols), 1).stream);
    }
  }
}

TEST_CASE(
    "long rows beyond the caches are streamed where a plain store would read its line first") {
  for (std::uint64_t seed = 1; seed <= machines; ++seed) {
    INFO("seed ", seed);
    MadeUpMachine machine = made_up_machine(seed);
    Traits& t = machine.measured.at_isa;
    for (Traits::Rates* rates : {&t.one, &t.many}) {
      rates->stream = rates->read[in_memory];
      for (double& copy : rates->copy) copy = rates->read[in_memory];
      rates->write[in_memory] = rates->read[in_memory] / 2;
    }
    const RowShape shape = shape_of(t.l3_bytes / 1000, 1000);  // eight times that
    for (const int threads : {1, 64}) CHECK(best_of(machine, shape, threads).stream);
  }
}

TEST_CASE("pages are prefetched from memory where four places copy faster, and only there") {
  for (std::uint64_t seed = 1; seed <= machines; ++seed) {
    INFO("seed ", seed);
    MadeUpMachine machine = made_up_machine(seed);
    Traits& t = machine.measured.at_isa;
    t.one.stream = t.one.read[in_memory];
    t.one.write[in_memory] = t.one.read[in_memory] / 2;
    t.l1_bytes = 48 << 10;
    const RowShape shape = shape_of(t.l3_bytes / 2000, 2000);
    t.one.copy[in_order] = t.one.read[in_memory];
    t.one.copy[in_four] = 1.2 * t.one.copy[in_order];
    CHECK(best_of(machine, shape, 1).prefetch == Prefetch::pages);
    t.one.copy[in_four] = t.one.copy[in_order];
    CHECK(best_of(machine, shape, 1).prefetch == Prefetch::into_l1);
    t.l1_bytes = 32 << 10;  // has no room for the distance
    CHECK(best_of(machine, shape, 1).prefetch == Prefetch::into_l2);
  }
}

TEST_CASE("a row is shared by threads where whole rows leave most of them idle") {
  for (std::uint64_t seed = 1; seed <= machines; ++seed) {
    INFO("seed ", seed);
    const MadeUpMachine machine = made_up_machine(seed);
    CHECK(best_of(machine, shape_of(1, 4'000'000), 16).split);
    CHECK(!best_of(machine, shape_of(16'000, 1000), 16).split);
  }
}

TEST_CASE("faster memory is never predicted to take longer") {
  for (std::uint64_t seed = 1; seed <= machines; ++seed) {
    const MadeUpMachine slow = made_up_machine(seed);
    MadeUpMachine fast = slow;
    Traits& t = fast.measured.at_isa;
    for (Traits::Rates* rates : {&t.one, &t.many}) {
      for (double* list : {rates->read, rates->write}) {
        for (int level = in_l2; level < levels; ++level) list[level] *= 1.5;
      }
      for (double& copy : rates->copy) copy *= 1.5;
      rates->stream *= 1.5;
    }
    Draws draw(seed);
    for (int i = 0; i < 20; ++i) {
      const std::int64_t cols = draw.size(1, 60'000);
      const RowShape shape = shape_of(draw.size(1, 2e7 / static_cast<double>(cols) + 2), cols);
      INFO("seed ", seed, " ", shape.rows, "x", shape.cols);
      for (const int threads : {1, 2, 16}) {
        const RowSchedule s = best_of(slow, shape, threads);
        CHECK(seconds_of(fast, shape, s) <= seconds_of(slow, shape, s) * (1 + 1e-9));
      }
    }
  }
}

TEST_CASE("pages are not prefetched in turn where much lies between the rows") {
  const Tuning pages = {{"prefetch", 1}}, in_order = {{"prefetch", 2}};
  CHECK(prefetch_of(pages, 9, 1000, 1125) == Prefetch::pages);
  CHECK(prefetch_of(pages, 9, 1000, 1126) == Prefetch::into_l1);
  CHECK(prefetch_of(pages, 1, 1000, 5000) == Prefetch::pages);
  CHECK(prefetch_of(in_order, 9, 1000, 5000) == Prefetch::into_l2);
  CHECK(prefetch_of({}, 9, 1000, 1000) == Prefetch::into_l1);
}
