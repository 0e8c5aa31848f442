// The whole command line with variants that cheat, crash and hang: what cli_test.py runs beside the
// real program.
#include "cli/cli.hpp"
#include "fakes.hpp"

int main(int argc, char** argv) {
  return rooflane::cli_main(argc, argv, rooflane::fake_catalogue(), {{"/proc/self/exe", "worker"}});
}
