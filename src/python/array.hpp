// Arrays as Python gives them: NumPy, the buffer protocol, DLPack (PyTorch, JAX, CuPy's host
// memory), bfloat16 of ml_dtypes. Their memory is used in place; nothing here copies elements.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "core/kernel.hpp"

namespace rooflane::python {

namespace nb = nanobind;

enum class Access { read, write };

// An array under the name of a tensor. Its memory stays alive as long as this does; destroyed with
// the GIL held.
struct Array {
  std::string name;
  nb::ndarray<nb::ro> memory;  // keeps the exporter alive
  void* data = nullptr;
  DType dtype = nullptr;  // of the stored elements: of block formats uint8
  Shape shape;            // any rank, of stored elements
  Shape strides;          // in stored elements
};

// Throws nb::type_error where `object` is not an array. Throws Error(argument) that names the array
// where it is not in this process's memory, has a format that no kernel has or, with Access::write,
// is read only.
Array array_of(std::string name, nb::handle object, Access access);

// The shape in elements of a tensor's format: the array's own, except for block formats, where
// arrays have the bytes. Throws Error(argument) where the formats disagree.
Shape elements_of(const Array& array, DType dtype);

// The array as a tensor of a problem: leading axes taken together, a dropped one added. `wanted`:
// the tensor's shape, one entry per axis. Throws Error(argument) naming the array where that, or a
// last axis with gaps, needs a copy, or where it has another shape.
View view_of(const Array& array, const TensorSpec& spec, const Shape& wanted);

}  // namespace rooflane::python
