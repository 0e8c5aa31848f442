// GGUF reader: one pass over header, metadata and tensor table with every length checked against
// what is left of the file, then the tensors' places against one another. See gguf.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/file_formats.hpp"
#include "io/gguf.hpp"

namespace rooflane {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied unchanged");

constexpr std::string_view magic = "GGUF";
// gguf.md: keys have at most 2^16 - 1 bytes, tensor names at most 64.
constexpr std::uint64_t longest_key = 65535;
constexpr std::uint64_t longest_name = 64;
constexpr std::uint32_t most_axes = View::max_rank;  // gguf.md allows as many
// What one entry takes at least: a key's length, a byte of key, the type, a byte of value; a name's
// length, a byte of name, the number of axes, one axis, the type, the offset.
constexpr std::uint64_t least_value_bytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t least_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::uint64_t default_alignment = 32;
constexpr std::uint32_t type_count = static_cast<std::uint32_t>(GgufType::float64) + 1;

struct TensorType {
  std::uint32_t id;
  std::string_view name;
  DType dtype;  // null: known, and not read
};
constexpr std::array<TensorType, 18> tensor_types = {{{0, "F32", &float32},
                                                      {1, "F16", &float16},
                                                      {2, "Q4_0", &q4_0},
                                                      {3, "Q4_1", &q4_1},
                                                      {6, "Q5_0", &q5_0},
                                                      {7, "Q5_1", &q5_1},
                                                      {8, "Q8_0", &q8_0},
                                                      {10, "Q2_K", nullptr},
                                                      {11, "Q3_K", nullptr},
                                                      {12, "Q4_K", nullptr},
                                                      {13, "Q5_K", nullptr},
                                                      {14, "Q6_K", nullptr},
                                                      {20, "IQ4_NL", nullptr},
                                                      {23, "IQ4_XS", nullptr},
                                                      {24, "I8", nullptr},
                                                      {26, "I32", nullptr},
                                                      {28, "F64", nullptr},
                                                      {30, "BF16", &bfloat16}}};
constexpr std::string_view read_types = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0";

// Takes one thing after the other from the file; what is not there is an error that names the
// place.
class Cursor {
 public:
  Cursor(const Gguf& gguf, std::string_view bytes) : gguf_(gguf), bytes_(bytes) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }

  std::string_view take(std::uint64_t count, std::string_view where) {
    if (count > left()) {
      throw gguf_.bad(
          fmt::format("truncated: {} needs {} bytes, the file has {} more", where, count, left()));
    }
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <class T>
  T number(std::string_view where) {
    T value;
    std::ranges::copy(take(sizeof value, where), reinterpret_cast<char*>(&value));
    return value;
  }
  // A length, then so many bytes.
  std::string_view text(std::string_view where,
                        std::uint64_t longest = std::numeric_limits<std::uint64_t>::max()) {
    const auto length = number<std::uint64_t>(where);
    if (length > longest) {
      throw gguf_.bad(fmt::format("{} has {} bytes; allowed are {}", where, length, longest));
    }
    return take(length, where);
  }

 private:
  const Gguf& gguf_;
  std::string_view bytes_;
  std::uint64_t at_ = 0;
};

GgufType read_type(const Gguf& gguf, Cursor& cursor, std::string_view where) {
  const auto id = cursor.number<std::uint32_t>(where);
  if (id >= type_count) {
    throw gguf.bad(fmt::format("{} has type {}; allowed are 0 to {}", where, id, type_count - 1));
  }
  return static_cast<GgufType>(id);
}

GgufValue read_value(const Gguf& gguf, Cursor& cursor) {
  GgufValue value{};
  value.key = cursor.text("a metadata key", longest_key);
  if (value.key.empty()) throw gguf.bad("a metadata key is empty");
  const std::string where = fmt::format("metadata '{}'", printable(value.key));
  value.type = read_type(gguf, cursor, where);
  value.count = 1;
  if (value.type == GgufType::array) {
    value.is_array = true;
    value.type = read_type(gguf, cursor, where);
    if (value.type == GgufType::array) throw gguf.bad(where + " is an array of arrays");
    value.count = cursor.number<std::uint64_t>(where);
  }
  // A text takes its length of 8 bytes at least.
  const std::uint64_t size = bytes_of(value.type);
  const std::uint64_t least = size == 0 ? sizeof(std::uint64_t) : size;
  if (value.count > cursor.left() / least) {
    throw gguf.bad(fmt::format("truncated: {} has {} elements, the file has {} more bytes", where,
                               value.count, cursor.left()));
  }
  Cursor elements = cursor;
  if (size > 0) {
    elements.take(value.count * size, where);
  } else {
    for (std::uint64_t i = 0; i < value.count; ++i) elements.text(where);
  }
  value.bytes = cursor.take(elements.at() - cursor.at(), where);
  if (value.type == GgufType::boolean) {
    for (const char each : value.bytes) {
      if (each != 0 && each != 1) {
        throw gguf.bad(fmt::format("{} holds a BOOL of {}; allowed are 0 and 1", where,
                                   static_cast<unsigned char>(each)));
      }
    }
  }
  return value;
}

DType read_tensor_type(const Gguf& gguf, Cursor& cursor, std::string_view where) {
  const auto id = cursor.number<std::uint32_t>(where);
  const auto* const type = std::find_if(tensor_types.begin(), tensor_types.end(),
                                        [&](const TensorType& each) { return each.id == id; });
  if (type != tensor_types.end() && type->dtype != nullptr) return type->dtype;
  throw gguf.bad(fmt::format(
      "{} has type {}; read are {}", where,
      type == tensor_types.end() ? std::to_string(id) : std::string(type->name), read_types));
}

struct Placed {
  GgufTensor tensor;
  std::uint64_t offset;  // from the begin of all tensors
  std::uint64_t size;    // bytes
};

Placed read_tensor(const Gguf& gguf, Cursor& cursor, std::uint64_t file_bytes) {
  Placed placed{};
  GgufTensor& tensor = placed.tensor;
  tensor.name = cursor.text("a tensor's name", longest_name);
  if (tensor.name.empty()) throw gguf.bad("a tensor's name is empty");
  const std::string where = fmt::format("tensor '{}'", printable(tensor.name));
  const auto axes = cursor.number<std::uint32_t>(where);
  if (axes < 1 || axes > most_axes) {
    throw gguf.bad(fmt::format("{} has {} axes; allowed are 1 to {}", where, axes, most_axes));
  }
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < axes; ++i) {
    const auto size = cursor.number<std::uint64_t>(where);
    if (size == 0) throw gguf.bad(where + " has an axis of size 0; allowed is 1 and more");
    // No format stores more than two elements in a byte.
    if (size > 2 * file_bytes / elements) {
      throw gguf.bad(
          fmt::format("truncated: {} has an axis of size {}, which makes it larger than "
                      "the file",
                      where, size));
    }
    elements *= size;
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  tensor.dtype = read_tensor_type(gguf, cursor, where);
  if (tensor.shape.back() % tensor.dtype->block != 0) {
    throw gguf.bad(fmt::format("{} has rows of {} elements; {} stores multiples of {}", where,
                               tensor.shape.back(), tensor.dtype->name, tensor.dtype->block));
  }
  placed.size = tensor.dtype->bytes(static_cast<std::int64_t>(elements));
  placed.offset = cursor.number<std::uint64_t>(where);
  return placed;
}

// Gives each tensor its bytes of `data`.
void place_tensors(const Gguf& gguf, std::vector<Placed>& tensors, std::string_view data,
                   std::uint64_t alignment) {
  for (Placed& each : tensors) {
    const std::string where = fmt::format("tensor '{}'", printable(each.tensor.name));
    if (each.offset % alignment != 0) {
      throw gguf.bad(fmt::format("{} begins at {}, which is not a multiple of the alignment, {}",
                                 where, each.offset, alignment));
    }
    if (each.offset > data.size() || each.size > data.size() - each.offset) {
      throw gguf.bad(
          fmt::format("truncated: {} takes {} bytes from {} on, the file has {} bytes "
                      "for tensors",
                      where, each.size, each.offset, data.size()));
    }
    each.tensor.bytes = data.substr(each.offset, each.size);
  }
  std::vector<const Placed*> by_offset;
  for (const Placed& each : tensors) by_offset.push_back(&each);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Placed* x, const Placed* y) { return x->offset < y->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const Placed& before = *by_offset[i - 1];
    if (before.offset + before.size > by_offset[i]->offset) {
      throw gguf.bad(fmt::format("tensors '{}' and '{}' overlap", printable(before.tensor.name),
                                 printable(by_offset[i]->tensor.name)));
    }
  }
}

}  // namespace

void Gguf::parse() {
  Cursor cursor(*this, bytes_);
  if (!bytes_.starts_with(magic)) throw bad("not a GGUF file: it does not begin with GGUF");
  cursor.take(magic.size(), "the header");
  version_ = cursor.number<std::uint32_t>("the header");
  if (version_ == 0x02000000 || version_ == 0x03000000) {
    throw bad("a big-endian GGUF file; only little-endian files are supported");
  }
  if (version_ != 2 && version_ != 3) {
    throw bad(fmt::format("GGUF version {}; allowed are 2 and 3", version_));
  }
  const auto tensor_count = cursor.number<std::uint64_t>("the header");
  const auto value_count = cursor.number<std::uint64_t>("the header");
  if (value_count > cursor.left() / least_value_bytes ||
      tensor_count > cursor.left() / least_tensor_bytes) {
    throw bad(
        fmt::format("truncated: the header announces {} metadata values and {} tensors, the file "
                    "has {} more bytes",
                    value_count, tensor_count, cursor.left()));
  }
  for (std::uint64_t i = 0; i < value_count; ++i) {
    metadata_.push_back(read_value(*this, cursor));
    if (!values_by_key_.emplace(metadata_.back().key, i).second) {
      throw bad(fmt::format("metadata '{}' occurs twice", printable(metadata_.back().key)));
    }
  }
  const std::int64_t given = integer("general.alignment").value_or(default_alignment);
  if (given <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(given))) {
    throw bad(fmt::format("metadata 'general.alignment' is {}; allowed are powers of two", given));
  }
  std::vector<Placed> placed;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    placed.push_back(read_tensor(*this, cursor, bytes_.size()));
    const std::string_view name = placed.back().tensor.name;
    if (!tensors_by_name_.emplace(name, i).second) {
      throw bad(fmt::format("tensor '{}' occurs twice", printable(name)));
    }
  }
  const auto alignment = static_cast<std::uint64_t>(given);
  const std::uint64_t padding = (alignment - cursor.at() % alignment) % alignment;
  place_tensors(*this, placed, bytes_.substr(cursor.at() + std::min(padding, cursor.left())),
                alignment);
  for (Placed& each : placed) tensors_.push_back(std::move(each.tensor));
}

}  // namespace rooflane
