// NumPy's .npy files, versions 1 to 3. Reads little-endian float32, float64, float16, bfloat16 (as
// ml_dtypes writes it: raw records of two bytes), int8, uint8, int32 and int64 in C or Fortran
// order; everything else is refused by name before anything is allocated. Writes version 1, C
// order. Block formats are arrays of bytes, [..., bytes of a row]. Format: numpy.lib.format's
// documentation.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.hpp"

namespace rooflane {

struct NpyHeader {
  Shape shape;
  DType dtype = nullptr;
  bool fortran_order = false;
  std::uint64_t data_offset = 0;  // bytes before the elements
  std::uint64_t elements = 0;
};

// Reads and checks the header against the file's size. Throws Error(argument) naming the file:
// missing, no regular file, no .npy, unknown version, truncated, a header that does not parse,
// sizes that overflow or disagree with the file's size, big-endian, complex, object, boolean...
NpyHeader read_npy_header(const std::string& path);

// The shape in elements of an array for a tensor of format `dtype`: that of the header but for
// block formats. Throws Error(argument) when the array's format cannot become `dtype`: floats
// convert to floats, int64 to int32, everything else must be the very format (of block formats:
// bytes).
Shape tensor_shape_of(const NpyHeader& header, DType dtype);

// Reads the elements in C order as `dtype` into `to`, rounding once (to nearest even) where the
// array's format is another. Throws as above, and for an int64 that int32 does not hold.
void read_npy(const std::string& path, const NpyHeader& header, DType dtype, void* to);

// Writes C-order elements of a shape in elements; the file appears, or is replaced, only when
// complete.
void write_npy(const std::string& path, std::span<const std::int64_t> shape, DType dtype,
               const void* data);

}  // namespace rooflane
