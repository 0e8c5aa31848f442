// Finding scripts. See scripts.hpp.
#include "cli/scripts.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.hpp"

namespace rooflane {
namespace {

// The folder above the program's: the tree that it was built in, or where it is installed.
std::filesystem::path folder_above() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
}

}  // namespace

std::string script_path(const std::string& file, const std::string& variable,
                        const std::string& what) {
  if (const char* given = std::getenv(variable.c_str()); given != nullptr && *given != '\0') {
    if (::access(given, R_OK) != 0) {
      throw argument_error(fmt::format("{}: {}='{}' cannot be read", what, variable, given));
    }
    return std::filesystem::absolute(given);
  }
  std::error_code ignored;
  const auto above = folder_above();
  for (const auto& path : {above / "scripts" / file, above / "share/rooflane/scripts" / file}) {
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw unavailable_error(fmt::format("{}: {} is neither in {} nor in {}; {} may name it", what,
                                      file, (above / "scripts").string(),
                                      (above / "share/rooflane/scripts").string(), variable));
}

std::vector<std::string> recorded_command(const std::vector<std::string>& words) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder_above() / "scripts", ignored)) return words;  // installed
  const std::string tree = folder_above().string() + "/";
  std::vector<std::string> recorded;
  for (const std::string& word : words) {
    recorded.push_back(word.starts_with(tree) ? word.substr(tree.size()) : word);
  }
  return recorded;
}

void become_script(const std::string& file, const std::string& variable, const std::string& what,
                   const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/usr/bin/env", "python3", script_path(file, variable, what)};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  setenv("ROOFLANE_PROGRAM", program.c_str(), /*overwrite=*/1);
  execv(argv[0], argv.data());
  throw unavailable_error(fmt::format("{}: '{}' cannot be executed", what, command[0]));
}

}  // namespace rooflane
