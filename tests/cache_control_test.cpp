// Eviction changes no data and takes any region. That it makes runs slower is for the bench to
// show.
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "core/buffer.hpp"
#include "measure/cache_control.hpp"

using namespace rooflane;

namespace {

std::byte value_at(std::size_t i) { return static_cast<std::byte>(i * 31 + i / 256); }

}  // namespace

TEST_CASE("eviction leaves every byte of odd, overlapping and empty regions as it was") {
  Buffer buffer(1 << 16);
  auto* bytes = static_cast<std::byte*>(buffer.data());
  for (std::size_t i = 0; i < buffer.bytes(); ++i) bytes[i] = value_at(i);

  const std::vector<std::span<const std::byte>> regions = {
      {bytes, 1},   {bytes + 63, 2}, {bytes + 7, 0},       {bytes + 1, buffer.bytes() - 2},
      {bytes, 128}, {bytes, 128},    {bytes + 4095, 4099}, {}};
  evict(regions);
  evict_by_streaming(1);
  for (std::size_t i = 0; i < buffer.bytes(); ++i) {
    if (bytes[i] != value_at(i)) FAIL_CHECK("byte ", i, " changed");
  }
}

TEST_CASE("lines modified just before eviction keep their new contents") {
  Buffer buffer(1 << 20);
  float* x = buffer.f32();
  const std::size_t count = buffer.bytes() / sizeof(float);
  const std::span<const std::byte> all{static_cast<const std::byte*>(buffer.data()),
                                       buffer.bytes()};
  for (int round = 1; round <= 3; ++round) {
    for (std::size_t i = 0; i < count; ++i)
      x[i] = static_cast<float>(i) * static_cast<float>(round);
    evict({&all, 1});
    for (std::size_t i = 0; i < count; ++i) {
      if (x[i] != static_cast<float>(i) * static_cast<float>(round)) {
        FAIL_CHECK("element ", i, " changed in round ", round);
      }
    }
  }
}

TEST_CASE("nothing to evict is no error") {
  evict({});
  const std::vector<std::span<const std::byte>> empty(3);
  evict(empty);
}

TEST_CASE("streaming works with more threads than this machine has CPUs") {
  evict_by_streaming(1);
  evict_by_streaming(5);
}
