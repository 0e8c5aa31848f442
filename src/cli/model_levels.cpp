// Levels and growth of a model. See model_levels.hpp.
#include "cli/model_levels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/statistics.hpp"
#include "core/text.hpp"
#include "io/table.hpp"

namespace rooflane {

using model::Chain;
using model::Choice;
using model::Phase;
using model::Swap;

std::vector<std::string> level_names() { return {"scalar", "blas", "hwy"}; }

namespace {

double worst_of(const Chain& chain, std::size_t phase, const Swap& level,
                const std::vector<model::StepCheck>& checks) {
  double worst = 0;
  for (const model::StepCheck& check : checks) {
    if (check.phase != phase) continue;
    const std::size_t call = chain.phase(phase).steps[check.step].calls.front();
    const auto& runner = chain.runners(phase, call)[level.of_step[check.step]];
    if (runner.entry == check.entry) worst = std::max(worst, check.verification.value);
  }
  return worst;
}

std::string time_text(double ns) { return fmt::format("{:.4g} ms", ns * 1e-6); }

// How many steps the level's own variant serves.
std::string served(const Chain& chain, std::size_t phase, const Swap& level) {
  std::size_t own = 0;
  const Phase& of = chain.phase(phase);
  for (std::size_t step = 0; step < of.steps.size(); ++step) {
    const auto& runners = chain.runners(phase, of.steps[step].calls.front());
    if (runners[level.of_step[step]].entry->name == level.name) ++own;
  }
  return fmt::format("{} of {}", own, of.steps.size());
}

// The last argument: " of LEVEL", or nothing for the model as it is.
void print_buffers(const Chain& chain, std::size_t phase, const std::string& whose) {
  const auto lives = model::lives_of(chain.phase(phase));
  const auto live = model::live_bytes(lives, chain.phase(phase).calls.size());
  std::int64_t apart = 0;
  for (const model::Life& life : lives) apart += life.spans.empty() ? 0 : life.bytes;
  const auto most = std::max_element(live.begin(), live.end());
  const Phase& of = chain.phase(phase);
  const std::string& step =
      of.steps[of.calls[static_cast<std::size_t>(most - live.begin())].step].name;
  std::cout << fmt::format(
      "buffers{}: {} in one arena, {} separately; at most {} live, during {}\n", whose,
      print_bytes(model::plan_arena(lives).bytes), print_bytes(apart), print_bytes(*most), step);
}

}  // namespace

LevelErrors level_errors(Chain& chain, const model::WeightSource& weights,
                         const std::vector<std::vector<Swap>>& levels,
                         const std::vector<model::StepCheck>& checks) {
  LevelErrors errors;
  const std::size_t phases = levels.size();
  errors.steps.resize(phases);
  errors.whole.resize(phases);
  for (std::size_t i = 0; i < levels.front().size(); ++i) {
    std::vector<Choice> choices;
    for (std::size_t p = 0; p < phases; ++p) {
      errors.steps[p].push_back(worst_of(chain, p, levels[p][i], checks));
      choices.push_back(model::choice_of(chain.phase(p), levels[p][i].of_step));
    }
    if (!model::is_small(chain.instance())) continue;
    for (std::size_t p = 0; p < phases; ++p) errors.whole[p].push_back(0);
    for (const model::WholeCheck& check : model::check_whole(chain, weights, choices)) {
      double& error = errors.whole[check.phase].back();
      error = std::max(error, check.error);
    }
  }
  return errors;
}

std::vector<FormRun> plan_forms(const std::vector<ModelForm>& forms, const model::Instance& plain,
                                const model::WeightSource& weights,
                                const model::ChainSettings& settings, const Catalogue& catalogue) {
  std::vector<FormRun> runs;
  for (const ModelForm& form : forms) {
    FormRun run;
    run.form = &form;
    run.chain = std::make_unique<Chain>(*form.instance, *form.weights, settings);
    model::plan_chain(*run.chain, catalogue, form.preferred, {});
    std::cout << form.name << ": ";
    const bool same = form.name == "fused";
    run.verified =
        verify_model(*run.chain, same ? plain : *form.instance, same ? weights : *form.weights);
    runs.push_back(std::move(run));
  }
  return runs;
}

namespace {

LevelErrors::Difference difference_of(const std::vector<std::vector<double>>& outputs,
                                      const std::vector<std::vector<double>>& expected) {
  LevelErrors::Difference difference;
  double largest = 0;
  for (std::size_t t = 0; t < expected.size(); ++t) {
    for (std::size_t i = 0; i < expected[t].size(); ++i) {
      difference.absolute = std::max(difference.absolute, std::abs(outputs[t][i] - expected[t][i]));
      largest = std::max(largest, std::abs(expected[t][i]));
    }
  }
  if (largest > 0) difference.relative = difference.absolute / largest;
  return difference;
}

double worst_of(const FormRun& run, std::size_t phase) {
  double worst = 0;
  for (const model::StepCheck& check : run.verified.steps) {
    if (check.phase == phase) worst = std::max(worst, check.verification.value);
  }
  return worst;
}

}  // namespace

void add_differences(Chain& chain, const std::vector<std::vector<Swap>>& levels,
                     const std::vector<FormRun>& runs, LevelErrors& errors) {
  std::vector<model::OutputValues> outputs;
  for (std::size_t i = 0; i < levels.front().size(); ++i) {
    std::vector<Choice> choices;
    for (std::size_t p = 0; p < levels.size(); ++p) {
      choices.push_back(model::choice_of(chain.phase(p), levels[p][i].of_step));
    }
    outputs.push_back(model::output_values(chain, choices));
  }
  const std::size_t exact = outputs.size() - 1;
  for (const FormRun& run : runs) {
    outputs.push_back(model::output_values(*run.chain, model::as_it_is(*run.chain)));
    for (std::size_t p = 0; p < levels.size(); ++p) {
      errors.steps[p].push_back(worst_of(run, p));
      if (!errors.whole[p].empty()) errors.whole[p].push_back(0);
    }
    for (const model::WholeCheck& check : run.verified.whole) {
      double& error = errors.whole[check.phase].back();
      error = std::max(error, check.error);
    }
  }
  errors.differences.resize(levels.size());
  for (std::size_t p = 0; p < levels.size(); ++p) {
    for (const model::OutputValues& of : outputs) {
      errors.differences[p].push_back(difference_of(of[p], outputs[exact][p]));
    }
  }
}

namespace {

// What is said of a level's time and plans.
struct LevelRow {
  std::string name, own_steps;
  double ns;
  Chain::PlanBytes bytes;
};

std::vector<LevelRow> rows_of(const Chain& chain, const model::PhaseRounds& rounds,
                              const std::vector<FormRun>& runs) {
  std::vector<LevelRow> rows;
  const std::size_t p = rounds.phase;
  for (std::size_t i = 0; i < rounds.swaps.size(); ++i) {
    const Swap& level = rounds.swaps[i];
    rows.push_back({level.name, served(chain, p, level), median(rounds.swap_whole[i]),
                    chain.plan_bytes(p, model::choice_of(chain.phase(p), level.of_step))});
  }
  for (const FormRun& run : runs) {
    const std::vector<model::Step>& steps = run.chain->phase(p).steps;
    rows.push_back({run.form->name, fmt::format("{} of {}", steps.size(), steps.size()),
                    median(run.rounds[p].whole),
                    run.chain->plan_bytes(p, model::as_it_is(*run.chain)[p])});
  }
  return rows;
}

}  // namespace

void print_levels(const Chain& chain, const std::vector<model::PhaseRounds>& rounds,
                  const std::vector<FormRun>& runs, const LevelErrors& errors) {
  for (std::size_t p = 0; p < rounds.size(); ++p) {
    TextTable table{{{"level"},
                     {"own steps", true},
                     {"time", true},
                     {"x before", true},
                     {"x scalar", true},
                     {"packed", true},
                     {"workspace", true},
                     {"error/bound", true},
                     {"error of the whole", true},
                     {"off float32 by", true},
                     {"of largest", true}},
                    {}};
    const std::vector<LevelRow> levels = rows_of(chain, rounds[p], runs);
    for (std::size_t i = 0; i < levels.size(); ++i) {
      const LevelRow& level = levels[i];
      const LevelErrors::Difference& difference = errors.differences[p][i];
      table.rows.push_back(
          {level.name, level.own_steps, time_text(level.ns),
           i == 0 ? "" : fmt::format("{:.2f}x", levels[i - 1].ns / level.ns),
           fmt::format("{:.2f}x", levels.front().ns / level.ns), print_bytes(level.bytes.packed),
           print_bytes(level.bytes.workspace), fmt::format("{:.3g}", errors.steps[p][i]),
           errors.whole[p].empty() ? "-" : fmt::format("{:.3g}", errors.whole[p][i]),
           fmt::format("{:.3g}", difference.absolute), fmt::format("{:.3g}", difference.relative)});
    }
    std::cout << fmt::format("\nlevels of {} {}\n", chain.instance().model, chain.phase(p).name)
              << terminal_table(table);
    print_buffers(chain, p, "");
    for (const FormRun& run : runs) print_buffers(*run.chain, p, " of " + run.form->name);
  }
}

namespace {

struct Point {
  std::int64_t value;
  double ns;
};

// The slope of a line through the logarithms, by least squares.
double slope_of(const std::vector<Point>& points) {
  const auto n = static_cast<double>(points.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const Point& point : points) {
    const double log_value = std::log(static_cast<double>(point.value));
    const double log_ns = std::log(point.ns);
    x += log_value / n;
    y += log_ns / n;
    xx += log_value * log_value / n;
    xy += log_value * log_ns / n;
  }
  return (xy - x * y) / (xx - x * x);
}

// Median times of the phases with one symbol set to a value.
std::vector<double> times_at(const ModelArguments& read, const model::ChainSettings& settings,
                             const Catalogue& catalogue, const std::string& symbol,
                             std::int64_t value, const model::WeightFormat& format) {
  model::Settings values = read.settings;
  std::erase_if(values, [&](const auto& set) { return set.first == symbol; });
  values.emplace_back(symbol, value);
  const model::Instance instance =
      model::instantiate(read.text, read.size, values, catalogue.kernels(), format);
  const auto weights = model::seeded_weights(instance.model, settings.seed, settings.threads);
  Chain chain(instance, *weights, settings);
  model::plan_chain(chain, catalogue, read.preferred, read.swaps);
  chain.drop_packed_weights();
  model::RoundsSettings rounds;
  rounds.seconds = read.max_time / 4;  // of several such measurements
  rounds.interval_pct = read.interval_pct;
  std::vector<double> times;
  const std::vector<std::vector<Swap>> no_swaps(instance.phases.size());
  for (const model::PhaseRounds& phase : model::take_rounds(chain, no_swaps, rounds)) {
    times.push_back(median(phase.whole));
  }
  return times;
}

}  // namespace

void print_growth(const ModelArguments& read, const model::ChainSettings& settings,
                  const Catalogue& catalogue, const model::WeightFormat& format) {
  const model::Instance instance =
      model::instantiate(read.text, read.size, read.settings, catalogue.kernels(), format);
  const auto& symbols = instance.phases.front().symbols;
  for (const std::string symbol : {"batch", "len"}) {
    const auto found = std::find_if(symbols.begin(), symbols.end(),
                                    [&](const auto& known) { return known.first == symbol; });
    if (found == symbols.end()) continue;
    std::vector<std::vector<Point>> points(instance.phases.size());
    for (const std::int64_t divisor : {8, 4, 2, 1}) {
      if (found->second / divisor < 1 || found->second % divisor != 0) continue;
      const std::int64_t value = found->second / divisor;
      const auto times = times_at(read, settings, catalogue, symbol, value, format);
      for (std::size_t p = 0; p < times.size(); ++p) points[p].push_back({value, times[p]});
    }
    for (std::size_t p = 0; p < points.size(); ++p) {
      if (points[p].size() < 2) continue;
      std::vector<std::string> texts;
      for (const Point& point : points[p]) {
        texts.push_back(fmt::format("{}: {}", point.value, time_text(point.ns)));
      }
      std::cout << fmt::format("growth of {} with {}: {}; slope on log-log axes {:.2f}\n",
                               instance.phases[p].name, symbol, join(texts, ", "),
                               slope_of(points[p]));
    }
  }
}

}  // namespace rooflane
