// See cheating.hpp.
#include "measure/cheating.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"
#include "core/variant.hpp"

namespace rooflane {

namespace {

// Repeats a step until it returns true or its time is over; at least `least` times, at most `most`.
bool shows(int least, int most, FunctionRef<bool()> step,
           std::chrono::milliseconds patience = std::chrono::milliseconds(500)) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (int i = 0; i < most && (i < least || std::chrono::steady_clock::now() < end); ++i) {
    if (step()) return true;
  }
  return false;
}

class Experiments {
 public:
  Experiments(Plan& plan, OwnedOperands& operands, const Case& c)
      : plan_(plan), operands_(operands), case_(c) {}

  std::string name(bool was_right) {
    if (returns_early()) {
      return "late-return: the outputs went on changing after the run had returned; ";
    }
    const int written = count_writing_runs();
    if (written == 0) return bind_writes() ? "work-in-bind: " : "unwritten-or-outside: ";
    if (written < runs) return "skipped-calls: some runs write nothing; ";
    if (operands_.holds_poison()) return "unwritten-or-outside: some elements stay as they were; ";
    constexpr const char* left_out =
        "recognises-verification: a run that follows others at once is left out; ";
    if (was_right && is_left_out_in_a_series()) return left_out;
    if (const std::optional<Difference> found = difference()) {
      return *found == Difference::nothing_written ? left_out
                                                   : "race: runs with the same inputs differ; ";
    }
    if (!was_right) return copies_expected() ? "reads-reference: the results are a decoy's; " : "";
    return how_it_keeps();
  }

 private:
  static constexpr int runs = 6;

  void run_poisoned() {
    operands_.poison_output();
    plan_.run();
  }
  std::uint64_t hash_of_run() {
    run_poisoned();
    return operands_.output_hash();
  }
  bool run_writes() {
    operands_.poison_output();
    const std::uint64_t poisoned = operands_.output_hash();
    plan_.run();
    return operands_.output_hash() != poisoned;
  }

  // Elements that are not written at return, and later are. Runs that leave theirs out make this
  // wait, so that few of them are enough.
  bool returns_early() {
    constexpr int most = 2000, looks = 20, most_unwritten = 4;
    int unwritten = 0;
    return shows(2, most, [&] {
      run_poisoned();
      if (unwritten >= most_unwritten || !operands_.holds_poison()) return false;
      ++unwritten;
      const std::uint64_t hash = operands_.output_hash();
      for (int i = 0; i < looks; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (operands_.output_hash() != hash) return true;
      }
      return false;
    });
  }

  // How many runs write, each after a pause.
  int count_writing_runs() {
    int written = 0;
    for (int i = 0; i < runs; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      written += run_writes() ? 1 : 0;
    }
    return written;
  }

  bool bind_writes() {
    operands_.poison_output();
    const std::uint64_t poisoned = operands_.output_hash();
    plan_.bind(operands_.all());
    return operands_.output_hash() != poisoned;
  }

  enum class Difference { other_results, nothing_written };

  // How a run's results differ from those of the first run; nothing if none does. Threads that
  // share busy CPUs seldom meet.
  std::optional<Difference> difference() {
    constexpr std::chrono::seconds patience(3);
    std::optional<Difference> found;
    const std::uint64_t hash = hash_of_run();
    operands_.poison_output();
    const std::uint64_t poisoned = operands_.output_hash();
    const auto differs = [&] {
      const std::uint64_t now = hash_of_run();
      if (now == hash) return false;
      found = now == poisoned ? Difference::nothing_written : Difference::other_results;
      return true;
    };
    shows(3, 100, differs, patience);
    return found;
  }

  // On a busy machine a series is interrupted, and what waits for one hears a pause: there are
  // several.
  bool is_left_out_in_a_series() {
    constexpr int series = 10, runs_of_a_series = 100;
    return shows(2, series, [&] {
      shows(2, runs_of_a_series, [&] {
        plan_.run();
        return false;
      });
      return !run_writes();
    });
  }

  // The inputs are others, and the outputs as before: what brings them along?
  std::string how_it_keeps() {
    const std::uint64_t before = hash_of_run();
    operands_.change_inputs();
    const bool follows = hash_of_run() != before;
    plan_.bind(operands_.all());
    const bool follows_bind = follows || hash_of_run() != before;
    const bool looks_for_poison = follows && !follows_without_poison();
    operands_.restore_inputs();
    plan_.bind(operands_.all());
    if (!follows) {
      return follows_bind ? "work-in-bind: outputs follow their inputs when these are bound; "
                          : "replay: outputs are kept although all inputs changed; ";
    }
    if (looks_for_poison) {
      return "recognises-verification: outputs are computed where they hold NaN before the run, "
             "and kept elsewhere; ";
    }
    for (const TensorSpec& tensor : changeable()) {
      if (is_kept(tensor)) {
        return fmt::format("packed-constants: {} changed and the outputs did not; ", tensor.name);
      }
    }
    return {};
  }

  // Whether a run that finds numbers in its outputs computes what one does that finds NaN.
  bool follows_without_poison() {
    plan_.run();
    operands_.restore_inputs();
    plan_.run();
    const std::uint64_t unpoisoned = operands_.output_hash();
    const bool same = hash_of_run() == unpoisoned;
    operands_.change_inputs();
    return same;
  }

  // Constants stay; indices and lengths have an order to keep.
  std::vector<TensorSpec> changeable() const {
    std::vector<TensorSpec> tensors = case_.problem.kernel().tensors(case_.problem);
    std::erase_if(tensors, [](const TensorSpec& tensor) {
      return tensor.role != Role::input || tensor.domain.limited();
    });
    return tensors;
  }

  // Whether the outputs follow a tensor that lies elsewhere, and not one that changes in its place.
  bool is_kept(const TensorSpec& tensor) {
    const InputSeed other(splitmix64(case_.seed + 2));
    const int threads = machine().physical_cores;
    const std::uint64_t before = hash_of_run();
    const View& in_place = operands_.inputs().at(tensor.name);
    fill_from_seed(other, case_.problem, tensor, in_place, threads);
    const bool follows = hash_of_run() != before;
    operands_.restore_inputs();
    if (follows) return false;
    OwnedOperands elsewhere(case_.problem, case_.inputs(), threads);
    fill_from_seed(other, case_.problem, tensor, elsewhere.inputs().at(tensor.name), threads);
    plan_.bind(elsewhere.all());
    elsewhere.poison_output();
    plan_.run();
    const bool matters = elsewhere.output_hash() != before;
    plan_.bind(operands_.all());
    return matters;
  }

  // Results of other inputs lie where the plan's process can read them. Whoever computes has no use
  // for them; whoever looks for the expected results finds these.
  bool copies_expected() {
    const Problem& problem = case_.problem;
    if (problem.kernel().cost(problem).flops > full_comparison_flops) return false;
    const int threads = machine().physical_cores;
    const InputSeed other(splitmix64(case_.seed + 3));
    const OwnedOperands meant(problem, other, threads);
    OwnedOperands decoy(problem, InputSeed(splitmix64(case_.seed + 4)), threads);
    const std::vector<TensorSpec> tensors = problem.kernel().tensors(problem);
    for (const TensorSpec& tensor : tensors) {
      if (!is_written(tensor.role)) continue;
      const View& to = decoy.all().at(tensor.name);
      Region all;
      all.rows.resize(static_cast<std::size_t>(to.rows()));
      all.cols.resize(static_cast<std::size_t>(to.cols()));
      std::iota(all.rows.begin(), all.rows.end(), 0);
      std::iota(all.cols.begin(), all.cols.end(), 0);
      const std::vector<double> values = reference_values(problem, meant.inputs(), tensor, all);
      for (std::int64_t row = 0; row < to.rows() && !values.empty(); ++row) {
        to.dtype->encode(values.data() + row * to.cols(), to.row(row), to.cols());
      }
    }
    const std::uint64_t hash = decoy.output_hash();
    plan_.bind(decoy.all());  // its memory stays mapped
    plan_.bind(operands_.all());
    return hash_of_run() == hash;
  }

  Plan& plan_;
  OwnedOperands& operands_;
  const Case& case_;
};

}  // namespace

std::string how_it_cheats(Plan& plan, OwnedOperands& operands, const Case& c, bool was_right) {
  return Experiments(plan, operands, c).name(was_right);
}

}  // namespace rooflane
