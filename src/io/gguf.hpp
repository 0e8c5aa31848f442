// GGUF files, the format of llama.cpp's models: versions 2 and 3, little-endian. Metadata by key,
// and tensors; their bytes stay in the file until they are read as float32. This file does not know
// the meaning of names and keys. A file is checked completely when it is opened, so that every
// value and every tensor is inside it. Source: github.com/ggml-org/ggml, docs/gguf.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "io/mapped_file.hpp"

namespace rooflane {

// The numbers in the file.
enum class GgufType : std::uint32_t {
  uint8 = 0,
  int8 = 1,
  uint16 = 2,
  int16 = 3,
  uint32 = 4,
  int32 = 5,
  float32 = 6,
  boolean = 7,
  text = 8,
  array = 9,  // only in the file: GgufValue has the elements' type
  uint64 = 10,
  int64 = 11,
  float64 = 12,
};
std::string_view name_of(GgufType type);  // as gguf.md spells it: "UINT32", "STRING"
std::uint64_t bytes_of(GgufType type);    // of an element; 0 of texts and arrays: they differ

// One value of the metadata, or an array of values of one type.
struct GgufValue {
  std::string_view key;
  GgufType type;  // of arrays: of an element
  bool is_array;
  std::uint64_t count;     // elements
  std::string_view bytes;  // the elements' bytes in the file
};

// An element of the metadata: every integer as one of 64 bits, every real as a double.
using GgufElement = std::variant<std::int64_t, std::uint64_t, double, bool, std::string_view>;
std::vector<GgufElement> elements_of(const GgufValue& value);

struct GgufTensor {
  std::string_view name;
  Shape shape;  // 1 to 4 axes, the last one contiguous: the reverse of the file's order
  DType dtype;
  std::string_view bytes;
};

class Gguf {
 public:
  // Throws Error(argument), one line that names the file and what is wrong with it: missing, no
  // GGUF, another version, big-endian; truncated; counts, lengths or sizes that do not fit into the
  // file; an alignment other than a power of two; a key or tensor that is there twice; tensors that
  // overlap, end beyond the file, or have a type other than F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1
  // and Q8_0; arrays of arrays.
  explicit Gguf(const std::string& path);
  // The same from memory that the caller owns; `path` is for messages.
  Gguf(std::string_view bytes, std::string path);

  const std::string& path() const { return path_; }
  std::uint32_t version() const { return version_; }
  const std::vector<GgufValue>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufValue* find_value(std::string_view key) const;     // null: there is none
  const GgufTensor* find_tensor(std::string_view name) const;  // null: there is none

  // Metadata by key; nothing when there is none, Error(argument) when it has another type or does
  // not fit. An integer serves where a real is asked for.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;

  // An Error(argument) that names the file: for who finds that its content will not do.
  Error bad(std::string_view why) const;

 private:
  void parse();
  std::optional<GgufElement> single(std::string_view key) const;

  MappedFile file_;
  std::string_view bytes_;
  std::string path_;
  std::uint32_t version_ = 0;
  std::vector<GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> values_by_key_, tensors_by_name_;
};

// The tensor's elements in row-major order, as float32; every format converts with one rounding,
// the shorter floats and q8_0, q4_0 and q5_0 exactly.
void read_f32(const GgufTensor& tensor, float* to);

// At most 60 bytes of a text from a file, in which what cannot be printed is '?'.
std::string printable(std::string_view text);

}  // namespace rooflane
