// How many threads row kernels and attention are given: predictions for seeded random problems, on
// this machine and on machines made up for the purpose. Nothing is run; scripts/thread_scaling.sh
// measures.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "backends/highway.hpp"
#include "bench/random_problems.hpp"
#include "generated_catalogue.hpp"
#include "kernels/attention/hwy_cost.hpp"
#include "kernels/common/rows_schedule.hpp"
#include "made_up_traits.hpp"

using namespace rooflane;
using rooflane::test::made_up_machine;
using rooflane::test::MadeUpMachine;

namespace {

// With more threads a problem may be predicted to take so many times as long as with one.
constexpr double most_ratio = 1.10;
constexpr common::RowWork row_work = {
    .vector_ops = 12, .row_ops = 45, .short_ops = 2.4, .long_rows = common::Prefetch::pages};

std::vector<int> thread_counts() {
  std::vector<int> counts;
  for (int threads = 2; threads <= 64; ++threads) counts.push_back(threads);
  return counts;
}

struct Choice {
  int threads;
  double seconds;
};

// What is chosen among schedules of at most `most` threads on a machine.
class Chooser {
 public:
  explicit Chooser(const MadeUpMachine& machine) {
    for (int threads = 1; threads <= 64; ++threads) traits_[threads] = machine.traits(threads);
  }
  Choice operator()(const Problem& problem, int most) {
    const auto traits = [&](int threads) -> const Traits& { return traits_.at(threads); };
    if (std::string(problem.kernel().name) == "attention") {
      const attention::Sizes s(problem);
      const attention::CodePath path = {16, 8, s.group() * s.q_len <= 4 && s.head_dim >= 16};
      const attention::Schedule best = attention::schedules(s, path, most, traits).front();
      return {best.threads, attention::predict(best, s, path, traits(best.threads))};
    }
    const common::RowShape shape(problem);
    const common::RowSchedule best = common::row_schedules(shape, row_work, most, traits).front();
    return {best.threads, common::predict(best, shape, row_work, traits(best.threads))};
  }

 private:
  std::map<int, Traits> traits_;
};

const Kernel* const kernels[] = {&softmax::kernel, &layernorm::kernel, &rmsnorm::kernel,
                                 &attention::kernel};

}  // namespace

TEST_CASE("no problem is predicted slower with N threads than with one, on made-up machines") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Chooser choose(made_up_machine(seed));
    for (const Kernel* kernel : kernels) {
      for (const Problem& problem :
           random_problems(*kernel, {.count = 12, .seed = seed, .largest = 2048})) {
        const double one = choose(problem, 1).seconds;
        for (const int threads : thread_counts()) {
          INFO("seed ", seed, " ", problem.text(), " threads=", threads);
          const Choice choice = choose(problem, threads);
          CHECK(choice.threads <= threads);
          CHECK(choice.seconds <= most_ratio * one);
        }
      }
    }
  }
}

TEST_CASE("no problem is predicted slower with N threads than with one, on this machine") {
  for (const Kernel* kernel : kernels) {
    const Variant& hwy =
        *std::vector<const Variant*>{&softmax::hwy, &layernorm::hwy, &rmsnorm::hwy, &attention::hwy}
             .at(static_cast<std::size_t>(
                 std::find(std::begin(kernels), std::end(kernels), kernel) - std::begin(kernels)));
    for (const Problem& problem :
         random_problems(*kernel, {.count = 30, .seed = 7, .largest = 1024})) {
      const auto seconds = [&](int threads) {
        Environment env;
        env.threads = threads;
        return hwy.predicted_seconds(problem, hwy.tunings(problem, env).front(), env);
      };
      const double one = seconds(1);
      for (const int threads : {2, 3, 7, 16, 64}) {
        INFO(problem.text(), " threads=", threads);
        CHECK(seconds(threads) <= most_ratio * one);
      }
    }
  }
}

TEST_CASE("work shorter than a region stays on one thread, work of many regions on all") {
  const Kernel* const both[] = {&softmax::kernel, &attention::kernel};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    MadeUpMachine machine = made_up_machine(seed);
    machine.measured.at_isa.jitter = 0.1;
    machine.measured.at_isa.region = std::max(machine.measured.at_isa.region, 6e-6);
    Chooser choose(machine);
    for (const char* text : {"softmax:rows=9,cols=7", "softmax:rows=2,cols=200",
                             "attention:batch=1,heads=2,q_len=4,kv_len=5,head_dim=8"}) {
      const Problem problem = parse_problem(text, both);
      INFO("seed ", seed, " ", text);
      for (const int threads : {2, 16, 64}) CHECK(choose(problem, threads).threads == 1);
    }
    for (const char* text : {"softmax:rows=64000,cols=1000",
                             "attention:batch=4,heads=32,q_len=1024,kv_len=1024,head_dim=64"}) {
      const Problem problem = parse_problem(text, both);
      INFO("seed ", seed, " ", text);
      for (const int threads : {2, 16}) CHECK(choose(problem, threads).threads == threads);
    }
  }
}

TEST_CASE("dearer regions never mean more threads") {
  const Kernel* const both[] = {&softmax::kernel, &attention::kernel};
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    MadeUpMachine machine = made_up_machine(seed);
    for (const Kernel* kernel : both) {
      for (const Problem& problem :
           random_problems(*kernel, {.count = 10, .seed = seed, .largest = 512})) {
        int before = 64;
        for (const double region : {1e-7, 1e-6, 1e-5, 1e-4}) {
          machine.measured.at_isa.region = region;
          Chooser choose(machine);
          const int threads = choose(problem, 64).threads;
          INFO("seed ", seed, " ", problem.text(), " region ", region);
          CHECK(threads <= before);
          before = threads;
        }
      }
    }
  }
}
