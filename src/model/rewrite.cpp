// See rewrite.hpp.
#include "model/rewrite.hpp"

#include <algorithm>
#include <map>

namespace rooflane::model {

std::vector<NamedCall> named_calls(const Phase& phase) {
  std::vector<NamedCall> calls;
  for (const Call& call : phase.calls) {
    const Step& step = phase.steps[call.step];
    calls.push_back({call, step.name, step.line});
  }
  return calls;
}

void set_calls(Phase& phase, std::vector<NamedCall> calls) {
  phase.calls.clear();
  phase.steps.clear();
  std::map<std::string, std::size_t> numbers;
  for (NamedCall& named : calls) {
    const auto [step, is_new] = numbers.emplace(named.step, phase.steps.size());
    if (is_new) {
      phase.steps.push_back({named.step, &named.call.problem.kernel(), named.line, {}});
    }
    named.call.step = step->second;
    phase.steps[step->second].calls.push_back(phase.calls.size());
    phase.calls.push_back(std::move(named.call));
  }
}

const Operand* find_operand(const Call& call, std::string_view name) {
  const auto found = std::find_if(call.operands.begin(), call.operands.end(),
                                  [&](const Operand& operand) { return operand.name == name; });
  return found == call.operands.end() ? nullptr : &*found;
}

Views views_of(const Call& call) {
  Views views;
  for (const Operand& operand : call.operands) views.emplace_back(operand.name, operand.view);
  return views;
}

void set_view(Views& views, std::string_view name, const Strided& view) {
  std::erase_if(views, [&](const auto& known) { return known.first == name; });
  views.emplace_back(name, view);
}

namespace {

// Lengths and strides of the axes that are longer than 1; neighbours that follow one another in
// memory as one.
std::vector<std::pair<std::int64_t, std::int64_t>> long_axes(const Strided& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    if (!axes.empty() && axes.back().second == view.shape[i] * view.strides[i]) {
      axes.back() = {axes.back().first * view.shape[i], view.strides[i]};
    } else {
      axes.emplace_back(view.shape[i], view.strides[i]);
    }
  }
  return axes;
}

}  // namespace

bool same_elements(const Strided& x, const Strided& y) {
  return x.tensor == y.tensor && x.offset == y.offset && long_axes(x) == long_axes(y);
}

bool may_overlap(const Strided& x, const Strided& y) {
  if (x.tensor != y.tensor || x.elements() == 0 || y.elements() == 0) return false;
  const auto last = [](const Strided& view) {
    std::int64_t at = view.offset;
    for (std::size_t i = 0; i < view.shape.size(); ++i) {
      at += (view.shape[i] - 1) * view.strides[i];
    }
    return at;
  };
  return x.offset <= last(y) && y.offset <= last(x);
}

bool is_read_behind(const Phase& phase, std::size_t index, std::size_t tensor) {
  for (std::size_t c = index + 1; c < phase.calls.size(); ++c) {
    bool anew = false;
    for (const Operand& operand : phase.calls[c].operands) {
      if (operand.view.tensor != tensor) continue;
      if (is_read(operand.role)) return true;
      anew = anew || operand.all;
    }
    if (anew) return false;
  }
  return false;
}

Problem without(const Problem& problem, std::string_view param) {
  Problem result(problem.kernel());
  for (const ParamSpec& spec : problem.kernel().params) {
    if (spec.name == param || !problem.has(spec.name)) continue;
    if (spec.kind == ParamKind::choice || spec.kind == ParamKind::chain) {
      result.set(spec.name, print_value(spec, problem.value(spec.name)));
    } else {
      result.set(spec.name, problem.value(spec.name));
    }
  }
  return result;
}

}  // namespace rooflane::model
