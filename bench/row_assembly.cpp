// Rows from measurements. See row_assembly.hpp.
#include "bench/row_assembly.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/statistics.hpp"
#include "core/text.hpp"
#include "measure/model.hpp"

namespace rooflane {

namespace {

bool was_timed(const Measured& measured) {
  return (has_speed(measured.status) || measured.status == Status::suspect) && !measured.ns.empty();
}

std::optional<double> median_of(const std::vector<double>& samples) {
  if (samples.empty()) return std::nullopt;
  return median(samples);
}

void join_verification(const Verification& verification, Row& row) {
  row.err_metric = verification.metric;
  row.err_value = verification.value;
  row.err_threshold = verification.threshold;
  row.max_abs_err = verification.max_abs_error;
}

void join_plan(const Opened& opened, Row& row) {
  const PlanFacts& facts = opened.facts;
  row.isa = facts.isa;
  row.library = facts.library;
  row.device = facts.device;
  row.driver = facts.driver;
  row.path = facts.path;
  row.tuning = facts.tuning.text();
  if (!opened.tuning_source.empty()) row.tuning_source = opened.tuning_source;
  row.plan_ns = opened.plan_ns;
  row.workspace_bytes = static_cast<std::int64_t>(facts.workspace_bytes);
  row.packed_bytes = static_cast<std::int64_t>(facts.packed_bytes);
}

// "steal 3, preempted 2, repeated 4": of the samples that are kept, and how many were taken again.
void join_disturbance(const Measured& measured, Row& row) {
  std::map<std::string, int> causes;
  row.n_disturbed = 0;
  for (const Sample& sample : measured.taken.samples) {
    if (sample.disturbance.empty()) continue;
    ++*row.n_disturbed;
    for (const std::string_view cause : split(sample.disturbance, '+'))
      ++causes[std::string(cause)];
  }
  if (measured.repeats > 0) causes["repeated"] = measured.repeats;
  std::vector<std::string> words;
  for (const auto& [cause, count] : causes) words.push_back(fmt::format("{} {}", cause, count));
  row.disturbance = join(words, ", ");
}

void join_samples(const Measured& measured, Row& row) {
  const Summary summary = summarise(measured.ns);
  row.n_samples = summary.count;
  row.runs_per_sample = measured.calibration.runs_per_sample;
  row.min_ns = summary.min;
  row.p20_ns = summary.p20;
  row.p50_ns = summary.p50;
  row.p80_ns = summary.p80;
  row.p99_ns = summary.p99;
  row.mean_ns = summary.mean;
  row.stdev_ns = summary.stdev;
  row.noise_pct = summary.noise_pct;
  const Repetitions repetitions = log_times({&measured.taken}, false);
  row.launch = static_cast<std::int64_t>(repetitions.size());
  row.stop = measured.stop;
  const double half_width = estimate_over_repetitions(repetitions).half_width_pct();
  if (std::isfinite(half_width)) row.interval_pct = half_width;
  row.group_s = measured.rounds_seconds;
  join_disturbance(measured, row);
  row.h2d_ns = median_of(measured.device.h2d_ns);
  row.kernel_ns = median_of(measured.device.kernel_ns);
  row.d2h_ns = median_of(measured.device.d2h_ns);
  // On a CPU nothing is uploaded or downloaded: end to end is the run.
  row.e2e_ns = measured.device.e2e_ns.empty() ? summary.p50 : median(measured.device.e2e_ns);
}

void join_roof(const Measured& measured, const Roof& roof, Row& row) {
  if (roof.ai > 0) {  // else it computes nothing
    row.ai = roof.ai;
    row.peak_gflops = roof.peak_gflops;
    row.roof_gflops = roof.roof_gflops;
  }
  row.peak_gb_s = roof.peak_gb_s;
  row.roof_level = roof.level;
  row.bound = roof.bound;
  if (!was_timed(measured)) return;
  const std::vector<double> percentages = roof_percentages(measured, roof.least_ns);
  row.roof_pct = median(percentages);
  std::map<std::int64_t, std::vector<double>> logs;
  for (std::size_t i = 0; i < percentages.size(); ++i) {
    logs[measured.taken.samples[i].launch].push_back(std::log(percentages[i]));
  }
  Repetitions repetitions;
  for (auto& [repetition, rounds] : logs) repetitions.push_back(std::move(rounds));
  const Interval interval = estimate_over_repetitions(repetitions).interval();
  if (std::isnan(interval.low)) return;
  // The interval is that of the median of all rounds. The mean of the repetitions may be just
  // outside it.
  row.roof_pct_lo = std::min(*row.roof_pct, std::exp(interval.low));
  row.roof_pct_hi = std::max(*row.roof_pct, std::exp(interval.high));
}

// What it computes in: its peak is the row's.
const std::string& math_of(const Measured& measured) {
  const std::string& own = measured.opened->math;
  return own.empty() ? measured.planned->measured.math : own;
}

void join_model(const Measured& measured, const Ceilings& ceilings, Row& row) {
  const Case& c = measured.planned->measured;
  if (!measured.opened || !c.placement.empty()) return;
  const PlanFacts& facts = measured.opened->facts;
  row.model_ns = model_ns(c.problem, ceilings, math_of(measured), facts.isa, c.threads,
                          facts.device, c.cache, facts.path);
  if (!row.model_ns || !was_timed(measured)) return;
  row.model_pct = median(roof_percentages(measured, *row.model_ns));
}

void join_launch(const Measured& measured, const Ceilings& ceilings, Row& row) {
  const Backend& backend = *measured.planned->entry->variant->backend;
  if (!measured.opened || backend.devices == nullptr) return;
  const Case& c = measured.planned->measured;
  const auto launch = find_launch(ceilings, c.threads, measured.opened->facts.device);
  if (!launch) return;
  row.empty_kernel_ns = c.timer == Timer::event ? launch->device_ns : launch->host_ns;
}

}  // namespace

void add_sample(Measured& measured, const Sample& sample) {
  measured.ns.push_back(sample.ns);
  measured.probe_ns.push_back(sample.probe_ns.value_or(0));
  measured.taken.samples.push_back(sample);
  if (sample.h2d_ns) measured.device.h2d_ns.push_back(*sample.h2d_ns);
  if (sample.kernel_ns) measured.device.kernel_ns.push_back(*sample.kernel_ns);
  if (sample.d2h_ns) measured.device.d2h_ns.push_back(*sample.d2h_ns);
  if (sample.e2e_ns) measured.device.e2e_ns.push_back(*sample.e2e_ns);
}

std::optional<Roof> roof_of(const Measured& measured, const Ceilings& ceilings) {
  const Case& c = measured.planned->measured;
  // The ceilings are those of the run's own placement.
  if (!measured.opened || !c.placement.empty()) return std::nullopt;
  const PlanFacts& facts = measured.opened->facts;
  return roof_of(c.problem, ceilings, math_of(measured), facts.isa, c.threads, facts.device,
                 c.cache, facts.path);
}

bool beats_roof(const Measured& measured, const Ceilings& ceilings) {
  // The largest: noise of 100 % and more hides no time of a thousandth of the roof's.
  constexpr double least_margin = 0.03, largest_margin = 0.9;
  const std::optional<Roof> roof = roof_of(measured, ceilings);
  if (!roof || !was_timed(measured)) return false;
  const Summary summary = summarise(measured.ns);
  const double margin = std::clamp(summary.noise_pct / 100, least_margin, largest_margin);
  return summary.p50 < roof->least_ns * (1 - margin);
}

std::vector<double> roof_percentages(const Measured& measured, double roof_ns) {
  // The probe runs on the host and says nothing about a device of its own.
  const bool on_host = measured.planned->measured.threads > 0;
  const double usual_probe = on_host ? median(measured.probe_ns) : 0;
  std::vector<double> percentages;
  for (std::size_t i = 0; i < measured.ns.size(); ++i) {
    const double slowness = usual_probe > 0 ? measured.probe_ns[i] / usual_probe : 1;
    percentages.push_back(100 * roof_ns * slowness / measured.ns[i]);
  }
  return percentages;
}

Row assemble_row(const Measured& measured, const Group& group, const Row& stamp,
                 const Ceilings& ceilings) {
  const Case& c = measured.planned->measured;
  const CatalogueEntry& entry = *measured.planned->entry;
  const Variant& variant = *entry.variant;
  Row row = stamp;
  if (!entry.build.commit.empty()) {
    row.build_commit = entry.build.commit;
    row.git_dirty = entry.build.dirty;
    row.compiler = entry.build.compiler;
  }
  if (c.threads > 0) row.threads = c.threads;
  row.affinity = measured.affinity;
  if (!c.placement.empty()) row.placement = c.placement;
  if (row.affinity.empty()) row.placement.clear();
  row.backend = variant.backend->name;
  row.kernel = c.problem.kernel().name;
  row.variant = c.variant;
  row.isa = c.isa.empty() ? variant.backend->isa : c.isa;
  row.tuning = c.tuning.text();
  // What a model chose is its worker's to say.
  if (!row.tuning.empty()) row.tuning_source = tuning_source_of(c, variant);
  row.math = c.math;
  row.dtype = dtype_text(c.problem);
  row.shape = c.problem.shape();
  row.preset = group.preset;
  row.seed = static_cast<std::int64_t>(c.seed);
  if (c.distribution != &uniform) row.distribution = c.distribution->name;
  row.cache = name_of(c.cache);
  row.timer = name_of(c.timer);
  row.status = name_of(measured.status);
  row.reason = measured.reason;

  const Cost cost = c.problem.kernel().cost(c.problem);
  row.flops = cost.flops;
  row.exps = cost.exps;
  row.bytes = cost.bytes;
  if (measured.opened) join_plan(*measured.opened, row);
  if (measured.verification) join_verification(*measured.verification, row);
  if (measured.peak_rss_bytes > 0) row.peak_rss_bytes = measured.peak_rss_bytes;
  if (const auto roof = roof_of(measured, ceilings)) join_roof(measured, *roof, row);
  join_model(measured, ceilings, row);
  join_launch(measured, ceilings, row);
  if (was_timed(measured)) {
    join_samples(measured, row);
    if (cost.flops > 0 && *row.p50_ns > 0) row.gflops = cost.flops / *row.p50_ns;
    if ((cost.flops > 0 || cost.moves) && *row.p50_ns > 0) row.gb_s = cost.bytes / *row.p50_ns;
  }
  return row;
}

Problem problem_of(const Row& row, const Catalogue& catalogue) {
  return parse_problem(row.kernel + ":" + row.shape, catalogue.kernels());
}

}  // namespace rooflane
