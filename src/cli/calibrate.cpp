// `rooflane calibrate`: measures this machine's traits and stores them for the cost model; with
// --learn the constants of the cost models, too (calibrate_learn.hpp).
#include "measure/calibrate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cli/calibrate_learn.hpp"
#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "cli/traits_text.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "io/json.hpp"
#include "measure/interference.hpp"

namespace rooflane {
namespace {

constexpr const char* default_seconds = "15";
constexpr const char* default_learning_seconds = "600";

void declare_calibrate(Arguments& arguments) {
  arguments.json_output(
      "print JSON instead of the table; with FILE, write it there and print the table");
  arguments.option("--threads", "N",
                   "the number that \"all threads\" means; default: all physical cores");
  arguments.option("--seconds", "S",
                   fmt::format("total time; default: {}, with --learn {}", default_seconds,
                               default_learning_seconds));
  arguments.flag("--if-missing", "do nothing if traits are stored already, or storing is off");
  arguments.flag("--learn",
                 "fit the constants of the cost models to this machine: times candidate schedules "
                 "of random problems, and keeps the fit if it helps on unseen ones beyond doubt");
  arguments.option("--times", "FILE", "with --learn: keep what was measured as CSV");
  arguments.repeatable(
      "--replay", "FILE",
      "with --learn: fit to the times in this file of --times and measure nothing; "
      "files of several machines are fitted together, and nothing is stored");
  arguments.option("--seed", "N", "with --learn: of the problems; default: 1");
  arguments.examples({"rooflane calibrate --seconds 2", "rooflane calibrate --if-missing",
                      "rooflane calibrate --learn --seconds 2 --times times.csv"});
}

int parse_thread_count(const Arguments& arguments) {
  const std::optional<std::string> text = arguments.value("--threads");
  return text ? parse_threads({*text}).front() : default_threads(Many::no).front();
}

// Where the traits are now, in a line.
std::string store(const std::filesystem::path& file, const MeasuredTraits& measured) {
  if (file.empty()) return "not stored: ROOFLANE_TRAITS is none, or there is no cache folder";
  write_traits(file, measured);
  return "stored in " + file.string();
}

void write_json(const JsonOutput& json, const std::filesystem::path& file,
                const MeasuredTraits& measured, int threads) {
  if (!json.asked()) return;
  const Traits at_isa = traits_of(measured, machine(), measured.isa, threads);
  json.write({{"schema_version", 1},
              {"machine", machine_json(machine())},
              {"traits", traits_json({file, measured, ""}, measured.isa, at_isa)}});
}

MeasuredTraits measure_traits(CalibrateRequest request) {
  ProgressLine progress;
  request.progress = [&](double done, const std::string& what) {
    progress.show(fmt::format("[{:3.0f} %] {}", 100 * done, what));
  };
  const std::vector<int>& placement = machine().placement;
  const auto used = std::min(placement.size(), static_cast<std::size_t>(request.threads));
  const std::span<const int> cpus(placement.data(), used);
  const InterferenceCounts before = interference_counts(cpus, getpid());
  MeasuredTraits measured = calibrate(request);
  const std::string what =
      interference_between(before, interference_counts(cpus, getpid()), cpus.size());
  if (!what.empty()) {
    print_note(fmt::format(
        "traits: others took CPU time meanwhile ({}); if choices seem odd, such as one thread "
        "where more would help, run `rooflane calibrate` again when the machine is idle",
        what));
  }
  return measured;
}

// The times of all files, those with the same traits together: pieces of one machine's times.
// Throws for a file without traits.
std::vector<MachineTimes> replayed(const std::vector<std::string>& files,
                                   const Catalogue& catalogue) {
  std::vector<MachineTimes> machines;
  for (const std::string& file : files) {
    RecordedTimes recorded = read_times(file, catalogue);
    if (!recorded.traits) throw argument_error(file + ": has no traits of its machine");
    const auto same = std::find_if(machines.begin(), machines.end(), [&](const auto& machine) {
      return print_traits(machine.traits) == print_traits(*recorded.traits);
    });
    if (same == machines.end()) {
      machines.push_back({*std::move(recorded.traits), std::move(recorded.problems)});
    } else {
      std::move(recorded.problems.begin(), recorded.problems.end(),
                std::back_inserter(same->problems));
    }
  }
  return machines;
}

// Traits that are stored, or measured now, in as long as calibration takes or a quarter of the
// time.
MeasuredTraits traits_to_learn_with(const LearnRequest& request) {
  if (traits_source().measured) return *traits_source().measured;
  print_note("traits: none are stored; they are measured first");
  return measure_traits(
      {request.threads, std::min(std::stod(default_seconds), request.seconds / 4), {}});
}

int run_learn(const Arguments& arguments, const Catalogue& catalogue, const LearnRequest& request,
              const JsonOutput& json) {
  const std::filesystem::path file = traits_file();
  std::vector<MachineTimes> machines = replayed(arguments.values("--replay"), catalogue);
  ProgressLine progress;
  if (machines.empty()) {
    const MeasuredTraits traits = traits_to_learn_with(request);
    TimesFile times;
    if (const auto path = arguments.value("--times")) times = TimesFile(*path, traits);
    machines.push_back(measure_times(catalogue, traits, request, times, progress));
  }
  const Learned learned = learn_from(machines, progress);
  MeasuredTraits measured = machines.front().traits;
  measured.at_isa.constants = learned.kept;
  std::string kept = "not stored: nothing was gained beyond doubt";
  if (machines.size() > 1) {
    kept = "not stored: the times of several machines";
  } else if (measured.machine != machine_key(machine())) {
    kept = fmt::format("not stored: measured on another machine ({})", measured.machine);
  } else if (learned.gained()) {
    kept = store(file, measured);
  }
  if (!json.replaces_text()) std::cout << learned_text(learned) << kept << "\n";
  write_json(json, file, measured, request.threads);
  return 0;
}

// Whether it learns.
bool read_learning(const Arguments& arguments) {
  for (const char* const option : {"--times", "--replay", "--seed"}) {
    if (!arguments.has("--learn") && !arguments.values(option).empty()) {
      throw argument_error(fmt::format("{} belongs to --learn", option));
    }
  }
  if (arguments.has("--learn") && arguments.has("--if-missing")) {
    throw argument_error("--if-missing does not go with --learn");
  }
  if (arguments.value("--times") && !arguments.values("--replay").empty()) {
    throw argument_error("--times does not go with --replay: nothing is measured");
  }
  return arguments.has("--learn");
}

int run_calibrate(const Arguments& arguments, Catalogue& catalogue, const CliSettings&) {
  Complaints complaints;
  CalibrateRequest request;
  LearnRequest learn;
  const bool learns = complaints.check([&] { return read_learning(arguments); });
  const std::optional<JsonOutput> json =
      complaints.check([&] { return std::optional(JsonOutput(arguments)); });
  request.threads = complaints.check([&] { return parse_thread_count(arguments); });
  request.seconds = complaints.check([&] {
    return parse_seconds(
        "--seconds",
        arguments.value("--seconds").value_or(learns ? default_learning_seconds : default_seconds));
  });
  learn.seed = complaints.check([&] {
    return static_cast<std::uint64_t>(parse_count("--seed", arguments.value("--seed").value_or("1"),
                                                  0, std::numeric_limits<std::int64_t>::max()));
  });
  complaints.raise();
  learn.threads = request.threads;
  learn.seconds = request.seconds;
  if (learns) return run_learn(arguments, catalogue, learn, *json);

  const std::filesystem::path file = traits_file();
  if (arguments.has("--if-missing") && (file.empty() || traits_source().measured)) {
    print_note(file.empty() ? "traits: storing is off"
                            : "traits: already stored in " + file.string());
    return 0;
  }
  if (const auto& before = traits_source().measured;
      before && !(before->at_isa.constants == ModelConstants())) {
    print_note("traits: the constants learned with the old traits are dropped; --learn fits them");
  }
  const MeasuredTraits measured = measure_traits(request);
  const std::string kept = store(file, measured);
  if (!json->replaces_text()) std::cout << traits_table(measured) << "\n" << kept << "\n";
  write_json(*json, file, measured, request.threads);
  return 0;
}

}  // namespace

const Verb calibrate_verb = {"calibrate", "measures the traits for the cost model",
                             declare_calibrate, run_calibrate};

}  // namespace rooflane
