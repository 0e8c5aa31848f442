// Steps and whole models against references. See check.hpp.
#include "model/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/seeds.hpp"

namespace rooflane::model {

double flops_of(const Phase& phase) {
  double flops = 0;
  for (const Call& call : phase.calls) flops += call.problem.kernel().cost(call.problem).flops;
  return flops;
}

bool is_small(const Instance& instance) {
  double flops = 0;
  for (const Phase& phase : instance.phases) flops += flops_of(phase);
  return flops <= full_comparison_flops;
}

namespace {

const Math& math_of(const Kernel& kernel, const std::string& name) {
  const Math* math = find_math(kernel, name);
  return math != nullptr ? *math : *kernel.maths.front();
}

// Whether the last two axes are one: the same elements in the same order.
bool joins(const View& view) {
  return view.rank > 1 && view.strides[view.rank - 2] == view.shape[view.rank - 1];
}

void join(View& view) {
  view.shape[view.rank - 2] *= view.shape[view.rank - 1];
  view.strides[view.rank - 2] = 1;
  --view.rank;
}

// In rows as long as strides allow: finding a row takes a division for each axis, and a graph may
// have millions of rows of one element.
View in_long_rows(View view) {
  while (joins(view)) join(view);
  return view;
}

std::uint64_t hash_of(const View& whole, std::uint64_t hash) {
  if (whole.empty()) return hash;
  const View view = in_long_rows(whole);
  const std::size_t bytes = view.dtype->bytes(view.cols());
  for (std::int64_t row = 0; row < view.rows(); ++row) {
    const std::byte* const data = view.row(row);
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, data + at, std::min(sizeof bits, bytes - at));
      hash = (hash ^ bits) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 32;  // or the upper bits would never reach the lower ones
    }
  }
  return hash;
}

void fill_with_ones(const View& whole) {
  if (whole.empty()) return;
  const View view = in_long_rows(whole);
  for (std::int64_t row = 0; row < view.rows(); ++row) {
    std::memset(view.row(row), 0xFF, view.dtype->bytes(view.cols()));
  }
}

// Between views of one shape.
void copy_rows(View from, View to) {
  if (from.empty()) return;
  while (joins(from) && joins(to)) {
    join(from);
    join(to);
  }
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    std::memcpy(to.row(row), from.row(row), from.dtype->bytes(from.cols()));
  }
}

// What one call reads and writes, with copies of inputs that share memory with an output.
class CallOperands {
 public:
  CallOperands(const Call& call, const Operands& bound) : call_(call), bound_(bound) {
    for (const Operand& operand : call.operands) {
      if (!is_read(operand.role)) continue;
      const View& view = bound.at(operand.name);
      const bool shared =
          std::any_of(call.operands.begin(), call.operands.end(), [&](const Operand& other) {
            return is_written(other.role) && overlap(bound.at(other.name), view);
          });
      if (!shared) {
        inputs_.set(operand.name, view);
        continue;
      }
      View copy = contiguous_view(nullptr, {view.shape.data(), static_cast<std::size_t>(view.rank)},
                                  view.dtype);
      copy.data = copies_.emplace_back(view.dtype->bytes(view.elements())).data();
      copy_rows(view, copy);
      inputs_.set(operand.name, copy);
    }
  }

  const Operands& inputs() const { return inputs_; }
  // Inputs as they were, outputs as they are.
  Operands compared() const {
    Operands all = inputs_;
    for (const Operand& operand : call_.operands) {
      if (operand.role == Role::output) all.set(operand.name, bound_.at(operand.name));
    }
    for (const Operand& operand : call_.operands) {
      if (operand.role == Role::updated) all.set(operand.name, bound_.at(operand.name));
    }
    return all;
  }
  // Outputs as NaN, and what a run before has overwritten as it was.
  void prepare() const {
    for (const Operand& operand : call_.operands) {
      if (is_written(operand.role)) fill_with_ones(bound_.at(operand.name));
    }
    for (const Operand& operand : call_.operands) {
      if (!is_read(operand.role)) continue;
      const View& view = bound_.at(operand.name);
      if (inputs_.at(operand.name).data != view.data) copy_rows(inputs_.at(operand.name), view);
    }
  }
  std::uint64_t input_hash() const {
    std::uint64_t hash = 0;
    for (const auto& [name, view] : inputs_.all()) hash = hash_of(view, hash);
    return hash;
  }

 private:
  const Call& call_;
  const Operands bound_;
  std::vector<Buffer> copies_;
  Operands inputs_;
};

Verification check_call(const CallOperands& operands, const Reference& reference,
                        const Runner& runner, std::uint64_t seed, const Math& math) {
  const std::uint64_t before = operands.input_hash();
  operands.prepare();
  Chain::run_one(runner);
  Verification result = verify_output(runner.problem, operands.compared(), reference, seed, math);
  if (operands.input_hash() != before) {
    result.status = Status::failed;
    result.reason = "the run changed its inputs";
  }
  return result;
}

void note(StepCheck& check, const Verification& verification) {
  const bool first = check.calls++ == 0;
  const auto rank = [](const Verification& v) { return v.passed() ? 0 : v.usable() ? 1 : 2; };
  const bool worse = rank(verification) > rank(check.verification) ||
                     (rank(verification) == rank(check.verification) &&
                      verification.value > check.verification.value);
  if (first || worse) check.verification = verification;
}

// A phase, step by step.
class PhaseChecker {
 public:
  PhaseChecker(Chain& chain, std::size_t phase, std::vector<StepCheck>& checks)
      : chain_(chain),
        phase_(phase),
        complete_(flops_of(chain.phase(phase)) <= full_comparison_flops),
        checks_(checks) {}

  void run() {
    const Phase& phase = chain_.phase(phase_);
    for (std::size_t c = 0; c < phase.calls.size(); ++c) {
      const Call& call = phase.calls[c];
      const bool is_new = seen_.insert({call.step, call.problem.text()}).second;
      if (complete_ || is_new) {
        check(c);
      } else {
        Chain::run_one(chain_.runners(phase_, c).front());
      }
    }
  }

 private:
  void check(std::size_t c) {
    const Call& call = chain_.phase(phase_).calls[c];
    const std::vector<Runner>& runners = chain_.runners(phase_, c);
    const Math& math = math_of(call.problem.kernel(), chain_.math_of(call));
    const CallOperands operands(call, chain_.operands(phase_, c));
    const std::uint64_t seed = chain_.settings().seed;
    const Reference reference = compute_reference(call.problem, operands.inputs(), seed, math);
    // The first runner last: the chain goes on with what it computed.
    for (std::size_t r = runners.size(); r-- > 0;) {
      note(check_of(call.step, runners[r].entry),
           check_call(operands, reference, runners[r], seed, math));
    }
  }

  StepCheck& check_of(std::size_t step, const CatalogueEntry* entry) {
    for (StepCheck& check : checks_) {
      if (check.phase == phase_ && check.step == step && check.entry == entry) return check;
    }
    return checks_.emplace_back(StepCheck{phase_, step, entry, {}, 0});
  }

  Chain& chain_;
  std::size_t phase_;
  bool complete_;
  std::vector<StepCheck>& checks_;
  std::set<std::pair<std::size_t, std::string>> seen_;
};

}  // namespace

std::vector<StepCheck> check_steps(Chain& chain) {
  std::vector<StepCheck> checks;
  chain.reset_states();
  for (std::size_t phase = 0; phase < chain.instance().phases.size(); ++phase) {
    PhaseChecker(chain, phase, checks).run();
  }
  return checks;
}

std::uint64_t output_hash(const Chain& chain, std::size_t phase) {
  std::uint64_t hash = 0;
  const Phase& of = chain.phase(phase);
  for (std::size_t t = 0; t < of.tensors.size(); ++t) {
    if (of.tensors[t].kind != Tensor::Kind::output) continue;
    hash = hash_of(chain.memory().all_of(phase, t), hash);
  }
  return splitmix64(hash);
}

std::string not_finite(const Chain& chain, std::size_t phase) {
  const Phase& of = chain.phase(phase);
  for (std::size_t t = 0; t < of.tensors.size(); ++t) {
    if (of.tensors[t].kind != Tensor::Kind::output || of.tensors[t].dtype->is_integer()) continue;
    const View view = chain.memory().all_of(phase, t);
    std::vector<double> values(static_cast<std::size_t>(view.cols()));
    for (std::int64_t row = 0; row < view.rows(); ++row) {
      view.dtype->decode(view.row(row), values.data(), view.cols());
      const auto found = std::find_if_not(values.begin(), values.end(),
                                          [](double value) { return std::isfinite(value); });
      if (found == values.end()) continue;
      return fmt::format("{} element {} is {}", of.tensors[t].name,
                         row * view.cols() + (found - values.begin()), *found);
    }
  }
  return {};
}

}  // namespace rooflane::model
