// NumPy's .npy files, versions 1 to 3. Reads little-endian float32, float64 and float16 in C or
// Fortran order as float32 in C order; everything else is refused by name before anything is
// allocated. Writes version 1, C order. Format: numpy.lib.format's documentation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.hpp"

namespace rooflane {

struct NpyHeader {
  Shape shape;
  std::string dtype;  // "float32", "float64", "float16"
  bool fortran_order = false;
  std::uint64_t data_offset = 0;  // bytes before the elements
  std::uint64_t elements = 0;
};

// Reads and checks the header against the file's size. Throws Error(argument) naming the file:
// missing, no regular file, no .npy, unknown version, truncated, a header that does not parse or
// whose sizes overflow or disagree with the file's size, big-endian, complex, object, integer...
NpyHeader read_npy_header(const std::string& path);

// Reads the elements as float32 in C order into `to`, which holds header.elements. float64 and
// float16 are converted (round to nearest even).
void read_npy(const std::string& path, const NpyHeader& header, float* to);

// Writes C-order elements; the file appears, or is replaced, only when complete.
void write_npy(const std::string& path, std::span<const std::int64_t> shape, const float* data);
void write_npy(const std::string& path, std::span<const std::int64_t> shape, const double* data);

}  // namespace rooflane
