// When rows of softmax and LayerNorm go past the caches, and how they are prefetched then, for
// machines made up for the purpose: nothing is run.
#include <doctest/doctest.h>

#include <cstddef>
#include <limits>

#include "kernels/common/rows.hpp"

using namespace rooflane;
using namespace rooflane::common;

namespace {

Machine with(const char* cpu, std::size_t l1d, std::size_t l2, std::size_t l3) {
  Machine m;
  m.cpu = cpu;
  m.l1d_bytes = l1d;
  m.l2_bytes = l2;
  m.l3_bytes = l3;
  return m;
}

const Machine low_latency_l3 = with("AMD EPYC", 48 << 10, 1 << 20, 32 << 20);
const Machine l1_of_32k = with("AMD EPYC", 32 << 10, 1 << 20, 32 << 20);
const Machine high_latency_l3 = with("Intel(R) Xeon(R)", 48 << 10, 2 << 20, 100 << 20);

}  // namespace

TEST_CASE("rows are streamed from where caches are full on: short ones later, or never") {
  CHECK(streaming_bytes(low_latency_l3, 1, 2048) == 20 << 20);
  CHECK(streaming_bytes(low_latency_l3, 2, 2048) == 28 << 20);
  CHECK(streaming_bytes(high_latency_l3, 1, 2048) == 2 << 20);
  CHECK(streaming_bytes(high_latency_l3, 4, 2048) == 8 << 20);
  for (const Machine& m : {low_latency_l3, high_latency_l3}) {
    for (const std::int64_t cols : {1, 63, 255}) CHECK(streaming_bytes(m, 1, cols) == m.l3_bytes);
  }
  CHECK(streaming_bytes(l1_of_32k, 2, 64) == 32 << 20);
  CHECK(streaming_bytes(l1_of_32k, 2, 63) == std::numeric_limits<std::size_t>::max());
  CHECK(streaming_bytes(l1_of_32k, 3, 63) == 32 << 20);
}

TEST_CASE(
    "rows past the caches are prefetched into L1 only where it has 48 KiB and L3 latency is low") {
  // 2730 elements: three rows fill 32 KiB; 4096: 48 KiB.
  CHECK(likely_prefetch(low_latency_l3, 1, 2048, Prefetch::pages) == Prefetch::into_l1);
  CHECK(likely_prefetch(low_latency_l3, 2, 40000, Prefetch::pages) == Prefetch::into_l1);
  CHECK(likely_prefetch(l1_of_32k, 1, 2730, Prefetch::pages) == Prefetch::into_l2);
  CHECK(likely_prefetch(l1_of_32k, 1, 2731, Prefetch::pages) == Prefetch::pages);
  CHECK(likely_prefetch(l1_of_32k, 2, 2731, Prefetch::into_l2) == Prefetch::into_l2);
  CHECK(likely_prefetch(high_latency_l3, 1, 255, Prefetch::into_l1) == Prefetch::into_l2);
  CHECK(likely_prefetch(high_latency_l3, 1, 256, Prefetch::into_l1) == Prefetch::pages);
  CHECK(likely_prefetch(high_latency_l3, 2, 4096, Prefetch::into_l1) == Prefetch::into_l2);
  CHECK(likely_prefetch(high_latency_l3, 2, 4097, Prefetch::into_l1) == Prefetch::pages);
}

TEST_CASE("pages are not prefetched in turn where much lies between the rows") {
  const Tuning pages = {{"prefetch", 1}}, in_order = {{"prefetch", 2}};
  CHECK(prefetch_of(pages, 9, 1000, 1125) == Prefetch::pages);
  CHECK(prefetch_of(pages, 9, 1000, 1126) == Prefetch::into_l1);
  CHECK(prefetch_of(pages, 1, 1000, 5000) == Prefetch::pages);
  CHECK(prefetch_of(in_order, 9, 1000, 5000) == Prefetch::into_l2);
  CHECK(prefetch_of({}, 9, 1000, 1000) == Prefetch::into_l1);
}
