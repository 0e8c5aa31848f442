// From rounds to results and rows. See result.hpp; tables: result_text.cpp.
#include "model/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/text.hpp"

namespace rooflane::model {

std::string symbols_text(const Phase& phase) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : phase.symbols)
    parts.push_back(fmt::format("{}={}", name, value));
  return join(parts, ",");
}

namespace {

Figure figure_of(const std::vector<double>& samples, std::uint64_t seed) {
  return {median(samples), median_interval(samples, seed)};
}

std::vector<double> step_samples(const PhaseRounds& rounds, std::size_t step) {
  std::vector<double> samples;
  for (const std::vector<double>& round : rounds.steps) samples.push_back(round[step]);
  return samples;
}

// Sums over a step's calls, and the roofs of all of them.
StepResult step_result(const Chain& chain, const PhaseRounds& rounds, std::size_t step,
                       const Ceilings& ceilings, bool cold_weights, double read_gb_s,
                       double& least_ns) {
  const Phase& phase = chain.phase(rounds.phase);
  StepResult result;
  result.phase = rounds.phase;
  result.step = step;
  const std::vector<std::size_t>& calls = phase.steps[step].calls;
  result.runner = &chain.runners(rounds.phase, calls.front()).front();
  result.ns = figure_of(step_samples(rounds, step), chain.settings().seed);
  const PlanFacts facts = result.runner->plan->facts();
  double least = 0, computing = 0;
  bool all = true;
  for (const std::size_t index : calls) {
    const Call& call = phase.calls[index];
    const Cost cost = call.problem.kernel().cost(call.problem);
    result.flops += cost.flops;
    result.exps += cost.exps;
    result.bytes += cost.bytes;
    const auto roof = roof_of(phase, call, ceilings, chain.math_of(call), facts,
                              result.runner->environment.threads, cold_weights);
    all = all && roof.has_value();
    if (!roof) continue;
    least += roof->least_ns;
    if (roof->compute) computing += roof->least_ns;
  }
  if (read_gb_s > 0 && result.ns.value > 0) {
    result.read_pct = 100 * result.bytes / result.ns.value / read_gb_s;
  }
  if (!all) return result;
  least_ns += least;
  result.bound = 2 * computing >= least ? "compute" : "memory";
  if (result.ns.value > 0) result.roof_pct = 100 * least / result.ns.value;
  return result;
}

}  // namespace

std::vector<PhaseResult> results_of(const Chain& chain, const std::vector<PhaseRounds>& rounds,
                                    const std::vector<StepCheck>& checks,
                                    const Ceilings& ceilings) {
  std::vector<PhaseResult> results;
  const std::uint64_t seed = chain.settings().seed;
  for (const PhaseRounds& of : rounds) {
    PhaseResult result;
    result.ns = figure_of(of.whole, seed);
    const auto knee = find_knee(ceilings, chain.settings().threads);
    result.cold_weights = knee && touched_bytes(chain.phase(of.phase)) > *knee;
    const std::vector<Share> shares = shares_of(of, seed);
    constexpr double beyond_all_caches = std::numeric_limits<double>::infinity();
    const auto memory =
        find_memory_peak(ceilings, beyond_all_caches, 0, chain.settings().threads, "");
    const double read_gb_s = memory ? memory->gb_s : 0;
    double least_ns = 0, bytes = 0;
    for (std::size_t step = 0; step < shares.size(); ++step) {
      result.steps.push_back(
          step_result(chain, of, step, ceilings, result.cold_weights, read_gb_s, least_ns));
      bytes += result.steps.back().bytes;
      result.steps.back().share = shares[step];
      for (const StepCheck& check : checks) {
        const bool same = check.phase == of.phase && check.step == step &&
                          check.entry == result.steps.back().runner->entry;
        if (same) result.steps.back().verification = check.verification;
      }
    }
    const bool all = std::all_of(result.steps.begin(), result.steps.end(),
                                 [](const StepResult& step) { return step.roof_pct.has_value(); });
    if (read_gb_s > 0 && result.ns.value > 0) {
      result.read_pct = 100 * bytes / result.ns.value / read_gb_s;
    }
    if (all && result.ns.value > 0) result.roof_pct = 100 * least_ns / result.ns.value;
    for (std::size_t swap = 0; swap < of.swaps.size(); ++swap) {
      result.proofs.push_back(prove(of, swap, seed));
    }
    results.push_back(std::move(result));
  }
  return results;
}

namespace {

void join_samples(const std::vector<double>& ns, const PhaseRounds& rounds, Row& row) {
  const Summary summary = summarise(ns);
  row.n_samples = summary.count;
  row.runs_per_sample = rounds.runs_per_turn;
  row.min_ns = summary.min;
  row.p20_ns = summary.p20;
  row.p50_ns = summary.p50;
  row.p80_ns = summary.p80;
  row.p99_ns = summary.p99;
  row.mean_ns = summary.mean;
  row.stdev_ns = summary.stdev;
  row.noise_pct = summary.noise_pct;
  row.e2e_ns = summary.p50;
  const double half_width = median_half_width_pct(ns);
  if (std::isfinite(half_width)) row.interval_pct = half_width;
}

void join_rates(double flops, double exps, double bytes, Row& row) {
  row.flops = flops;
  row.exps = exps;
  row.bytes = bytes;
  if (flops <= 0 || bytes <= 0 || *row.p50_ns <= 0) return;
  row.ai = flops / bytes;
  row.gflops = flops / *row.p50_ns;
  row.gb_s = bytes / *row.p50_ns;
}

Row common_row(const Chain& chain, const Phase& phase, const PhaseResult& result,
               const Row& stamp) {
  Row row = stamp;
  row.preset = chain.instance().model;
  row.math = chain.settings().math;
  row.threads = chain.settings().threads;
  row.seed = static_cast<std::int64_t>(chain.settings().seed);
  row.cache = result.cold_weights ? "cold" : "warm";
  row.timer = "steady";
  row.launch = 1;
  row.step = phase.name;
  return row;
}

RowWithSamples step_row(const Chain& chain, const PhaseRounds& rounds, const PhaseResult& result,
                        const StepResult& step, const Row& stamp) {
  const Phase& phase = chain.phase(rounds.phase);
  Row row = common_row(chain, phase, result, stamp);
  const Step& of = phase.steps[step.step];
  const auto calls = static_cast<double>(of.calls.size());
  const Problem& problem = step.runner->problem;
  const PlanFacts facts = step.runner->plan->facts();
  const Variant& variant = *step.runner->entry->variant;
  row.math = chain.math_of(phase.calls[of.calls.front()]);
  row.step += "/" + of.name;
  row.calls = static_cast<std::int64_t>(of.calls.size());
  row.share_pct = 100 * step.share.share.value;
  row.threads = step.runner->environment.threads;
  row.kernel = of.kernel->name;
  row.variant = step.runner->entry->name;
  row.backend = variant.backend->name;
  row.isa = facts.isa;
  row.library = facts.library;
  row.device = facts.device;
  row.driver = facts.driver;
  row.path = facts.path;
  row.tuning = facts.tuning.text();
  row.dtype = dtype_text(problem);
  row.shape = problem.shape();
  row.status = name_of(step.verification.status);
  row.reason = step.verification.reason;
  row.err_metric = step.verification.metric;
  row.err_value = step.verification.value;
  row.err_threshold = step.verification.threshold;
  row.max_abs_err = step.verification.max_abs_error;
  row.plan_ns = step.runner->plan_ns;
  row.workspace_bytes = static_cast<std::int64_t>(facts.workspace_bytes);
  row.packed_bytes = static_cast<std::int64_t>(facts.packed_bytes);
  std::vector<double> ns = step_samples(rounds, step.step);
  for (double& value : ns) value /= calls;
  join_samples(ns, rounds, row);
  join_rates(step.flops / calls, step.exps / calls, step.bytes / calls, row);
  row.roof_pct = step.roof_pct;
  row.bound = step.bound;
  return {row, ns};
}

RowWithSamples whole_row(const Chain& chain, const PhaseRounds& rounds, const PhaseResult& result,
                         const Row& stamp) {
  const Phase& phase = chain.phase(rounds.phase);
  Row row = common_row(chain, phase, result, stamp);
  row.calls = static_cast<std::int64_t>(phase.calls.size());
  row.share_pct = 100;
  row.kernel = "model";
  row.shape = symbols_text(phase);
  row.dtype = float32.name;
  std::vector<std::string> variants, backends;
  Status status = Status::passed;
  double flops = 0, exps = 0, bytes = 0;
  const auto add = [](std::vector<std::string>& list, const std::string& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (const StepResult& step : result.steps) {
    add(variants, step.runner->entry->name);
    add(backends, step.runner->entry->variant->backend->name);
    flops += step.flops;
    exps += step.exps;
    bytes += step.bytes;
    const bool worse = !step.verification.usable() || status == Status::passed;
    if (!step.verification.passed() && worse) status = step.verification.status;
  }
  row.variant = join(variants, "+");
  row.backend = join(backends, "+");
  row.status = name_of(status);
  join_samples(rounds.whole, rounds, row);
  join_rates(flops, exps, bytes, row);
  row.roof_pct = result.roof_pct;
  return {row, rounds.whole};
}

}  // namespace

std::vector<RowWithSamples> rows_of(const Chain& chain, const std::vector<PhaseRounds>& rounds,
                                    const std::vector<PhaseResult>& results, const Row& stamp) {
  std::vector<RowWithSamples> rows;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    for (const StepResult& step : results[i].steps) {
      rows.push_back(step_row(chain, rounds[i], results[i], step, stamp));
    }
    rows.push_back(whole_row(chain, rounds[i], results[i], stamp));
  }
  return rows;
}

}  // namespace rooflane::model
