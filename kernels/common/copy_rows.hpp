// Copies for peers that cannot take a view with strides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor.hpp"

namespace rooflane {

// Between views of one shape and format, whatever their strides.
inline void copy_rows(const View& from, const View& to) {
  const std::size_t bytes = from.dtype->bytes(from.cols());
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    std::copy_n(from.row(row), bytes, to.row(row));
  }
}

}  // namespace rooflane
