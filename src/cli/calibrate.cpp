// `rooflane calibrate`: measures this machine's traits and stores them for the cost model.
#include "measure/calibrate.hpp"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/json_output.hpp"
#include "cli/options.hpp"
#include "cli/terminal.hpp"
#include "cli/traits_text.hpp"
#include "cli/verbs.hpp"
#include "core/machine.hpp"
#include "io/json.hpp"

namespace rooflane {
namespace {

constexpr const char* default_seconds = "15";

void declare_calibrate(Arguments& arguments) {
  arguments.json_output(
      "print JSON instead of the table; with FILE, write it there and print the table");
  arguments.option("--threads", "N",
                   "the number that \"all threads\" means; default: all physical cores");
  arguments.option("--seconds", "S", fmt::format("total time; default: {}", default_seconds));
  arguments.flag("--if-missing", "do nothing if traits are stored already, or storing is off");
  arguments.examples({"rooflane calibrate --seconds 2", "rooflane calibrate --if-missing"});
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

int run_calibrate(const Arguments& arguments, Catalogue&, const CliSettings&) {
  Complaints complaints;
  CalibrateRequest request;
  const std::optional<JsonOutput> json =
      complaints.check([&] { return std::optional(JsonOutput(arguments)); });
  request.threads = complaints.check([&] { return parse_thread_count(arguments); });
  request.seconds = complaints.check([&] {
    return parse_seconds("--seconds", arguments.value("--seconds").value_or(default_seconds));
  });
  complaints.raise();

  const std::filesystem::path file = traits_file();
  if (arguments.has("--if-missing") && (file.empty() || traits_source().measured)) {
    print_note(file.empty() ? "traits: storing is off"
                            : "traits: already stored in " + file.string());
    return 0;
  }
  ProgressLine progress;
  request.progress = [&](double done, const std::string& what) {
    progress.show(fmt::format("[{:3.0f} %] {}", 100 * done, what));
  };
  const MeasuredTraits measured = calibrate(request);
  progress.wipe();
  const std::string kept = store(file, measured);
  if (!json->replaces_text()) std::cout << traits_table(measured) << "\n" << kept << "\n";
  if (json->asked()) {
    const Traits at_isa = traits_of(measured, machine(), measured.isa, request.threads);
    json->write({{"schema_version", 1},
                 {"machine", machine_json(machine())},
                 {"traits", traits_json({file, measured, ""}, measured.isa, at_isa)}});
  }
  return 0;
}

}  // namespace

const Verb calibrate_verb = {"calibrate", "measures the traits for the cost model",
                             declare_calibrate, run_calibrate};

}  // namespace rooflane
