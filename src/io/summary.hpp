// The roofline summary: for each problem the variants with speed, distance to the roof, speed-ups
// and the winner. Knows rows and samples only, not how they were measured. io/summary_text.hpp and
// io/summary_json.hpp print it; io/size_classes.hpp summarises it per kernel and size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/measured_rows.hpp"

namespace rooflane {

struct SummaryLine {
  const Row* row = nullptr;  // stands for `same`
  SameRows same = {};
  // Time of scalar, of the best peer / time of this row.
  std::optional<Ratio> over_scalar = {};
  std::optional<Ratio> over_peer = {};
  // For a tuned schedule that was measured beside its variant's own choice (bench --tuned): time of
  // the choice / time of this row.
  std::optional<Ratio> over_model = {};
  bool beside_tuned = false;  // it is that own choice: another line says what the variant does
  // Among the rows that may win: the winner, the members of a tie, or the undecided ones.
  enum class Verdict { none, winner, tie, undecided } verdict = Verdict::none;
  // Below a tenth of its roof; or, of other operands than float32, slower than the fastest in fp32
  // on the same problem with float32 operands, where that was measured. scalar never is.
  bool cliff = false;
};

// One problem at one thread count, math and cache mode. Lines with a time first, fastest on top.
struct SummaryGroup {
  std::string kernel, shape, dtype, math, cache, cpu;
  std::string distribution;             // of the inputs; empty: uniform
  std::optional<std::int64_t> threads;  // empty: devices without threads only
  // The plateau of the measured bandwidth that the operands fit in: L1, L2, L3, memory; empty where
  // no row knows.
  std::string size;
  std::vector<SummaryLine> lines;
  // Positions in `lines`; nothing where no row can be that. `fastest` is the leader of a ranking
  // (io/measured_rows.hpp), `next` the one of the others that comes nearest.
  std::optional<std::size_t> fastest, next;
  Ranking::State state = Ranking::State::undecided;
  // Where the group is undecided: how many times as many repetitions would decide all its pairs.
  std::optional<double> more_repetitions;
  std::optional<Ratio> over_next;  // time of `next` / time of `fastest`
  // Fastest first, INACCURATE ones too. In another math than fp32 without peers of its own, strict
  // float32 peers of the same problem, which are no lines then.
  std::vector<SummaryLine> peers;

  bool is_tie() const { return fastest && state == Ranking::State::tie; }
  bool is_undecided() const { return fastest && state == Ranking::State::undecided; }
};

// Variants with one thread (they have no row of the kernel with more threads) and rows without
// threads (GPUs) appear in the group of every thread count. PASSED rows of this build and of
// third-party libraries are ranked (a variant V@NAME from another build is not). WINNER: the
// leader, if each of the others is slower beyond doubt. TIE: the leader and those shown to be
// equal, within ± 2 %, if nothing else is open. UNDECIDED: the leader and those not yet shown to be
// slower or equal. Among several rows with one identity (repetitions, repeated files) the one with
// the median time represents all. A variant measured with a tuned schedule and with its own choice
// has a line for each, and only the tuned one may win. Rungs of a ladder (io/ladder.hpp) are left
// out. Lines point into `rows`.
std::vector<SummaryGroup> summarise_rows(std::span<const MeasuredRow> rows);

// The --max-time in s that would decide an undecided group, rounded up to a power of two; nothing
// where it is decided, or where its rows do not say how long its rounds took.
std::optional<double> longer_max_time(const SummaryGroup& group);

}  // namespace rooflane
