// Problems as text: parsing, printing, ranges. See problem.hpp.
#include "problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chain.hpp"
#include "error.hpp"
#include "kernel.hpp"
#include "text.hpp"

namespace rooflane {

namespace {

// Sizes stay exact as doubles, and so do their pairwise sums.
constexpr std::int64_t largest_size = std::int64_t{1} << 52;
// More problems than this from one shape is a slip of the pen.
constexpr std::size_t most_problems = 10000;

std::vector<std::string> param_names(const Kernel& kernel) {
  std::vector<std::string> names;
  for (const ParamSpec& param : kernel.params) names.emplace_back(param.name);
  return names;
}

std::size_t param_index(const Kernel& kernel, std::string_view name) {
  for (std::size_t i = 0; i < kernel.params.size(); ++i) {
    if (kernel.params[i].name == name) return i;
  }
  throw argument_error(
      unknown_name(fmt::format("parameter of {}", kernel.name), name, param_names(kernel)));
}

std::string allowed(const ParamSpec& param) {
  switch (param.kind) {
    case ParamKind::size:
      return fmt::format("an integer from {} to {}", param.least, largest_size);
    case ParamKind::flag:
      return "0 or 1";
    case ParamKind::real:
      return "a finite number";
    case ParamKind::choice:
      return join(choices_of(param), ", ");
    case ParamKind::chain:
      return fmt::format("{}, or some of {}, each once, joined by +", empty_chain,
                         join(choices_of(param), ", "));
  }
  return {};
}

void check_value(const ParamSpec& param, double value, std::string_view text) {
  bool good = std::isfinite(value);
  if (param.kind == ParamKind::size) {
    good = good && value == std::floor(value) && value >= static_cast<double>(param.least) &&
           value <= static_cast<double>(largest_size);
  } else if (param.kind == ParamKind::flag) {
    good = value == 0 || value == 1;
  } else if (param.kind == ParamKind::choice) {
    good = value == std::floor(value) && value >= 0 &&
           value < static_cast<double>(choices_of(param).size());
  } else if (param.kind == ParamKind::chain) {
    good = chain_places(param, value).has_value();
  } else {
    // Kernels compute with it in float32.
    good = good && std::isfinite(static_cast<float>(value));
  }
  if (!good) {
    throw argument_error(fmt::format("{}={}: allowed is {}", param.name, text, allowed(param)));
  }
}

double parse_value(const ParamSpec& param, std::string_view text) {
  std::optional<double> value;
  if (param.kind == ParamKind::real) {
    value = parse_real(text);
  } else if (param.kind == ParamKind::choice) {
    const std::vector<std::string> choices = choices_of(param);
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found != choices.end()) value = static_cast<double>(found - choices.begin());
  } else if (param.kind == ParamKind::chain) {
    value = parse_chain(param, text);
  } else if (const auto integer = parse_integer(text)) {
    value = static_cast<double>(*integer);
  }
  if (!value) {
    throw argument_error(fmt::format("{}={}: allowed is {}", param.name, text, allowed(param)));
  }
  check_value(param, *value, text);
  return *value;
}

double default_value(const Problem& problem, const ParamSpec& param) {
  return param.default_from != nullptr ? param.default_from(problem) : param.default_value;
}

}  // namespace

std::vector<std::string> choices_of(const ParamSpec& param) {
  std::vector<std::string> choices(param.words.begin(), param.words.end());
  for (const DType dtype : param.dtypes) choices.emplace_back(dtype->short_name);
  return choices;
}

std::string print_value(const ParamSpec& param, double value) {
  switch (param.kind) {
    case ParamKind::real:
      return print_real(value);
    case ParamKind::choice:
      return choices_of(param)[static_cast<std::size_t>(value)];
    case ParamKind::chain:
      return print_chain(param, value);
    case ParamKind::size:
    case ParamKind::flag:
      break;
  }
  return std::to_string(static_cast<std::int64_t>(value));
}

const ParamSpec* find_param(const Kernel& kernel, std::string_view name) {
  for (const ParamSpec& param : kernel.params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

Problem::Problem(const Kernel& kernel) : kernel_(&kernel), values_(kernel.params.size()) {}

bool Problem::has(std::string_view name) const {
  return values_[param_index(*kernel_, name)].has_value();
}

double Problem::value(std::string_view name) const {
  const std::size_t i = param_index(*kernel_, name);
  if (values_[i]) return *values_[i];
  const ParamSpec& param = kernel_->params[i];
  if (param.required) {
    throw argument_error(fmt::format("{} needs {}=: it is missing", kernel_->name, name));
  }
  return default_value(*this, param);
}

std::int64_t Problem::size(std::string_view name) const {
  return static_cast<std::int64_t>(value(name));
}

bool Problem::flag(std::string_view name) const { return value(name) != 0; }

std::string Problem::choice(std::string_view name) const {
  return print_value(kernel_->params[param_index(*kernel_, name)], value(name));
}

DType Problem::dtype(std::string_view name) const {
  const ParamSpec& param = kernel_->params[param_index(*kernel_, name)];
  return param.dtypes[static_cast<std::size_t>(value(name))];
}

std::vector<std::size_t> Problem::chain(std::string_view name) const {
  const ParamSpec& param = kernel_->params[param_index(*kernel_, name)];
  return chain_places(param, value(name)).value();
}

void Problem::set(std::string_view name, std::string_view text) {
  const std::size_t i = param_index(*kernel_, name);
  values_[i] = parse_value(kernel_->params[i], text);
}

void Problem::set(std::string_view name, double value) {
  const std::size_t i = param_index(*kernel_, name);
  check_value(kernel_->params[i], value, print_real(value));
  values_[i] = value;
}

void Problem::check() const {
  for (const ParamSpec& param : kernel_->params) {
    if (param.required) value(param.name);
  }
  if (kernel_->check != nullptr) kernel_->check(*this);
  // Element counts are int64 everywhere; 2^60 leaves room for rounding up and byte counts. Empty
  // tensors have strides too.
  for (const TensorSpec& tensor : kernel_->tensors(*this)) {
    check_domain(*this, tensor);
    double elements = 1;
    for (const Axis& axis : tensor.axes) {
      elements *= static_cast<double>(std::max<std::int64_t>(axis_length(*this, axis), 1));
    }
    const Axis& last = tensor.axes.back();
    if (const std::int64_t length = axis_length(*this, last); length % tensor.dtype->block != 0) {
      throw argument_error(
          fmt::format("{}={}: of {} {} stores along that axis, allowed are "
                      "multiples of {}",
                      last.param, length, tensor.dtype->name, tensor.name, tensor.dtype->block));
    }
    if (elements > 0x1p60) {
      throw argument_error(
          fmt::format("{}: tensor {} would have {:.3g} elements, allowed are {:.3g}", text(),
                      tensor.name, elements, 0x1p60));
    }
  }
}

std::string Problem::shape() const {
  std::string text;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const ParamSpec& param = kernel_->params[i];
    if (!values_[i] && (param.required || !param.always_printed)) continue;
    const double v = value(param.name);
    const bool is_default = !param.required && v == default_value(*this, param);
    if (is_default && !param.always_printed) continue;
    if (!text.empty()) text += ',';
    text += param.name;
    text += '=';
    text += print_value(param, v);
  }
  return text;
}

std::string Problem::text() const { return std::string(kernel_->name) + ":" + shape(); }

namespace {

struct KernelAndKeys {
  const Kernel* kernel;
  std::string_view keys;
};

KernelAndKeys split_kernel(std::string_view text, std::span<const Kernel* const> kernels) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    throw argument_error(fmt::format(
        "shape '{}' has no kernel: write KERNEL:key=value,..., for example gemm:m=8,n=8,k=8",
        text));
  }
  const std::string_view name = text.substr(0, colon);
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels) {
    if (kernel->name == name) return {kernel, text.substr(colon + 1)};
    names.emplace_back(kernel->name);
  }
  throw argument_error(unknown_name("kernel", name, names));
}

// One comma-separated item of a shape: the names it sets and the values they take one after
// another.
struct Item {
  std::vector<std::string_view> names;
  std::vector<std::string> values;
};

// `256..4096*2` and `1..16+1`, both ends included when the steps reach them; `a|b|c`.
std::vector<std::string> expand_range(std::string_view item, std::string_view range) {
  if (range.find('|') != std::string_view::npos) {
    const std::vector<std::string_view> values = split(range, '|');
    return {values.begin(), values.end()};
  }
  const std::size_t dots = range.find("..");
  if (dots == std::string_view::npos) return {std::string(range)};
  const std::size_t sign = range.find_first_of("*+", dots + 2);
  const std::size_t step_at = sign == std::string_view::npos ? range.size() : sign + 1;
  const auto first = parse_integer(range.substr(0, dots));
  const auto last = parse_integer(range.substr(dots + 2, sign - (dots + 2)));
  const auto step = parse_integer(range.substr(step_at));
  const bool multiply = sign != std::string_view::npos && range[sign] == '*';
  if (!first || !last || !step || *first > *last || *step < (multiply ? 2 : 1) ||
      (multiply && *first < 1) || *first < 0 || *last > largest_size || *step > largest_size) {
    throw argument_error(
        fmt::format("range '{}' does not parse: write FIRST..LAST*FACTOR (factor 2 or more) or "
                    "FIRST..LAST+STEP (step 1 or more), FIRST not above LAST",
                    item));
  }
  std::vector<std::string> values;
  for (std::int64_t v = *first; v <= *last;) {
    values.push_back(std::to_string(v));
    if (values.size() > most_problems) {
      throw argument_error(
          fmt::format("range '{}' gives more than {} values", item, most_problems));
    }
    if (!multiply) {
      v += *step;
    } else if (v > *last / *step) {
      break;
    } else {
      v *= *step;
    }
  }
  return values;
}

std::vector<Item> parse_items(std::string_view keys, const Kernel& kernel) {
  std::vector<Item> items;
  std::vector<std::string_view> seen;
  for (const std::string_view part : split(keys, ',')) {
    std::vector<std::string_view> pieces = split(part, '=');
    if (pieces.size() < 2 ||
        std::any_of(pieces.begin(), pieces.end(), [](auto piece) { return piece.empty(); })) {
      throw argument_error(fmt::format("'{}' in the shape of {} does not parse: write key=value",
                                       part, kernel.name));
    }
    Item item;
    item.values = expand_range(part, pieces.back());
    pieces.pop_back();
    item.names = pieces;
    for (const std::string_view name : pieces) {
      param_index(kernel, name);  // throws for an unknown one
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
        throw argument_error(
            fmt::format("'{}' is given twice in the shape of {}", name, kernel.name));
      }
      seen.push_back(name);
    }
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace

std::vector<Problem> parse_shapes(std::string_view text, std::span<const Kernel* const> kernels) {
  const auto [kernel, keys] = split_kernel(text, kernels);
  std::vector<Problem> problems = {Problem(*kernel)};
  for (const Item& item : parse_items(keys, *kernel)) {
    std::vector<Problem> next;
    if (problems.size() * item.values.size() > most_problems) {
      throw argument_error(
          fmt::format("shape '{}' gives more than {} problems", text, most_problems));
    }
    // Earlier keys vary slowest, as nested loops would.
    for (const Problem& problem : problems) {
      for (const std::string& value : item.values) {
        Problem with = problem;
        for (const std::string_view name : item.names) with.set(name, value);
        next.push_back(std::move(with));
      }
    }
    problems = std::move(next);
  }
  for (const Problem& problem : problems) problem.check();
  return problems;
}

Problem parse_problem(std::string_view text, std::span<const Kernel* const> kernels) {
  std::vector<Problem> problems = parse_shapes(text, kernels);
  if (problems.size() != 1) {
    throw argument_error(fmt::format("shape '{}' must be one problem, without ranges", text));
  }
  return std::move(problems.front());
}

std::vector<std::pair<std::string, std::string>> parse_key_values(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (text.empty()) return pairs;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size()) {
      throw argument_error(
          fmt::format("'{}' does not parse: write key=value[,key=value...]", part));
    }
    const std::string key(part.substr(0, equals));
    for (const auto& [known, value] : pairs) {
      if (known == key) throw argument_error(fmt::format("'{}' is given twice", key));
    }
    pairs.emplace_back(key, part.substr(equals + 1));
  }
  return pairs;
}

}  // namespace rooflane
