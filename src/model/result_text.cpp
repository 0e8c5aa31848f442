// Tables of a measured model. See result.hpp.
#include <fmt/format.h>

#include <cmath>

#include "model/result.hpp"

namespace rooflane::model {
namespace {

// Four digits, with a unit.
std::string time_text(double ns) {
  if (ns >= 1e9) return fmt::format("{:.4g} s", ns * 1e-9);
  if (ns >= 1e6) return fmt::format("{:.4g} ms", ns * 1e-6);
  if (ns >= 1e3) return fmt::format("{:.4g} us", ns * 1e-3);
  return fmt::format("{:.4g} ns", ns);
}

std::string limit_text(double limit) {
  return std::isfinite(limit) ? fmt::format("{:.3g}x", limit) : "-";
}

std::string speed_text(const Figure& figure) {
  return fmt::format("{:.4g} [{:.4g}, {:.4g}]", figure.value, figure.interval.low,
                     figure.interval.high);
}

}  // namespace

TextTable step_table(const Chain& chain, std::size_t phase, const PhaseResult& result) {
  TextTable table{{{"step"},
                   {"kernel"},
                   {"variant"},
                   {"calls", true},
                   {"time", true},
                   {"share %", true},
                   {"% of roof", true},
                   {"bound by"},
                   {"limit", true},
                   {"status"}},
                  {}};
  const Phase& of = chain.phase(phase);
  for (const StepResult& step : result.steps) {
    table.rows.push_back(
        {of.steps[step.step].name, of.steps[step.step].kernel->name, step.runner->entry->name,
         std::to_string(of.steps[step.step].calls.size()), time_text(step.ns.value),
         fmt::format("{:.1f}", 100 * step.share.share.value),
         step.roof_pct ? fmt::format("{:.1f}", *step.roof_pct) : "-",
         step.bound.empty() ? "-" : step.bound, limit_text(step.share.limit),
         std::string(name_of(step.verification.status))});
  }
  table.rows.push_back(
      {"whole", "", "", std::to_string(of.calls.size()), time_text(result.ns.value), "100.0",
       result.roof_pct ? fmt::format("{:.1f}", *result.roof_pct) : "-", "", "", ""});
  return table;
}

TextTable phases_table(const Chain& chain, std::size_t phase, const PhaseResult& result,
                       const std::vector<StepPhases>& phases) {
  TextTable table{{{"step"},
                   {"MB", true},
                   {"GB/s", true},
                   {"% of read", true},
                   {"packing %", true},
                   {"waiting %", true}},
                  {}};
  double all = 0;
  const auto add = [&](const std::string& name, double bytes, const Figure& ns,
                       const std::optional<double>& read_pct) {
    const std::string read = read_pct ? fmt::format("{:.1f}", *read_pct) : "-";
    table.rows.push_back({name, fmt::format("{:.3f}", bytes * 1e-6),
                          fmt::format("{:.1f}", ns.value > 0 ? bytes / ns.value : 0), read, "",
                          ""});
  };
  for (const StepResult& step : result.steps) {
    all += step.bytes;
    add(chain.phase(phase).steps[step.step].name, step.bytes, step.ns, step.read_pct);
    table.rows.back()[4] = fmt::format("{:.1f}", phases[step.step].packing_pct);
    table.rows.back()[5] = fmt::format("{:.1f}", phases[step.step].waiting_pct);
  }
  add("whole", all, result.ns, result.read_pct);
  return table;
}

TextTable proof_table(const PhaseRounds& rounds, const PhaseResult& result) {
  TextTable table{{{"swap"},
                   {"predicted", true},
                   {"measured", true},
                   {"points", true},
                   {"swapped steps", true},
                   {"other steps", true}},
                  {}};
  for (std::size_t i = 0; i < result.proofs.size(); ++i) {
    const Proof& proof = result.proofs[i];
    table.rows.push_back({rounds.swaps[i].name, speed_text(proof.predicted),
                          speed_text(proof.measured), fmt::format("{:+.2f}", proof.difference),
                          fmt::format("{:+.2f}", proof.from_swapped),
                          fmt::format("{:+.2f}", proof.from_others)});
  }
  return table;
}

std::string memory_csv(const Chain& chain) {
  std::string text = "model,phase,call,step,live_bytes,arena_bytes\n";
  for (const Phase& phase : chain.instance().phases) {
    const std::vector<Life> lives = lives_of(phase);
    const std::vector<std::int64_t> live = live_bytes(lives, phase.calls.size());
    const std::int64_t arena = plan_arena(lives).bytes;
    for (std::size_t call = 0; call < live.size(); ++call) {
      text += fmt::format("{},{},{},{},{},{}\n", chain.instance().model, phase.name, call,
                          phase.steps[phase.calls[call].step].name, live[call], arena);
    }
  }
  return text;
}

std::string proofs_csv(const Chain& chain, const std::vector<PhaseRounds>& rounds,
                       const std::vector<PhaseResult>& results, const Row& stamp) {
  std::string text =
      "run_id,cpu,threads,model,phase,symbols,swap,steps,share_pct,predicted,predicted_lo,"
      "predicted_hi,measured,measured_lo,measured_hi,difference_points,from_swapped_points,"
      "from_others_points,rounds\n";
  // Cells that may contain a comma are quoted; none contains a quote.
  const auto quoted = [](const std::string& cell) { return "\"" + cell + "\""; };
  for (std::size_t p = 0; p < rounds.size(); ++p) {
    const Phase& phase = chain.phase(rounds[p].phase);
    for (std::size_t i = 0; i < results[p].proofs.size(); ++i) {
      const Swap& swap = rounds[p].swaps[i];
      const Proof& proof = results[p].proofs[i];
      int steps = 0;
      double share = 0;
      for (std::size_t step = 0; step < swap.of_step.size(); ++step) {
        if (swap.of_step[step] == 0) continue;
        ++steps;
        share += results[p].steps[step].share.share.value;
      }
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{:.3f},{:.5g},{:.5g},{:.5g},{:.5g},{:.5g},{:.5g},{:.3f},{:.3f},"
          "{:.3f},{}\n",
          stamp.run_id, quoted(stamp.cpu), chain.settings().threads, chain.instance().model,
          phase.name, quoted(symbols_text(phase)), quoted(swap.name), steps, 100 * share,
          proof.predicted.value, proof.predicted.interval.low, proof.predicted.interval.high,
          proof.measured.value, proof.measured.interval.low, proof.measured.interval.high,
          proof.difference, proof.from_swapped, proof.from_others, rounds[p].whole.size());
    }
  }
  return text;
}

}  // namespace rooflane::model
