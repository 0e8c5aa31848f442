// See phase_runner.hpp.
#include "generate/phase_runner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "model/chain.hpp"
#include "model/rewrite.hpp"

namespace rooflane::generate {
namespace {

std::int64_t moved(std::int64_t first, std::int64_t next, std::int64_t more) {
  return first + (next - first) * more;
}

bool same_view(const View& x, const View& y) {
  return x.data == y.data && x.shape == y.shape && x.strides == y.strides;
}

View view_at(const View& first, const View& next, std::int64_t more) {
  View view = first;
  const auto* const from = static_cast<std::byte*>(first.data);
  const std::ptrdiff_t step = static_cast<std::byte*>(next.data) - from;
  view.data = static_cast<std::byte*>(first.data) + step * more;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    view.shape[axis] = moved(first.shape[axis], next.shape[axis], more);
    view.strides[axis] = moved(first.strides[axis], next.strides[axis], more);
  }
  return view;
}

// What moves is rounded up to a multiple.
Problem problem_at(const Problem& first, const Problem& next, std::int64_t more,
                   std::int64_t multiple) {
  Problem problem = first;
  for (const ParamSpec& param : problem.kernel().params) {
    if (!problem.has(param.name) || problem.value(param.name) == next.value(param.name)) continue;
    const std::int64_t value = moved(problem.size(param.name), next.size(param.name), more);
    const std::int64_t rounded = (value + multiple - 1) / multiple * multiple;
    problem.set(param.name, static_cast<double>(rounded));
  }
  return problem;
}

constexpr const char* prepack = "prepack";

bool is_packed(const Problem& problem) {
  return find_param(problem.kernel(), prepack) != nullptr && problem.flag(prepack);
}

// A row of float32 reads b as fast where it is.
bool gains_by_packing(const Problem& problem) {
  return is_packed(problem) && (problem.size("m") > 1 || problem.dtype("b_type") != &float32);
}

// The memory from which a product reads its weights: the tensor, or what the plan packed of it.
std::vector<std::span<const std::byte>> matrices_of(const Plan& plan, const Operands& operands) {
  if (!operands.has("b")) return {};
  if (!is_packed(plan.problem())) {
    const auto [begin, end] = operands.at("b").extent();
    return {{begin, end}};
  }
  return model::packed_constants(plan);
}

// Schedules are chosen for every so many tokens. By the problem alone, so that decoding and
// verifying several tokens choose the same for the same past.
constexpr std::int64_t tokens_per_choice = 32;

}  // namespace

std::vector<std::string> runner_variants() { return {"amx", "avx512", "hwy", "scalar"}; }

PhaseRunner::PhaseRunner(const model::Memory& memory, std::size_t phase, const StoredCaches& first,
                         const StoredCaches& next, const Catalogue& catalogue,
                         const RunnerSettings& settings, const PhaseRunner* packed, Pool* pool,
                         WeightPrefetch* prefetch)
    : memory_(memory),
      phase_(phase),
      catalogue_(catalogue),
      settings_(settings),
      packed_(packed),
      pool_(pool),
      prefetch_(prefetch) {
  const std::vector<model::Call>& calls = first.instance.phases[phase].calls;
  const std::vector<CacheStore>& stores = first.stores[phase];
  std::size_t stored = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    add(calls[i], next.instance.phases[phase].calls[i]);
    for (; stored < stores.size() && stores[stored].call == i; ++stored) {
      add_store(stores[stored], next.stores[phase][stored]);
    }
  }
  for (Step& step : steps_) {
    if (step.stores) continue;
    for (const MovingView& view : step.views) step.operands.set(view.name, view.first);
    std::erase_if(step.views,
                  [](const MovingView& view) { return same_view(view.first, view.next); });
  }
}

void PhaseRunner::add_store(const CacheStore& first, const CacheStore& next) {
  Step step;
  step.stores = true;
  step.views.push_back({"from", memory_.view(phase_, first.from), memory_.view(phase_, next.from)});
  step.views.push_back({"to", memory_.view(phase_, first.to), memory_.view(phase_, next.to)});
  steps_.push_back(std::move(step));
}

const CatalogueEntry& PhaseRunner::entry_for(const model::Call& call) const {
  const std::string text = call.problem.text();
  const std::vector<const CatalogueEntry*> known = catalogue_.variants(call.problem.kernel());
  std::string reasons;
  bool has_hwy = false;
  for (const std::string& name : runner_variants()) {
    const auto entry = std::find_if(known.begin(), known.end(),
                                    [&](const CatalogueEntry* each) { return each->name == name; });
    // scalar replaces hwy where a kernel has none, never where hwy refuses: that would take
    // orders of magnitude longer and not say so.
    if (entry == known.end() || (name == "scalar" && has_hwy)) continue;
    has_hwy = has_hwy || name == "hwy";
    auto reason = absent_reason(**entry);
    if (!reason) {
      reason = refusal(*(*entry)->variant, call.problem, environment_of(call.math, **entry));
    }
    if (!reason) return **entry;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, *reason);
  }
  if (reasons.empty()) {
    throw unavailable_error(fmt::format("{}: its kernel has neither hwy nor scalar", text));
  }
  throw unavailable_error(fmt::format("{}: {}", text, reasons));
}

Environment PhaseRunner::environment_of(const std::string& math,
                                        const CatalogueEntry& entry) const {
  Environment environment;
  if (!math.empty()) environment.math = math;
  environment.threads = entry.variant->threads == Threads::one ? 1 : settings_.threads;
  environment.isa = settings_.isa;
  environment.library = entry.library;
  environment.pool = pool_;
  return environment;
}

std::vector<PhaseRunner::MovingView> PhaseRunner::views_of(const model::Call& first,
                                                           const model::Call& next) const {
  std::vector<MovingView> views;
  for (std::size_t i = 0; i < first.operands.size(); ++i) {
    views.push_back({first.operands[i].name, memory_.view(phase_, first.operands[i].view),
                     memory_.view(phase_, next.operands[i].view)});
  }
  return views;
}

std::size_t PhaseRunner::add_moving(const model::Call& first, const model::Call& next) {
  const std::string text =
      fmt::format("{} {} {}", first.math, first.problem.text(), next.problem.text());
  const auto known = std::find_if(moving_.begin(), moving_.end(),
                                  [&](const Moving& moving) { return moving.text == text; });
  if (known != moving_.end()) return static_cast<std::size_t>(known - moving_.begin());
  moving_.push_back({text, first.problem, next.problem, first.math, &entry_for(first), nullptr});
  return moving_.size() - 1;
}

void PhaseRunner::add(const model::Call& first, const model::Call& next) {
  Step step;
  step.views = views_of(first, next);
  if (first.problem.text() != next.problem.text()) {
    for (const model::Operand& operand : first.operands) touched_.insert(operand.view.tensor);
    step.moving = add_moving(first, next);
    Moving& moving = moving_[step.moving];
    const auto same = [](const MovingView& x, const MovingView& y) {
      return same_view(x.first, y.first) && same_view(x.next, y.next);
    };
    // `last` is 0 before there is one: no moving call is the first of a model.
    step.binds = moving.last == 0 || !std::equal(step.views.begin(), step.views.end(),
                                                 steps_[moving.last].views.begin(), same);
    moving.last = steps_.size();
    steps_.push_back(std::move(step));
    return;
  }
  Operands operands;
  for (const MovingView& view : step.views) operands.set(view.name, view.first);
  step.plan = &plan_of(first, operands);
  for (const TensorSpec& tensor : first.problem.kernel().tensors(step.plan->problem())) {
    if (tensor.role == Role::constant) continue;
    touched_.insert(model::find_operand(first, tensor.name)->view.tensor);
  }
  step.plan->bind(operands);
  for (const auto& memory : model::packed_constants(*step.plan)) kept_.insert(memory.data());
  if (prefetch_ != nullptr) {
    for (const auto& matrix : matrices_of(*step.plan, operands)) {
      step.reads = prefetch_->add(matrix);
    }
  }
  steps_.push_back(std::move(step));
}

Plan& PhaseRunner::plan_of(const model::Call& call, const Operands& operands) {
  const std::string text = call.math + " " + call.problem.text();
  if (gains_by_packing(call.problem) && !unshared_.contains(text)) {
    plans_.push_back(plan_of_problem(call, operands));
    if (packed_ == nullptr || packed_->shares(*plans_.back())) return *plans_.back();
    plans_.pop_back();
    unshared_.insert(text);
  }
  model::Call unpacked = call;
  if (is_packed(call.problem)) unpacked.problem.set(prepack, 0.0);
  plans_.push_back(plan_of_problem(unpacked, operands));
  return *plans_.back();
}

bool PhaseRunner::shares(const Plan& plan) const {
  const auto kept = model::packed_constants(plan);
  return !kept.empty() && std::all_of(kept.begin(), kept.end(), [&](const auto& memory) {
    return kept_.contains(memory.data());
  });
}

std::unique_ptr<Plan> PhaseRunner::plan_of_problem(const model::Call& call,
                                                   const Operands& operands) const {
  Operands constants;
  for (const TensorSpec& tensor : call.problem.kernel().tensors(call.problem)) {
    if (tensor.role == Role::constant) constants.set(tensor.name, operands.at(tensor.name));
  }
  const CatalogueEntry& entry = entry_for(call);
  return make_plan(*entry.variant, call.problem, {}, environment_of(call.math, entry), constants);
}

void PhaseRunner::bind(Step& step, Plan& plan, std::int64_t more) {
  for (const MovingView& view : step.views) {
    step.operands.set(view.name, view_at(view.first, view.next, more));
  }
  plan.bind(step.operands);
}

void PhaseRunner::plan_moving(Moving& moving, std::int64_t more) const {
  const Variant& variant = *moving.entry->variant;
  const Environment environment = environment_of(moving.math, *moving.entry);
  const Problem of_choice = problem_at(moving.first, moving.next, more, tokens_per_choice);
  if (std::string text = of_choice.text(); moving.tuned != text) {
    moving.tuned = std::move(text);
    moving.tuning = make_plan(variant, of_choice, {}, environment, {})->facts().tuning;
  }
  moving.plan = make_plan(variant, problem_at(moving.first, moving.next, more, 1), moving.tuning,
                          environment, {});
}

void PhaseRunner::plan_for(std::int64_t more) {
  for (Moving& moving : moving_) plan_moving(moving, more);
  for (Step& step : steps_) {
    if (step.plan != nullptr && !step.views.empty()) bind(step, *step.plan, more);
  }
  planned_ = more;
}

std::string PhaseRunner::instruction() const {
  const auto flops = [](const std::unique_ptr<Plan>& plan) {
    return plan->problem().kernel().cost(plan->problem()).flops;
  };
  const auto largest = std::max_element(
      plans_.begin(), plans_.end(),
      [&](const auto& one, const auto& other) { return flops(one) < flops(other); });
  return largest == plans_.end() ? "" : (*largest)->facts().path;
}

void PhaseRunner::run(std::int64_t more) {
  if (planned_ != more) plan_for(more);
  for (Step& step : steps_) {
    if (step.reads) prefetch_->read_until((*step.reads + 1) % prefetch_->size());
    if (step.stores) {
      const MovingView &from = step.views[0], &to = step.views[1];
      store_rows(view_at(from.first, from.next, more), view_at(to.first, to.next, more), pool_,
                 settings_.threads);
      continue;
    }
    Plan* plan = step.plan;
    if (plan == nullptr) {
      plan = moving_[step.moving].plan.get();
      if (step.binds) bind(step, *plan, more);
    }
    plan->run();
  }
}

}  // namespace rooflane::generate
