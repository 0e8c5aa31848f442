// The verbs: each declares its arguments, then runs. cli.cpp calls them.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "core/catalogue.hpp"

namespace rooflane {

struct Verb {
  const char* name;
  const char* summary;
  void (*declare)(Arguments& arguments);
  // Returns the exit status; throws Error. `catalogue` may be added to (--blas).
  int (*run)(const Arguments& arguments, Catalogue& catalogue, const CliSettings& settings);
  // Instead of both, for a verb that passes its arguments to another program.
  int (*forward)(const std::vector<std::string>& words) = nullptr;
};

extern const Verb list_verb, doctor_verb, run_verb, inputs_verb, verify_verb, ceilings_verb,
    calibrate_verb, bench_verb, roofline_verb, compare_verb, schema_verb, worker_verb,
    evaluate_verb, tune_verb, archive_verb, bisect_verb, model_verb, generate_verb, judge_verb;

}  // namespace rooflane
