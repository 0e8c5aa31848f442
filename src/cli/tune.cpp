// `rooflane tune` and `rooflane archive`: hand their arguments to scripts/tune.py, which runs the
// package python/rooflane. What is measured comes back here: `rooflane evaluate`.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/scripts.hpp"
#include "cli/verbs.hpp"
#include "core/error.hpp"

namespace rooflane {
namespace {

// Becomes the script; returns only by throwing.
int become(const std::string& verb, const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/usr/bin/env", "python3",
                                      script_path("tune.py", "ROOFLANE_TUNER", verb), verb};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  setenv("ROOFLANE_PROGRAM", program.c_str(), /*overwrite=*/1);
  execv(argv[0], argv.data());
  throw unavailable_error(fmt::format("{}: '{}' cannot be executed", verb, command[0]));
}

}  // namespace

const Verb tune_verb = {
    "tune", "searches schedules, names a winner or a tie, keeps it", nullptr, nullptr,
    [](const std::vector<std::string>& words) { return become("tune", words); }};
const Verb archive_verb = {
    "archive", "what was tuned so far: list, best, history, export, ...", nullptr, nullptr,
    [](const std::vector<std::string>& words) { return become("archive", words); }};

}  // namespace rooflane
