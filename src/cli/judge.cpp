// `judge`: a stranger's source → verdict. src/judge builds, checks and times it; judge_document.cpp
// writes the answer.
#include "judge/judge.hpp"

#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <random>

#include "bench/shapes.hpp"
#include "cli/build_facts.hpp"
#include "cli/json_output.hpp"
#include "cli/judge_document.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "cli/workers.hpp"
#include "judge/attempts.hpp"
#include "judge/signature.hpp"
#include "judge/templates.hpp"
#include "measure/verify.hpp"

namespace rooflane {
namespace {

void declare_judge(Arguments& arguments) {
  arguments.positional(
      "FILE",
      "C or C++ source (.c, .cc, .cpp), OpenCL (.cl) or a shared library (.so): one function "
      "as --signature prints it, or a table of rooflane/variant.h");
  arguments.option("-k,--kernel", "KERNEL", "what it computes");
  arguments.repeatable("--shape", "SHAPE",
                       "problems to verify and time; default: a preset's first");
  arguments.option("--threads", "N", "threads; default: 1");
  arguments.repeatable("--against", "V,...", "variants beside it; default: all but scalar");
  declare_peers(arguments);
  arguments.option("--hidden", "N", "problems that nobody saw, verified too; default: 6");
  arguments.option("--seed", "N", "seed of those and of inputs; default: drawn, and told");
  arguments.option("--budget", "SECONDS", "for timing; default: 20");
  arguments.option("--flags", "FLAGS",
                   fmt::format("of the compiler; default: {}", judge::default_flags));
  arguments.flag("--unsafe", "without a jail: the source does what your account may do");
  arguments.option("--template", "KERNEL", "print a source that passes");
  arguments.option("--signature", "KERNEL", "print the function's signature, per number format");
  arguments.flag("--history", "print the attempts so far");
  arguments.option(
      "--archive", "FILE",
      "attempts, as JSON lines; default: $ROOFLANE_JUDGE_ARCHIVE, or judge.jsonl in the "
      "cache folder");
  arguments.json_output("the judgement as JSON; see `rooflane schema judge`");
  arguments.examples(
      {"rooflane judge --template softmax > softmax.c",
       "rooflane judge softmax.c -k softmax --shape softmax:rows=64,cols=512 --budget 2 --archive "
       "attempts",
       "rooflane judge --history --archive attempts"});
}

// With shapes their signatures; else one per number format.
int print_signatures(const Arguments& arguments, const Catalogue& catalogue) {
  const Kernel& kernel = catalogue.kernel(*arguments.value("--signature"));
  std::vector<Problem> problems;
  for (const std::string& shape : arguments.values("--shape")) {
    for (Problem& problem : parse_shapes(shape, catalogue.kernels())) {
      problems.push_back(std::move(problem));
    }
  }
  if (problems.empty()) problems = judge::described_problems(kernel);
  bool first = true;
  for (const Problem& problem : problems) {
    std::cout << (std::exchange(first, false) ? "" : "\n") << judge::described_signature(problem);
  }
  return 0;
}

std::vector<Problem> problems_of(const Arguments& arguments, const Kernel& kernel,
                                 const Catalogue& catalogue) {
  std::vector<Problem> problems;
  for (const std::string& shape : arguments.values("--shape")) {
    for (Problem& problem : parse_shapes(shape, catalogue.kernels())) {
      if (&problem.kernel() != &kernel) {
        throw argument_error(
            fmt::format("--shape {} is of another kernel than -k {}", shape, kernel.name));
      }
      problems.push_back(std::move(problem));
    }
  }
  if (problems.empty()) {
    const Kernel* const one = &kernel;
    problems.push_back(preset_problems("default", std::span(&one, 1)).at(0).problem);
  }
  for (const Problem& problem : problems) require_memory(problem, 2);
  return problems;
}

// One function serves all shapes only where it takes the same arguments.
void require_one_signature(const judge::Source& source, const std::vector<Problem>& problems) {
  if (source.kind == judge::Source::Kind::table) return;
  for (const Problem& problem : problems) {
    const auto first = judge::signature_of(problems.front()), other = judge::signature_of(problem);
    if (first == other) continue;
    throw argument_error(
        fmt::format("{} and {} take different functions, {} and {}: judge them one by one, "
                    "or write a plugin's table",
                    problems.front().text(), problem.text(), first.text(), other.text()));
  }
}

judge::Request read_request(const Arguments& arguments, Catalogue& catalogue) {
  const auto file = arguments.value("FILE");
  if (!file) throw argument_error("FILE is missing: the source to judge");
  const auto name = arguments.value("--kernel");
  if (!name) throw argument_error("-k KERNEL is missing: what the source computes");
  const Kernel& kernel = catalogue.kernel(*name);
  judge::Request request;
  request.source = judge::read_source(*file);
  request.problems = problems_of(arguments, kernel, catalogue);
  require_one_signature(request.source, request.problems);
  std::vector<std::string> against = arguments.list("--against");
  if (arguments.has("--peers")) {
    constexpr std::chrono::seconds patience(60);
    const auto peers = add_named_peers(arguments, patience, catalogue);
    if (!against.empty()) against.insert(against.end(), peers.begin(), peers.end());
  }
  for (const std::string& variant : against) {
    const CatalogueEntry& entry = catalogue.variant(kernel, variant);
    if (const auto reason = absent_reason(entry)) {
      throw unavailable_error(fmt::format("--against {}: {}", variant, *reason));
    }
    request.against.push_back(variant);
  }
  request.flags = arguments.value("--flags").value_or(judge::default_flags);
  if (const auto threads = arguments.value("--threads"))
    request.threads = parse_threads({*threads}).at(0);
  constexpr std::int64_t most_hidden = 1000;
  if (const auto hidden = arguments.value("--hidden")) {
    request.hidden = static_cast<int>(parse_count("--hidden", *hidden, 0, most_hidden));
  }
  // 53 bits, so that every reader of JSON gets the same number.
  request.seed = std::random_device()() % (std::uint64_t{1} << 31);
  if (const auto seed = arguments.value("--seed")) {
    request.seed =
        static_cast<std::uint64_t>(parse_count("--seed", *seed, 0, std::int64_t{1} << 53));
  }
  if (const auto budget = arguments.value("--budget")) {
    request.budget_seconds = parse_seconds("--budget", *budget);
  }
  if (arguments.has("--unsafe")) request.kind = jail::Kind::unsafe;
  return request;
}

int run_judge(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings) {
  if (const auto kernel = arguments.value("--template")) {
    std::cout << judge::template_of(catalogue.kernel(*kernel));
    return 0;
  }
  if (arguments.has("--signature")) return print_signatures(arguments, catalogue);
  const JsonOutput json(arguments);
  const auto archive_given = arguments.value("--archive");
  const std::string archive = archive_given ? *archive_given : judge::default_archive();
  if (arguments.has("--history")) {
    const std::string kernel = arguments.value("--kernel").value_or("");
    if (!kernel.empty()) catalogue.kernel(kernel);
    const auto attempts = judge::attempts_in(archive, kernel);
    if (json.asked()) json.write(nlohmann::ordered_json{{"attempts", attempts}});
    if (!json.replaces_text()) std::cout << history_text(attempts);
    return 0;
  }
  judge::Request request = read_request(arguments, catalogue);
  if (settings.worker_command.empty()) {
    throw unavailable_error("judge needs worker processes, which this program does not start");
  }
  ProgressLine progress;
  request.progress = [&](const std::string& doing) { progress.show(doing); };
  Row stamp;
  stamp.build_commit = build_commit;
  stamp.git_dirty = build_dirty;
  stamp.compiler = build_compiler;
  const judge::Judgement judgement =
      judge::judge(request, catalogue, settings.worker_command, stamp);
  progress.wipe();
  nlohmann::ordered_json document = judge_document(request, judgement);
  document["attempt"] = judge::keep_attempt(archive, document, request.source.text);
  document["archive"] = archive;
  if (json.asked()) json.write(document);
  if (!json.replaces_text()) std::cout << judge_text(document);
  return judge::is_right(judgement.verdict) ? 0 : 1;
}

}  // namespace

const Verb judge_verb = {"judge", "a stranger's source: right, how fast, and what holds it back",
                         declare_judge, run_judge};

}  // namespace rooflane
