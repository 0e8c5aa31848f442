// Processes that hold one level each. See model_memory.hpp.
#include "cli/model_memory.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>

#include "cli/model_levels.hpp"
#include "cli/terminal.hpp"
#include "core/stopwatch.hpp"
#include "core/text.hpp"
#include "io/table.hpp"
#include "measure/process_usage.hpp"
#include "model/rounds.hpp"
#include "model/swaps.hpp"

namespace rooflane {
namespace {

// The level's own variant, those of the levels before it in reverse, and what the model takes
// otherwise: as plan_levels chooses.
std::vector<std::string> preferred_at(std::size_t level, const ModelArguments& read) {
  const std::vector<std::string> names = level_names();
  std::vector<std::string> preferred;
  for (std::size_t i = level + 1; i-- > 0;) preferred.push_back(names[i]);
  preferred.insert(preferred.end(), read.preferred.begin(), read.preferred.end());
  return preferred;
}

// Runs in the process of a level: a line of figures for each stage.
class Stages {
 public:
  void end(const std::string& name) {
    const std::int64_t resident = resident_bytes(getpid());
    // The kernel counts pages in batches for each thread, so that its peak may lie a little below
    // what it told before.
    peak_ = std::max({peak_, resident, peak_resident_bytes(getpid())});
    text_ += fmt::format("{} {:.0f} {} {}\n", name, watch_.seconds() * 1e9, resident, peak_);
  }
  const std::string& text() const { return text_; }

 private:
  Stopwatch watch_;
  std::int64_t peak_ = 0;
  std::string text_;
};

std::string hold_level(const model::Instance& instance, const model::WeightSource& weights,
                       const model::ChainSettings& settings, const Catalogue& catalogue,
                       const std::vector<std::string>& preferred) {
  Stages stages;
  stages.end("begin");
  model::Chain chain(instance, weights, settings);
  stages.end("tensors");
  model::plan_chain(chain, catalogue, preferred, {});
  stages.end("plans");
  chain.drop_packed_weights();
  stages.end("unpacked-freed");
  const std::vector<model::Choice> choices = model::as_it_is(chain);
  for (std::size_t phase = 0; phase < choices.size(); ++phase) {
    std::vector<double> unused(choices[phase].size());
    chain.run(phase, choices[phase], unused);
  }
  stages.end("run");
  return stages.text();
}

std::string read_all(int from) {
  std::string text;
  char block[4096];
  for (ssize_t count = 0; (count = ::read(from, block, sizeof block)) > 0;) {
    text.append(block, static_cast<std::size_t>(count));
  }
  return text;
}

// What `body` returns, computed in a copy of this process.
template <class Body>
std::string in_child(const std::string& what, Body&& body) {
  int ends[2];
  if (::pipe(ends) != 0) throw unavailable_error(what + ": a pipe cannot be created");
  const pid_t parent = getpid();
  const pid_t child = ::fork();
  if (child < 0) throw unavailable_error(what + ": a process cannot be started");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it must not outlive one that --timeout ends
    if (getppid() != parent) _exit(1);
    ::close(ends[0]);
    std::string text;
    bool good = true;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = error.what();
      good = false;
    }
    const bool written = ::write(ends[1], text.data(), text.size()) == std::ssize(text);
    _exit(good && written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text = read_all(ends[0]);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status == 0) return text;
  throw unavailable_error(fmt::format("{}: {}", what, text.empty() ? "its process ended" : text));
}

std::vector<MemoryStage> parse_stages(const std::string& text) {
  std::vector<MemoryStage> stages;
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> words = split(line, ' ');
    if (words.size() != 4) continue;
    stages.push_back({std::string(words[0]),
                      static_cast<double>(parse_integer(words[1]).value_or(0)),
                      parse_integer(words[2]).value_or(0), parse_integer(words[3]).value_or(0)});
  }
  return stages;
}

}  // namespace

std::vector<LevelMemory> measure_level_memory(const model::Instance& instance,
                                              const model::WeightSource& weights,
                                              const model::ChainSettings& settings,
                                              const Catalogue& catalogue,
                                              const ModelArguments& read,
                                              const std::vector<ModelForm>& forms) {
  std::vector<LevelMemory> levels;
  for (const std::string& name : level_names()) {
    const std::vector<std::string> preferred = preferred_at(levels.size(), read);
    const std::string text = in_child("memory of level " + name, [&] {
      return hold_level(instance, weights, settings, catalogue, preferred);
    });
    levels.push_back({name, parse_stages(text)});
  }
  for (const ModelForm& form : forms) {
    const std::string text = in_child("memory of level " + form.name, [&] {
      return hold_level(*form.instance, *form.weights, settings, catalogue, form.preferred);
    });
    levels.push_back({form.name, parse_stages(text)});
  }
  return levels;
}

void print_level_memory(const std::vector<LevelMemory>& levels) {
  TextTable table{{{"level"}}, {}};
  for (const MemoryStage& stage : levels.front().stages) {
    table.columns.push_back({stage.name, true});
  }
  table.columns.push_back({"peak", true});
  table.columns.push_back({"planned in", true});
  for (const LevelMemory& level : levels) {
    std::vector<std::string> row = {level.level};
    double planned = 0;
    for (const MemoryStage& stage : level.stages) {
      row.push_back(print_bytes(stage.resident));
      if (stage.name == "plans") planned = stage.ns;
    }
    row.push_back(print_bytes(level.stages.back().peak));
    row.push_back(fmt::format("{:.4g} ms", planned * 1e-6));
    table.rows.push_back(std::move(row));
  }
  std::cout << "\nresident memory after each stage, in a separate process for each level\n"
            << terminal_table(table);
}

std::string level_memory_csv(const std::vector<LevelMemory>& levels) {
  std::string text = "level,stage,ns,resident_bytes,peak_bytes\n";
  for (const LevelMemory& level : levels) {
    for (const MemoryStage& stage : level.stages) {
      text += fmt::format("{},{},{:.0f},{},{}\n", level.level, stage.name, stage.ns, stage.resident,
                          stage.peak);
    }
  }
  return text;
}

}  // namespace rooflane
