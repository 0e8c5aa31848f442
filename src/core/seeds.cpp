// Inputs from a seed. See seeds.hpp.
#include "seeds.hpp"

#include <algorithm>
#include <string>

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
  const auto scale = static_cast<float>(tensor.seed_scale);
  const std::int64_t cols = view.shape[view.rank - 1];
  const std::int64_t rows = view.elements() / cols;
  // Chunks of about 64 Ki elements: far longer than handing one out takes.
  const std::int64_t rows_per_chunk = std::max<std::int64_t>(1, 65536 / cols);
  const std::int64_t chunks = (rows + rows_per_chunk - 1) / rows_per_chunk;
  parallel_for(nullptr, threads, chunks, [&](std::int64_t chunk, int) {
    const std::int64_t end = std::min(rows, (chunk + 1) * rows_per_chunk);
    for (std::int64_t row = chunk * rows_per_chunk; row < end; ++row) {
      std::int64_t offset = 0;
      std::int64_t rest = row;
      for (int axis = view.rank - 2; axis >= 0; --axis) {
        offset += rest % view.shape[axis] * view.strides[axis];
        rest /= view.shape[axis];
      }
      float* out = view.f32() + offset;
      for (std::int64_t col = 0; col < cols; ++col) {
        out[col] = scale * value_at(z, static_cast<std::uint64_t>(row * cols + col));
      }
    }
  });
}

}  // namespace rooflane
