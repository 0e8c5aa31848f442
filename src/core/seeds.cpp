// Inputs from a seed. See seeds.hpp.
#include "seeds.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <vector>

#include "parallel.hpp"

namespace rooflane {

std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // the offset basis and prime of FNV-1a
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

std::uint64_t splitmix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

namespace {

std::uint64_t bits_at(std::uint64_t z, std::uint64_t i) {
  return splitmix64(z + (i + 1) * 0x9e3779b97f4a7c15);
}

float value_at(std::uint64_t z, std::uint64_t i) {
  return static_cast<float>((static_cast<double>(bits_at(z, i) >> 40) + 0.5) * 0x1p-23 - 1);
}

std::int32_t integer_at(std::uint64_t z, std::uint64_t i, std::int64_t end) {
  return static_cast<std::int32_t>((bits_at(z, i) >> 32) * static_cast<std::uint64_t>(end) >> 32);
}

std::uint64_t stream(std::uint64_t seed, std::string_view kernel, std::string_view name) {
  return seed ^ fnv1a64(std::string(kernel) + "/" + std::string(name));
}

}  // namespace

float seeded_value(std::uint64_t seed, std::string_view kernel, std::string_view name,
                   std::uint64_t i) {
  return value_at(stream(seed, kernel, name), i);
}

SeededStream::SeededStream(std::uint64_t seed, std::string_view kernel, std::string_view name)
    : start_(stream(seed, kernel, name)) {}

float SeededStream::value(std::uint64_t i) const { return value_at(start_, i); }

std::int32_t SeededStream::integer(std::uint64_t i, std::int64_t end) const {
  return integer_at(start_, i, end);
}

std::int32_t seeded_integer(std::uint64_t seed, std::string_view kernel, std::string_view name,
                            std::uint64_t i, std::int64_t end) {
  return integer_at(stream(seed, kernel, name), i, end);
}

namespace {

// A tensor with values that depend on one another, on one thread.
void fill_ascending(std::uint64_t z, std::int64_t end, const View& view) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(view.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = integer_at(z, i, end);
  std::sort(values.begin(), values.end());
  const std::size_t bytes = view.dtype->bytes(view.cols());
  for (std::int64_t row = 0; row < view.rows(); ++row) {
    std::memcpy(view.row(row), values.data() + row * view.cols(), bytes);
  }
}

}  // namespace

void fill_from_seed(const InputSeed& seed, const Problem& problem, const TensorSpec& tensor,
                    const View& view, int threads) {
  if (view.empty()) return;
  const char* const kernel = problem.kernel().name;
  const std::uint64_t z = stream(seed.number, kernel, tensor.name);
  const NumberFormat& format = *view.dtype;
  const auto scale = static_cast<float>(tensor.seed_scale);
  const bool limited = tensor.domain.limited();
  assert(!limited || view.dtype == &int32);
  const std::int64_t end = limited ? domain_end(problem, tensor) : 0;
  if (tensor.domain.ascending) {
    fill_ascending(z, end, view);
    return;
  }
  // What a problem costs follows from its sizes alone, so what seeds count is as much as there can
  // be.
  const bool full = tensor.domain.kind == IntegerDomain::Kind::counts;
  const bool is_uniform = seed.distribution == &uniform || !follows_distributions(tensor);
  const SeededStream elements(seed.number, kernel, tensor.name);
  const SeededStream rows(seed.number, kernel, tensor.name + "/row");
  const SeededStream exponents(seed.number, kernel, tensor.name + "/exponent");
  const SeedRange range = seed_range(tensor);
  const std::int64_t cols = view.cols();
  const auto value = [&](std::int64_t i) {
    if (!is_uniform) {
      const double drawn =
          seed.distribution->value({elements, rows, exponents, range, i / cols, i % cols, cols});
      return double{static_cast<float>(std::clamp(drawn, -range.largest, range.largest))};
    }
    if (full) return static_cast<double>(end - 1);
    if (limited) return static_cast<double>(integer_at(z, static_cast<std::uint64_t>(i), end));
    const float unit = value_at(z, static_cast<std::uint64_t>(i));
    if (!format.is_integer()) return double{scale * unit};
    return format.least + (format.largest - format.least) * (0.5 * unit + 0.5);
  };
  const bool plain = is_uniform && &format == &float32;
  // Pieces of a row: far longer than handing one out takes, and whole blocks.
  constexpr std::int64_t most = 65536;
  const std::int64_t width = std::min(cols, most);
  const std::int64_t pieces = (cols + width - 1) / width;
  // Bodies of a parallel region must not throw: each thread's memory is reserved here.
  std::vector<double> values_of_all(static_cast<std::size_t>(width * std::max(threads, 1)));
  parallel_region(nullptr, threads, [&](const Team& team) {
    double* const values = values_of_all.data() + width * team.thread;
    const std::int64_t share = (view.rows() * pieces + team.threads - 1) / team.threads;
    const std::int64_t end = std::min(view.rows() * pieces, share * (team.thread + 1));
    for (std::int64_t task = share * team.thread; task < end; ++task) {
      const std::int64_t row = task / pieces;
      const std::int64_t first = task % pieces * width;
      const std::int64_t count = std::min(width, cols - first);
      if (plain) {  // most of the time of opening a case, hence without the copy in double
        float* const out = reinterpret_cast<float*>(view.row(row)) + first;
        const auto start = static_cast<std::uint64_t>(row * cols + first);
        for (std::int64_t i = 0; i < count; ++i) {
          out[i] = scale * value_at(z, start + static_cast<std::uint64_t>(i));
        }
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i) values[i] = value(row * cols + first + i);
      format.encode(values, view.row(row) + format.bytes(first), count);
    }
  });
}

}  // namespace rooflane
