// `rooflane tune`, `archive` and `bisect`: pass their arguments to scripts, which run the package
// python/rooflane. It measures through `rooflane evaluate` and `bench`.
#include <string>
#include <vector>

#include "cli/scripts.hpp"
#include "cli/verbs.hpp"

namespace rooflane {
namespace {

// Becomes the script; returns only by throwing.
int become(const std::string& verb, std::vector<std::string> words) {
  words.insert(words.begin(), verb);
  become_script("tune.py", "ROOFLANE_TUNER", verb, words);
}

}  // namespace

const Verb tune_verb = {
    "tune", "searches for a faster schedule and stores it", nullptr, nullptr,
    [](const std::vector<std::string>& words) { return become("tune", words); }};
const Verb archive_verb = {
    "archive", "shows earlier tuning: list, best, history, export, ...", nullptr, nullptr,
    [](const std::vector<std::string>& words) { return become("archive", words); }};
const Verb bisect_verb = {"bisect", "finds the commit that made a kernel slower or faster", nullptr,
                          nullptr, [](const std::vector<std::string>& words) -> int {
                            become_script("bisect_commits.py", "ROOFLANE_BISECT", "bisect", words);
                          }};

}  // namespace rooflane
