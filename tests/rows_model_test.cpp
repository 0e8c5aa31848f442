// When rows of softmax and LayerNorm go past the caches, and how they are fetched then, for
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

const Machine near_l3 = with("AMD EPYC", 48 << 10, 1 << 20, 32 << 20);
const Machine small_l1 = with("AMD EPYC", 32 << 10, 1 << 20, 32 << 20);
const Machine far_l3 = with("Intel(R) Xeon(R)", 48 << 10, 2 << 20, 100 << 20);

}  // namespace

TEST_CASE("rows are streamed from where caches are full on: short ones later, or never") {
  CHECK(streaming_bytes(near_l3, 1, 2048) == 20 << 20);
  CHECK(streaming_bytes(near_l3, 2, 2048) == 28 << 20);
  CHECK(streaming_bytes(far_l3, 1, 2048) == 2 << 20);
  CHECK(streaming_bytes(far_l3, 4, 2048) == 8 << 20);
  for (const Machine& m : {near_l3, far_l3}) {
    for (const std::int64_t cols : {1, 63, 255}) CHECK(streaming_bytes(m, 1, cols) == m.l3_bytes);
  }
  CHECK(streaming_bytes(small_l1, 2, 64) == 32 << 20);
  CHECK(streaming_bytes(small_l1, 2, 63) == std::numeric_limits<std::size_t>::max());
  CHECK(streaming_bytes(small_l1, 3, 63) == 32 << 20);
}

TEST_CASE("rows past the caches are fetched into L1 only where it is large and L3 near") {
  // 2730 elements: three rows fill 32 KiB; 4096: 48 KiB.
  CHECK(likely_fetch(near_l3, 1, 2048, Fetch::pages) == Fetch::into_l1);
  CHECK(likely_fetch(near_l3, 2, 40000, Fetch::pages) == Fetch::into_l1);
  CHECK(likely_fetch(small_l1, 1, 2730, Fetch::pages) == Fetch::into_l2);
  CHECK(likely_fetch(small_l1, 1, 2731, Fetch::pages) == Fetch::pages);
  CHECK(likely_fetch(small_l1, 2, 2731, Fetch::into_l2) == Fetch::into_l2);
  CHECK(likely_fetch(far_l3, 1, 255, Fetch::into_l1) == Fetch::into_l2);
  CHECK(likely_fetch(far_l3, 1, 256, Fetch::into_l1) == Fetch::pages);
  CHECK(likely_fetch(far_l3, 2, 4096, Fetch::into_l1) == Fetch::into_l2);
  CHECK(likely_fetch(far_l3, 2, 4097, Fetch::into_l1) == Fetch::pages);
}

TEST_CASE("pages are not fetched in turn where much lies between the rows") {
  const Tuning pages = {{"fetch", 1}}, in_order = {{"fetch", 2}};
  CHECK(fetch_of(pages, 9, 1000, 1125) == Fetch::pages);
  CHECK(fetch_of(pages, 9, 1000, 1126) == Fetch::into_l1);
  CHECK(fetch_of(pages, 1, 1000, 5000) == Fetch::pages);
  CHECK(fetch_of(in_order, 9, 1000, 5000) == Fetch::into_l2);
  CHECK(fetch_of({}, 9, 1000, 1000) == Fetch::into_l1);
}
