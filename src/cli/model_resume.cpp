// JSON lines: the first holds what must not change between the parts of a run, and its ceilings;
// each other one round. See model_resume.hpp.
#include "cli/model_resume.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "bench/run_files.hpp"
#include "cli/build_facts.hpp"
#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "io/files.hpp"
#include "io/resume_request.hpp"
#include "measure/ceilings_json.hpp"

namespace rooflane {
namespace model {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PhaseRound, runs_per_turn, whole, steps, swap_whole, swap_steps,
                                   drawn, disturbed, repeated)

}  // namespace model

namespace {

using nlohmann::json;

}  // namespace

json model_request(const std::vector<model::ChainSwaps>& chains) {
  json steps = json::array(), swaps = json::array();
  for (const model::ChainSwaps& each : chains) {
    const model::Chain& chain = *each.chain;
    for (std::size_t p = 0; p < chain.instance().phases.size(); ++p) {
      const model::Phase& phase = chain.phase(p);
      for (std::size_t call = 0; call < phase.calls.size(); ++call) {
        std::vector<std::string> variants;
        for (const model::Runner& runner : chain.runners(p, call)) {
          variants.push_back(runner.entry->name);
        }
        steps.push_back(fmt::format("{} {} {} by {}", phase.name,
                                    phase.steps[phase.calls[call].step].name,
                                    phase.calls[call].problem.text(), join(variants, ", ")));
      }
      for (const model::Swap& swap : each.of_phase[p]) {
        swaps.push_back(fmt::format("{} {}", phase.name, swap.name));
      }
    }
  }
  const model::ChainSettings& settings = chains.front().chain->settings();
  return {{"build", std::string(build_commit) + " " + build_dirty},
          {"cpu", machine().cpu},
          {"model", chains.front().chain->instance().model},
          {"threads", settings.threads},
          {"isa", settings.isa},
          {"seed", settings.seed},
          {"steps", steps},
          {"swaps", swaps}};
}

ModelResume::ModelResume(const std::string& csv, bool goes_on, json request)
    : path_(csv.empty() ? "" : resume_path(csv)), request_(std::move(request)) {
  std::error_code ignored;
  // Devices and pipes take rows, but nothing can be resumed from them.
  if (std::filesystem::exists(csv, ignored) && !std::filesystem::is_regular_file(csv, ignored)) {
    path_.clear();
  }
  if (goes_on && !path_.empty() && std::filesystem::exists(path_, ignored)) read();
}

void ModelResume::read() {
  kept_ = read_text_file(path_);
  kept_.resize(kept_.rfind('\n') + 1);
  try {
    for (const std::string_view line : split(kept_, '\n')) {
      if (line.empty()) continue;
      const json entry = json::parse(line);
      if (ceilings_) {
        rounds_.push_back(entry.at("round").get<model::Round>());
        continue;
      }
      require_same_request(path_, entry.at("request"), request_,
                           [](const auto& list, std::size_t, const json& was, const json& is) {
                             return fmt::format("is for another model: {} was {}, now it is {}",
                                                list, was.dump(), is.dump());
                           });
      ceilings_ = entry.at("ceilings").get<Ceilings>();
    }
  } catch (const json::exception& error) {
    refuse_resume(path_, fmt::format("does not parse: {}", error.what()));
  }
}

void ModelResume::begin(const Ceilings& ceilings) {
  if (path_.empty()) return;
  if (!ceilings_) kept_ = json{{"request", request_}, {"ceilings", ceilings}}.dump() + "\n";
  ReplacedFile file(path_);
  file.write(kept_);
  file.commit();
  file_.emplace(path_, Open::at_its_end);
}

void ModelResume::add(const model::Round& round) {
  if (file_) file_->append(json{{"round", round}}.dump() + "\n");
}

void ModelResume::finish() {
  if (file_) ::unlink(path_.c_str());
  file_.reset();
}

}  // namespace rooflane
