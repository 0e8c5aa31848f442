// Inputs from a seed. See seeds.hpp.
#include "seeds.hpp"

#include <algorithm>
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

float value_at(std::uint64_t z, std::uint64_t i) {
  const std::uint64_t u = splitmix64(z + (i + 1) * 0x9e3779b97f4a7c15);
  return static_cast<float>((static_cast<double>(u >> 40) + 0.5) * 0x1p-23 - 1);
}

std::uint64_t stream(std::uint64_t seed, std::string_view kernel, std::string_view name) {
  return seed ^ fnv1a64(std::string(kernel) + "/" + std::string(name));
}

}  // namespace

float seeded_value(std::uint64_t seed, std::string_view kernel, std::string_view name,
                   std::uint64_t i) {
  return value_at(stream(seed, kernel, name), i);
}

void fill_from_seed(std::uint64_t seed, const Problem& problem, const TensorSpec& tensor,
                    const View& view, int threads) {
  if (view.empty()) return;
  const std::uint64_t z = stream(seed, problem.kernel().name, tensor.name);
  const NumberFormat& format = *view.dtype;
  const auto scale = static_cast<float>(tensor.seed_scale);
  const auto value = [&](std::int64_t i) {
    const float unit = value_at(z, static_cast<std::uint64_t>(i));
    if (!format.is_integer()) return double{scale * unit};
    return format.least + (format.largest - format.least) * (0.5 * unit + 0.5);
  };
  // Pieces of a row: far longer than handing one out takes, and whole blocks.
  constexpr std::int64_t most = 65536;
  const std::int64_t cols = view.cols();
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
      for (std::int64_t i = 0; i < count; ++i) values[i] = value(row * cols + first + i);
      format.encode(values, view.row(row) + format.bytes(first), count);
    }
  });
}

}  // namespace rooflane
