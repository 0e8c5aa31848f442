// A model ready to run: memory, and for every call a plan of each variant that may serve it. Plans
// are made once and bound once; a run chooses among them and allocates nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/catalogue.hpp"
#include "model/memory.hpp"

namespace rooflane::model {

struct ChainSettings {
  int threads = 1;
  std::string isa;  // empty: the CPU's best
  std::string math = "fp32";
  int device = 0;
  const TunedSchedules* tuned = nullptr;
  std::vector<std::pair<std::string, std::string>> tunings;  // variant, "key=value,..."
  std::uint64_t seed = 1;
};

// Where a plan keeps constants that were packed, in the order in which a run reads them. Plans of
// the same constants may share them.
std::vector<std::span<const std::byte>> packed_constants(const Plan& plan);

// One variant for a call.
struct Runner {
  const CatalogueEntry* entry = nullptr;
  // The call's; of a variant that cannot keep constants packed the same without that.
  Problem problem;
  Plan* plan = nullptr;
  Environment environment;
  double plan_ns = 0;
};

// For each call of a phase the number of the runner that serves it.
using Choice = std::vector<std::uint8_t>;

class Chain {
 public:
  Chain(const Instance& instance, const WeightSource& weights, const ChainSettings& settings);

  const Instance& instance() const { return instance_; }
  const ChainSettings& settings() const { return settings_; }
  const Phase& phase(std::size_t index) const { return instance_.phases[index]; }

  // Why the variant cannot serve a step of a phase, in words; nothing when it can.
  std::optional<std::string> refusal(std::size_t phase, std::size_t step,
                                     const CatalogueEntry& entry) const;
  // Plans and binds the variant for all calls of a step; returns the number of its runners, that of
  // before when it is there already. Throws as make_plan and Plan::bind do.
  std::uint8_t add(std::size_t phase, std::size_t step, const CatalogueEntry& entry);
  const std::vector<Runner>& runners(std::size_t phase, std::size_t call) const {
    return runners_[phase][call];
  }

  // By which arithmetic a call is computed.
  const std::string& math_of(const Call& call) const {
    return call.math.empty() ? settings_.math : call.math;
  }

  // What a call is bound to, with weights as they were given; those that were dropped are null.
  Operands operands(std::size_t phase, std::size_t call) const;
  const Memory& memory() const { return memory_; }
  // Frees the weights that every reader has packed. No plan can be added afterwards.
  void drop_packed_weights();
  void reset_states() { memory_.reset_states(); }

  // Runs a phase and adds each call's nanoseconds to `call_ns`, one each. Returns their sum.
  double run(std::size_t phase, const Choice& choice, std::span<double> call_ns);
  static void run_one(const Runner& runner);

  // What plans hold beyond operands, and constants that they packed, each counted once.
  struct PlanBytes {
    std::int64_t workspace = 0, packed = 0;
  };
  PlanBytes plan_bytes(std::size_t phase, const Choice& choice) const;

 private:
  Environment environment_of(const Call& call, const CatalogueEntry& entry) const;
  Tuning tuning_of(const CatalogueEntry& entry) const;
  // What the variant would be given for a call: its problem, or that without packed constants.
  Problem problem_for(const Call& call, const CatalogueEntry& entry) const;
  Runner make_runner(std::size_t phase, std::size_t call, const CatalogueEntry& entry);

  const Instance& instance_;
  ChainSettings settings_;
  Memory memory_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::map<std::string, Runner> made_;  // by problem, variant and addresses: equal calls share one
  std::vector<std::vector<std::vector<Runner>>> runners_;  // of each phase, of each call
};

}  // namespace rooflane::model
