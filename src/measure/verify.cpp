// Verification against the double-precision reference. See verify.hpp.
#include "measure/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"

namespace rooflane {

namespace {

// Seeded rows and columns beside the edges, where the comparison is not complete.
constexpr std::int64_t sampled_lines = 64;

struct Extent2d {
  std::int64_t rows;
  std::int64_t cols;
};

Extent2d output_extent(const Problem& problem) {
  const auto tensors = problem.kernel().tensors(problem);
  const Shape shape = tensor_shape(problem, output_of(tensors));
  Extent2d extent{1, shape.back()};
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) extent.rows *= shape[i];
  return extent;
}

// Element [row,col] of a view seen as [rows,cols].
const float* row_pointer(const View& view, std::int64_t row) {
  std::int64_t offset = 0;
  for (int axis = view.rank - 2; axis >= 0; --axis) {
    offset += row % view.shape[axis] * view.strides[axis];
    row /= view.shape[axis];
  }
  return view.f32() + offset;
}

std::vector<std::int64_t> all_lines(std::int64_t count) {
  std::vector<std::int64_t> lines(static_cast<std::size_t>(count));
  std::iota(lines.begin(), lines.end(), 0);
  return lines;
}

// First, last and seeded lines, sorted, each once.
std::vector<std::int64_t> chosen_lines(std::int64_t count, std::uint64_t seed) {
  if (count <= sampled_lines + 2) return all_lines(count);
  std::vector<std::int64_t> lines = {0, count - 1};
  for (std::uint64_t i = 0; static_cast<std::int64_t>(lines.size()) < sampled_lines + 2; ++i) {
    const auto line = static_cast<std::int64_t>(splitmix64(seed + (i + 1) * 0x9e3779b97f4a7c15) %
                                                static_cast<std::uint64_t>(count));
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace

void require_memory(const Problem& problem, double copies) {
  const double operands = operand_bytes(problem);
  const double needed = operands * copies;
  const auto available = static_cast<double>(available_memory_bytes());
  if (needed <= available) return;
  throw unavailable_error(
      fmt::format("{} needs {:.1f} MiB of memory (operands of {:.1f} MiB, held {:g} {}), this "
                  "machine has {:.1f} MiB available",
                  problem.text(), needed / 0x1p20, operands / 0x1p20, copies,
                  copies > 1 ? "times" : "time", available / 0x1p20));
}

OwnedOperands::OwnedOperands(const Problem& problem, std::uint64_t seed, int threads)
    : threads_(threads) {
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    const Shape shape = tensor_shape(problem, tensor);
    View view = contiguous_view(nullptr, shape);
    const std::size_t bytes = static_cast<std::size_t>(view.elements()) * size_of(view.dtype);
    if (tensor.role == Role::output) {
      guarded_output_ = GuardedBuffer(bytes);
      view.data = guarded_output_.data();
      output_ = view;
    } else {
      view.data = buffers_.emplace_back(bytes).data();
      fill_from_seed(seed, problem, tensor, view, threads);
      inputs_.push_back(view);
    }
    all_.set(tensor.name, view);
  }
  poison_output();
}

void OwnedOperands::poison_output() {
  // A thread's share of the elements, so that a machine with several memory nodes spreads them.
  parallel_region(nullptr, threads_, [&](const Team& team) {
    const std::int64_t share = output_.elements() / team.threads + 1;
    const std::int64_t begin = std::min(output_.elements(), share * team.thread);
    const std::int64_t end = std::min(output_.elements(), begin + share);
    std::fill(output_.f32() + begin, output_.f32() + end, std::numeric_limits<float>::quiet_NaN());
  });
}

std::uint64_t OwnedOperands::input_hash() const {
  std::uint64_t hash = 0;
  for (const View& view : inputs_) {
    const auto* words = static_cast<const std::uint32_t*>(view.data);
    const std::int64_t count = view.elements();
    for (std::int64_t i = 0; i < count; ++i) hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
  }
  return splitmix64(hash);
}

Reference compute_reference(const Problem& problem, const Operands& inputs, std::uint64_t seed) {
  const auto [rows, cols] = output_extent(problem);
  const Kernel& kernel = problem.kernel();
  Reference reference;
  reference.complete = kernel.cost(problem).flops <= full_comparison_flops;
  const auto add = [&](Region region) {
    Reference::Part part;
    const std::size_t count = region.rows.size() * region.cols.size();
    if (count == 0) return;
    part.value.resize(count);
    part.bound.resize(count);
    kernel.reference(problem, inputs, region, part.value.data(), part.bound.data());
    part.region = std::move(region);
    reference.parts.push_back(std::move(part));
  };
  if (reference.complete) {
    add({all_lines(rows), all_lines(cols)});
    return reference;
  }
  add({chosen_lines(rows, seed), all_lines(cols)});
  if (kernel.columns_are_cheap) add({all_lines(rows), chosen_lines(cols, ~seed)});
  return reference;
}

namespace {

// How far `got` is from `expected`, in units of the bound: 0 for equal specials, infinity for a
// special where none belongs.
double scaled_error(float got, double expected, double bound) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (std::isnan(expected)) return std::isnan(got) ? 0 : infinite;
  if (std::isnan(got)) return infinite;
  if (std::isinf(expected)) return static_cast<double>(got) == expected ? 0 : infinite;
  if (std::isinf(got)) {
    // Right only where the exact value, within its bound, overflows float32.
    const bool overflows = std::abs(expected) + bound > std::numeric_limits<float>::max() &&
                           std::signbit(got) == std::signbit(expected);
    return overflows ? 0 : infinite;
  }
  const double error = std::abs(static_cast<double>(got) - expected);
  if (error == 0) return 0;
  return bound > 0 ? error / bound : infinite;
}

}  // namespace

Verification verify_output(const Problem& problem, const Operands& inputs, const View& output,
                           const Reference& reference, std::uint64_t seed) {
  Verification result;
  std::int64_t worst_row = -1, worst_col = -1;
  double worst_expected = 0, worst_bound = 0;
  for (const Reference::Part& part : reference.parts) {
    const std::size_t cols = part.region.cols.size();
    for (std::size_t i = 0; i < part.region.rows.size(); ++i) {
      const float* row = row_pointer(output, part.region.rows[i]);
      for (std::size_t j = 0; j < cols; ++j) {
        const float got = row[part.region.cols[j]];
        const double expected = part.value[i * cols + j];
        const double error = scaled_error(got, expected, part.bound[i * cols + j]);
        if (std::isfinite(got) && std::isfinite(expected)) {
          result.max_abs_error = std::max(result.max_abs_error, std::abs(got - expected));
        }
        if (error > result.value || (error > result.threshold && worst_row < 0)) {
          result.value = error;
          worst_row = part.region.rows[i];
          worst_col = part.region.cols[j];
          worst_expected = expected;
          worst_bound = part.bound[i * cols + j];
        }
      }
    }
  }
  if (result.value > result.threshold) {
    result.reason =
        fmt::format("element [{},{}] is {}, expected {:.9g} within {:.3g}", worst_row, worst_col,
                    row_pointer(output, worst_row)[worst_col], worst_expected, worst_bound);
    return result;
  }
  if (!reference.complete) {
    // Inputs from a seed are finite and moderate, so that every output is finite.
    const auto [rows, cols] = output_extent(problem);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* values = row_pointer(output, row);
      for (std::int64_t col = 0; col < cols; ++col) {
        if (std::isfinite(values[col])) continue;
        result.value = std::numeric_limits<double>::infinity();
        result.reason =
            fmt::format("element [{},{}] is {}, expected a finite number", row, col, values[col]);
        return result;
      }
    }
  }
  if (problem.kernel().whole_check != nullptr && !output.empty()) {
    const double whole = problem.kernel().whole_check(problem, inputs, output, seed);
    result.value = std::max(result.value, whole);
    if (!(whole <= result.threshold)) {
      result.value = whole;
      result.reason = fmt::format("the check of the whole output is at {:.3g} of its bound", whole);
      return result;
    }
  }
  result.passed = true;
  return result;
}

}  // namespace rooflane
