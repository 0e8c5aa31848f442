// The roofline summary: per problem the variants with speed, distance to the roof, speed-ups and
// the winner. Knows rows and samples only, nothing of how they were measured; how it looks stands
// in io/summary_text.hpp and io/summary_json.hpp, what it comes to per kernel and size in
// io/size_classes.hpp.
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
  // Of a tuned schedule that was measured beside its variant's own choice (bench --tuned): time of
  // that / time of this row.
  std::optional<Ratio> over_model = {};
  bool beside_tuned = false;  // it is that own choice: another line says what the variant does
  enum class Verdict { none, winner, tie } verdict = Verdict::none;
  // Below a tenth of its roof; or, of other operands than float32, slower than the fastest in fp32
  // on the same problem with float32 operands, where that was measured. scalar never is.
  bool cliff = false;
};

// One problem at one thread count, math and cache mode. Lines with a time first, fastest on top.
struct SummaryGroup {
  std::string kernel, shape, dtype, math, cache, cpu;
  std::optional<std::int64_t> threads;  // empty: devices without threads only
  // The plateau of the measured bandwidth that the operands fit in: L1, L2, L3, memory; empty where
  // no row knows.
  std::string size;
  std::vector<SummaryLine> lines;
  // Positions in `lines`; nothing where no row can be that. `next` is the fastest of the others.
  std::optional<std::size_t> fastest, next;
  std::optional<Ratio> over_next;  // time of `next` / time of `fastest`
  // Fastest first, INACCURATE ones too. In another math than fp32 without peers of its own, strict
  // float32 peers of the same problem, which are no lines then.
  std::vector<SummaryLine> peers;

  bool is_tie() const { return fastest && lines[*fastest].verdict == SummaryLine::Verdict::tie; }
};

// Variants with one thread (they have no row of the kernel with more threads) and rows without
// threads (GPUs) appear in the group of every thread count. The winner is the fastest PASSED row of
// this build and other people's libraries (a variant V@NAME of another build is never it); it and
// every PASSED row whose ratio to it has a 95 % interval that holds 1 (or that lies on the other
// side of it) are a TIE. Of several rows with one identity (launches, repeated files) the one with
// the median time stands for all. A variant measured with a tuned schedule and with its own choice
// has a line of each, and only the tuned one may win. Rungs of a ladder (io/ladder.hpp) take no
// part. Lines point into `rows`.
std::vector<SummaryGroup> summarise_rows(std::span<const MeasuredRow> rows);

}  // namespace rooflane
