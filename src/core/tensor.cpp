// Views: construction and overlap. See tensor.hpp.
#include "tensor.hpp"

#include <algorithm>

#include "error.hpp"

namespace rooflane {

std::string print_shape(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::int64_t View::elements() const {
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

std::pair<const std::byte*, const std::byte*> View::extent() const {
  const auto* begin = static_cast<const std::byte*>(data);
  if (empty()) return {begin, begin};
  std::int64_t last = 0;
  for (int i = 0; i + 1 < rank; ++i) last += (shape[i] - 1) * strides[i];
  return {begin, begin + dtype->bytes(last + shape[rank - 1])};
}

std::int64_t View::rows() const {
  std::int64_t count = 1;
  for (int i = 0; i + 1 < rank; ++i) count *= shape[i];
  return count;
}

std::byte* View::row(std::int64_t index) const {
  std::int64_t offset = 0;
  for (int axis = rank - 2; axis >= 0; --axis) {
    offset += index % shape[axis] * strides[axis];
    index /= shape[axis];
  }
  return static_cast<std::byte*>(data) + dtype->bytes(offset);
}

void read_row(const View& view, std::int64_t row, std::int64_t from, std::span<double> to) {
  view.dtype->decode(view.row(row) + view.dtype->bytes(from), to.data(), std::ssize(to));
}

View contiguous_view(void* data, std::span<const std::int64_t> shape, DType dtype) {
  if (shape.empty() || shape.size() > View::max_rank) {
    throw argument_error("a view has 1 to 4 axes, not " + std::to_string(shape.size()));
  }
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}

namespace {

bool same_layout(const View& x, const View& y) {
  if (x.rank != y.rank || x.dtype != y.dtype) return false;
  for (int i = 0; i + 1 < x.rank; ++i) {
    if (x.shape[i] != y.shape[i] || (x.shape[i] > 1 && x.strides[i] != y.strides[i])) return false;
  }
  return true;
}

// The smallest leading stride when every other one is a multiple of it, so that an
// element's column is its offset modulo it. Zero when there is only one row.
std::int64_t row_period(const View& x) {
  std::int64_t period = 0;
  for (int i = 0; i + 1 < x.rank; ++i) {
    if (x.shape[i] <= 1) continue;
    period = period == 0 ? x.strides[i] : std::min(period, x.strides[i]);
  }
  if (period == 0) return 0;
  for (int i = 0; i + 1 < x.rank; ++i) {
    if (x.shape[i] > 1 && x.strides[i] % period != 0) return 0;
  }
  return period;
}

}  // namespace

bool overlap(const View& x, const View& y) {
  if (x.empty() || y.empty()) return false;
  const auto [x_begin, x_end] = x.extent();
  const auto [y_begin, y_end] = y.extent();
  if (x_end <= y_begin || y_end <= x_begin) return false;
  const std::int64_t period = row_period(x);
  if (!same_layout(x, y) || period == 0) return true;
  const std::ptrdiff_t bytes = y_begin - x_begin;
  const auto size = static_cast<std::ptrdiff_t>(size_of(x.dtype));
  if (bytes % size != 0) return true;
  // Column blocks of one matrix: y's first column, seen from x's, modulo the row length.
  const std::int64_t elements = bytes / size * x.dtype->block;
  const std::int64_t column = (elements % period + period) % period;
  const bool disjoint = column >= x.shape[x.rank - 1] && column + y.shape[y.rank - 1] <= period;
  return !disjoint;
}

bool same_elements(const View& x, const View& y) {
  return x.data == y.data && same_layout(x, y) && x.shape[x.rank - 1] == y.shape[y.rank - 1];
}

void Operands::set(std::string_view name, const View& view) {
  for (auto& [known, held] : views_) {
    if (known == name) {
      held = view;
      return;
    }
  }
  views_.emplace_back(name, view);
}

bool Operands::has(std::string_view name) const {
  return std::any_of(views_.begin(), views_.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

const View& Operands::at(std::string_view name) const {
  for (const auto& [known, view] : views_) {
    if (known == name) return view;
  }
  throw argument_error("tensor '" + std::string(name) + "' is missing");
}

}  // namespace rooflane
