// Plans for a model's calls, and runs of them. See chain.hpp.
#include "model/chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "core/stopwatch.hpp"
#include "measure/sampler.hpp"

namespace rooflane::model {
namespace {

// Calls with equal problems and the same memory are one: one plan serves all layers of a loop that
// writes the same tensors in each.
std::string identity(const Problem& problem, const std::string& math, const Operands& operands,
                     const CatalogueEntry& entry) {
  std::string text = fmt::format("{} {} {}", entry.name, math, problem.text());
  for (const auto& [name, view] : operands.all()) {
    text += fmt::format(" {}", view.data);
    for (int i = 0; i < view.rank; ++i) text += fmt::format(",{}", view.strides[i]);
  }
  return text;
}

}  // namespace

std::vector<std::span<const std::byte>> packed_constants(const Plan& plan) {
  std::vector<std::span<const std::byte>> kept = plan.regions();
  const std::vector<std::span<const std::byte>> operands = plan.Plan::regions();
  std::erase_if(kept, [&](const auto& memory) {
    return std::any_of(operands.begin(), operands.end(),
                       [&](const auto& operand) { return operand.data() == memory.data(); });
  });
  std::reverse(kept.begin(), kept.end());  // a gate's is read first
  return kept;
}

Chain::Chain(const Instance& instance, const WeightSource& weights, const ChainSettings& settings)
    : instance_(instance),
      settings_(settings),
      memory_(instance, weights, settings.seed, settings.threads) {
  for (const Phase& phase : instance.phases) runners_.emplace_back(phase.calls.size());
}

Tuning Chain::tuning_of(const CatalogueEntry& entry) const {
  for (const auto& [variant, text] : settings_.tunings) {
    if (variant == entry.name) return parse_tuning(*entry.variant, text);
  }
  return {};
}

Environment Chain::environment_of(const Call& call, const CatalogueEntry& entry) const {
  Environment environment;
  const bool one = threads_of(*entry.variant, tuning_of(entry)) == Threads::one;
  environment.threads = one ? 1 : settings_.threads;
  environment.isa = settings_.isa;
  environment.math = math_of(call);
  environment.library = entry.library;
  environment.device = settings_.device;
  environment.tuned = settings_.tuned;
  return environment;
}

Problem Chain::problem_for(const Call& call, const CatalogueEntry& entry) const {
  const Problem& problem = call.problem;
  constexpr const char* packing = "prepack";
  if (find_param(problem.kernel(), packing) == nullptr || !problem.flag(packing)) return problem;
  const Environment environment = environment_of(call, entry);
  if (!rooflane::refusal(*entry.variant, problem, environment)) return problem;
  Problem unpacked = problem;
  unpacked.set(packing, 0.0);
  return rooflane::refusal(*entry.variant, unpacked, environment) ? problem : unpacked;
}

std::optional<std::string> Chain::refusal(std::size_t phase, std::size_t step,
                                          const CatalogueEntry& entry) const {
  if (entry.foreign()) return "it runs in a process of its own";
  if (auto reason = absent_reason(entry)) return reason;
  const Phase& of = instance_.phases[phase];
  std::set<std::string> asked;  // layers repeat their problems
  for (const std::size_t call : of.steps[step].calls) {
    const Call& each = of.calls[call];
    if (!asked.insert(each.math + each.problem.text()).second) continue;
    auto reason =
        rooflane::refusal(*entry.variant, problem_for(each, entry), environment_of(each, entry));
    if (reason) return reason;
  }
  return std::nullopt;
}

Operands Chain::operands(std::size_t phase, std::size_t call) const {
  Operands operands;
  for (const Operand& operand : instance_.phases[phase].calls[call].operands) {
    operands.set(operand.name, memory_.view(phase, operand.view));
  }
  return operands;
}

Runner Chain::make_runner(std::size_t phase, std::size_t call, const CatalogueEntry& entry) {
  const Call& of = instance_.phases[phase].calls[call];
  const Problem problem = problem_for(of, entry);
  const Operands all = operands(phase, call);
  const std::string key = identity(problem, math_of(of), all, entry);
  if (const auto known = made_.find(key); known != made_.end()) return known->second;
  Operands constants;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (tensor.role == Role::constant) constants.set(tensor.name, all.at(tensor.name));
  }
  Runner runner{&entry, problem, nullptr, environment_of(of, entry), 0};
  if (const Devices* devices = entry.variant->backend->devices) devices->prepare(settings_.device);
  const double start = steady_clock_ns();
  plans_.push_back(
      make_plan(*entry.variant, problem, tuning_of(entry), runner.environment, constants));
  runner.plan_ns = steady_clock_ns() - start;
  runner.plan = plans_.back().get();
  runner.plan->bind(all);
  made_.emplace(key, runner);
  return runner;
}

std::uint8_t Chain::add(std::size_t phase, std::size_t step, const CatalogueEntry& entry) {
  const Step& of = instance_.phases[phase].steps[step];
  std::vector<std::vector<Runner>>& runners = runners_[phase];
  const std::vector<Runner>& there = runners[of.calls.front()];
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (there[i].entry == &entry) return static_cast<std::uint8_t>(i);
  }
  if (there.size() == 255) throw argument_error("a step has at most 255 variants");
  for (const std::size_t call : of.calls) {
    runners[call].push_back(make_runner(phase, call, entry));
  }
  return static_cast<std::uint8_t>(runners[of.calls.front()].size() - 1);
}

void Chain::drop_packed_weights() {
  std::set<std::string> packed, read;
  for (std::size_t p = 0; p < instance_.phases.size(); ++p) {
    const Phase& phase = instance_.phases[p];
    for (std::size_t c = 0; c < phase.calls.size(); ++c) {
      for (const Operand& operand : phase.calls[c].operands) {
        const Tensor& tensor = phase.tensors[operand.view.tensor];
        if (tensor.kind != Tensor::Kind::weight) continue;
        for (const Runner& runner : runners_[p][c]) {
          const auto tensors = runner.problem.kernel().tensors(runner.problem);
          const bool constant =
              std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
                return spec.name == operand.name && spec.role == Role::constant;
              });
          (constant ? packed : read).insert(tensor.name);
        }
      }
    }
  }
  for (const std::string& name : packed) {
    if (read.count(name) == 0) memory_.drop_weight(name);
  }
}

void Chain::run_one(const Runner& runner) {
  if (runner.entry->variant->threads != Threads::device) {
    runner.plan->run();
    return;
  }
  // Tensors of a model live in the host's memory.
  runner.plan->upload();
  runner.plan->run();
  runner.plan->download();
}

double Chain::run(std::size_t phase, const Choice& choice, std::span<double> call_ns) {
  const std::vector<std::vector<Runner>>& runners = runners_[phase];
  const double begin = steady_clock_ns();
  double at = begin;
  for (std::size_t call = 0; call < runners.size(); ++call) {
    run_one(runners[call][choice[call]]);
    const double now = steady_clock_ns();
    call_ns[call] += now - at;
    at = now;
  }
  return at - begin;
}

Chain::PlanBytes Chain::plan_bytes(std::size_t phase, const Choice& choice) const {
  PlanBytes bytes;
  std::set<const Plan*> counted;
  for (std::size_t call = 0; call < choice.size(); ++call) {
    const Plan* const plan = runners_[phase][call][choice[call]].plan;
    if (!counted.insert(plan).second) continue;
    const PlanFacts facts = plan->facts();
    bytes.workspace += static_cast<std::int64_t>(facts.workspace_bytes);
    bytes.packed += static_cast<std::int64_t>(facts.packed_bytes);
  }
  return bytes;
}

}  // namespace rooflane::model
