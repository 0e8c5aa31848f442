// Asking scripts/peers.py. See peers.hpp.
#include "cli/peers.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "cli/scripts.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace rooflane {
namespace {

struct Finished {
  int status = 0;
  std::string output;
};

// Runs a command to its end. Its standard output is returned where `capture` says so and goes to
// standard error otherwise; standard input is empty.
Finished run_to_end(std::vector<std::string> words, bool capture) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw unavailable_error("a pipe cannot be created");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
  posix_spawn_file_actions_adddup2(&actions, capture ? ends[1] : STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  pid_t process = 0;
  const int error = posix_spawn(&process, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Finished finished;
  std::array<char, 4096> chunk{};
  ssize_t count = 0;
  while (error == 0 && (count = read(ends[0], chunk.data(), chunk.size())) > 0) {
    finished.output.append(chunk.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  if (error != 0) throw unavailable_error(fmt::format("'{}' cannot be executed", words.front()));
  int status = 0;
  waitpid(process, &status, 0);
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

PeersScript::PeersScript() : path_(script_path("peers.py", "ROOFLANE_PEERS", "--peers")) {
  const Finished listing = run_to_end(command({"--names"}), true);
  names_ = lines_of(listing.output);
  if (listing.status != 0 || names_.empty()) {
    throw unavailable_error(
        fmt::format("--peers: '{} --names' failed with status {}", path_, listing.status));
  }
}

std::vector<std::string> PeersScript::command(const std::vector<std::string>& arguments) const {
  std::vector<std::string> words = {"/usr/bin/env", "python3", path_};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void PeersScript::prepare(const std::vector<std::string>& names) const {
  std::vector<std::string> arguments = {"--prepare"};
  arguments.insert(arguments.end(), names.begin(), names.end());
  run_to_end(command(arguments), false);
}

std::vector<std::string> PeersScript::worker_command(const std::string& name) const {
  return command({"--serve", name});
}

bool PeersScript::is_library(const std::string& name) {
  return name == "mkl" || name == "openblas";
}

std::string PeersScript::library(const std::string& name) const {
  const Finished answer = run_to_end(command({"--library", name}), true);
  const std::vector<std::string> lines = lines_of(answer.output);
  if (answer.status != 0 || lines.size() != 1) {
    throw unavailable_error(fmt::format("--peers {}: no library is available", name));
  }
  return lines.front();
}

}  // namespace rooflane
