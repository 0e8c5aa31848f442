// Walks the statements of a model, once for each phase. See instance.hpp; how a step becomes a
// call: call.cpp.
#include "model/instance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/call.hpp"

namespace rooflane::model {

std::int64_t Tensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

double Tensor::bytes() const { return static_cast<double>(dtype->bytes(elements())); }

namespace {

// `below` of integers without a known bound.
constexpr std::int64_t anything = std::numeric_limits<std::int64_t>::max();

// For all phases together, loops unrolled: a model of a hundred layers has a few thousand calls.
// More than this is a slip.
constexpr std::size_t most_calls = 50'000;
constexpr std::size_t most_tensors = 20'000;
void require_symbol_name(std::string_view name) {
  if (is_symbol_name(name)) return;
  throw argument_error(
      fmt::format("'{}' is no name of a symbol: letters, digits and '_', at most 64", name));
}

// The right side of `NAME = EXPRESSION`: the reader took its blanks for ends of words.
std::string right_side(const std::vector<std::string>& words) {
  const std::string text = join({words.begin() + 1, words.end()}, "");
  if (words.size() < 2 || text.size() < 2 || text[0] != '=') {
    throw argument_error("write NAME = EXPRESSION");
  }
  return text.substr(1);
}

// The values of `size NAME key=value...` or `phase NAME ...`.
std::vector<std::pair<std::string, std::string>> named_values(const Statement& statement) {
  if (statement.words.empty()) {
    throw argument_error(fmt::format("write `{} NAME key=value...`", statement.keyword));
  }
  std::vector<std::pair<std::string, std::string>> values;
  for (auto word = statement.words.begin() + 1; word != statement.words.end(); ++word) {
    values.push_back(key_and_value(*word));
    require_symbol_name(values.back().first);
  }
  return values;
}

class Builder {
 public:
  // `plain`: weights that stay in float32 whatever `format` says.
  Builder(const ModelText& text, const std::string& size, const Settings& settings,
          std::span<const Kernel* const> kernels, const WeightFormat& format,
          const std::set<std::string>& plain)
      : text_(text), settings_(settings), kernels_(kernels), format_(format), plain_(plain) {
    for (const Statement& statement : text.statements) {
      at(statement, [&] {
        if (statement.keyword == "size") read_size(statement, size);
        if (statement.keyword == "phase") read_phase(statement);
        if (statement.keyword == "symbol" && !statement.words.empty()) {
          symbol_names_.push_back(statement.words.front());
        }
      });
    }
    check_names(size);
    result_.model = text.name;
    result_.size = size;
  }

  Instance build() {
    if (phases_.empty()) phases_.emplace_back("run", Values());
    for (const auto& [name, values] : phases_) build_phase(name, values);
    check_shared();
    return std::move(result_);
  }

 private:
  using Values = std::vector<std::pair<std::string, std::string>>;

  template <class Body>
  void at(const Statement& statement, Body&& body) const {
    try {
      body();
    } catch (const UnfitFormat& unfit) {
      if (formatted_.contains(unfit.tensor)) throw;
      fail_at(text_.file, statement.line, unfit.what());
    } catch (const Error& error) {
      fail_at(text_.file, statement.line, error.what());
    }
  }

  void read_size(const Statement& statement, const std::string& wanted) {
    const Values values = named_values(statement);
    const std::string& name = statement.words.front();
    if (!size_names_.insert(name).second) throw argument_error("a second size " + name);
    if (name == wanted) size_values_ = values;
    for (const auto& [symbol, value] : values) size_symbols_.emplace(symbol, statement.line);
  }

  void read_phase(const Statement& statement) {
    const Values values = named_values(statement);
    const std::string& name = statement.words.front();
    require_symbol_name(name);
    for (const auto& [known, others] : phases_) {
      if (known == name) throw argument_error("a second phase " + name);
      const bool same = std::equal(values.begin(), values.end(), others.begin(), others.end(),
                                   [](const auto& x, const auto& y) { return x.first == y.first; });
      if (!same) throw argument_error("every phase must set the same symbols in the same order");
    }
    phases_.emplace_back(name, values);
  }

  // What --size and --set name must exist.
  void check_names(const std::string& size) const {
    if (!size.empty() && size_names_.count(size) == 0) {
      const std::vector<std::string> names(size_names_.begin(), size_names_.end());
      throw argument_error(names.empty()
                               ? fmt::format("--size '{}': {} has no sizes", size, text_.name)
                               : "--size: " + unknown_name("size", size, names));
    }
    for (const auto& [symbol, line] : size_symbols_) {
      if (std::find(symbol_names_.begin(), symbol_names_.end(), symbol) != symbol_names_.end()) {
        continue;
      }
      fail_at(text_.file, line, unknown_name("symbol", symbol, symbol_names_));
    }
    for (const auto& [name, value] : settings_) {
      if (std::find(symbol_names_.begin(), symbol_names_.end(), name) != symbol_names_.end()) {
        continue;
      }
      throw argument_error("--set: " + unknown_name("symbol", name, symbol_names_));
    }
  }

  void build_phase(const std::string& name, const Values& values) {
    phase_ = &result_.phases.emplace_back();
    phase_->name = name;
    symbols_ = Symbols();
    tensors_.clear();
    steps_.clear();
    walk(text_.statements, name, values);
    phase_->symbols = symbols_.all();
    if (phase_->calls.empty()) {
      throw argument_error(fmt::format("{}: phase {} has no step", text_.file, name));
    }
  }

  void walk(const std::vector<Statement>& statements, const std::string& name,
            const Values& values) {
    for (const Statement& statement : statements) {
      if (statement.keyword == "repeat") {
        walk_loop(statement, name, values);
      } else {
        at(statement, [&] { take(statement, name, values); });
      }
    }
  }

  void walk_loop(const Statement& statement, const std::string& name, const Values& values) {
    std::int64_t count = 0;
    std::string symbol;
    at(statement, [&] {
      if (statement.words.empty()) throw argument_error("write `repeat NAME = COUNT`");
      symbol = statement.words.front();
      require_new_symbol(symbol);
      count = integer_of(right_side(statement.words), symbols_);
      if (count < 0 || count > static_cast<std::int64_t>(most_calls)) {
        throw argument_error(
            fmt::format("repeated {} times, allowed are 0 to {}", count, most_calls));
      }
    });
    for (std::int64_t i = 0; i < count; ++i) {
      symbols_.set(symbol, i);
      ++loops_;
      walk(statement.body, name, values);
      --loops_;
      if (++rounds_ > most_calls) fail_at(text_.file, statement.line, too_many());
    }
    symbols_.erase(symbol);
  }

  static std::string too_many() {
    return fmt::format("more than {} rounds of loops or calls, or {} tensors, in all phases",
                       most_calls, most_tensors);
  }

  void require_new_symbol(const std::string& name) const {
    require_symbol_name(name);
    if (symbols_.find(name)) throw argument_error(fmt::format("a second symbol {}", name));
  }

  void take(const Statement& statement, const std::string& name, const Values& values) {
    const bool header = statement.keyword == "symbol" || statement.keyword == "size" ||
                        statement.keyword == "phase";
    if (header && loops_ > 0) throw argument_error(statement.keyword + " stands in no loop");
    if (statement.keyword == "symbol") {
      set_symbol(statement);
    } else if (statement.keyword == "phase") {
      if (statement.words.front() != name) return;
      for (const auto& [symbol, value] : values) {
        require_new_symbol(symbol);
        symbols_.set(symbol, integer_of(value, symbols_));
      }
    } else if (statement.keyword == "step") {
      add_call(statement);
    } else if (statement.keyword != "size") {
      add_tensor(statement);
    }
  }

  void set_symbol(const Statement& statement) {
    if (statement.words.empty()) throw argument_error("write `symbol NAME = EXPRESSION`");
    const std::string& name = statement.words.front();
    require_new_symbol(name);
    std::string value = right_side(statement.words);
    for (const auto& [symbol, of_size] : size_values_) {
      if (symbol == name) value = of_size;
    }
    std::int64_t number = integer_of(value, symbols_);
    for (const auto& [symbol, set] : settings_) {
      if (symbol == name) number = set;
    }
    symbols_.set(name, number);
  }

  void add_tensor(const Statement& statement) {
    if (++tensor_count_ > most_tensors) throw argument_error(too_many());
    Tensor tensor = parse_tensor(statement, symbols_);
    const bool chosen = tensor.kind == Tensor::Kind::weight && tensor.dtype == &float32;
    if (chosen && format_ && !plain_.contains(tensor.name)) {
      tensor.dtype = format_(tensor);
      if (tensor.dtype != &float32) formatted_.insert(tensor.name);
    }
    if (!tensors_.emplace(tensor.name, phase_->tensors.size()).second) {
      throw argument_error("a second tensor " + tensor.name);
    }
    phase_->tensors.push_back(std::move(tensor));
  }

  void add_call(const Statement& statement) {
    if (++call_count_ > most_calls) throw argument_error(too_many());
    if (statement.words.size() < 2) throw argument_error("write `step NAME KERNEL key=value...`");
    const std::string& name = statement.words[0];
    require_symbol_name(name);
    const auto [step, is_new] = steps_.emplace(name, phase_->steps.size());
    if (is_new) {
      phase_->steps.push_back({name, nullptr, statement.line, {}});
    } else if (phase_->steps[step->second].line != statement.line) {
      throw argument_error("a second step " + name);
    }
    const auto find = [&](const std::string& tensor) {
      const auto found = tensors_.find(tensor);
      if (found != tensors_.end()) {
        return whole(found->second, phase_->tensors[found->second].shape);
      }
      std::vector<std::string> names;
      for (const auto& [known, index] : tensors_) names.push_back(known);
      throw argument_error(names.empty() ? fmt::format("unknown tensor '{}'", tensor)
                                         : unknown_name("tensor", tensor, names));
    };
    Call call = parse_call(statement, symbols_, kernels_, phase_->tensors, find);
    call.step = step->second;
    phase_->steps[call.step].kernel = &call.problem.kernel();
    phase_->steps[call.step].calls.push_back(phase_->calls.size());
    note_accesses(call);
    phase_->calls.push_back(std::move(call));
  }

  // What is read must have been written, and weights and inputs stay as they are.
  void note_accesses(const Call& call) {
    written_.resize(phase_->calls.empty() ? 0 : written_.size());
    written_.resize(phase_->tensors.size());
    for (const Operand& operand : call.operands) {
      const Tensor& tensor = phase_->tensors[operand.view.tensor];
      const bool given = tensor.kind == Tensor::Kind::input || tensor.kind == Tensor::Kind::weight;
      if (is_written(operand.role) && given) {
        throw argument_error(
            fmt::format("{} writes {}, which is {}", operand.name, tensor.name,
                        tensor.kind == Tensor::Kind::input ? "an input" : "a weight"));
      }
      const bool ready = given || tensor.kind == Tensor::Kind::state;
      if (is_read(operand.role) && !ready && !written_[operand.view.tensor]) {
        throw argument_error(fmt::format("{} reads {}, which no step before has written",
                                         operand.name, tensor.name));
      }
    }
    for (const Operand& operand : call.operands) {
      if (is_read(operand.role)) require_domain(operand, phase_->tensors[operand.view.tensor]);
    }
    for (const Operand& operand : call.operands) {
      if (!is_written(operand.role)) continue;
      Tensor& tensor = phase_->tensors[operand.view.tensor];
      // What integers a step writes; all of them, or the others would be anything.
      const bool known = operand.below > 0 && (operand.all || tensor.below > 0);
      if (tensor.dtype == &int32) {
        tensor.below = known ? std::max(tensor.below, operand.below) : anything;
      }
      written_[operand.view.tensor] = true;
    }
  }

  // Kernels trust their ids.
  static void require_domain(const Operand& operand, const Tensor& tensor) {
    if (operand.below == 0 || operand.view.elements() == 0) return;
    if (tensor.below < 1 || tensor.below > operand.below) {
      throw argument_error(fmt::format("{} must hold integers below {}, those of {} are {}",
                                       operand.name, operand.below, tensor.name,
                                       tensor.below < 1 || tensor.below == anything
                                           ? "any"
                                           : fmt::format("below {}", tensor.below)));
    }
    if (operand.ascending && !tensor.ascending) {
      throw argument_error(
          fmt::format("{} must ascend: {} lacks order=ascending", operand.name, tensor.name));
    }
  }

  // Weights and states have one memory for all phases.
  void check_shared() const {
    std::map<std::string, const Tensor*> known;
    for (const Phase& phase : result_.phases) {
      for (const Tensor& tensor : phase.tensors) {
        if (tensor.kind != Tensor::Kind::weight && tensor.kind != Tensor::Kind::state) continue;
        const Tensor& first = *known.emplace(tensor.name, &tensor).first->second;
        if (first.shape == tensor.shape && first.kind == tensor.kind &&
            first.dtype == tensor.dtype) {
          continue;
        }
        fail_at(text_.file, tensor.line,
                fmt::format("{} is {} in one phase and {} in another", tensor.name,
                            print_shape(first.shape), print_shape(tensor.shape)));
      }
    }
  }

  const ModelText& text_;
  const Settings& settings_;
  std::span<const Kernel* const> kernels_;
  const WeightFormat& format_;
  const std::set<std::string>& plain_;
  std::set<std::string> formatted_;  // weights in a format that the text does not say
  std::vector<std::string> symbol_names_;
  std::set<std::string> size_names_;
  std::map<std::string, int> size_symbols_;  // with the line that sets them
  Values size_values_;
  std::vector<std::pair<std::string, Values>> phases_;
  Instance result_;
  // The phase being read.
  Phase* phase_ = nullptr;
  Symbols symbols_;
  std::map<std::string, std::size_t> tensors_, steps_;
  std::vector<bool> written_;
  int loops_ = 0;
  // Sums over all phases.
  std::size_t rounds_ = 0, call_count_ = 0, tensor_count_ = 0;
};

}  // namespace

std::vector<std::string> sizes_of(const ModelText& text) {
  std::vector<std::string> names;
  for (const Statement& statement : text.statements) {
    if (statement.keyword == "size" && !statement.words.empty()) {
      names.push_back(statement.words.front());
    }
  }
  return names;
}

Instance instantiate(const ModelText& text, const std::string& size, const Settings& settings,
                     std::span<const Kernel* const> kernels, const WeightFormat& format) {
  std::set<std::string> plain;
  while (true) {
    try {
      return Builder(text, size, settings, kernels, format, plain).build();
    } catch (const UnfitFormat& unfit) {
      plain.insert(unfit.tensor);
    }
  }
}

WeightFormat matrices_in(DType dtype) {
  return [dtype](const Tensor& weight) {
    const bool fits = weight.shape.size() >= 2 && weight.shape.back() % dtype->block == 0;
    return fits ? dtype : &float32;
  };
}

}  // namespace rooflane::model
