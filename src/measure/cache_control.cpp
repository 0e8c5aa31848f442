// Eviction by address where user space may ask for it, by displacement elsewhere.
#include "measure/cache_control.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/buffer.hpp"
#include "core/machine.hpp"
#include "core/parallel.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace rooflane {
namespace {

// The line of every x86-64 CPU so far; CLFLUSH takes whole lines.
constexpr std::size_t line_bytes = 64;

#if defined(__x86_64__)

// CPUID leaf 7, EBX bit 23. CLFLUSH itself belongs to SSE2, hence to every x86-64 CPU.
bool has_clflushopt() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 23 & 1) != 0;
  }();
  return has;
}

void flush_lines(const std::byte* first, const std::byte* last) {
  for (; first < last; first += line_bytes) _mm_clflush(first);
}

__attribute__((target("clflushopt"))) void flush_lines_unordered(const std::byte* first,
                                                                 const std::byte* last) {
  for (; first < last; first += line_bytes) _mm_clflushopt(const_cast<std::byte*>(first));
}

#elif defined(__aarch64__)

// The smallest line of the data caches, from the CPU's cache-type register: 64 bytes on Arm's
// cores, 128 on Apple's, 256 on A64FX.
std::size_t smallest_line() {
  std::uint64_t types = 0;
  asm volatile("mrs %0, ctr_el0" : "=r"(types));
  return std::size_t{4} << (types >> 16 & 15);
}

// Linux allows it to every process.
void flush_lines(const std::byte* first, const std::byte* last, std::size_t bytes) {
  for (; first < last; first += bytes) asm volatile("dc civac, %0" : : "r"(first) : "memory");
}

#endif

}  // namespace

void evict(std::span<const std::span<const std::byte>> regions) {
#if defined(__x86_64__)
  // Fences on both sides: stores before must be in the caches to be flushed, and later loads must
  // not run ahead of the flush.
  _mm_mfence();
  for (std::span<const std::byte> region : regions) {
    if (region.empty()) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(region.data());
    const std::byte* first = region.data() - address % line_bytes;
    const std::byte* last = region.data() + region.size();
    has_clflushopt() ? flush_lines_unordered(first, last) : flush_lines(first, last);
  }
  _mm_mfence();
#elif defined(__aarch64__)
  const std::size_t bytes = smallest_line();
  asm volatile("dsb ish" : : : "memory");
  for (std::span<const std::byte> region : regions) {
    if (region.empty()) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(region.data());
    flush_lines(region.data() - address % bytes, region.data() + region.size(), bytes);
  }
  asm volatile("dsb ish" : : : "memory");
#else
  const auto is_empty = [](std::span<const std::byte> region) { return region.empty(); };
  if (std::all_of(regions.begin(), regions.end(), is_empty)) return;
  evict_by_streaming(machine().logical_cpus);
#endif
}

void evict_by_streaming(int threads) {
  static const Buffer buffer = [] {
    // 64 MiB where the last level is unknown or small: twice the largest usual per-core share.
    Buffer made(std::max<std::size_t>(2 * machine().l3_bytes, std::size_t{64} << 20));
    // Pages never written would all be the same page of zeros.
    std::memset(made.data(), 1, made.bytes());
    return made;
  }();
  const auto* bytes = static_cast<const volatile unsigned char*>(buffer.data());
  parallel_region(nullptr, threads, [&](const Team&) {
    // Every thread reads everything: each private cache is displaced.
    for (std::size_t i = 0; i < buffer.bytes(); i += line_bytes) static_cast<void>(bytes[i]);
  });
}

}  // namespace rooflane
