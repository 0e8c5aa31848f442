// What an open GGUF file holds: values by key, tensors as float32. How it is read and checked is in
// gguf_parse.cpp. See gguf.hpp.
#include "io/gguf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

namespace rooflane {
namespace {

struct TypeFacts {
  std::string_view name;
  std::uint64_t bytes;  // of an element; 0: they differ
};
constexpr std::array<TypeFacts, 13> types = {{{"UINT8", 1},
                                              {"INT8", 1},
                                              {"UINT16", 2},
                                              {"INT16", 2},
                                              {"UINT32", 4},
                                              {"INT32", 4},
                                              {"FLOAT32", 4},
                                              {"BOOL", 1},
                                              {"STRING", 0},
                                              {"ARRAY", 0},
                                              {"UINT64", 8},
                                              {"INT64", 8},
                                              {"FLOAT64", 8}}};

template <class T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

GgufElement element_of(GgufType type, const char* from) {
  switch (type) {
    case GgufType::uint8:
      return std::int64_t{load<std::uint8_t>(from)};
    case GgufType::int8:
      return std::int64_t{load<std::int8_t>(from)};
    case GgufType::uint16:
      return std::int64_t{load<std::uint16_t>(from)};
    case GgufType::int16:
      return std::int64_t{load<std::int16_t>(from)};
    case GgufType::uint32:
      return std::int64_t{load<std::uint32_t>(from)};
    case GgufType::int32:
      return std::int64_t{load<std::int32_t>(from)};
    case GgufType::float32:
      return double{load<float>(from)};
    case GgufType::boolean:
      return load<std::uint8_t>(from) != 0;
    case GgufType::uint64:
      return load<std::uint64_t>(from);
    case GgufType::int64:
      return load<std::int64_t>(from);
    default:
      return load<double>(from);
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, 60)) result += c >= ' ' && c < 127 ? c : '?';
  return result;
}

std::string_view name_of(GgufType type) { return types[static_cast<std::size_t>(type)].name; }
std::uint64_t bytes_of(GgufType type) { return types[static_cast<std::size_t>(type)].bytes; }

Gguf::Gguf(const std::string& path) : file_(path), bytes_(file_.bytes()), path_(path) { parse(); }

Gguf::Gguf(std::string_view bytes, std::string path) : bytes_(bytes), path_(std::move(path)) {
  parse();
}

Error Gguf::bad(std::string_view why) const {
  return argument_error(fmt::format("'{}': {}", path_, why));
}

const GgufValue* Gguf::find_value(std::string_view key) const {
  const auto found = values_by_key_.find(key);
  return found == values_by_key_.end() ? nullptr : &metadata_[found->second];
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const {
  const auto found = tensors_by_name_.find(name);
  return found == tensors_by_name_.end() ? nullptr : &tensors_[found->second];
}

std::optional<GgufElement> Gguf::single(std::string_view key) const {
  const GgufValue* const value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array) throw bad(fmt::format("metadata '{}' is an array", key));
  return elements_of(*value).front();
}

std::optional<std::int64_t> Gguf::integer(std::string_view key) const {
  const auto element = single(key);
  if (!element) return std::nullopt;
  if (const auto* const value = std::get_if<std::int64_t>(&*element)) return *value;
  const auto* const value = std::get_if<std::uint64_t>(&*element);
  if (value == nullptr) throw bad(fmt::format("metadata '{}' is not an integer", key));
  if (*value > std::numeric_limits<std::int64_t>::max()) {
    throw bad(fmt::format("metadata '{}' is {}, which is too large", key, *value));
  }
  return static_cast<std::int64_t>(*value);
}

std::optional<double> Gguf::real(std::string_view key) const {
  const auto element = single(key);
  if (!element) return std::nullopt;
  if (const auto* const value = std::get_if<double>(&*element)) return *value;
  if (const auto* const value = std::get_if<std::int64_t>(&*element)) {
    return static_cast<double>(*value);
  }
  if (const auto* const value = std::get_if<std::uint64_t>(&*element)) {
    return static_cast<double>(*value);
  }
  throw bad(fmt::format("metadata '{}' is not a number", key));
}

std::optional<bool> Gguf::boolean(std::string_view key) const {
  const auto element = single(key);
  if (!element) return std::nullopt;
  if (const auto* const value = std::get_if<bool>(&*element)) return *value;
  throw bad(fmt::format("metadata '{}' is not a BOOL", key));
}

std::optional<std::string_view> Gguf::text(std::string_view key) const {
  const auto element = single(key);
  if (!element) return std::nullopt;
  if (const auto* const value = std::get_if<std::string_view>(&*element)) return *value;
  throw bad(fmt::format("metadata '{}' is not a STRING", key));
}

std::vector<GgufElement> elements_of(const GgufValue& value) {
  std::vector<GgufElement> elements;
  elements.reserve(value.count);
  const char* at = value.bytes.data();
  for (std::uint64_t i = 0; i < value.count; ++i) {
    if (value.type == GgufType::text) {
      const auto length = load<std::uint64_t>(at);
      elements.emplace_back(std::string_view(at + sizeof length, length));
      at += sizeof length + length;
    } else {
      elements.push_back(element_of(value.type, at));
      at += bytes_of(value.type);
    }
  }
  return elements;
}

void read_f32(const GgufTensor& tensor, float* to) {
  if (tensor.dtype == &float32) {
    std::memcpy(to, tensor.bytes.data(), tensor.bytes.size());
    return;
  }
  // Doubles for a part that stays in the first-level cache: 8 KiB; a multiple of every block.
  std::array<double, 1024> values;
  const std::int64_t count = std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                             std::int64_t{1}, std::multiplies<>());
  const char* from = tensor.bytes.data();
  for (std::int64_t i = 0; i < count; i += std::ssize(values)) {
    const std::int64_t part = std::min(std::ssize(values), count - i);
    tensor.dtype->decode(from, values.data(), part);
    from += tensor.dtype->bytes(part);
    for (std::int64_t j = 0; j < part; ++j) to[i + j] = static_cast<float>(values[j]);
  }
}

}  // namespace rooflane
