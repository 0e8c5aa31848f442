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
#include "measure/reference_file.hpp"
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
  Status status = Status::passed;
  std::string detail;
};

Outcome verify_case(Worker& worker, const Case& c, const std::string& reference) {
  try {
    worker.open(c);
    const Verification verification = worker.verify(reference);
    worker.close();
    const std::string measure = fmt::format("{}={:.3g}", verification.metric, verification.value);
    if (verification.passed()) return {Status::passed, measure};
    return {verification.status, measure + "  " + verification.reason};
  } catch (const WorkerError& error) {
    return {error.status(), error.what()};
  }
}

void declare_verify(Arguments& arguments) {
  declare_problems(arguments);
  arguments.repeatable("--preset", "NAME|FILE", "a list of shapes; default: edge");
  declare_common(arguments, Many::yes);
  declare_workers(arguments);
  arguments.examples({"rooflane verify -k softmax -v scalar,hwy --threads 1",
                      "rooflane verify --shape gemm:m=1..17+8,n=33,k=64 -v hwy"});
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
  complaints.raise();

  const BenchOptions options =
      bench_options(common, problems, selection.targets, catalogue, settings);
  const Suite suite = make_suite(options);
  check_planned_tunings(suite);
  const std::vector<const GroupCase*> cases = suite.cases();
  StatusesByVariant seen;
  WorkerPool workers(options);
  ReferenceFile reference;
  ProgressLine progress;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i]->measured;
    progress.show(fmt::format("[{}/{}] {}", i + 1, cases.size(), c.text()));
    const Outcome outcome = verify_case(workers.worker_for(c), c,
                                        reference.path_for(c.problem, c.seed, c.math_record()));
    seen[c.variant].insert(outcome.status);
    progress.wipe();
    const std::string_view status = name_of(outcome.status);
    std::cout << coloured_status(status)
              << std::string(13 - std::min<std::size_t>(12, status.size()), ' ') << c.text() << "  "
              << outcome.detail << "\n"
              << std::flush;
    if (is_bad(outcome.status))
      std::cerr << "  repeat: " << repro_command(c, *cases[i]->entry) << "\n";
  }
  note_absent(selection.absent);
  return exit_status_of(seen, common.variants);
}

}  // namespace

const Verb verify_verb = {"verify", "compares variants with the reference", declare_verify,
                          run_verify};

}  // namespace rooflane
