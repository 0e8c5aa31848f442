// `rooflane verify`: every selected case against the double-precision reference.
#include <fmt/format.h>

#include <iostream>

#include "bench/groups.hpp"
#include "bench/worker_pool.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "core/text.hpp"
#include "measure/distributions.hpp"
#include "measure/verify.hpp"
#include "measure/worker.hpp"

namespace rooflane {
namespace {

// A shell word: quoted when it holds more than harmless characters.
std::string shell_word(const std::string& text) {
  const bool harmless = text.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_-+=:,./@%") == std::string::npos;
  if (harmless && !text.empty()) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The command that repeats one case.
std::string repro_command(const Case& c, const CatalogueEntry& entry) {
  std::string command = fmt::format("rooflane verify -v {} --shape {} --seed {}", c.variant,
                                    c.problem.text(), c.seed);
  if (c.threads > 0) command += fmt::format(" --threads {}", c.threads);
  if (!c.isa.empty()) command += " --isa " + c.isa;
  if (!c.tuning.values().empty()) {
    command += fmt::format(" --tuning {}:{}", c.variant, c.tuning.text());
  }
  if (c.math != Case().math) command += " --math " + c.math;
  if (c.distribution != &uniform) {
    command += fmt::format(" --distribution {}", c.distribution->name);
  }
  if (c.device != 0) command += fmt::format(" --cl-device {}", c.device);
  if (!c.library.empty() && c.variant != "blis") {  // blis is found without an option
    const bool named = c.variant.starts_with("blas-");
    command += " --blas " + shell_word((named ? c.variant.substr(5) + "=" : "") + c.library);
  }
  if (entry.foreign()) {
    command += fmt::format(" {} {}", entry.option.front(), shell_word(entry.option.back()));
  }
  return command;
}

struct Outcome {
  Status status = Status::skipped;
  std::string detail;
  Case repeated;  // what failed, or the case
};

// Which distributions a case is verified in, and with which references.
struct Distributions {
  std::vector<const Distribution*> asked;
  bool all = true;  // none was named: large problems meet other inputs than uniform ones shrunk
  ReferenceFile usual = {}, further = {};
};

int severity(Status status) { return is_bad(status) ? 2 : status == Status::inaccurate ? 1 : 0; }

// The worst of all distributions.
Outcome verify_case(Worker& worker, const Case& c, Distributions& distributions) {
  Outcome outcome{Status::skipped, "", c};
  std::optional<Verification> worst;
  std::string left_out;
  for (const Distribution* const distribution : distributions.asked) {
    const bool is_further = distribution != &uniform && distributions.all;
    Case drawn = c;
    drawn.distribution = distribution;
    if (is_further) drawn.problem = shrunk(c.problem, full_comparison_flops);
    const bool is_shrunk = drawn.problem.text() != c.problem.text();
    if (is_shrunk && !drawn.tuning.find(step_key)) drawn.tuning = {};  // it may not fit
    if (drawn.tuning.values().empty()) drawn.stored = false;
    try {
      const InDistribution found = verify_in_distribution(
          worker, drawn, is_further ? distributions.further : distributions.usual);
      if (!found.left_out.empty()) {
        left_out += fmt::format("  no {} inputs: {}", distribution->name, found.left_out);
        continue;
      }
      const Verification& now = found.verification;
      const int worse = worst ? severity(now.status) - severity(worst->status) : 1;
      if (worse > 0 || (worse == 0 && now.value > worst->value)) {
        worst = now;
        outcome.repeated = drawn;
      }
      if (is_bad(now.status)) break;
    } catch (const WorkerError& error) {
      if (is_shrunk && error.status() == Status::unsupported) continue;
      return {error.status(), error.what(), drawn};
    }
  }
  if (worst) {
    outcome.status = worst->status;
    outcome.detail = fmt::format("{}={:.3g}", worst->metric, worst->value);
    const Distribution& of = *outcome.repeated.distribution;
    if (!worst->reason.empty()) {
      outcome.detail += "  " + worst->reason;
    } else if (&of != &uniform) {
      outcome.detail += fmt::format(" ({})", of.name);
    }
  }
  outcome.detail += left_out;
  return outcome;
}

std::vector<const Distribution*> read_distributions(const Arguments& arguments) {
  std::vector<const Distribution*> asked;
  for (const std::string& name : arguments.list("--distribution")) {
    asked.push_back(&read_distribution(name));
  }
  const auto all = all_distributions();
  return asked.empty() ? std::vector(all.begin(), all.end()) : asked;
}

void declare_verify(Arguments& arguments) {
  declare_problems(arguments);
  arguments.repeatable("--preset", "NAME|FILE", "a list of shapes; default: edge");
  declare_common(arguments, Many::yes);
  declare_workers(arguments);
  arguments.repeatable("--distribution", "NAME,...", distribution_help("default: all"));
  arguments.examples({"rooflane verify -k softmax -v scalar,hwy --threads 1",
                      "rooflane verify --shape gemm:m=1..17+8,n=33,k=64 -v hwy",
                      "rooflane verify -k softmax -v hwy --distribution wide,denormals"});
}

int run_verify(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  Complaints complaints;
  const CommonOptions common = read_common(arguments, catalogue, Many::yes, complaints);
  const std::vector<BenchProblem> problems =
      read_problems(arguments, catalogue, "edge", complaints);
  const std::vector<std::string> guests =
      add_workers(arguments, common, settings, catalogue, complaints);
  const Selection selection = select_targets(catalogue, kernels_of(problems, catalogue),
                                             common.variants, complaints, guests);
  complaints.check([&] {
    check_tunings(common.tunings, selection.targets);
    return true;
  });
  for (const BenchProblem& problem : problems) {
    complaints.check([&] {
      require_memory(problem.problem, 2);
      return true;
    });
  }
  Distributions distributions;
  distributions.asked = complaints.check([&] { return read_distributions(arguments); });
  distributions.all = !arguments.has("--distribution");
  complaints.raise();

  const BenchOptions options =
      bench_options(common, problems, selection.targets, catalogue, settings);
  const Suite suite = make_suite(options);
  check_planned_tunings(suite);
  const std::vector<const GroupCase*> cases = suite.cases();
  StatusesByVariant seen;
  WorkerPool workers(options);
  ProgressLine progress;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i]->measured;
    progress.show(fmt::format("[{}/{}] {}", i + 1, cases.size(), c.text()));
    const Outcome outcome = verify_case(workers.worker_for(c), c, distributions);
    seen[c.variant].insert(outcome.status);
    progress.wipe();
    const std::string_view status = name_of(outcome.status);
    std::cout << coloured_status(status)
              << std::string(13 - std::min<std::size_t>(12, status.size()), ' ') << c.text() << "  "
              << outcome.detail << "\n"
              << std::flush;
    if (is_bad(outcome.status))
      std::cerr << "  repeat: " << repro_command(outcome.repeated, *cases[i]->entry) << "\n";
  }
  note_absent(selection.absent);
  return exit_status_of(seen, common.variants);
}

}  // namespace

const Verb verify_verb = {"verify", "compares variants with the reference", declare_verify,
                          run_verify};

}  // namespace rooflane
