// Which calls join, and where sums in place go. See fuse.hpp.
#include "model/fuse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/rewrite.hpp"

namespace rooflane::model {
namespace {

std::string_view kernel_of(const Call& call) { return call.problem.kernel().name; }

const Strided& view_of(const Call& call, std::string_view name) {
  return find_operand(call, name)->view;
}

// The chain with one function more at its end.
Problem with_function(const Problem& problem, const std::string& function) {
  const ParamSpec& spec = *find_param(problem.kernel(), "epilogue");
  const std::string before = print_value(spec, problem.value("epilogue"));
  Problem result = problem;
  const bool first = problem.value("epilogue") == 0;
  result.set("epilogue", first ? function : before + "+" + function);
  return result;
}

// The rows of a matrix without the batch in front.
Strided as_matrix(Strided view) {
  view.shape.erase(view.shape.begin());
  view.strides.erase(view.strides.begin());
  return view;
}

// What a product is joined with: the call to be, before its operands are held against one another.
struct Joined {
  Problem problem;
  Views views;
};

// c = epilogue(…), where the second call is an activation of all of c.
std::optional<Joined> with_activation(const Call& product, const Call& next) {
  static const std::set<std::string> known = {"relu", "gelu", "gelu_tanh", "silu"};
  const std::string kind = next.problem.choice("kind");
  if (!known.contains(kind)) return std::nullopt;
  Views views = views_of(product);
  const Strided& c = view_of(product, "c");
  if (!next.problem.flag("gate")) {
    if (!same_elements(c, view_of(next, "x"))) return std::nullopt;
    set_view(views, "c", view_of(next, "y"));
    return Joined{with_function(product.problem, kind), views};
  }
  // A gate is two products, and each starts its threads and packs a: for one row that costs as much
  // as a pass over it. Packed weights are fused for any number of rows, so that phases share them.
  if (product.problem.size("m") == 1 && !product.problem.flag("prepack")) return std::nullopt;
  // Gate and up are the halves of c, side by side.
  const std::int64_t n = product.problem.size("n");
  if (kind != "silu" || n % 2 != 0) return std::nullopt;
  Strided gate = as_matrix(c);
  gate.shape.back() = n / 2;
  Strided up = gate;
  up.offset += n / 2;
  if (!same_elements(gate, view_of(next, "x")) || !same_elements(up, view_of(next, "g"))) {
    return std::nullopt;
  }
  Problem problem = without(product.problem, "n");
  problem.set("gate", 1.0);
  set_view(views, "c", view_of(next, "y"));
  return Joined{problem, views};
}

// The operand of a sum that is not `view`; nothing where neither is.
std::optional<std::string> other_summand(const Call& add, const Strided& view) {
  if (same_elements(view, view_of(add, "x"))) return "r";
  const bool matrix = !add.problem.flag("broadcast");
  if (matrix && same_elements(view, view_of(add, "r"))) return "x";
  return std::nullopt;
}

std::optional<Joined> with_sum(const Call& product, const Call& add) {
  const auto other = other_summand(add, view_of(product, "c"));
  if (!other) return std::nullopt;
  const bool bias = add.problem.flag("broadcast");
  Views views = views_of(product);
  views.emplace_back(bias ? "bias" : "residual", view_of(add, *other));
  set_view(views, "c", view_of(add, "y"));
  return Joined{with_function(product.problem, bias ? "bias" : "add"), views};
}

std::optional<Joined> norm_of_sum(const Call& add, const Call& norm) {
  if (add.problem.flag("broadcast") || norm.problem.flag("residual")) return std::nullopt;
  if (!same_elements(view_of(add, "y"), view_of(norm, "x"))) return std::nullopt;
  Views views = views_of(norm);
  set_view(views, "x", view_of(add, "x"));
  views.emplace_back("residual", view_of(add, "r"));
  Problem problem = norm.problem;
  problem.set("residual", 1.0);
  return Joined{problem, views};
}

std::optional<Joined> joined(const Call& first, const Call& next) {
  const bool product = kernel_of(first) == "gemm" && first.problem.size("batch") == 1;
  if (product && kernel_of(next) == "activation") return with_activation(first, next);
  if (product && kernel_of(next) == "add") return with_sum(first, next);
  const bool norm = kernel_of(next) == "layernorm" || kernel_of(next) == "rmsnorm";
  if (kernel_of(first) == "add" && norm) return norm_of_sum(first, next);
  return std::nullopt;
}

// c0 that repeats one row is what `bias` adds.
std::optional<Joined> with_bias(const Call& call) {
  if (kernel_of(call) != "gemm" || call.problem.value("beta") != 1) return std::nullopt;
  const Strided& c0 = view_of(call, "c0");
  const bool one_row = c0.shape[0] == 1 && (c0.shape[1] == 1 || c0.strides[1] == 0);
  if (!one_row || call.problem.value("epilogue") != 0) return std::nullopt;
  Views views = views_of(call);
  std::erase_if(views, [](const auto& known) { return known.first == "c0"; });
  views.emplace_back("bias", Strided{c0.tensor, c0.offset, {c0.shape[2]}, {1}});
  return Joined{with_function(without(call.problem, "beta"), "bias"), views};
}

// Fuses one phase.
class Fuser {
 public:
  Fuser(Phase& phase, const Accepts& accepts) : phase_(phase), accepts_(accepts) {}

  void run() {
    for (Call& call : phase_.calls) {
      const auto joined = with_bias(call);
      if (!joined) continue;
      auto made = made_of(*joined, call);
      if (!made) continue;
      made->step = call.step;
      call = std::move(*made);
    }
    std::size_t step = 0;
    while (step + 1 < phase_.steps.size()) {
      if (!fuse_steps(step)) ++step;
    }
  }

 private:
  // The call, where kernel and formats allow it and it is wanted.
  std::optional<Call> made_of(const Joined& joined, const Call& first) const {
    try {
      Call call = call_of(joined.problem, joined.views, phase_.tensors);
      call.math = first.math;
      if (accepts_ && !accepts_(call, first)) return std::nullopt;
      return call;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Only these two use the tensor between them: the second overwrites it, or it is never read.
  bool vanishes(std::size_t first, const Strided& between) const {
    if (phase_.tensors[between.tensor].kind != Tensor::Kind::buffer) return false;
    for (const Operand& operand : phase_.calls[first + 1].operands) {
      if (is_written(operand.role) && same_elements(operand.view, between)) return true;
    }
    return !is_read_behind(phase_, first + 1, between.tensor);
  }

  // Calls `first` and the one behind it as one.
  std::optional<Call> fused_call(std::size_t first) const {
    const Call& one = phase_.calls[first];
    const auto joined = model::joined(one, phase_.calls[first + 1]);
    if (!joined) return std::nullopt;
    const Strided& between = view_of(one, kernel_of(one) == "gemm" ? "c" : "y");
    if (!vanishes(first, between)) return std::nullopt;
    auto call = made_of(*joined, one);
    if (!call) return std::nullopt;
    const bool still_read =
        std::any_of(call->operands.begin(), call->operands.end(), [&](const Operand& operand) {
          return is_read(operand.role) && may_overlap(operand.view, between);
        });
    return !still_read && output_is_free(first, *call) ? call : std::nullopt;
  }

  // Whether the output lies where something is read that it must not overlap.
  static bool is_in_place(const Call& call) {
    const Operand& output = call.operands.back();
    return std::any_of(call.operands.begin(), call.operands.end(), [&](const Operand& operand) {
      if (!is_read(operand.role) || !may_overlap(operand.view, output.view)) return false;
      const bool allowed = operand.name == call.problem.kernel().in_place_input;
      return !allowed || !same_elements(operand.view, output.view);
    });
  }

  // Whether the output overlaps nothing that is read, or can be given a second buffer.
  bool output_is_free(std::size_t first, const Call& call) const {
    if (!is_in_place(call)) return true;
    const Operand& output = call.operands.back();
    if (phase_.tensors[output.view.tensor].kind != Tensor::Kind::buffer) return false;
    const auto twin = twins_.find(output.view.tensor);
    const bool is_free = twin == twins_.end() || !is_read_behind(phase_, first, twin->second);
    return output.all && is_free;
  }

  bool fuse_steps(std::size_t step) {
    const std::vector<std::size_t>& ones = phase_.steps[step].calls;
    const std::size_t next =
        phase_.calls.size() > ones.front() + 1 ? phase_.calls[ones.front() + 1].step : step;
    if (next == step || phase_.steps[next].calls.size() != ones.size()) return false;
    std::map<std::size_t, Call> made;
    for (std::size_t i = 0; i < ones.size(); ++i) {
      if (phase_.steps[next].calls[i] != ones[i] + 1) return false;
      auto call = fused_call(ones[i]);
      if (!call) return false;
      made.emplace(ones[i], std::move(*call));
    }
    replace(made, phase_.steps[step].name + "+" + phase_.steps[next].name);
    return true;
  }

  // Puts the calls in place of two each. Behind a sum in place everything goes on with the second
  // buffer, until the next one goes back to the first.
  void replace(std::map<std::size_t, Call>& made, const std::string& name) {
    const std::vector<NamedCall> before = named_calls(phase_);
    std::vector<NamedCall> after;
    std::map<std::size_t, std::size_t> now;  // where a tensor is
    const auto moved = [&](std::size_t tensor) {
      const auto found = now.find(tensor);
      return found == now.end() ? tensor : found->second;
    };
    for (std::size_t c = 0; c < before.size(); ++c) {
      const auto found = made.find(c);
      NamedCall named = before[c];
      if (found != made.end()) {
        named = {std::move(found->second), name, before[c].line};
        ++c;
      }
      std::size_t& output = named.call.operands.back().view.tensor;
      const bool in_place = found != made.end() && is_in_place(named.call);
      const std::size_t old = output;
      for (Operand& operand : named.call.operands) {
        operand.view.tensor = moved(operand.view.tensor);
      }
      if (in_place) {
        const std::size_t here = moved(old), other = twin_of(here);
        output = other;
        // The two change places for all that follows.
        const bool swapped = moved(here) != here;
        now[here] = swapped ? here : other;
        now[other] = swapped ? other : here;
      }
      after.push_back(std::move(named));
    }
    set_calls(phase_, std::move(after));
  }

  // A buffer like this one, made when it is first asked for.
  std::size_t twin_of(std::size_t tensor) {
    const auto known = twins_.find(tensor);
    if (known != twins_.end()) return known->second;
    const std::size_t twin = phase_.tensors.size();
    Tensor copy = phase_.tensors[tensor];
    copy.name += ".second";
    phase_.tensors.push_back(std::move(copy));
    twins_[tensor] = twin;
    twins_[twin] = tensor;
    return twin;
  }

  Phase& phase_;
  const Accepts& accepts_;
  std::map<std::size_t, std::size_t> twins_;
};

}  // namespace

Instance fused(const Instance& instance, const Accepts& accepts) {
  Instance result = instance;
  for (Phase& phase : result.phases) Fuser(phase, accepts).run();
  return result;
}

}  // namespace rooflane::model
