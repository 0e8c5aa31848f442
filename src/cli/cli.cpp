// The list of verbs, top-level help, and errors turned into one line and an exit status.
#include "cli/cli.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iostream>
#include <new>

#include "cli/build_facts.hpp"
#include "cli/standard_streams.hpp"
#include "cli/terminal.hpp"
#include "cli/verb_table.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "io/json.hpp"

namespace rooflane {
namespace {

const std::array verbs = {
    &list_verb,      &doctor_verb,   &run_verb,      &inputs_verb,  &verify_verb, &ceilings_verb,
    &calibrate_verb, &bench_verb,    &roofline_verb, &compare_verb, &tune_verb,   &archive_verb,
    &model_verb,     &generate_verb, &judge_verb,    &schema_verb,  &worker_verb, &evaluate_verb};

std::string version_text() { return fmt::format("rooflane {}\n", build_version); }

std::string usage_text() {
  std::string text =
      "Which implementation of a kernel is fastest on this machine, how far is it from the\n"
      "hardware's limit, and why?\n\nUsage: rooflane VERB [arguments]\n\nVerbs:\n";
  for (const Verb* verb : verbs) text += fmt::format("  {:<9} {}\n", verb->name, verb->summary);
  return text +
         "\n`rooflane VERB --help` says what a verb takes, with examples; `rooflane --version` "
         "prints the version,\n`rooflane --verbs` all of this as JSON.\n";
}

std::string out_of_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "out of memory";
  }
  return fmt::format("out of memory: ulimit -v allows {:.1f} MiB of addresses",
                     static_cast<double>(limit.rlim_cur) / 0x1p20);
}

int dispatch(const std::vector<std::string>& words, const Catalogue& built_in,
             const CliSettings& settings) {
  std::vector<std::string> names;
  for (const Verb* verb : verbs) names.emplace_back(verb->name);
  if (words.empty()) {
    throw argument_error(
        fmt::format("a verb is missing; valid: {}; see rooflane --help", join(names, ", ")));
  }
  const std::string& first = words.front();
  if (first == "--help" || first == "-h") {
    std::cout << usage_text();
    return 0;
  }
  if (first == "--version") {
    std::cout << version_text();
    return 0;
  }
  if (first == "--verbs") {
    std::cout << json_text(verb_table(verbs, built_in));
    return 0;
  }
  const auto verb =
      std::find_if(verbs.begin(), verbs.end(), [&](const Verb* v) { return v->name == first; });
  if (verb == verbs.end()) {
    if (!first.starts_with("-")) throw argument_error(unknown_name("verb", first, names));
    throw argument_error(unknown_name("flag", first, {"--help", "--version", "--verbs"}));
  }
  const std::vector<std::string> others(words.begin() + 1, words.end());
  if ((*verb)->forward != nullptr) {
    if (others != std::vector<std::string>{"--version"}) return (*verb)->forward(others);
    std::cout << version_text();
    return 0;
  }
  Arguments arguments((*verb)->name, (*verb)->summary);
  (*verb)->declare(arguments);
  switch (arguments.parse(others)) {
    case Arguments::Outcome::help:
      std::cout << arguments.help();
      return 0;
    case Arguments::Outcome::version:
      std::cout << version_text();
      return 0;
    case Arguments::Outcome::run:
      break;
  }
  Catalogue catalogue = built_in;
  return (*verb)->run(arguments, catalogue, settings);
}

}  // namespace

int cli_main(int argc, char** argv, const Catalogue& catalogue, const CliSettings& settings) {
  int status = 0;
  try {
    status = dispatch({argv + std::min(argc, 1), argv + argc}, catalogue, settings);
    flush_standard_output();
  } catch (const Error& error) {
    print_error(error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    print_error(out_of_memory());
    return 3;
  } catch (const std::exception& error) {
    print_error(error.what());
    return 1;
  }
  return status;
}

}  // namespace rooflane
