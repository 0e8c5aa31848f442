// `rooflane model`: verifies a whole model on the lab's kernels, measures it step by step, and
// predicts and measures the gain of other variants.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/build_facts.hpp"
#include "cli/model_arguments.hpp"
#include "cli/model_levels.hpp"
#include "cli/model_memory.hpp"
#include "cli/model_process.hpp"
#include "cli/model_resume.hpp"
#include "cli/model_verify.hpp"
#include "cli/model_weights.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "cli/watchdog.hpp"
#include "core/json_text.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/csv.hpp"
#include "io/files.hpp"
#include "io/npy.hpp"
#include "io/output_lock.hpp"
#include "measure/ceilings_json.hpp"
#include "measure/run_id.hpp"
#include "model/low_precision.hpp"
#include "model/result.hpp"

namespace rooflane {
namespace {

using model::Chain;
using model::Instance;
using model::Phase;

void print_steps(const Instance& instance) {
  for (const Phase& phase : instance.phases) {
    std::cout << fmt::format("{} {}: {}\n", instance.model, phase.name, model::symbols_text(phase));
    TextTable table{{{"step"}, {"calls", true}, {"problem"}}, {}};
    for (const model::Step& step : phase.steps) {
      std::vector<std::string> problems;  // layers may differ
      for (const std::size_t call : step.calls) {
        const std::string text = phase.calls[call].problem.text();
        if (std::find(problems.begin(), problems.end(), text) == problems.end()) {
          problems.push_back(text);
        }
      }
      table.rows.push_back({step.name, std::to_string(step.calls.size()), join(problems, " ")});
    }
    std::cout << terminal_table(table);
  }
}

// What may run in this process: its libraries decide the environment.
std::vector<const CatalogueEntry*> entries_of(const ModelArguments& read, const Instance& instance,
                                              const Catalogue& catalogue) {
  std::vector<std::string> names = read.preferred;
  for (const model::Change& change : read.swaps) names.push_back(change.variant);
  for (const model::Change& change : read.what_if) names.push_back(change.variant);
  if (read.levels) {
    for (const std::string& level : level_names()) names.push_back(level);
    names.insert(names.end(), {"amx", "avx512"});  // the forms' units
  }
  std::vector<const CatalogueEntry*> entries;
  std::set<const Kernel*> kernels;
  for (const Phase& phase : instance.phases) {
    for (const model::Step& step : phase.steps) kernels.insert(step.kernel);
  }
  for (const CatalogueEntry& entry : catalogue.entries()) {
    if (kernels.count(entry.variant->kernel) > 0 &&
        std::find(names.begin(), names.end(), entry.name) != names.end() && !absent_reason(entry)) {
      entries.push_back(&entry);
    }
  }
  return entries;
}

// Weights are held twice while they are packed, and once more for each variant that packs them too.
void require_model_memory(const ModelArguments& read, const Instance& instance) {
  std::set<std::string> variants;
  for (const model::Change& change : read.what_if) variants.insert(change.variant);
  // Levels: by three variants, and five forms with their weights twice at most.
  const double copies = 2 + static_cast<double>(read.levels ? 2 + 2 * 5 : variants.size());
  const double needed = copies * model::memory_bytes(instance);
  const auto available = static_cast<double>(available_memory_bytes());
  if (needed <= available) return;
  throw unavailable_error(fmt::format(
      "{} needs {:.1f} MiB of memory (tensors of {:.1f} MiB, held {:g} times), this "
      "machine has {:.1f} MiB available",
      instance.model, needed / 0x1p20, needed / copies / 0x1p20, copies, available / 0x1p20));
}

Ceilings ceilings_of(const ModelArguments& read, ProgressLine& progress) {
  const int threads = read.common.threads.front();
  if (!read.ceilings.empty()) {
    try {
      return parse_json(read_text_file(read.ceilings)).at("ceilings").get<Ceilings>();
    } catch (const nlohmann::json::exception& error) {
      throw argument_error(
          fmt::format("--ceilings '{}' is not a file of `rooflane ceilings --json`: {}",
                      read.ceilings, error.what()));
    }
  }
  CeilingsRequest request;
  request.threads = threads == 1 ? std::vector<int>{1} : std::vector<int>{1, threads};
  request.seconds = read.ceilings_time;
  request.progress = [&](double done, const std::string& what) {
    progress.show(fmt::format("[{:3.0f} %] ceilings: {}", 100 * done, what));
  };
  return measure_ceilings(request);
}

// What others need to compute the outputs elsewhere: symbols, and what the outputs may err by.
nlohmann::ordered_json description_of(const Chain& chain,
                                      const std::vector<model::WholeCheck>& checks) {
  auto phases = nlohmann::ordered_json::object();
  for (std::size_t p = 0; p < chain.instance().phases.size(); ++p) {
    auto symbols = nlohmann::ordered_json::object();
    for (const auto& [name, value] : chain.phase(p).symbols) symbols[name] = value;
    auto bounds = nlohmann::ordered_json::object();
    for (const model::WholeCheck& check : checks) {
      if (check.phase == p) bounds[check.tensor] = check.bound;
    }
    phases[chain.phase(p).name] = {{"symbols", symbols}, {"bounds", bounds}};
  }
  return {{"model", chain.instance().model}, {"phases", phases}};
}

void save_tensors(const Chain& chain, const std::vector<model::WholeCheck>& checks,
                  const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  ReplacedFile file(folder + "/model.json");
  file.write(description_of(chain, checks).dump(2) + "\n");
  file.commit();
  for (std::size_t p = 0; p < chain.instance().phases.size(); ++p) {
    const Phase& phase = chain.phase(p);
    for (std::size_t t = 0; t < phase.tensors.size(); ++t) {
      const model::Tensor& tensor = phase.tensors[t];
      if (tensor.kind == model::Tensor::Kind::buffer) continue;
      const bool shared = tensor.kind == model::Tensor::Kind::weight;
      std::string name = shared ? tensor.name : phase.name + "." + tensor.name;
      std::replace(name.begin(), name.end(), '/', '_');
      write_npy(fmt::format("{}/{}.npy", folder, name), tensor.shape, tensor.dtype,
                chain.memory().all_of(p, t).data);
    }
  }
}

Row stamp_of() {
  Row stamp;
  if (const char* run_id = std::getenv("ROOFLANE_RUN_ID")) stamp.run_id = run_id;
  if (stamp.run_id.empty()) stamp.run_id = new_run_id();
  stamp.test_time = utc_now();
  stamp.build_commit = build_commit;
  stamp.git_dirty = build_dirty;
  stamp.compiler = build_compiler;
  stamp.host = machine().host;
  stamp.cpu = machine().cpu;
  return stamp;
}

void write_text(const std::string& path, const std::string& text) {
  ReplacedFile file(path);
  file.write(text);
  file.commit();
}

void write_files(const std::string& csv, const Chain& chain,
                 const std::vector<model::PhaseRounds>& rounds,
                 const std::vector<model::PhaseResult>& results) {
  if (csv.empty()) return;
  const Row stamp = stamp_of();
  std::string rows = csv_header(), samples = samples_header();
  std::int64_t index = 0;
  for (const auto& [row, ns] : model::rows_of(chain, rounds, results, stamp)) {
    rows += csv_line(row);
    for (std::size_t round = 0; round < ns.size(); ++round) {
      Sample sample;
      sample.row = index;
      sample.round = static_cast<std::int64_t>(round);
      sample.ns = ns[round];
      samples += sample_line(sample);
    }
    ++index;
  }
  // All are on the disk before the first takes its place: those of two runs are never mixed.
  ReplacedFile rows_file(csv), samples_file(samples_path(csv)), swaps_file(swaps_path(csv)),
      memory_file(memory_path(csv));
  rows_file.write(rows);
  samples_file.write(samples);
  swaps_file.write(model::proofs_csv(chain, rounds, results, stamp));
  memory_file.write(model::memory_csv(chain));
  for (ReplacedFile* file : {&samples_file, &swaps_file, &memory_file, &rows_file}) file->commit();
}

// `phases`: of each phase's steps; empty: not recorded.
void print_results(const Chain& chain, const std::vector<model::PhaseRounds>& rounds,
                   const std::vector<model::PhaseResult>& results,
                   const std::vector<std::vector<model::StepPhases>>& phases, bool proofs) {
  for (std::size_t p = 0; p < rounds.size(); ++p) {
    const Phase& phase = chain.phase(p);
    std::cout << fmt::format(
        "\n{} {}: {}\n{} threads, {} rounds of {} runs, {} slots disturbed, weights {}\n",
        chain.instance().model, phase.name, model::symbols_text(phase), chain.settings().threads,
        rounds[p].whole.size(), rounds[p].runs_per_turn, rounds[p].disturbed,
        results[p].cold_weights ? "from memory" : "within the caches");
    std::cout << terminal_table(model::step_table(chain, p, results[p]));
    if (!phases.empty()) {
      std::cout << "\nbytes, and what threads do\n"
                << terminal_table(model::phases_table(chain, p, results[p], phases[p]));
    }
    if (!proofs || results[p].proofs.empty()) continue;
    std::cout << "\nspeed of the whole with other variants, relative to the original\n"
              << terminal_table(model::proof_table(rounds[p], results[p]));
  }
}

// For the chain without swaps, phase by phase.
std::vector<std::uint64_t> output_hashes(Chain& chain) {
  const std::vector<model::Choice> choices = model::as_it_is(chain);
  std::vector<std::uint64_t> hashes;
  chain.reset_states();
  for (std::size_t p = 0; p < choices.size(); ++p) {
    std::vector<double> unused(choices[p].size());
    chain.run(p, choices[p], unused);
    hashes.push_back(model::output_hash(chain, p));
  }
  return hashes;
}

// Maths of short numbers, which products alone compute in.
bool is_of_products(const std::string& math) { return math == "bf16" || math == "int8-dynamic"; }

model::ChainSettings chain_settings(const ModelArguments& read) {
  const CommonOptions& common = read.common;
  return {common.threads.front(),
          common.isas.empty() ? "" : common.isas.front(),
          is_of_products(common.math) ? "fp32" : common.math,
          common.device,
          common.tuned.get(),
          common.tunings,
          common.seed};
}

std::vector<model::ChainSwaps> chains_of(Chain& chain,
                                         const std::vector<std::vector<model::Swap>>& swaps,
                                         const std::vector<FormRun>& runs) {
  std::vector<model::ChainSwaps> chains = {{&chain, swaps}};
  for (const FormRun& run : runs) {
    chains.push_back({run.chain.get(), std::vector<std::vector<model::Swap>>(swaps.size())});
  }
  return chains;
}

std::vector<model::PhaseRounds> take_rounds(const std::vector<model::ChainSwaps>& chains,
                                            std::vector<FormRun>& runs, const ModelArguments& read,
                                            ModelResume& resume, ProgressLine& progress) {
  model::RoundsSettings settings;
  settings.seconds = read.max_time;
  settings.interval_pct = read.interval_pct;
  settings.progress = [&](int round) { progress.show(fmt::format("round {}", round + 1)); };
  settings.earlier = resume.rounds();
  settings.on_round = [&](const model::Round& round) { resume.add(round); };
  auto rounds = model::take_rounds(chains, settings);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].rounds = std::move(rounds[i + 1]);
  progress.wipe();
  return std::move(rounds.front());
}

// Products by weights of short numbers in the arithmetic that was asked for; all else in float32.
Instance with_products_math(const Instance& plain, const std::string& math) {
  if (!is_of_products(math)) return plain;
  Instance instance = model::with_math(plain, math);
  for (const Phase& phase : instance.phases) {
    for (const model::Call& call : phase.calls) {
      if (call.math == math) return instance;
    }
  }
  throw argument_error(
      fmt::format("--math {}: {}: no product has weights of a format that this math takes; "
                  "--weight-type sets it",
                  math, plain.model));
}

// `judge`: what the instance must compute, unless it is that itself.
int measure(const ModelArguments& read, const Instance& instance, const Instance& judge,
            const Catalogue& catalogue, const ModelWeights& from) {
  const model::WeightSource& weights = from.source();
  const model::ChainSettings settings = chain_settings(read);
  ProgressLine progress;
  std::vector<ModelForm> forms;
  std::vector<LevelMemory> memory;
  if (read.levels) {
    progress.show("memory of the levels");
    forms = forms_of(read, instance, from, settings, catalogue);
    memory = measure_level_memory(instance, weights, settings, catalogue, read, forms);
  }
  progress.show("planning");
  Chain chain(instance, weights, settings);
  model::plan_chain(chain, catalogue, read.preferred, read.swaps);
  const auto swaps = read.levels
                         ? model::plan_levels(chain, catalogue, level_names())
                         : model::plan_swaps(chain, catalogue, read.what_if,
                                             [&](const std::string& note) { print_note(note); });
  progress.show("verifying");
  const Verified verified = verify_model(chain, judge, weights);
  if (!verified.good) return 1;
  const std::vector<std::uint64_t> hashes = output_hashes(chain);
  if (!read.save.empty()) {
    save_tensors(chain, verified.whole, read.save);
    return 0;
  }
  LevelErrors errors;
  std::vector<FormRun> runs;
  if (read.levels) {
    errors = level_errors(chain, weights, swaps, verified.steps);
    runs = plan_forms(forms, instance, weights, settings, catalogue);
    for (const FormRun& run : runs) {
      if (!run.verified.good) return 1;
    }
    add_differences(chain, swaps, runs, errors);
    for (const FormRun& run : runs) run.chain->drop_packed_weights();
  }
  chain.drop_packed_weights();
  const auto chains = chains_of(chain, swaps, runs);
  ModelResume resume(read.csv, read.resume, model_request(chains));
  const Ceilings ceilings = resume.ceilings() ? *resume.ceilings() : ceilings_of(read, progress);
  resume.begin(ceilings);
  const auto rounds = take_rounds(chains, runs, read, resume, progress);
  if (output_hashes(chain) != hashes) {
    print_error("FAILED: outputs changed after verification");
    return 1;
  }
  const auto results = model::results_of(chain, rounds, verified.steps, ceilings);
  write_files(read.csv, chain, rounds, results);
  resume.finish();
  std::vector<std::vector<model::StepPhases>> phases;
  for (std::size_t p = 0; read.phases && p < instance.phases.size(); ++p) {
    phases.push_back(model::step_phases(chain, p));
  }
  print_results(chain, rounds, results, phases, !read.levels);
  if (!read.levels) return 0;
  print_levels(chain, rounds, runs, errors);
  print_level_memory(memory);
  if (!read.csv.empty()) write_text(levels_path(read.csv), level_memory_csv(memory));
  print_growth(read, chain.settings(), catalogue, from.format());
  return 0;
}

int run_model(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  const ModelArguments read = read_model_arguments(arguments, catalogue);
  ModelWeights weights(read);
  const Instance plain =
      with_products_math(model::instantiate(read.text, read.size, read.settings,
                                            catalogue.kernels(), weights.format()),
                         read.common.math);
  const Instance instance =
      read.fuse ? fused_instance(read, plain, chain_settings(read), catalogue) : plain;
  weights.open(read, instance);
  if (read.dry_run) {
    weights.note_unread();
    print_steps(instance);
    return 0;
  }
  model::check_changes(read.swaps, instance, catalogue);
  model::check_changes(read.what_if, instance, catalogue);
  require_model_memory(read, instance);
  enter_model_process(entries_of(read, instance, catalogue), read.common.threads.front(),
                      settings.worker_command.empty() ? "" : settings.worker_command.front());
  std::optional<OutputLock> lock;  // in the process that stays
  if (!read.csv.empty()) lock.emplace("--csv", read.csv);
  std::optional<Watchdog> watchdog;
  if (read.common.timeout) watchdog.emplace(*read.common.timeout, instance.model);
  weights.note_unread();
  return measure(read, instance, plain, catalogue, weights);
}

}  // namespace

const Verb model_verb = {"model", "runs a whole model: shares, roofs, predicted and measured swaps",
                         declare_model, run_model};

}  // namespace rooflane
