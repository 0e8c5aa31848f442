// Views of caller-owned memory. A view never owns, allocates or frees.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtype.hpp"

namespace rooflane {

using Shape = std::vector<std::int64_t>;
std::string print_shape(std::span<const std::int64_t> shape);  // "[3,4]"

// Data, dtype, shape and strides in elements. The last axis is contiguous (stride 1); leading axes
// may have any non-negative stride, so a sub-matrix costs no copy. Rank is 1 to 4. In a block
// format the last axis and all strides are multiples of the block.
struct View {
  static constexpr int max_rank = 4;
  void* data = nullptr;
  DType dtype = &float32;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> strides{};

  float* f32() const {
    assert(dtype == &float32);
    return static_cast<float*>(data);
  }
  // As the C++ type of its format (float16.hpp).
  template <class T>
  T* as() const {
    assert(sizeof(T) == size_of(dtype));
    return static_cast<T*>(data);
  }
  std::int64_t elements() const;
  // The view as [rows,cols], cols being the last axis: how many rows, and where one begins.
  std::int64_t rows() const;
  std::int64_t cols() const { return shape[rank - 1]; }
  std::byte* row(std::int64_t index) const;
  bool empty() const { return elements() == 0; }
  // [first byte touched, one past the last byte touched); empty for an empty view.
  std::pair<const std::byte*, const std::byte*> extent() const;
};

// A row-major view without gaps. Throws Error for a rank outside 1 to 4.
View contiguous_view(void* data, std::span<const std::int64_t> shape, DType dtype = &float32);

// The elements of a row from column `from` on, as doubles; `from` and the count are multiples of
// the format's block.
void read_row(const View& view, std::int64_t row, std::int64_t from, std::span<double> to);

// True when the two views may share an element. Exact for views with equal leading strides (two
// column blocks of one matrix are disjoint), otherwise decided by their byte ranges.
bool overlap(const View& x, const View& y);
// True when both views are the same elements in the same order.
bool same_elements(const View& x, const View& y);

// Views by tensor name.
class Operands {
 public:
  void set(std::string_view name, const View& view);
  bool has(std::string_view name) const;
  const View& at(std::string_view name) const;  // throws Error when absent
  const std::vector<std::pair<std::string, View>>& all() const { return views_; }

 private:
  std::vector<std::pair<std::string, View>> views_;
};

}  // namespace rooflane
