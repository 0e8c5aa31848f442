// Eviction changes no data, takes any region, and leaves its lines in no cache.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absent_variants.hpp"
#include "core/buffer.hpp"
#include "core/catalogue.hpp"
#include "measure/cache_control.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

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

// What a cold sample evicts (local_worker.cpp) is what plans say; scratch must not be in it.
TEST_CASE("plans of CPU variants have exactly their operands evicted, scratch excluded") {
  const Catalogue catalogue = Catalogue::built_in();
  int with_scratch = 0;
  for (const char* text :
       {"gemm:m=200,n=200,k=200", "softmax:rows=64,cols=700", "layernorm:rows=64,cols=700",
        "attention:batch=1,heads=2,q_len=64,kv_len=64,head_dim=32,causal=1"}) {
    const Problem problem = parse_problem(text, catalogue.kernels());
    for (const char* variant : {"blas", "onednn"}) {
      test::skip_absent(catalogue, problem.kernel(), variant);
    }
    for (const CatalogueEntry* entry : catalogue.variants(problem.kernel())) {
      if (entry->variant->threads == Threads::device || absent_reason(*entry)) continue;
      Environment env;
      env.threads = 1;
      const auto refuses = entry->variant->unsupported;
      if (refuses != nullptr && refuses(problem, env)) continue;  // avx512: no float32 products
      CAPTURE(text);
      CAPTURE(entry->name);
      std::vector<Buffer> buffers;
      Operands operands;
      std::set<std::pair<const std::byte*, const std::byte*>> expected;
      for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
        const Shape shape = tensor_shape(problem, tensor);
        std::size_t bytes = sizeof(float);
        for (const std::int64_t length : shape) bytes *= static_cast<std::size_t>(length);
        buffers.emplace_back(bytes);
        std::memset(buffers.back().data(), 0, bytes);
        operands.set(tensor.name, contiguous_view(buffers.back().data(), shape));
        expected.insert(operands.at(tensor.name).extent());
      }
      const auto plan = entry->variant->plan(problem, {}, env, operands);
      plan->bind(operands);
      plan->run();
      std::set<std::pair<const std::byte*, const std::byte*>> evicted;
      for (const auto& region : plan->regions()) {
        evicted.emplace(region.data(), region.data() + region.size());
      }
      CHECK(evicted == expected);
      if (plan->facts().workspace_bytes > 0) ++with_scratch;
    }
  }
  CHECK(with_scratch > 0);
}

#if defined(__x86_64__)

namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t page_bytes = 4096;
// One line a page: each lies in a page of its own, and the walk's order defeats prefetchers.
constexpr std::size_t walked_lines = 64;

// The fastest of `tries` walks, in time-stamp ticks a line, over lines that wait for each other:
// each holds the address of the next. `before` runs ahead of each walk.
template <class Before>
double ticks_per_line(void** first, int tries, Before&& before) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries; ++i) {
    before();
    void** at = first;
    _mm_mfence();
    const std::uint64_t start = __rdtsc();
    _mm_lfence();
    for (std::size_t n = 0; n < walked_lines; ++n) at = static_cast<void**>(*at);
    asm volatile("" : : "r"(at) : "memory");
    _mm_lfence();
    least = std::min(least, static_cast<double>(__rdtsc() - start));
  }
  return least / static_cast<double>(walked_lines);
}

// A ring of addresses through the buffer, one line a page, in an order that jumps.
void** make_ring(Buffer& buffer) {
  auto* bytes = static_cast<std::byte*>(buffer.data());
  // Also spread over the lines of a page, so that they fall into different sets of a cache.
  const auto line = [&](std::size_t i) {
    return reinterpret_cast<void**>(bytes + i * page_bytes +
                                    i % (page_bytes / line_bytes) * line_bytes);
  };
  constexpr std::size_t stride = 29;  // coprime to walked_lines
  for (std::size_t i = 0; i < walked_lines; ++i) {
    *line(i * stride % walked_lines) = line((i + 1) * stride % walked_lines);
  }
  return line(0);
}

}  // namespace

// Time shows it, and other processes only add to it, so both figures are the least of many tries: a
// line out of all caches takes 50 ns or more at best, one that a walk just touched 1 to 5 ns.
TEST_CASE("an evicted line comes from memory, a touched one and scratch from the caches") {
  Buffer operand(walked_lines * page_bytes);
  Buffer scratch(walked_lines * page_bytes);
  std::memset(operand.data(), 0, operand.bytes());
  std::memset(scratch.data(), 0, scratch.bytes());
  void** const ring = make_ring(operand);
  void** const kept = make_ring(scratch);
  const std::span<const std::byte> region{static_cast<const std::byte*>(operand.data()),
                                          operand.bytes()};
  const auto touch = [](void** first) {
    void** at = first;
    for (std::size_t n = 0; n < walked_lines; ++n) at = static_cast<void**>(*at);
    asm volatile("" : : "r"(at) : "memory");
  };
  constexpr int tries = 200;
  const double cached = ticks_per_line(ring, tries, [&] { touch(ring); });
  const double evicted = ticks_per_line(ring, tries, [&] {
    touch(ring);
    evict({&region, 1});
  });
  const double beside = ticks_per_line(kept, tries, [&] {
    touch(ring);
    touch(kept);
    evict({&region, 1});
  });
  CAPTURE(cached);
  CAPTURE(evicted);
  CAPTURE(beside);
  CHECK(evicted > 3 * cached);
  CHECK(beside < evicted / 3);
}

#endif
