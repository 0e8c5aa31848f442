// From Python's objects to views. See array.hpp.
#include "python/array.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "core/error.hpp"

namespace rooflane::python {
namespace {

std::string text_of(nb::handle object) { return nb::str(object).c_str(); }

std::string class_name(nb::handle object) {
  return text_of(nb::getattr(object.type(), "__name__", nb::str("?")));
}

// What the exporter itself says about an object that cannot be imported: PyTorch names a tensor
// that requires a gradient so.
std::string complaint_of(nb::handle object) {
  try {
    object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    return text_of(error.value());
  }
  return "it cannot be exported";
}

// By the type that was NumPy's last time: asking for its name takes longer than all else here.
bool is_numpy(nb::handle object) {
  static std::atomic<const void*> known = nullptr;
  const nb::handle type = object.type();
  if (type.ptr() == known.load(std::memory_order_relaxed)) return true;
  if (text_of(nb::type_name(type)) != "numpy.ndarray") return false;
  known.store(type.ptr(), std::memory_order_relaxed);
  return true;
}

bool is_numpy_bfloat16(nb::handle object) {
  if (!nb::hasattr(object, "view")) return false;
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return text_of(nb::getattr(dtype, "name", nb::str(""))) == "bfloat16";
}

bool is_jax(nb::handle object) {
  return text_of(nb::getattr(object.type(), "__module__", nb::str(""))).starts_with("jax");
}

// Null: no kernel has such elements.
DType format_of(nb::dlpack::dtype stored) {
  using Code = nb::dlpack::dtype_code;
  struct Known {
    Code code;
    int bits;
    DType dtype;
  };
  static constexpr std::array known = {
      Known{Code::Float, 32, &float32},   Known{Code::Float, 16, &float16},
      Known{Code::Bfloat, 16, &bfloat16}, Known{Code::Float, 64, &float64},
      Known{Code::Int, 8, &int8},         Known{Code::UInt, 8, &uint8},
      Known{Code::Int, 32, &int32},       Known{Code::Int, 64, &int64}};
  const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) {
    return stored.lanes == 1 && stored.code == static_cast<std::uint8_t>(one.code) &&
           stored.bits == one.bits;
  });
  return found == known.end() ? nullptr : found->dtype;
}

// The memory behind an object. Not valid: it has none that may be used so.
nb::ndarray<nb::ro> import(nb::handle object, Access access) {
  nb::ndarray<nb::ro> memory;
  if (access == Access::read) {
    nb::try_cast(object, memory, /*convert=*/false);
    return memory;
  }
  nb::ndarray<> writable;
  // JAX's arrays never change, and not every version of it says so.
  if (is_jax(object) || !nb::try_cast(object, writable, /*convert=*/false)) return memory;
  return nb::ndarray<nb::ro>(writable);
}

nb::ndarray<nb::ro> memory_of(const std::string& name, nb::handle object, Access access,
                              bool& is_bfloat16) {
  if (!nb::hasattr(object, "__dlpack__") && PyObject_CheckBuffer(object.ptr()) == 0) {
    throw nb::type_error(
        fmt::format("{} is {}: allowed are NumPy arrays and what has __dlpack__ or a buffer", name,
                    class_name(object))
            .c_str());
  }
  // NumPy's own class needs neither question: each costs a call as much as all else here.
  const bool known = is_numpy(object);
  if (!known && nb::hasattr(object, "mask") && nb::hasattr(object, "filled")) {
    throw argument_error(
        fmt::format("{} is a masked array, and kernels leave no element out: pass {}.filled(value)",
                    name, name));
  }
  if (!known && nb::cast<bool>(nb::getattr(object, "requires_grad", nb::bool_(false)))) {
    throw argument_error(
        fmt::format("{} requires a gradient, which kernels do not have: "
                    "pass it with detach()",
                    name));
  }
  nb::object source = nb::borrow(object);
  nb::ndarray<nb::ro> memory = import(source, access);
  // Neither DLPack nor the buffer protocol carries ml_dtypes' type out of NumPy: its bits do.
  if (!memory.is_valid() && is_numpy_bfloat16(source)) {
    is_bfloat16 = true;
    source = source.attr("view")("uint16");
    memory = import(source, access);
  }
  if (memory.is_valid()) return memory;
  if (access == Access::write && import(source, Access::read).is_valid()) {
    throw argument_error(fmt::format("{} is read only: an output is written in place", name));
  }
  throw argument_error(fmt::format("{}: {}", name, complaint_of(object)));
}

void require_host(const Array& array) {
  const int device = array.memory.device_type();
  if (device == nb::device::cpu::value || device == nb::device::cuda_host::value) return;
  throw argument_error(
      fmt::format("{} lies in a device's memory: allowed is memory of this process", array.name));
}

[[noreturn]] void want_copy(const Array& array, const std::string& why) {
  throw argument_error(fmt::format("{} {} {}: numpy.ascontiguousarray copies it", array.name,
                                   print_shape(array.shape), why));
}

bool is_empty(const Array& array) {
  return std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
}

void check_strides(const Array& array) {
  const std::size_t rank = array.shape.size();
  if (is_empty(array)) return;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t stride = array.strides[axis];
    if (array.shape[axis] == 1) continue;  // its stride means nothing
    if (axis + 1 == rank && stride != 1) {
      want_copy(array,
                fmt::format("has elements {} apart along its last axis, allowed is 1", stride));
    }
    if (stride < 0) want_copy(array, fmt::format("runs backwards along axis {}", axis));
  }
}

struct Extent {
  std::int64_t length, stride;
};

// The first `count` axes as one. `dense`: the stride of an axis there without gaps.
Extent joined(const Array& array, std::size_t count, std::int64_t dense) {
  const bool empty = is_empty(array);
  Extent all{1, dense};
  for (std::size_t i = count; i-- > 0;) {
    if (array.shape[i] != 1 && !empty) {
      if (all.length == 1) {
        all.stride = array.strides[i];
      } else if (array.strides[i] != all.stride * all.length) {
        want_copy(array, "has leading axes with gaps, which cannot be taken together");
      }
    }
    all.length *= array.shape[i];
  }
  return all;
}

[[noreturn]] void refuse_shape(const Array& array, const Shape& shape, const Shape& wanted) {
  throw argument_error(
      fmt::format("{} is {}, allowed is {}", array.name, print_shape(shape), print_shape(wanted)));
}

// Strides in stored elements, which of block formats are bytes, as strides in elements.
void count_elements(const Array& array, View& view) {
  if (view.dtype->block == 1) return;
  const auto bytes = static_cast<std::int64_t>(view.dtype->block_bytes);
  for (int i = 0; i + 1 < view.rank; ++i) {
    if (view.strides[i] % bytes != 0) want_copy(array, "has rows that begin inside a block");
    view.strides[i] = view.strides[i] / bytes * view.dtype->block;
  }
}

}  // namespace

Array array_of(std::string name, nb::handle object, Access access) {
  Array array;
  array.name = std::move(name);
  bool is_bfloat16 = false;
  array.memory = memory_of(array.name, object, access, is_bfloat16);
  require_host(array);
  array.dtype = is_bfloat16 ? &bfloat16 : format_of(array.memory.dtype());
  if (array.dtype == nullptr) {
    throw argument_error(fmt::format("{} has elements of {}, which no kernel takes", array.name,
                                     text_of(nb::getattr(object, "dtype", nb::str("?")))));
  }
  array.data = const_cast<void*>(static_cast<const void*>(array.memory.data()));
  for (std::size_t axis = 0; axis < array.memory.ndim(); ++axis) {
    array.shape.push_back(static_cast<std::int64_t>(array.memory.shape(axis)));
    array.strides.push_back(array.memory.stride(axis));
  }
  return array;
}

Shape elements_of(const Array& array, DType dtype) {
  if (array.dtype->npy != dtype->npy) {
    throw argument_error(fmt::format("{} is {}, allowed is {}{}", array.name, array.dtype->name,
                                     dtype->name, dtype->block > 1 ? " as bytes, uint8" : ""));
  }
  Shape shape = array.shape;
  if (dtype->block == 1) return shape;
  const auto bytes = static_cast<std::int64_t>(dtype->block_bytes);
  if (shape.empty() || shape.back() % bytes != 0) {
    throw argument_error(fmt::format("{} {}: a row of {} is a multiple of {} bytes", array.name,
                                     print_shape(array.shape), dtype->name, bytes));
  }
  shape.back() = shape.back() / bytes * dtype->block;
  return shape;
}

View view_of(const Array& array, const TensorSpec& spec, const Shape& wanted) {
  const Shape shape = elements_of(array, spec.dtype);
  check_strides(array);
  const bool flexible = spec.axes.front().form != Axis::Form::plain;
  const std::size_t plain = wanted.size() - (flexible ? 1 : 0);
  if (shape.size() < plain || (!flexible && shape.size() > plain)) {
    refuse_shape(array, shape, wanted);
  }
  View view{.data = array.data, .dtype = spec.dtype, .rank = static_cast<int>(wanted.size())};
  const std::size_t leading = shape.size() - plain;
  std::int64_t dense = 1;
  for (std::size_t i = plain; i-- > 0;) {
    const std::size_t to = wanted.size() - plain + i;
    view.shape[to] = shape[leading + i];
    view.strides[to] = shape[leading + i] <= 1 ? dense : array.strides[leading + i];
    dense *= array.shape[leading + i];
  }
  if (flexible) {
    const Extent first = joined(array, leading, dense);
    view.shape[0] = first.length;
    view.strides[0] = first.stride;
    if (wanted.size() == 1 && first.length > 1 && first.stride != 1) want_copy(array, "has gaps");
  }
  view.strides[wanted.size() - 1] = 1;
  count_elements(array, view);
  if (!std::equal(wanted.begin(), wanted.end(), view.shape.begin())) {
    refuse_shape(array, shape, wanted);
  }
  return view;
}

}  // namespace rooflane::python
