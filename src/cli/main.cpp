// The program `rooflane`: the built-in catalogue handed to the command line (cli.hpp).
#include "backends/installed.hpp"
#include "cli/cli.hpp"
#include "cli/standard_streams.hpp"

int main(int argc, char** argv) {
  rooflane::guard_standard_streams();
  return rooflane::cli_main(argc, argv,
                            rooflane::with_installed_libraries(rooflane::Catalogue::built_in()),
                            {{"/proc/self/exe", "worker"}});
}
