// Views of tensors by strides. See strided.hpp.
#include "model/strided.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "model/text.hpp"

namespace rooflane::model {

std::int64_t Strided::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Strided whole(std::size_t tensor, const Shape& shape) {
  Strided view{tensor, 0, shape, Shape(shape.size())};
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}

namespace {

constexpr std::size_t most_axes = 8;

Strided sliced(const Strided& view, const std::vector<std::string>& slices,
               const Symbols& symbols) {
  if (slices.size() > view.shape.size()) {
    throw argument_error(fmt::format("{} slices of {}", slices.size(), print_shape(view.shape)));
  }
  Strided result{view.tensor, view.offset, {}, {}};
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    const std::string slice = axis < slices.size() ? slices[axis] : ":";
    const std::int64_t length = view.shape[axis];
    const std::size_t colon = slice.find(':');
    const bool index = colon == std::string::npos;
    const std::string_view text = slice;
    const std::string_view from = text.substr(0, colon);
    const std::string_view to = index ? std::string_view() : text.substr(colon + 1);
    const std::int64_t begin = from.empty() ? 0 : integer_of(from, symbols);
    const std::int64_t end = index ? begin + 1 : to.empty() ? length : integer_of(to, symbols);
    if (begin < 0 || end < begin || end > length) {
      throw argument_error(
          fmt::format("[{}] is {}:{} of an axis of {}", slice, begin, end, length));
    }
    result.offset += begin * view.strides[axis];
    if (index) continue;
    result.shape.push_back(end - begin);
    result.strides.push_back(view.strides[axis]);
  }
  if (result.shape.empty()) {  // one element is a tensor of one
    result.shape = {1};
    result.strides = {1};
  }
  return result;
}

std::vector<std::int64_t> integers_of(const std::vector<std::string>& texts,
                                      const Symbols& symbols) {
  std::vector<std::int64_t> values;
  for (const std::string& text : texts) {
    values.push_back(integer_of(text, symbols));
    if (values.back() < 0) throw argument_error(fmt::format("'{}' is {}", text, values.back()));
  }
  if (values.empty() || values.size() > most_axes) {
    throw argument_error(fmt::format("{} axes, allowed are 1 to {}", values.size(), most_axes));
  }
  return values;
}

// Axes that can be walked as one, merged; of length 1 left out.
Strided merged(const Strided& view) {
  Strided result{view.tensor, view.offset, {}, {}};
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 1) continue;
    if (!result.shape.empty() && result.strides.back() == view.strides[i] * view.shape[i]) {
      result.shape.back() *= view.shape[i];
      result.strides.back() = view.strides[i];
    } else {
      result.shape.push_back(view.shape[i]);
      result.strides.push_back(view.strides[i]);
    }
  }
  return result;
}

// The elements in other axes: each new axis must be cut from one of the old, merged as far as
// possible.
std::optional<Strided> reshaped(const Strided& view, const Shape& shape) {
  const Strided from = merged(view);
  Strided result{view.tensor, view.offset, shape, Shape(shape.size(), 1)};
  std::size_t axis = from.shape.size();
  std::int64_t left = 1, stride = 1;  // of the old axis at work, from the last on
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) {
      result.strides[i] = stride;
      continue;
    }
    if (left == 1) {
      if (axis == 0) return std::nullopt;
      --axis;
      left = from.shape[axis];
      stride = from.strides[axis];
    }
    if (left % shape[i] != 0) return std::nullopt;
    result.strides[i] = stride;
    stride *= shape[i];
    left /= shape[i];
  }
  if (axis != 0 || left != 1) return std::nullopt;
  return result;
}

Strided viewed(const Strided& view, const Shape& shape) {
  double elements = 1;
  for (const std::int64_t length : shape) elements *= static_cast<double>(length);
  if (elements != static_cast<double>(view.elements())) {
    throw argument_error(fmt::format("view{} of {}, which has {} elements", print_shape(shape),
                                     print_shape(view.shape), view.elements()));
  }
  if (elements == 0) return {view.tensor, view.offset, shape, whole(0, shape).strides};
  if (auto result = reshaped(view, shape)) return *result;
  throw argument_error(fmt::format("view{} of {} with strides {} needs a copy", print_shape(shape),
                                   print_shape(view.shape), print_shape(view.strides)));
}

Strided permuted(const Strided& view, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> axes(view.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (sorted != axes) {
    throw argument_error(fmt::format("permute({}) of {}: each axis from 0 to {} once",
                                     fmt::join(order, ","), print_shape(view.shape),
                                     view.shape.size() - 1));
  }
  Strided result{view.tensor, view.offset, {}, {}};
  for (const std::int64_t axis : order) {
    result.shape.push_back(view.shape[static_cast<std::size_t>(axis)]);
    result.strides.push_back(view.strides[static_cast<std::size_t>(axis)]);
  }
  return result;
}

Strided expanded(const Strided& view, const Shape& shape) {
  const auto refuse = [&] {
    throw argument_error(fmt::format("expand{} of {}: axes of 1, and new ones in front, may grow",
                                     print_shape(shape), print_shape(view.shape)));
  };
  if (shape.size() < view.shape.size()) refuse();
  const std::size_t before = shape.size() - view.shape.size();
  Strided result{view.tensor, view.offset, shape, Shape(shape.size(), 0)};
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    const std::int64_t length = shape[before + i];
    if (length == view.shape[i]) {
      result.strides[before + i] = view.strides[i];
    } else if (view.shape[i] != 1) {
      refuse();
    }
  }
  double elements = 1;
  for (const std::int64_t length : shape) elements *= static_cast<double>(length);
  if (elements > 0x1p53) refuse();
  return result;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '/';
}

// Where the name ends: before a bracket, a blank, or `.method(`.
std::size_t name_end(std::string_view text) {
  std::size_t end = 0;
  bool braces = false;
  for (; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '{') braces = true;
    if (!braces && !is_name_char(c)) break;
    if (c == '}') braces = false;
  }
  if (end < text.size() && text[end] == '(') end = text.substr(0, end).rfind('.');
  return end;
}

// The text from the bracket at `from` on to before its end.
std::string_view within(std::string_view text, std::size_t from) {
  int depth = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == '(') ++depth;
    if (text[i] == ']' || text[i] == ')') --depth;
    if (depth == 0) return text.substr(from + 1, i - from - 1);
  }
  throw argument_error(fmt::format("'{}': a bracket is not closed", text));
}

}  // namespace

std::string substituted(std::string_view name, const Symbols& symbols) {
  constexpr std::size_t longest = 200;
  std::string result;
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (name[at] != '{') {
      if (!is_name_char(name[at])) {
        throw argument_error(fmt::format(
            "name '{}': allowed are letters, digits, '_', '.', '/' and {{symbols}}", name));
      }
      result += name[at];
      continue;
    }
    const std::size_t end = name.find('}', at);
    if (end == std::string_view::npos) {
      throw argument_error(fmt::format("name '{}': '{{' is not closed", name));
    }
    result += std::to_string(integer_of(name.substr(at + 1, end - at - 1), symbols));
    at = end;
  }
  const bool begins = !result.empty() && result[0] != '.' && result[0] != '/';
  if (!begins || result.size() > longest || result.find("..") != std::string::npos) {
    throw argument_error(fmt::format(
        "name '{}': allowed are 1 to {} characters, a letter, digit or '_' first, no '..'", name,
        longest));
  }
  return result;
}

Strided parse_view(std::string_view text, const Symbols& symbols,
                   const std::function<Strided(const std::string& name)>& find) {
  std::size_t at = name_end(text);
  if (at == std::string_view::npos) {
    throw argument_error(fmt::format("'{}' is no tensor: write NAME[slices].view(...)", text));
  }
  Strided view = find(substituted(text.substr(0, at), symbols));
  while (at < text.size()) {
    const std::size_t bracket = text.find_first_of("[(", at);
    if (bracket == std::string_view::npos) {
      throw argument_error(fmt::format("'{}' means nothing behind a tensor", text.substr(at)));
    }
    const std::string_view method = text.substr(at, bracket - at);
    const std::string_view inside = within(text, bracket);
    at = bracket + inside.size() + 2;
    const std::vector<std::string> parts = split_list(inside);
    if (text[bracket] == '[' && method.empty()) {
      view = sliced(view, parts, symbols);
    } else if (text[bracket] == '(' && method == ".view") {
      view = viewed(view, integers_of(parts, symbols));
    } else if (text[bracket] == '(' && method == ".permute") {
      view = permuted(view, integers_of(parts, symbols));
    } else if (text[bracket] == '(' && method == ".expand") {
      view = expanded(view, integers_of(parts, symbols));
    } else {
      throw argument_error(fmt::format(
          "'{}{}' means nothing behind a tensor; valid: [slices], .view(), .permute(), .expand()",
          method, text[bracket]));
    }
  }
  return view;
}

Strided fitted(const Strided& view, const TensorSpec& spec) {
  const auto form = spec.axes.front().form;
  const std::size_t wanted = spec.axes.size();
  Strided result = view;
  const bool may_lack_first = form == Axis::Form::droppable || form == Axis::Form::leading;
  if (may_lack_first && view.shape.size() + 1 == wanted) {
    result.shape.insert(result.shape.begin(), 1);
    result.strides.insert(result.strides.begin(), view.elements());
  } else if (form == Axis::Form::leading && view.shape.size() > wanted) {
    const auto leading = static_cast<std::ptrdiff_t>(view.shape.size() - wanted + 1);
    const Strided front{view.tensor,
                        view.offset,
                        {view.shape.begin(), view.shape.begin() + leading},
                        {view.strides.begin(), view.strides.begin() + leading}};
    const std::int64_t rows = front.elements();
    const auto one = rows <= 1 ? std::optional(whole(0, {rows})) : reshaped(front, {rows});
    if (!one) {
      throw argument_error(fmt::format("{} {} with strides {}: its rows have no one stride",
                                       spec.name, print_shape(view.shape),
                                       print_shape(view.strides)));
    }
    result.shape.erase(result.shape.begin(), result.shape.begin() + leading - 1);
    result.strides.erase(result.strides.begin(), result.strides.begin() + leading - 1);
    result.shape.front() = rows;
    result.strides.front() = rows <= 1 ? view.elements() : one->strides.front();
  }
  if (result.shape.size() != wanted) {
    throw argument_error(fmt::format("{} {} has {} axes, {} has {}", spec.name,
                                     print_shape(view.shape), view.shape.size(), spec.name,
                                     wanted));
  }
  return result;
}

}  // namespace rooflane::model
