// A whole model by its kernels' references, and how far errors within the steps' bounds move it.
// See check.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/seeds.hpp"
#include "model/check.hpp"

namespace rooflane::model {
namespace {

using Outputs = OutputValues;

// Runs references on memory of its own, and each result is rounded to its format, as between steps.
class References {
 public:
  References(const Instance& instance, const WeightSource& weights, const ChainSettings& settings)
      : instance_(instance),
        settings_(settings),
        memory_(instance, weights, settings.seed, settings.threads) {}

  // `perturbation` not 0: every element is moved by its bound up or down, as its bits say.
  Outputs run(std::uint64_t perturbation) {
    memory_.reset_states();
    Outputs outputs;
    for (std::size_t phase = 0; phase < instance_.phases.size(); ++phase) {
      const Phase& of = instance_.phases[phase];
      for (std::size_t c = 0; c < of.calls.size(); ++c) run_call(phase, c, perturbation);
      outputs.emplace_back();
      for (std::size_t t = 0; t < of.tensors.size(); ++t) {
        outputs.back().push_back(values_of(memory_.all_of(phase, t), of.tensors[t]));
      }
    }
    return outputs;
  }

  static std::vector<double> values_of(const View& view, const Tensor& tensor) {
    if (tensor.kind != Tensor::Kind::output) return {};
    std::vector<double> values(static_cast<std::size_t>(view.elements()));
    view.dtype->decode(view.data, values.data(), view.elements());
    return values;
  }

 private:
  void run_call(std::size_t phase, std::size_t c, std::uint64_t perturbation) {
    const Call& call = instance_.phases[phase].calls[c];
    const Kernel& kernel = call.problem.kernel();
    const Math* const math = find_math(kernel, call.math.empty() ? settings_.math : call.math);
    Operands inputs;
    for (const Operand& operand : call.operands) {
      if (is_read(operand.role)) inputs.set(operand.name, memory_.view(phase, operand.view));
    }
    const Float32Copies wide(inputs);
    // All outputs are computed before one is written: it may be an input too.
    std::vector<std::pair<View, std::vector<double>>> results;
    for (const Operand& operand : call.operands) {
      if (!is_written(operand.role)) continue;
      const View view = memory_.view(phase, operand.view);
      if (view.empty()) continue;
      Region region;
      region.rows.resize(static_cast<std::size_t>(view.rows()));
      region.cols.resize(static_cast<std::size_t>(view.cols()));
      std::iota(region.rows.begin(), region.rows.end(), 0);
      std::iota(region.cols.begin(), region.cols.end(), 0);
      const auto count = static_cast<std::size_t>(view.elements());
      std::vector<double> value(count), bound(count), plain(count);
      kernel.reference(call.problem, math != nullptr ? *math : *kernel.maths.front(),
                       wide.operands(), operand.name, region,
                       {value.data(), bound.data(), plain.data()});
      if (perturbation != 0 && !view.dtype->is_integer()) {
        std::uint64_t state = splitmix64(perturbation + (phase << 32) + c);
        for (std::size_t i = 0; i < count; ++i) {
          state += 0x9e3779b97f4a7c15;
          value[i] += (splitmix64(state) & 1) != 0 ? bound[i] : -bound[i];
        }
      }
      results.emplace_back(view, std::move(value));
    }
    for (const auto& [view, value] : results) {
      for (std::int64_t row = 0; row < view.rows(); ++row) {
        view.dtype->encode(value.data() + row * view.cols(), view.row(row), view.cols());
      }
    }
  }

  const Instance& instance_;
  const ChainSettings& settings_;
  Memory memory_;
};

double largest_difference(const std::vector<double>& x, const std::vector<double>& y) {
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(x[i] - y[i]);
    if (!(difference <= largest)) largest = difference;  // NaN too
    if (std::isnan(largest)) return std::numeric_limits<double>::infinity();
  }
  return largest;
}

bool is_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

}  // namespace

OutputValues output_values(Chain& chain, const std::vector<Choice>& choices) {
  OutputValues values;
  chain.reset_states();
  for (std::size_t phase = 0; phase < choices.size(); ++phase) {
    const Phase& of = chain.phase(phase);
    std::vector<double> unused(of.calls.size());
    chain.run(phase, choices[phase], unused);
    values.emplace_back();
    for (std::size_t t = 0; t < of.tensors.size(); ++t) {
      if (of.tensors[t].kind != Tensor::Kind::output) {
        values.back().emplace_back();
        continue;
      }
      values.back().push_back(
          References::values_of(chain.memory().all_of(phase, t), of.tensors[t]));
    }
  }
  return values;
}

std::vector<WholeCheck> check_whole(Chain& chain, const WeightSource& weights,
                                    const std::vector<Choice>& choices) {
  return check_whole(chain, choices, chain.instance(), weights);
}

std::vector<WholeCheck> check_whole(Chain& chain, const std::vector<Choice>& choices,
                                    const Instance& judge, const WeightSource& weights) {
  const Instance& instance = judge;
  const Outputs got = output_values(chain, choices);
  References references(instance, weights, chain.settings());
  const Outputs expected = references.run(0);
  // Each trial draws its signs again: the largest element's change is then within a few tenths of
  // its standard deviation times a constant. Errors of random sign within the bounds stay below
  // three times the largest of these changes.
  constexpr std::uint64_t trials = 4;
  constexpr double factor = 3;
  std::vector<Outputs> moved;
  for (std::uint64_t trial = 1; trial <= trials; ++trial) moved.push_back(references.run(trial));
  std::vector<WholeCheck> checks;
  for (std::size_t phase = 0; phase < instance.phases.size(); ++phase) {
    const Phase& of = instance.phases[phase];
    for (std::size_t t = 0; t < of.tensors.size(); ++t) {
      if (of.tensors[t].kind != Tensor::Kind::output) continue;
      WholeCheck check{phase, of.tensors[t].name};
      check.reference_is_finite = is_finite(expected[phase][t]);
      check.error = largest_difference(got[phase][t], expected[phase][t]);
      for (const Outputs& outputs : moved) {
        check.reference_is_finite = check.reference_is_finite && is_finite(outputs[phase][t]);
        check.bound = std::max(check.bound,
                               factor * largest_difference(outputs[phase][t], expected[phase][t]));
      }
      checks.push_back(std::move(check));
    }
  }
  return checks;
}

}  // namespace rooflane::model
