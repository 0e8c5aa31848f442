// .npy reader and writer. The header is a Python dictionary literal; only what NumPy itself writes
// is understood.
#include "io/npy.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/text.hpp"
#include "io/files.hpp"

namespace rooflane {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied unchanged");

constexpr std::string_view allowed_types =
    "little-endian float32, float64, float16, bfloat16, int8, uint8, int32 and int64";
constexpr std::string_view magic = "\x93NUMPY";
// A float32 array of rank 64 needs less than 2 KiB; NumPy's own reader stops at 10 000 bytes.
constexpr std::uint64_t largest_header = 1 << 16;
constexpr std::size_t largest_rank = 64;
constexpr std::uint64_t largest_elements = std::uint64_t{1} << 52;  // exact as a double
constexpr std::size_t chunk_bytes = 1 << 20;

class InputFile {
 public:
  explicit InputFile(const std::string& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) throw failure(std::strerror(errno));
    struct stat facts {};
    ::fstat(descriptor_, &facts);
    const bool regular = S_ISREG(facts.st_mode);
    size_ = static_cast<std::uint64_t>(facts.st_size);
    if (!regular) {
      ::close(descriptor_);
      throw failure(S_ISDIR(facts.st_mode) ? "it is a folder" : "it is not a regular file");
    }
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }

  void read_at(std::uint64_t offset, void* to, std::size_t bytes) const {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t count = ::pread(descriptor_, at, bytes, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw failure(std::strerror(errno));
      if (count == 0) throw failure("it became shorter while it was read");
      at += count;
      offset += static_cast<std::uint64_t>(count);
      bytes -= static_cast<std::size_t>(count);
    }
  }

 private:
  Error failure(std::string_view why) const {
    return argument_error(fmt::format("'{}' cannot be read: {}", path_, why));
  }

  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

Error bad(const std::string& path, std::string_view why) {
  return argument_error(fmt::format("'{}': {}", path, why));
}

Error bad_header(const std::string& path, std::string_view why) {
  return bad(path, fmt::format("the .npy header does not parse: {}", why));
}

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } with keys in any order.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void parse(std::string& descr, bool& fortran_order, Shape& shape) {
    bool have_descr = false, have_order = false, have_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !have_descr) {
        have_descr = true;
        skip_space();
        if (at_ < text_.size() && text_[at_] != '\'' && text_[at_] != '"') {
          throw bad(path_, fmt::format("structured dtype; allowed are {}", allowed_types));
        }
        descr = quoted();
      } else if (key == "fortran_order" && !have_order) {
        have_order = true;
        fortran_order = boolean();
      } else if (key == "shape" && !have_shape) {
        have_shape = true;
        shape = tuple();
      } else {
        throw bad_header(path_, fmt::format("key '{}' is unknown or given twice", printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) throw bad_header(path_, "text after the dictionary");
    if (!have_descr || !have_order || !have_shape) {
      throw bad_header(path_, "it must contain descr, fortran_order and shape");
    }
  }

  static std::string printable(std::string_view text) {
    std::string result;
    for (const char c : text.substr(0, 40)) result += c >= ' ' && c < 127 ? c : '?';
    return result;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_]) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) throw bad_header(path_, fmt::format("'{}' expected at byte {}", c, at_));
  }
  std::string quoted() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
      throw bad_header(path_, fmt::format("a quoted text expected at byte {}", at_));
    }
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) throw bad_header(path_, "a quote is never closed");
    const std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::strlen(word);
        return value;
      }
    }
    throw bad_header(path_, "fortran_order must be True or False");
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      skip_space();
      const std::size_t end = std::min(text_.find_first_not_of("-0123456789", at_), text_.size());
      const auto size = parse_integer(text_.substr(at_, end - at_));
      if (!size && end > at_) {
        throw bad(path_, fmt::format("shape entry {} of the header is too large",
                                     printable(text_.substr(at_, end - at_))));
      }
      if (!size) throw bad_header(path_, "shape must be a tuple of integers");
      if (*size < 0) throw bad(path_, fmt::format("the header has a negative size {}", *size));
      at_ = end;
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers
      shape.push_back(*size);
      if (shape.size() > largest_rank) {
        throw bad(path_, fmt::format("more than {} axes", largest_rank));
      }
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
};

// The names that users of NumPy know, for what is refused.
std::string describe(const std::string& descr) {
  const char order = descr.empty() ? '?' : descr[0];
  const char kind = descr.size() > 1 ? descr[1] : '?';
  const std::string size = descr.size() > 2 ? descr.substr(2) : "";
  const auto bits = parse_integer(size);
  const std::string width = bits && *bits <= 64 ? std::to_string(*bits * 8) : "";
  std::string name = "unknown type";
  if (kind == 'f') name = "float" + width;
  if (kind == 'c') name = "complex" + width;
  if (kind == 'i') name = "integer int" + width;
  if (kind == 'u') name = "unsigned integer uint" + width;
  if (kind == 'b') name = "boolean";
  if (kind == 'O') name = "Python objects";
  if (kind == 'S' || kind == 'U' || kind == 'a') name = "text";
  if (kind == 'M' || kind == 'm') name = "dates";
  if (kind == 'V') name = "raw records";
  return (order == '>' ? "big-endian " : "") + name;
}

// Null: none that is read. Raw records of two bytes are what ml_dtypes makes of bfloat16.
DType dtype_of(std::string_view descr) {
  if (descr == "|V2") return &bfloat16;
  for (const DType dtype :
       {&float32, &float64, &float16, &bfloat16, &int8, &uint8, &int32, &int64}) {
    if (descr == dtype->npy) return dtype;
  }
  return nullptr;
}

bool is_blocked(DType dtype) { return dtype->block > 1; }

// The last axis of a block format counts bytes in the file.
Shape shape_in_file(std::span<const std::int64_t> shape, DType dtype) {
  Shape stored(shape.begin(), shape.end());
  if (is_blocked(dtype)) stored.back() = static_cast<std::int64_t>(dtype->bytes(stored.back()));
  return stored;
}

// Walks C-order offsets of elements that come in Fortran order (first axis fastest).
class FortranWalk {
 public:
  explicit FortranWalk(const Shape& shape)
      : shape_(shape), index_(shape.size(), 0), stride_(shape.size(), 1) {
    for (std::size_t i = shape.size(); i-- > 1;) stride_[i - 1] = stride_[i] * shape[i];
  }
  std::int64_t next() {
    const std::int64_t here = offset_;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      offset_ += stride_[i];
      if (++index_[i] < shape_[i]) break;
      offset_ -= stride_[i] * shape_[i];
      index_[i] = 0;
    }
    return here;
  }

 private:
  const Shape& shape_;
  std::vector<std::int64_t> index_, stride_;
  std::int64_t offset_ = 0;
};

std::string npy_header(std::string_view descr, std::span<const std::int64_t> shape) {
  std::string sizes;
  for (const std::int64_t size : shape) sizes += std::to_string(size) + ", ";
  // A tuple of one keeps its comma, longer ones end without.
  if (shape.size() == 1) sizes.pop_back();
  if (shape.size() > 1) sizes.resize(sizes.size() - 2);
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  // Magic, version and length take 10 bytes; elements start at a multiple of 64.
  while ((10 + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string header(magic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(dictionary.size() & 0xFF);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

// How many there are. Strides of an empty array must be numbers too: its other sizes are held
// against the same limit.
std::uint64_t elements_of(const std::string& path, const Shape& shape) {
  bool empty = false;
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    const auto n = static_cast<std::uint64_t>(size);
    empty = empty || n == 0;
    if (n > 0 && elements > largest_elements / n) {
      throw bad(path, fmt::format("the header's shape {} is larger than any array can be",
                                  print_shape(shape)));
    }
    if (n > 0) elements *= n;
  }
  return empty ? 0 : elements;
}

}  // namespace

NpyHeader read_npy_header(const std::string& path) {
  const InputFile file(path);
  unsigned char start[12] = {};
  if (file.size() < 10) throw bad(path, "not an .npy file: shorter than 10 bytes");
  file.read_at(0, start, 10);
  if (std::memcmp(start, magic.data(), magic.size()) != 0) {
    throw bad(path, "not an .npy file: it does not begin with \\x93NUMPY");
  }
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw bad(path, fmt::format(".npy version {}.{}; allowed are 1.0, 2.0 and 3.0", major, minor));
  }
  std::uint64_t length = start[8] | start[9] << 8;
  std::uint64_t offset = 10;
  if (major > 1) {
    if (file.size() < 12) throw bad(path, "truncated: the file ends inside its header");
    file.read_at(10, start + 10, 2);
    length |= static_cast<std::uint64_t>(start[10]) << 16;
    length |= static_cast<std::uint64_t>(start[11]) << 24;
    offset = 12;
  }
  if (length > file.size() - offset) throw bad(path, "truncated: the file ends inside its header");
  if (length > largest_header) {
    throw bad(path, fmt::format("a header of {} bytes; allowed are {}", length, largest_header));
  }
  std::string text(length, ' ');
  file.read_at(offset, text.data(), text.size());

  NpyHeader header;
  std::string descr;
  HeaderParser(text, path).parse(descr, header.fortran_order, header.shape);
  header.dtype = dtype_of(descr);
  if (header.dtype == nullptr) {
    throw bad(path, fmt::format("dtype '{}' ({}); allowed are {}", HeaderParser::printable(descr),
                                describe(descr), allowed_types));
  }
  header.data_offset = offset + length;

  header.elements = elements_of(path, header.shape);
  const std::uint64_t needed = header.elements * size_of(header.dtype);
  const std::uint64_t present = file.size() - header.data_offset;
  if (needed != present) {
    throw bad(path, fmt::format("{}: the header's shape {} of {} needs {} bytes, the file has {}",
                                needed > present ? "truncated" : "the header's size is wrong",
                                print_shape(header.shape), header.dtype->name, needed, present));
  }
  return header;
}

Shape tensor_shape_of(const NpyHeader& header, DType dtype) {
  const bool floats = !header.dtype->is_integer() && !dtype->is_integer();
  const bool same = header.dtype->npy == dtype->npy;
  const bool narrowed = header.dtype == &int64 && dtype == &int32;
  if (is_blocked(dtype) ? header.dtype != &uint8 : !same && !floats && !narrowed) {
    throw argument_error(fmt::format("an array of {} cannot become {}; allowed is {}",
                                     header.dtype->name, dtype->name,
                                     is_blocked(dtype)     ? "uint8, the bytes of its blocks"
                                     : dtype == &int32     ? "int32 or int64"
                                     : dtype->is_integer() ? "the same"
                                                           : "any float"));
  }
  Shape shape = header.shape;
  if (!is_blocked(dtype)) return shape;
  const auto block_bytes = static_cast<std::int64_t>(dtype->block_bytes);
  if (shape.empty() || shape.back() % block_bytes != 0) {
    throw argument_error(fmt::format("an array {} of {} has rows of whole blocks of {} bytes",
                                     print_shape(shape), dtype->name, block_bytes));
  }
  shape.back() = shape.back() / block_bytes * dtype->block;
  return shape;
}

namespace {

// Throws for an int64 that int32 does not hold.
void require_int32(const std::string& path, std::size_t element, const char* bytes) {
  std::int64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  using Limits = std::numeric_limits<std::int32_t>;
  if (value >= Limits::min() && value <= Limits::max()) return;
  throw bad(path, fmt::format("element {} is {}; int32 holds {} to {}", element, value,
                              Limits::min(), Limits::max()));
}

}  // namespace

void read_npy(const std::string& path, const NpyHeader& header, DType dtype, void* to) {
  tensor_shape_of(header, dtype);
  const InputFile file(path);
  const bool converts = !is_blocked(dtype) && header.dtype->npy != dtype->npy;
  const bool in_order = !header.fortran_order || header.shape.size() < 2;
  const std::size_t width = size_of(header.dtype);
  if (in_order && !converts) {
    file.read_at(header.data_offset, to, header.elements * width);
    return;
  }
  // In Fortran order bytes of blocks move one by one, as the array's elements that they are.
  const NumberFormat& target = is_blocked(dtype) ? uint8 : *dtype;
  std::vector<char> chunk(std::min<std::uint64_t>(chunk_bytes, header.elements * width));
  FortranWalk walk(header.shape);
  std::uint64_t done = 0;
  while (done < header.elements) {
    const std::uint64_t count =
        std::min<std::uint64_t>(chunk.size() / width, header.elements - done);
    file.read_at(header.data_offset + done * width, chunk.data(), count * width);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto at =
          static_cast<std::size_t>(in_order ? static_cast<std::int64_t>(done + i) : walk.next());
      char* const element = static_cast<char*>(to) + at * target.block_bytes;
      if (converts) {
        double value = 0;
        header.dtype->decode(chunk.data() + i * width, &value, 1);
        if (header.dtype == &int64) require_int32(path, at, chunk.data() + i * width);
        target.encode(&value, element, 1);
      } else {
        std::memcpy(element, chunk.data() + i * width, width);
      }
    }
    done += count;
  }
}

void write_npy(const std::string& path, std::span<const std::int64_t> shape, DType dtype,
               const void* data) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  ReplacedFile file(path);
  file.write(npy_header(dtype->npy, shape_in_file(shape, dtype)));
  file.write({static_cast<const char*>(data), dtype->bytes(count)});
  file.commit();
}

}  // namespace rooflane
