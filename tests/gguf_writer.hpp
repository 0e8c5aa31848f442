// Writes GGUF files for tests: honest ones, and parts of them to put together wrongly.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.hpp"

namespace rooflane {

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string gguf_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

class GgufWriter {
 public:
  // `bytes`: the file's bytes after the type.
  GgufWriter& value(std::string_view key, GgufType type, const std::string& bytes) {
    values_.push_back(gguf_text(key) + raw(type) + bytes);
    return *this;
  }
  GgufWriter& text(std::string_view key, std::string_view text) {
    return value(key, GgufType::text, gguf_text(text));
  }
  GgufWriter& integer(std::string_view key, std::uint32_t number) {
    return value(key, GgufType::uint32, raw(number));
  }
  GgufWriter& real(std::string_view key, float number) {
    return value(key, GgufType::float32, raw(number));
  }
  GgufWriter& array(std::string_view key, GgufType type, std::uint64_t count,
                    const std::string& bytes) {
    return value(key, GgufType::array, raw(type) + raw(count) + bytes);
  }
  // Sizes in the file's order: the contiguous axis first.
  GgufWriter& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes,
                     std::uint32_t type, const std::string& data) {
    pad(data_, 32);
    return tensor_at(name, sizes, type, data_.size(), data);
  }
  GgufWriter& tensor_at(std::string_view name, const std::vector<std::uint64_t>& sizes,
                        std::uint32_t type, std::uint64_t offset, const std::string& data) {
    std::string entry = gguf_text(name) + raw(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) entry += raw(size);
    tensors_.push_back(entry + raw(type) + raw(offset));
    data_ += data;
    return *this;
  }

  std::string file(std::uint32_t version = 3) const {
    return file(version, tensors_.size(), values_.size());
  }
  std::string file(std::uint32_t version, std::uint64_t tensors, std::uint64_t values) const {
    std::string all = "GGUF" + raw(version) + raw(tensors) + raw(values);
    for (const std::string& each : values_) all += each;
    for (const std::string& each : tensors_) all += each;
    pad(all, 32);
    return all + data_;
  }

 private:
  static void pad(std::string& bytes, std::size_t alignment) {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  }
  std::vector<std::string> values_, tensors_;
  std::string data_;
};

inline std::string floats(std::uint64_t count) {
  std::string bytes;
  for (std::uint64_t i = 0; i < count; ++i) bytes += raw(static_cast<float>(i));
  return bytes;
}

// A small file with every kind of value.
inline GgufWriter small_gguf() {
  GgufWriter writer;
  writer.text("general.architecture", "llama")
      .integer("a.integer", 7)
      .value("a.long", GgufType::uint64, raw(std::numeric_limits<std::uint64_t>::max()))
      .value("a.negative", GgufType::int64, raw<std::int64_t>(-5))
      .value("a.byte", GgufType::uint8, raw<std::uint8_t>(200))
      .value("a.truth", GgufType::boolean, raw<std::uint8_t>(1))
      .value("a.double", GgufType::float64, raw(0.1))
      .real("a.real", 0.5f)
      .array("some.texts", GgufType::text, 3, gguf_text("x") + gguf_text("") + gguf_text("yz"))
      .array("some.integers", GgufType::int16, 2, raw<std::int16_t>(-1) + raw<std::int16_t>(2))
      .array("none", GgufType::float32, 0, "")
      .tensor("matrix", {4, 3}, 0, floats(12))
      .tensor("row", {5}, 0, floats(5))
      .tensor("block", {32, 2}, 8, std::string(68, '\x01'));
  return writer;
}

}  // namespace rooflane
