// Copies for peers that cannot take a view with strides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/buffer.hpp"
#include "core/tensor.hpp"

namespace rooflane {

// Between views of one shape and format, whatever their strides.
inline void copy_rows(const View& from, const View& to) {
  const std::size_t bytes = from.dtype->bytes(from.cols());
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    std::copy_n(from.row(row), bytes, to.row(row));
  }
}

// An input as a peer reads it: in place, or a copy without gaps that each run makes.
class PeerInput {
 public:
  void bind(const View& view, bool copies) {
    given_ = read_ = view;
    copy_ = copies ? Buffer(view.dtype->bytes(view.elements())) : Buffer();
    if (!copies) return;
    const auto rank = static_cast<std::size_t>(view.rank);
    read_ = contiguous_view(copy_.data(), std::span(view.shape).first(rank), view.dtype);
  }
  void copy() const {
    if (copy_.bytes() > 0) copy_rows(given_, read_);
  }
  const View& view() const { return read_; }
  std::size_t bytes() const { return copy_.bytes(); }

 private:
  View given_, read_;
  Buffer copy_;
};

}  // namespace rooflane
