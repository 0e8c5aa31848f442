// The command line as a function, so that tests can run all of it with their own catalogue. Each
// verb has a file in this folder; verbs.hpp lists them.
#pragma once

#include <string>
#include <vector>

#include "core/catalogue.hpp"

namespace rooflane {

struct CliSettings {
  // What starts a worker process. Empty: workers run in this process, and a variant that crashes
  // or hangs takes the program with it.
  std::vector<std::string> worker_command;
};

// Data goes to std::cout, everything else to std::cerr. Returns the exit status: 0 all good, 1 a
// check failed, 2 an argument is wrong, 3 this machine or build cannot serve the request.
int cli_main(int argc, char** argv, const Catalogue& catalogue, const CliSettings& settings = {});

}  // namespace rooflane
