// Verification against the double-precision reference. See verify.hpp.
#include "measure/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"

namespace rooflane {

namespace {

// Seeded rows and columns beside the edges, where the comparison is not complete; more of them
// where the kernel's check of the whole output cannot judge the problem.
constexpr std::int64_t sampled_lines = 64, sampled_lines_alone = 256;

bool has_whole_check(const Problem& problem) {
  const Kernel& kernel = problem.kernel();
  return kernel.whole_check != nullptr &&
         (kernel.whole_check_applies == nullptr || kernel.whole_check_applies(problem));
}

std::vector<std::int64_t> all_lines(std::int64_t count) {
  std::vector<std::int64_t> lines(static_cast<std::size_t>(count));
  std::iota(lines.begin(), lines.end(), 0);
  return lines;
}

// First, last and `seeded` lines, sorted, each once.
std::vector<std::int64_t> chosen_lines(std::int64_t count, std::uint64_t seed,
                                       std::int64_t seeded) {
  if (count <= seeded + 2) return all_lines(count);
  std::vector<std::int64_t> lines = {0, count - 1};
  for (std::uint64_t i = 0; static_cast<std::int64_t>(lines.size()) < seeded + 2; ++i) {
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

OwnedOperands::OwnedOperands(const Problem& problem, const InputSeed& seed, int threads)
    : problem_(problem),
      seed_(seed),
      threads_(threads),
      tensors_(problem.kernel().tensors(problem)) {
  for (const TensorSpec& tensor : tensors_) {
    View view = contiguous_view(nullptr, tensor_shape(problem, tensor), tensor.dtype);
    const std::size_t bytes = view.dtype->bytes(view.elements());
    if (is_read(tensor.role)) {
      view.data = buffers_.emplace_back(bytes).data();
      inputs_.set(tensor.name, view);
    }
    if (is_written(tensor.role)) {
      outputs_.push_back({tensor.name, GuardedBuffer(bytes), tensor.role == Role::updated});
      view.data = outputs_.back().memory.data();
    }
    all_.set(tensor.name, view);
  }
  for (const TensorSpec& tensor : tensors_) {
    if (is_read(tensor.role)) {
      fill_from_seed(seed, problem, tensor, inputs_.at(tensor.name), threads);
    }
  }
  poison_output();
}

namespace {

// body(first, count) for a thread's share of so many bytes, so that a machine with several memory
// nodes spreads what is touched first.
void share_bytes(std::size_t bytes, int threads, FunctionRef<void(std::size_t, std::size_t)> body) {
  parallel_region(nullptr, threads, [&](const Team& team) {
    const std::size_t share = bytes / static_cast<std::size_t>(team.threads) + 1;
    const std::size_t begin = std::min(bytes, share * static_cast<std::size_t>(team.thread));
    const std::size_t end = std::min(bytes, begin + share);
    if (begin < end) body(begin, end - begin);
  });
}

std::span<std::byte> bytes_of(const View& view) {
  return {static_cast<std::byte*>(view.data), view.dtype->bytes(view.elements())};
}

void fill_with_ones(const View& view, int threads) {
  const std::span<std::byte> bytes = bytes_of(view);
  share_bytes(bytes.size(), threads, [&](std::size_t first, std::size_t count) {
    std::memset(bytes.data() + first, 0xFF, count);
  });
}

}  // namespace

// Four chains of multiplications side by side, since one would wait for each product.
std::uint64_t hash_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  constexpr std::size_t chains = 4;
  constexpr std::size_t step = chains * sizeof(std::uint64_t);
  std::array<std::uint64_t, chains> hashes = {hash, hash + 1, hash + 2, hash + 3};
  std::array<std::uint64_t, chains> words;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    words.fill(0);
    std::memcpy(words.data(), bytes.data() + at, std::min(step, bytes.size() - at));
    for (std::size_t i = 0; i < chains; ++i) {
      hashes[i] = (hashes[i] ^ words[i]) * 0x9e3779b97f4a7c15;
      hashes[i] ^= hashes[i] >> 32;  // the upper bits of a word would reach the upper bits only
    }
  }
  for (const std::uint64_t one : hashes) hash = splitmix64(hash ^ one);
  return hash;
}

void OwnedOperands::poison_output() {
  for (const Output& output : outputs_) {
    if (!output.updated) fill_with_ones(all_.at(output.name), threads_);
  }
  reset_updated();
}

void OwnedOperands::reset_updated() {
  for (const Output& output : outputs_) {
    if (!output.updated) continue;
    const View& view = all_.at(output.name);
    const std::span<const std::byte> before = bytes_of(inputs_.at(output.name));
    share_bytes(before.size(), threads_, [&](std::size_t first, std::size_t count) {
      std::memcpy(static_cast<std::byte*>(view.data) + first, before.data() + first, count);
    });
  }
}

bool OwnedOperands::holds_poison() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [&](const Output& output) {
    const View& view = all_.at(output.name);
    if (output.updated || view.dtype->is_integer() || view.empty()) return false;
    const std::size_t size = view.dtype->bytes(1);
    const std::span<const std::byte> bytes = bytes_of(view);
    // From the end, which most runs write last.
    for (std::size_t at = bytes.size(); at >= size; at -= size) {
      const auto element = bytes.subspan(at - size, size);
      const bool ones = std::all_of(element.begin(), element.end(),
                                    [](std::byte b) { return b == std::byte{0xff}; });
      if (ones) return true;
    }
    return false;
  });
}

bool OwnedOperands::guards_intact() const {
  return std::all_of(outputs_.begin(), outputs_.end(),
                     [](const Output& output) { return output.memory.guards_intact(); });
}

std::uint64_t OwnedOperands::input_hash() const {
  std::uint64_t hash = 0;
  for (const auto& [name, view] : inputs_.all()) hash = hash_bytes(hash, bytes_of(view));
  return hash;
}

std::uint64_t OwnedOperands::output_hash() const {
  std::uint64_t hash = 0;
  for (const Output& output : outputs_) hash = hash_bytes(hash, bytes_of(all_.at(output.name)));
  return hash_of_output(hash);
}

// Constants stay: a plan packed them.
void OwnedOperands::spoil_inputs() {
  for (const TensorSpec& tensor : tensors_) {
    if (!is_read(tensor.role) || tensor.role == Role::constant) continue;
    const View& view = inputs_.at(tensor.name);
    if (tensor.domain.limited() && !view.empty()) {
      const auto largest = static_cast<std::int32_t>(domain_end(problem_, tensor) - 1);
      std::fill_n(view.as<std::int32_t>(), view.elements(), largest);
    } else {
      fill_with_ones(view, threads_);
    }
  }
}

void OwnedOperands::restore_inputs() { fill_inputs(seed_); }

void OwnedOperands::change_inputs() { fill_inputs({splitmix64(seed_.number + 1)}); }

void OwnedOperands::fill_inputs(const InputSeed& seed) {
  for (const TensorSpec& tensor : tensors_) {
    if (is_read(tensor.role) && tensor.role != Role::constant) {
      fill_from_seed(seed, problem_, tensor, inputs_.at(tensor.name), threads_);
    }
  }
}

Float32Copies::Float32Copies(const Operands& operands) {
  for (const auto& [name, view] : operands.all()) {
    operands_.set(name, view.dtype == &float32 || view.dtype == &int32 ? view : copy(view));
  }
}

View Float32Copies::copy(const View& view) {
  View wide = contiguous_view(nullptr, {view.shape.data(), static_cast<std::size_t>(view.rank)});
  wide.data = buffers_.emplace_back(wide.dtype->bytes(wide.elements())).data();
  if (wide.empty()) return wide;
  const std::int64_t cols = view.cols();
  const int threads = machine().physical_cores;
  std::vector<double> rows(static_cast<std::size_t>(cols * threads));
  parallel_for(nullptr, threads, view.rows(), [&](std::int64_t row, int thread) {
    const std::span<double> values(rows.data() + thread * cols, static_cast<std::size_t>(cols));
    read_row(view, row, 0, values);
    float32.encode(values.data(), wide.row(row), cols);
  });
  return wide;
}

namespace {

// Adds what rounding a result to the output's format may lose: relative to the result, and near
// zero half of the least difference.
void add_output_rounding(DType dtype, std::span<const double> value, std::span<double> bound) {
  const double relative = output_roundoff(dtype);
  if (relative == 0) return;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    bound[i] += relative * (std::abs(value[i]) + bound[i]) + dtype->smallest / 2;
  }
}

void add_part(const Problem& problem, const Math& math, const Operands& inputs,
              const TensorSpec& output, Region region, double growth, Reference& reference) {
  const std::size_t count = region.rows.size() * region.cols.size();
  if (count == 0) return;
  Reference::Part part;
  part.tensor = output.name;
  for (auto* values : {&part.value, &part.bound, &part.plain_bound}) values->resize(count);
  problem.kernel().reference(problem, math, inputs, output.name, region,
                             {part.value.data(), part.bound.data(), part.plain_bound.data()});
  for (auto* bounds : {&part.bound, &part.plain_bound}) {
    for (double& bound : *bounds) bound *= growth;
  }
  add_output_rounding(output.dtype, part.value, part.bound);
  add_output_rounding(output.dtype, part.value, part.plain_bound);
  part.region = std::move(region);
  reference.parts.push_back(std::move(part));
}

}  // namespace

std::vector<double> reference_values(const Problem& problem, const Operands& inputs,
                                     const TensorSpec& output, const Region& region) {
  Reference reference;
  add_part(problem, *problem.kernel().maths.front(), Float32Copies(inputs).operands(), output,
           region, 1, reference);
  return reference.parts.empty() ? std::vector<double>() : std::move(reference.parts[0].value);
}

namespace {

// How much larger bounds are for the distribution than for numbers of random signs; a sum has as
// many terms as the longest axis at most.
double error_growth(const Problem& problem, const InputSeed& seed) {
  if (seed.distribution->error_growth == nullptr) return 1;
  std::int64_t longest = 1;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (!is_read(tensor.role)) continue;
    for (const std::int64_t length : tensor_shape(problem, tensor)) {
      longest = std::max(longest, length);
    }
  }
  return seed.distribution->error_growth(static_cast<double>(longest));
}

}  // namespace

Reference compute_reference(const Problem& problem, const Operands& inputs, const InputSeed& seed,
                            const Math& math) {
  const Kernel& kernel = problem.kernel();
  const double growth = error_growth(problem, seed);
  const Float32Copies wide(inputs);
  const std::int64_t sampled = kernel.whole_check == nullptr || has_whole_check(problem)
                                   ? sampled_lines
                                   : sampled_lines_alone;
  Reference reference;
  reference.complete = kernel.cost(problem).flops <= full_comparison_flops;
  for (const TensorSpec& tensor : kernel.tensors(problem)) {
    const double bytes = is_written(tensor.role) ? tensor_bytes(problem, tensor) : 0;
    reference.complete =
        reference.complete && bytes <= full_comparison_elements * size_of(tensor.dtype);
  }
  for (const TensorSpec& tensor : kernel.tensors(problem)) {
    if (!is_written(tensor.role)) continue;
    const View shape = contiguous_view(nullptr, tensor_shape(problem, tensor), tensor.dtype);
    const std::int64_t rows = shape.rows(), cols = shape.cols();
    const auto add = [&](Region region) {
      add_part(problem, math, wide.operands(), tensor, std::move(region), growth, reference);
    };
    if (reference.complete) {
      add({all_lines(rows), all_lines(cols)});
      continue;
    }
    add({chosen_lines(rows, seed.number, sampled), all_lines(cols)});
    if (!kernel.columns_are_cheap) continue;
    // Fewer columns of many rows: values and bounds of all that are chosen are in memory at once.
    const auto most =
        static_cast<std::int64_t>(full_comparison_elements) / std::max<std::int64_t>(rows, 1);
    add({all_lines(rows),
         chosen_lines(cols, ~seed.number, std::clamp<std::int64_t>(most - 2, 0, sampled))});
  }
  return reference;
}

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// How far `got` is from `expected`, in units of the bound: 0 for equal specials, infinity for a
// special where none belongs.
double scaled_error(double got, double expected, double bound, DType dtype) {
  if (std::isnan(expected)) return std::isnan(got) ? 0 : infinite;
  if (std::isnan(got)) return infinite;
  if (std::isinf(expected)) return got == expected ? 0 : infinite;
  if (std::isinf(got)) {
    // Right only where the exact value, within its bound, overflows the format.
    const bool overflows =
        std::abs(expected) + bound > dtype->largest && std::signbit(got) == std::signbit(expected);
    return overflows ? 0 : infinite;
  }
  const double error = std::abs(got - expected);
  if (error == 0) return 0;
  return bound > 0 ? error / bound : infinite;
}

// The element that errs most in units of one of the bounds.
struct Worst {
  double error = 0;
  std::string tensor;
  std::int64_t row = -1, col = -1;
  double got = 0, expected = 0, bound = 0;

  void note(double scaled, const std::string& name, std::int64_t at_row, std::int64_t at_col,
            double value, double wanted, double allowed) {
    if (scaled <= error) return;
    *this = {scaled, name, at_row, at_col, value, wanted, allowed};
  }
  std::string text(bool name_tensor) const {
    return fmt::format("element {}[{},{}] is {:.8g}, expected {:.9g} within {:.3g}",
                       name_tensor ? tensor : "", row, col, got, expected, bound);
  }
};

// All errors of the elements that the reference has.
struct Comparison {
  Worst bound, plain;
  double max_abs_error = 0;
};

Comparison compare_elements(const Operands& operands, const Reference& reference) {
  Comparison all;
  std::vector<double> values;
  for (const Reference::Part& part : reference.parts) {
    const View& output = operands.at(part.tensor);
    const std::size_t cols = part.region.cols.size();
    values.resize(static_cast<std::size_t>(output.cols()));
    for (std::size_t i = 0; i < part.region.rows.size(); ++i) {
      const std::int64_t row = part.region.rows[i];
      read_row(output, row, 0, values);
      for (std::size_t j = 0; j < cols; ++j) {
        const std::int64_t col = part.region.cols[j];
        const double got = values[static_cast<std::size_t>(col)];
        const double expected = part.value[i * cols + j];
        const double bound = part.bound[i * cols + j], plain = part.plain_bound[i * cols + j];
        const double error = scaled_error(got, expected, bound, output.dtype);
        if (std::isfinite(got) && std::isfinite(expected)) {
          all.max_abs_error = std::max(all.max_abs_error, std::abs(got - expected));
        }
        if (error <= all.bound.error && error <= 1) continue;
        all.bound.note(error, part.tensor, row, col, got, expected, bound);
        all.plain.note(scaled_error(got, expected, plain, output.dtype), part.tensor, row, col, got,
                       expected, plain);
      }
    }
  }
  return all;
}

// Where a value is that is not finite; empty: nowhere. Inputs from a seed are finite, and kernels
// limit them (TensorSpec::reach) so that every output is finite.
std::string find_not_finite(const std::string& tensor, const View& output) {
  if (output.empty()) return {};
  std::vector<double> values(static_cast<std::size_t>(output.cols()));
  for (std::int64_t row = 0; row < output.rows(); ++row) {
    read_row(output, row, 0, values);
    const auto found = std::find_if_not(values.begin(), values.end(),
                                        [](double value) { return std::isfinite(value); });
    if (found == values.end()) continue;
    return fmt::format("element {}[{},{}] is {}, expected a finite number", tensor, row,
                       found - values.begin(), *found);
  }
  return {};
}

}  // namespace

bool right_elements(const Problem& problem, const Operands& inputs, const InputSeed& seed,
                    const Math& math, const TensorSpec& output, Region region,
                    std::span<const std::byte> stored) {
  const auto cols = static_cast<std::int64_t>(region.cols.size());
  Reference reference;
  add_part(problem, math, Float32Copies(inputs).operands(), output, std::move(region),
           error_growth(problem, seed), reference);
  if (reference.parts.empty()) return true;
  const Reference::Part& part = reference.parts.front();
  const std::int64_t shape[] = {static_cast<std::int64_t>(part.region.rows.size()), cols};
  const View view = contiguous_view(const_cast<std::byte*>(stored.data()), shape, output.dtype);
  std::vector<double> values(static_cast<std::size_t>(cols));
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    read_row(view, row, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(row * cols) + i;
      if (scaled_error(values[i], part.value[at], part.plain_bound[at], output.dtype) > 1) {
        return false;
      }
    }
  }
  return true;
}

Verification verify_output(const Problem& problem, const Operands& operands,
                           const Reference& reference, const InputSeed& seed, const Math& math) {
  Verification result;
  const Comparison compared = compare_elements(operands, reference);
  result.value = compared.bound.error;
  result.max_abs_error = compared.max_abs_error;
  std::vector<std::string> outputs;
  bool any_elements = false;
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (!is_written(tensor.role)) continue;
    outputs.push_back(tensor.name);
    any_elements = any_elements || !operands.at(tensor.name).empty();
  }
  const bool several = outputs.size() > 1;
  if (compared.plain.error > 1) {
    result.reason = compared.plain.text(several);
    return result;
  }
  for (const std::string& name : outputs) {
    if (reference.complete) break;
    result.reason = find_not_finite(several ? name : "", operands.at(name));
    if (result.reason.empty()) continue;
    result.value = infinite;
    return result;
  }
  if (compared.bound.error > 1) result.reason = compared.bound.text(several);
  if (has_whole_check(problem) && any_elements) {
    const Float32Copies wide(operands);
    WholeError whole = problem.kernel().whole_check(problem, math, wide.operands(), seed.number);
    const double growth = error_growth(problem, seed);
    whole.over_bound /= growth;
    whole.over_plain_bound /= growth;
    result.value = std::max(result.value, whole.over_bound);
    if (!(whole.over_bound <= 1)) {
      result.value = whole.over_bound;
      result.reason =
          fmt::format("the check of the whole output is at {:.3g} of its bound", result.value);
    }
    if (!(whole.over_plain_bound <= 1)) return result;
  }
  result.status = result.value <= 1 ? Status::passed : Status::inaccurate;
  return result;
}

}  // namespace rooflane
