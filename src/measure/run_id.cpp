// Names of runs. See run_id.hpp.
#include "measure/run_id.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <random>

namespace rooflane {
namespace {

std::string utc_time(const char* format) {
  return fmt::format(fmt::runtime(format), fmt::gmtime(std::time(nullptr)));
}

}  // namespace

std::string utc_now() { return utc_time("{:%Y-%m-%dT%H:%M:%SZ}"); }

std::string new_run_id() {
  return fmt::format("{}-{:04x}", utc_time("{:%Y%m%dT%H%M%SZ}"), std::random_device()() & 0xffff);
}

}  // namespace rooflane
