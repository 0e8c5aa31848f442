// Timing of a variant that is anybody's code (Backend::untrusted). What it gives within the timed
// series is looked at: before a timed run, unannounced, an element of an input becomes another and
// some elements of an output become NaN in place; behind it they must be what the inputs then say.
// A result that is kept from an earlier run, whatever it is found by short of all contents, is
// wrong in one of these places; a run that is left out leaves NaN.
//
// Short runs are timed many to a call, since a call costs as much as some of them. The kernel can
// know that it is among others, and that nothing changes between them, so between the long calls
// are calls of one run. Any of those may be one behind a change, so each must do its work, and a
// run among others has to take as long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/sampler.hpp"
#include "measure/verify.hpp"

namespace rooflane {

// What a call of a plan takes beyond its runs: the middle of many calls, and how far these lie from
// it in the middle.
struct CallCost {
  double ns = 0;
  double spread_ns = 0;
  int threads = 1;  // of the kernel

  // Measuring process and kernel share their CPUs, so each call is behind a sleep of one of them;
  // where two CPUs look at the doorbell it takes less.
  static constexpr double sleeping_ns = 1000;
  bool sleeps() const { return ns > sleeping_ns; }
  // The kernel's threads sleep between calls, too, and run on at once among others: add of 64x256
  // on both of two CPUs of an Intel Xeon took 62 us by itself and 5.4 among others. So single runs
  // say nothing of those.
  bool wakes_threads() const { return sleeps() && threads > 1; }
};

// What a run that a call asks for may take less than a single one, by what is known of calls: who
// leaves out runs gains as much unseen.
double unseen_ns(const CallCost& call);
// Runs of at least this are called one by one, and each is behind a change: none can be left out.
double changed_each_from_ns(const CallCost& call);
// And by how much more, as a ratio: a run that is called alone finds the CPU's branch history other
// than one among others does.
inline constexpr double unseen_ratio = 1.2;

class SeriesGuard {
 public:
  // The operands are those that the plan is bound to, in memory that `run` reads and writes.
  SeriesGuard(const Problem& problem, const OwnedOperands& operands, const InputSeed& seed,
              const Math& math);

  // Mean time in ns of one of `runs` runs, like time_runs, less the cost of each call of `run`,
  // which runs the variant as often as it is told. Inputs are afterwards as before. Throws
  // WorkerError(failed) with a reason that begins with the fault: "replay: ", "skipped-calls: ",
  // "late-return: ", "packed-constants: ", "low-precision: ".
  double time(FunctionRef<void(std::int64_t)> run, std::int64_t runs, Clock now,
              CallCost call = {});

 private:
  struct Change;  // one input element, and what the run made of it
  // Times of runs by how they were called, in ns: of single runs, and of calls of several in sum.
  // `means`, `unseen`: for each series, the mean time of its runs, and unseen_ns.
  struct Times {
    std::vector<double> undisturbed, rewritten, changed;
    double others_ns = 0;
    std::int64_t others_runs = 0, others_calls = 0;
    std::vector<double> means, unseen;
  };
  static constexpr std::int64_t between_looks = 24;  // calls of several runs, about two series
  using TimedRuns = FunctionRef<double(std::int64_t)>;

  std::uint64_t draw(std::uint64_t below);
  Change change();
  double time_changed(TimedRuns timed_runs, std::int64_t runs, std::vector<Change>& changes);
  void time_single_runs(TimedRuns timed_runs, std::vector<Change>& changes);
  void note_result(Change& change);
  void check_written(const Change& change);
  void check(std::vector<Change>& changes);
  bool is_right(const Change& change, bool& followed) const;
  void undo(const Change& change);
  void rewrite();
  static std::string unevenness(const Times& times);
  void require_even_times();

  const Problem& problem_;
  const OwnedOperands& operands_;
  InputSeed seed_;
  const Math& math_;
  std::vector<TensorSpec> inputs_, outputs_;  // those that can be changed, and looked at
  std::uint64_t state_;
  double run_ns_ = 0;  // of the last series
  Times times_;
  std::int64_t next_look_ = between_looks;  // others_calls at which times are compared
  bool was_uneven_ = false;
};

}  // namespace rooflane
