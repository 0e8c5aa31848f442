// GGUF files: what is written is read, every format becomes the float32 that the PyPI package gguf
// makes of it, and what lies about itself is refused in one line.
#include "io/gguf.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/seeds.hpp"
#include "core/temporary_folder.hpp"
#include "tests/gguf_writer.hpp"

namespace rooflane {
namespace {

std::string refusal(const std::string& file) {
  try {
    const Gguf gguf(file, "model.gguf");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    const std::string message = error.what();
    CHECK(message.find("model.gguf") != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  return "accepted";
}

void refused_as(const std::string& file, const std::string& word) {
  const std::string message = refusal(file);
  INFO(message);
  CHECK(message.find(word) != std::string::npos);
}

// The file with bytes from `at` on replaced.
std::string with(std::string file, std::size_t at, const std::string& bytes) {
  return file.replace(at, bytes.size(), bytes);
}

}  // namespace

TEST_CASE("values and tensors of both versions are read, from memory and from a file") {
  const TemporaryFolder folder;
  for (const std::uint32_t version : {2, 3}) {
    const std::string path = folder / "model.gguf";
    std::ofstream(path, std::ios::binary) << small_gguf().file(version);
    const Gguf gguf(path);
    CHECK(gguf.version() == version);
    CHECK(gguf.metadata().size() == 11);
    CHECK(gguf.text("general.architecture") == "llama");
    CHECK(gguf.integer("a.integer") == 7);
    CHECK(gguf.integer("a.negative") == -5);
    CHECK(gguf.integer("a.byte") == 200);
    CHECK(gguf.boolean("a.truth") == true);
    CHECK(gguf.real("a.double") == 0.1);
    CHECK(gguf.real("a.real") == 0.5);
    CHECK(gguf.real("a.integer") == 7);
    CHECK_FALSE(gguf.integer("absent").has_value());
    const auto texts = elements_of(*gguf.find_value("some.texts"));
    REQUIRE(texts.size() == 3);
    CHECK(std::get<std::string_view>(texts[0]) == "x");
    CHECK(std::get<std::string_view>(texts[1]) == "");
    CHECK(std::get<std::string_view>(texts[2]) == "yz");
    CHECK(std::get<std::int64_t>(elements_of(*gguf.find_value("some.integers"))[0]) == -1);
    CHECK(elements_of(*gguf.find_value("none")).empty());

    const GgufTensor* const matrix = gguf.find_tensor("matrix");
    REQUIRE(matrix != nullptr);
    CHECK(matrix->shape == Shape{3, 4});
    std::vector<float> values(12);
    read_f32(*matrix, values.data());
    CHECK(values[11] == 11);
    CHECK(gguf.find_tensor("block")->dtype == &q8_0);
    CHECK(gguf.find_tensor("absent") == nullptr);
  }
}

TEST_CASE("a value of another type than was asked for is an error that names it") {
  const std::string file = small_gguf().file();
  const Gguf gguf(file, "model.gguf");
  CHECK_THROWS_WITH_AS(gguf.integer("general.architecture"),
                       "'model.gguf': metadata 'general.architecture' is not an integer", Error);
  CHECK_THROWS_AS(gguf.integer("a.long"), Error);
  CHECK_THROWS_AS(gguf.integer("some.integers"), Error);
  CHECK_THROWS_AS(gguf.real("a.truth"), Error);
  CHECK_THROWS_AS(gguf.boolean("a.integer"), Error);
  CHECK_THROWS_AS(gguf.text("a.real"), Error);
}

// The hashes (FNV-1a) are of the floats that gguf 0.19 (PyPI) makes of the same bytes, with NumPy
// 2.4:
//   raw = np.array([(i * 37 + 11) % 251 for i in range(bytes)], np.uint8).reshape(-1, unit)
//   raw[:, byte] &= mask, for each of a unit's masks below: scales and floats become finite
//   gguf.quants.dequantize(raw.reshape(1, -1), type).tobytes()  (float16: NumPy's astype)
TEST_CASE("every format becomes the float32 that the package gguf makes of it") {
  struct Mask {
    std::size_t byte;
    int mask;
  };
  struct Format {
    const char* name;
    std::uint32_t type;
    std::size_t unit;
    std::vector<Mask> masks;
    std::uint64_t hash;
  };
  const std::vector<Format> formats = {
      {"F32", 0, 4, {{3, 0xBF}}, 0x203d42a67974e5f6},
      {"F16", 1, 2, {{1, 0xBF}}, 0xac68b4fb889c4c9a},
      {"BF16", 30, 2, {{1, 0xBF}}, 0xa9094c3ef9f5465f},
      {"Q4_0", 2, 18, {{1, 0x3F}}, 0x31334b288c0d020d},
      {"Q4_1", 3, 20, {{1, 0x3F}, {3, 0xBF}}, 0xbc91eeeafeac8a0f},
      {"Q5_0", 6, 22, {{1, 0x3F}}, 0x654b6dc92d2800c0},
      {"Q5_1", 7, 24, {{1, 0x3F}, {3, 0xBF}}, 0x4c1c4bdf20b8be13},
      {"Q8_0", 8, 34, {{1, 0x3F}}, 0x0edeafb4aa2eb653},
  };
  constexpr std::size_t elements = 256;
  for (const Format& format : formats) {
    INFO(format.name);
    const std::size_t units = elements / (format.unit > 4 ? 32 : 1);
    std::string bytes;
    for (std::size_t i = 0; i < units * format.unit; ++i) {
      bytes += static_cast<char>((i * 37 + 11) % 251);
    }
    for (std::size_t i = 0; i < units; ++i) {
      for (const Mask& each : format.masks) {
        char& byte = bytes[i * format.unit + each.byte];
        byte = static_cast<char>(byte & each.mask);
      }
    }
    const std::string file = GgufWriter().tensor("t", {elements}, format.type, bytes).file();
    const Gguf gguf(file, "model.gguf");
    std::vector<float> values(elements);
    read_f32(*gguf.find_tensor("t"), values.data());
    CHECK(fnv1a64({reinterpret_cast<const char*>(values.data()), elements * sizeof(float)}) ==
          format.hash);
  }
}

TEST_CASE("what is no GGUF file of these versions is refused by name") {
  const std::string file = small_gguf().file();
  refused_as("", "not a GGUF file");
  refused_as("GGM", "not a GGUF file");
  refused_as("ggml" + file.substr(4), "not a GGUF file");
  refused_as("GGUF", "truncated");
  refused_as(small_gguf().file(1), "version 1");
  refused_as(small_gguf().file(4), "version 4");
  refused_as(small_gguf().file(0x03000000), "big-endian");
  CHECK_THROWS_AS(Gguf("/nonexistent/model.gguf"), Error);
  CHECK_THROWS_AS(Gguf("/tmp"), Error);
  CHECK_THROWS_AS(Gguf("/dev/zero"), Error);
}

TEST_CASE("a file that ends anywhere is refused as truncated") {
  const std::string file = small_gguf().file();
  CHECK(refusal(file) == "accepted");
  for (std::size_t length = 4; length < file.size(); ++length) {
    refused_as(file.substr(0, length), "truncated");
  }
}

TEST_CASE("counts and lengths beyond the file are refused before anything is allocated") {
  const std::uint64_t huge[] = {1000, std::uint64_t{1} << 32, std::uint64_t{1} << 61,
                                std::numeric_limits<std::uint64_t>::max()};
  for (const std::uint64_t count : huge) {
    refused_as(small_gguf().file(3, count, 11), "truncated");
    refused_as(small_gguf().file(3, 3, count), "truncated");
    refused_as(GgufWriter().array("a", GgufType::int32, count, "").file(), "truncated");
    refused_as(GgufWriter().array("a", GgufType::text, count, "").file(), "truncated");
    refused_as(GgufWriter().value("a", GgufType::text, raw(count)).file(), "truncated");
    // A key's length, and a tensor name's.
    refused_as(with(small_gguf().file(), 24, raw(count)), count == 1000 ? "" : "65535");
    refused_as(GgufWriter().tensor("t", {count, 4}, 0, floats(4)).file(), "truncated");
    refused_as(GgufWriter().tensor("t", {4, count, count}, 0, floats(4)).file(), "truncated");
    refused_as(GgufWriter().tensor_at("t", {4}, 0, count / 32 * 32, floats(4)).file(), "truncated");
  }
  refused_as(GgufWriter().tensor(std::string(65, 'n'), {4}, 0, floats(4)).file(), "allowed are 64");
  CHECK(refusal(GgufWriter().tensor(std::string(64, 'n'), {4}, 0, floats(4)).file()) == "accepted");
}

TEST_CASE("axes, types, alignment and places that cannot be are refused") {
  refused_as(GgufWriter().tensor("t", {}, 0, "").file(), "0 axes; allowed are 1 to 4");
  refused_as(GgufWriter().tensor("t", {1, 1, 1, 1, 1}, 0, floats(1)).file(), "5 axes");
  refused_as(GgufWriter().tensor("t", {4, 0}, 0, floats(4)).file(), "size 0");
  refused_as(GgufWriter().tensor("t", {48}, 8, std::string(99, 0)).file(), "multiples of 32");
  refused_as(GgufWriter().tensor("t", {256}, 12, std::string(144, 0)).file(),
             "type Q4_K; read are");
  refused_as(GgufWriter().tensor("t", {4}, 99, floats(4)).file(), "type 99; read are F32");
  refused_as(GgufWriter().tensor_at("t", {4}, 0, 4, floats(8)).file(), "alignment");
  refused_as(GgufWriter().tensor("t", {4}, 0, floats(4)).tensor("t", {4}, 0, floats(4)).file(),
             "tensor 't' occurs twice");
  refused_as(
      GgufWriter().tensor_at("a", {16}, 0, 0, floats(16)).tensor_at("b", {8}, 0, 32, "").file(),
      "'a' and 'b' overlap");
  refused_as(GgufWriter().integer("k", 1).integer("k", 2).file(), "'k' occurs twice");
  refused_as(GgufWriter().integer("", 1).file(), "key is empty");
  refused_as(GgufWriter().tensor("", {4}, 0, floats(4)).file(), "name is empty");
  refused_as(GgufWriter().value("k", static_cast<GgufType>(13), "").file() + floats(8), "type 13");
  refused_as(GgufWriter().array("k", GgufType::array, 0, "").file(), "array of arrays");
  refused_as(GgufWriter().value("k", GgufType::boolean, raw<std::uint8_t>(2)).file(), "BOOL of 2");
  for (const std::uint32_t alignment : {0u, 3u, 48u}) {
    refused_as(GgufWriter().integer("general.alignment", alignment).file(), "powers of two");
  }
  refused_as(GgufWriter().text("general.alignment", "32").file(), "not an integer");
  // What a message repeats from the file is made printable: refused_as() sees one line.
  refused_as(GgufWriter().integer("k\n\x1b", 1).integer("k\n\x1b", 2).file(), "metadata 'k");
}

// Reads all that a caller may read of a file that was accepted; returns how many elements.
std::size_t read_all(const Gguf& gguf) {
  std::size_t count = 0;
  for (const GgufValue& value : gguf.metadata()) count += elements_of(value).size();
  std::vector<float> values;
  for (const GgufTensor& tensor : gguf.tensors()) {
    std::size_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= static_cast<std::size_t>(size);
    values.resize(elements);
    read_f32(tensor, values.data());
    count += elements;
  }
  return count;
}

TEST_CASE("twenty thousand seeded mutations are read or refused in one line") {
  const std::string original = small_gguf().file();
  constexpr std::uint64_t odd[] = {0,
                                   1,
                                   2,
                                   31,
                                   0x7F,
                                   0xFF,
                                   0xFFFF,
                                   0x7FFFFFFF,
                                   0xFFFFFFFF,
                                   std::uint64_t{1} << 61,
                                   ~std::uint64_t{0}};
  std::uint64_t state = 38;
  const auto random = [&](std::uint64_t below) {
    state = splitmix64(state + 1);
    return state % below;
  };
  int accepted = 0, refused = 0;
  std::size_t elements = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = original;
    for (std::uint64_t edit = 0; edit <= random(3); ++edit) {
      const std::uint64_t at = random(file.size() - 8);
      const auto width = std::size_t{1} << random(4);
      switch (random(4)) {
        case 0:
          file[at] = static_cast<char>(file[at] ^ 1 << random(8));
          break;
        case 1:
          file.replace(at, width, raw(odd[random(std::size(odd))]).substr(0, width));
          break;
        case 2:
          file.erase(at, width);
          break;
        default:
          file.insert(at, file.substr(random(file.size() - 8), width));
          break;
      }
    }
    // A copy of its own, so that a sanitizer sees a read beyond its end.
    const std::vector<char> bytes(file.begin(), file.end());
    try {
      const Gguf gguf({bytes.data(), bytes.size()}, "model.gguf");
      elements += read_all(gguf);
      ++accepted;
    } catch (const Error& error) {
      refused += std::strchr(error.what(), '\n') == nullptr;
    }
  }
  CHECK(accepted + refused == 20000);
  CHECK(accepted > 1000);
  CHECK(elements > 1000);
  CHECK(refused > 1000);
}

}  // namespace rooflane
