// The whole command line with the fake variants beside the real ones, and the workers of the tests.
// Not installed.
#include "cli/cli.hpp"
#include "cli/standard_streams.hpp"
#include "fakes.hpp"

int main(int argc, char** argv) {
  rooflane::guard_standard_streams();
  return rooflane::cli_main(argc, argv, rooflane::fake_catalogue(), {{"/proc/self/exe", "worker"}});
}
