// What a measured model says of its steps: times, shares, roofs, limits; as rows of the CSV and as
// tables. How it was measured: rounds.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/row.hpp"
#include "io/table.hpp"
#include "measure/ceilings.hpp"
#include "model/amdahl.hpp"
#include "model/check.hpp"
#include "model/step_phases.hpp"

namespace rooflane::model {

// The least time of a call by the ceilings: max(flops / peak, bytes / bandwidth). In a chain that
// touches more than the caches hold, weights come from memory; what steps hand to one another, and
// all of a smaller chain, is as near as the call's own footprint lets it be.
struct CallRoof {
  double least_ns = 0;
  bool compute = false;  // which of the two it is
};
std::optional<CallRoof> roof_of(const Phase& phase, const Call& call, const Ceilings& ceilings,
                                const std::string& math, const PlanFacts& facts, int threads,
                                bool cold_weights);

// Bytes that a run of the phase touches, each once, packed weights as the weights they stand for.
double touched_bytes(const Phase& phase);

struct StepResult {
  std::size_t phase = 0, step = 0;  // of the instance
  const Runner* runner = nullptr;   // of its first call
  Figure ns;                        // all calls together
  Share share;
  double flops = 0, exps = 0, bytes = 0;  // of all calls
  std::optional<double> roof_pct;         // least time over time
  // Bytes a time over the bandwidth of reading memory: above 100 where caches held them.
  std::optional<double> read_pct;
  std::string bound;  // compute or memory; empty: unknown
  Verification verification;
};

struct PhaseResult {
  Figure ns;  // the whole
  std::optional<double> roof_pct, read_pct;
  bool cold_weights = false;
  std::vector<StepResult> steps;
  std::vector<Proof> proofs;  // of the rounds' swaps
};

// `checks` of the first runners; phases in the order of the instance.
std::vector<PhaseResult> results_of(const Chain& chain, const std::vector<PhaseRounds>& rounds,
                                    const std::vector<StepCheck>& checks, const Ceilings& ceilings);

// One row a step and one for each whole phase, with the kernel `model`; nanoseconds of a call, or
// of a run of the phase, one a round.
struct RowWithSamples {
  Row row;
  std::vector<double> ns;
};
std::vector<RowWithSamples> rows_of(const Chain& chain, const std::vector<PhaseRounds>& rounds,
                                    const std::vector<PhaseResult>& results, const Row& stamp);

TextTable step_table(const Chain& chain, std::size_t phase, const PhaseResult& result);
// Bytes of each step, and what its threads do.
TextTable phases_table(const Chain& chain, std::size_t phase, const PhaseResult& result,
                       const std::vector<StepPhases>& phases);
TextTable proof_table(const PhaseRounds& rounds, const PhaseResult& result);

// Proofs as CSV, a header and a line each; speeds are times the whole as it is.
std::string proofs_csv(const Chain& chain, const std::vector<PhaseRounds>& rounds,
                       const std::vector<PhaseResult>& results, const Row& stamp);

// Bytes of buffers that are needed during each call, as CSV: what a run needs over its time.
std::string memory_csv(const Chain& chain);

// "batch=1,len=128": what sizes a phase.
std::string symbols_text(const Phase& phase);

}  // namespace rooflane::model
