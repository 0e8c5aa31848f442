// .npy files: what NumPy writes is read, what lies is refused by name before anything is allocated.
#include "io/npy.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/temporary_folder.hpp"
#include "io/files.hpp"

namespace rooflane {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string dictionary(const std::string& descr, const std::string& order,
                       const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  return file + header + data;
}

const TemporaryFolder folder;

std::string write(const std::string& content) {
  const std::string path = folder / "array.npy";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::vector<float> read(const std::string& path) {
  const NpyHeader header = read_npy_header(path);
  std::vector<float> values(header.elements);
  read_npy(path, header, &float32, values.data());
  return values;
}

std::string refusal(const std::string& content) {
  try {
    read_npy_header(write(content));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    const std::string message = error.what();
    CHECK(message.find("array.npy") != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  return "accepted";
}

bool refused_as(const std::string& content, const std::string& word) {
  const std::string message = refusal(content);
  INFO(message);
  CHECK(message.find(word) != std::string::npos);
  return message.find(word) != std::string::npos;
}

const std::vector<float> six = {0, 1, 2, 3, 4, 5};

TEST_CASE("versions 1 to 3 are read") {
  for (const int version : {1, 2, 3}) {
    CAPTURE(version);
    const std::string path =
        write(npy(dictionary("<f4", "False", "(2, 3)"), bytes_of(six), version));
    CHECK(read_npy_header(path).shape == Shape{2, 3});
    CHECK(read(path) == six);
  }
}

TEST_CASE("Fortran order becomes C order, in every rank and across chunks") {
  CHECK(read(write(npy(dictionary("<f4", "True", "(2, 3)"), bytes_of(six)))) ==
        std::vector<float>{0, 2, 4, 1, 3, 5});
  // Element [i,j,k] of a Fortran array is at i + 3 (j + 5 k).
  std::vector<float> stored(3 * 5 * 2);
  for (std::size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<float>(i);
  const std::vector<float> cube =
      read(write(npy(dictionary("<f4", "True", "(3, 5, 2)"), bytes_of(stored))));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 5; ++j) {
      for (int k = 0; k < 2; ++k) CHECK(cube[(i * 5 + j) * 2 + k] == i + 3 * (j + 5 * k));
    }
  }
  const std::size_t rows = 700, cols = 900;  // more than one chunk of 1 MiB
  std::vector<float> large(rows * cols);
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  const std::vector<float> transposed =
      read(write(npy(dictionary("<f4", "True", "(700, 900)"), bytes_of(large))));
  bool right = true;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      right = right && transposed[r * cols + c] == large[r + rows * c];
    }
  }
  CHECK(right);
}

TEST_CASE("float64 and float16 are converted") {
  const std::vector<double> wide = {1.0 / 3, 1e300, -0.0, 16777217};
  CHECK(read(write(npy(dictionary("<f8", "False", "(4,)"), bytes_of(wide)))) ==
        std::vector<float>{1.0f / 3, std::numeric_limits<float>::infinity(), -0.0f, 16777216});
  // 1, -2, smallest subnormal, largest, infinity, smallest normal
  const std::vector<std::uint16_t> half = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0x0400};
  CHECK(
      read(write(npy(dictionary("<f2", "False", "(6,)"), bytes_of(half)))) ==
      std::vector<float>{1, -2, 0x1p-24f, 65504, std::numeric_limits<float>::infinity(), 0x1p-14f});
  const std::vector<std::uint16_t> nan = {0x7E00};
  const float value = read(write(npy(dictionary("<f2", "False", "(1,)"), bytes_of(nan))))[0];
  CHECK(value != value);
}

TEST_CASE("headers in any order, spacing and quoting that Python writes") {
  const std::string data = bytes_of(six);
  for (const char* header :
       {"{\"shape\":(6,),'fortran_order':False,'descr':'<f4'}",
        "{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 3 , 2 ) , }   \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 2L), }"}) {
    CAPTURE(header);
    CHECK(read(write(npy(header, data))) == six);
  }
  CHECK(read(write(npy(dictionary("<f4", "False", "()"), bytes_of<float>({7})))) ==
        std::vector<float>{7});
  CHECK(read(write(npy(dictionary("<f4", "False", "(0, 5)"), ""))).empty());
}

TEST_CASE("other types are refused by name") {
  const std::string data(48, '\0');
  const std::vector<std::pair<std::string, std::string>> types = {{">f4", "big-endian float32"},
                                                                  {"<c8", "complex64"},
                                                                  {"<c16", "complex128"},
                                                                  {"|O", "Python objects"},
                                                                  {"<i2", "int16"},
                                                                  {"<u8", "uint64"},
                                                                  {"<u2", "uint16"},
                                                                  {"|b1", "boolean"},
                                                                  {"<U4", "text"},
                                                                  {"<f16", "float128"},
                                                                  {"<M8[ns]", "dates"},
                                                                  {"|V8", "raw records"},
                                                                  {"", "unknown type"},
                                                                  {"<f", "float"},
                                                                  {"f4", "unknown type"}};
  for (const auto& type : types) {  // Clang 14 captures no structured binding
    CAPTURE(type.first);
    refused_as(npy(dictionary(type.first, "False", "(6,)"), data), type.second);
  }
  refused_as(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", data),
             "structured");
}

TEST_CASE("headers that lie about sizes are refused before anything is allocated") {
  const std::string data = bytes_of(six);
  const auto with_shape = [&](const std::string& shape) {
    return npy(dictionary("<f4", "False", shape), data);
  };
  refused_as(with_shape("(7,)"), "truncated");
  refused_as(with_shape("(5,)"), "size is wrong");
  refused_as(with_shape("(4000000000, 4000000000)"), "larger than any array");
  refused_as(with_shape("(4294967296, 4294967296, 0)"), "larger than any array");
  refused_as(with_shape("(4294967296, 0)"), "size is wrong");
  refused_as(with_shape("(9223372036854775807, 2)"), "larger than any array");
  refused_as(with_shape("(4503599627370496,)"), "truncated");
  refused_as(with_shape("(99999999999999999999,)"), "too large");
  refused_as(with_shape("(-6,)"), "negative");
  refused_as(with_shape("(-2, -3)"), "negative");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  refused_as(with_shape(many + ")"), "more than 64 axes");
}

TEST_CASE("files that are no .npy, or only the beginning of one, are refused") {
  const std::string whole = npy(dictionary("<f4", "False", "(2, 3)"), bytes_of(six));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal(whole.substr(0, size)) != "accepted");
  }
  refused_as("PK\x03\x04 a zip file", "not an .npy file");
  refused_as(npy(dictionary("<f4", "False", "(6,)"), bytes_of(six), 4), "version 4.0");
  refused_as(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12) + "{}", "truncated");
  refused_as(npy("{}", bytes_of(six)), "must contain");
  refused_as(npy("{'descr': '<f4'", ""), "does not parse");
  refused_as(npy("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (6,)}", bytes_of(six)),
             "True or False");
  refused_as(npy(dictionary("<f4", "False", "(2.5,)"), bytes_of(six)), "does not parse");
  refused_as(npy(dictionary("<f4", "False", "(6)") + " import os", bytes_of(six)), "text after");
  refused_as(
      npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", bytes_of(six)),
      "given twice");
  CHECK_THROWS_AS(read_npy_header(folder / "missing.npy"), Error);
  CHECK_THROWS_AS(read_npy_header(folder.path()), Error);
  CHECK_THROWS_AS(read_npy_header("/dev/zero"), Error);
}

TEST_CASE("the writer makes version 1, aligned to 64 bytes, and reads back") {
  const std::vector<Shape> shapes = {{}, {1}, {6}, {2, 3}, {1, 2, 3}, {0, 3}, {3, 2, 1, 1}};
  for (const Shape& shape : shapes) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    const std::vector<float> values(six.begin(), six.begin() + count);
    const std::string path = folder / "written.npy";
    write_npy(path, shape, &float32, values.data());
    const std::string bytes = read_text_file(path);
    CHECK(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
    const NpyHeader header = read_npy_header(path);
    CHECK(header.data_offset % 64 == 0);
    CHECK(bytes[header.data_offset - 1] == '\n');
    CHECK(header.shape == shape);
    CHECK(header.dtype == &float32);
    CHECK(read(path) == values);
  }
  const std::vector<double> wide = {0.5, 0.25};
  write_npy(folder / "wide.npy", Shape{2}, &float64, wide.data());
  CHECK(read_npy_header(folder / "wide.npy").dtype == &float64);
}

TEST_CASE("a file that cannot be written stays as it was") {
  CHECK_THROWS_AS(write_npy(folder / "none/c.npy", Shape{6}, &float32, six.data()), Error);
  CHECK_THROWS_AS(write_npy(folder.path(), Shape{6}, &float32, six.data()), Error);
}

}  // namespace
}  // namespace rooflane
