// From phases to points of the roof. See explain.hpp.
#include "io/explain.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace rooflane {

namespace {

// Per cent of the time of all threads of the row.
struct Shares {
  double of[phase_count] = {};
  double idle = 0;     // threads that the plan does not use
  double outside = 0;  // of the used ones, between parallel regions
  double operator[](RunPhase phase) const { return of[static_cast<int>(phase)]; }
};

Shares shares_of(const PhaseProfile& profile, std::int64_t threads) {
  Shares shares;
  const double one_thread = 100 / static_cast<double>(threads);
  std::set<int> used;
  double known = 0;
  for (const ThreadPhase& phase : profile.phases) {
    used.insert(phase.thread);
    const double share = one_thread * phase.ns / profile.run_ns;
    shares.of[static_cast<int>(phase.phase)] += share;
    known += share;
  }
  const double of_used = one_thread * static_cast<double>(used.size());
  shares.outside = std::max(0.0, of_used - known);
  shares.idle = std::max(0.0, 100 - of_used);
  return shares;
}

}  // namespace

const LostPart& RoofLoss::largest() const {
  return *std::max_element(parts.begin(), parts.end(), [](const LostPart& x, const LostPart& y) {
    return x.points < y.points;
  });
}

std::optional<RoofLoss> roof_loss(const Row& row, const PhaseProfile& profile) {
  if (!row.roof_pct || !row.threads || *row.threads < 1 || !(profile.run_ns > 0)) {
    return std::nullopt;
  }
  const Shares shares = shares_of(profile, *row.threads);
  const double computing = shares[RunPhase::compute] + shares[RunPhase::tail];
  if (!(computing > 0)) return std::nullopt;
  RoofLoss loss;
  loss.reached = *row.roof_pct;
  loss.computing_pct = 100 * loss.reached / computing;
  loss.tail_pct = shares[RunPhase::tail];
  if (profile.plain_ns > 0) loss.recorder_pct = 100 * (profile.run_ns / profile.plain_ns - 1);
  const double in_computing = computing - loss.reached;
  // What the model counts beyond the roof: exps and unfused operations at their measured rates.
  const double beyond_roof = row.model_pct ? *row.model_pct - loss.reached : 0;
  const double maths = std::clamp(beyond_roof, 0.0, std::max(0.0, in_computing));
  const bool memory = row.bound == "memory";
  loss.parts = {
      {"packing", "packing operands", shares[RunPhase::pack]},
      {"reduction", "adding partial results", shares[RunPhase::reduce]},
      {"storing", "writing results out of scratch memory", shares[RunPhase::store]},
      {"thread start", "starting threads", shares[RunPhase::start]},
      {"waiting", "waiting for threads", shares[RunPhase::wait]},
      {"idle", "threads that the plan does not use", shares.idle},
      {"outside", "waiting for work that one thread does alone", shares.outside},
      {"exp, unfused", "exponentials and unfused operations, at their measured rates", maths},
      {"computing", memory ? "loads and stores below the bandwidth" : "arithmetic below its peak",
       in_computing - maths},
  };
  return loss;
}

}  // namespace rooflane
