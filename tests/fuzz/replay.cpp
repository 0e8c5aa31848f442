// Runs every fuzz target over its committed inputs: replay FOLDER, with one folder for each target.
// They were chosen by scripts/fuzz.sh for the code that they reach; what once broke something is
// among them. Fails where a target or a folder has no counterpart.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "io/files.hpp"
#include "tests/fuzz/targets.hpp"

namespace {

namespace fs = std::filesystem;
using namespace rooflane;

struct Target {
  const char* name;
  void (*run)(std::string_view input);
};
#define ROOFLANE_ENTRY(NAME) {#NAME, fuzz::NAME##_target},
constexpr Target targets[] = {ROOFLANE_FUZZ_TARGETS(ROOFLANE_ENTRY)};
#undef ROOFLANE_ENTRY

// How many inputs there were.
int replay(const Target& target, const fs::path& folder) {
  int inputs = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    // Named before it runs: what crashes says nothing.
    fmt::print("{}\n", entry.path().string());
    std::fflush(stdout);
    fuzz::run(target.run, read_text_file(entry.path().string()));
    ++inputs;
  }
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::set<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(argv[1])) {
    folders.insert(entry.path().filename().string());
  }
  for (const Target& target : targets) {
    if (folders.erase(target.name) == 0 || replay(target, fs::path(argv[1]) / target.name) == 0) {
      fmt::print(stderr, "{}: no input in {}\n", target.name, argv[1]);
      return 1;
    }
  }
  for (const std::string& folder : folders) fmt::print(stderr, "{}: no such target\n", folder);
  return folders.empty() ? 0 : 1;
}
