// Measured ceilings are complete and well-formed, and survive JSON. No figure is judged: machines
// that run tests are busy.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absent_variants.hpp"
#include "backends/highway.hpp"
#include "backends/unit_loops.hpp"
#include "core/error.hpp"
#include "core/exp_loop.hpp"
#include "measure/bandwidth.hpp"
#include "measure/ceilings_json.hpp"
#include "measure/fma_peak.hpp"
#include "measure/math_rates.hpp"
#include "measure/stream_loops.hpp"

using namespace rooflane;

namespace {

std::atomic<long> allocations{0};

struct Progress {
  std::vector<double> done;
  std::string texts;
};
Progress progress;

// Measured once, with a budget for the least number of repeats.
const Ceilings& measured() {
  static const Ceilings ceilings = [] {
    CeilingsRequest request;
    request.threads = {1, 2};
    request.seconds = 0.1;
    request.progress = [](double share, const std::string& what) {
      progress.done.push_back(share);
      progress.texts += what + "\n";
    };
    return measure_ceilings(request);
  }();
  return ceilings;
}

}  // namespace

// Counts, so that a test can check that probes allocate nothing. Not inlined: GCC would take malloc
// and delete, or new and free, for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

TEST_CASE("every target of this CPU has a peak at every number of threads") {
  std::set<std::string> seen;
  long units = 0;
  for (const FmaCeiling& fma : measured().fma) {
    CHECK(fma.device == "");
    CHECK(fma.gflops > 0);
    if (fma.math != "fp32") {
      ++units;
      continue;
    }
    seen.insert(fma.isa + "/" + std::to_string(fma.threads));
  }
  CHECK(seen.size() + units == measured().fma.size());
  CHECK(seen.size() == 2 * isa_targets().size());
  for (const std::string& isa : isa_targets()) {
    for (int threads : {1, 2}) {
      CHECK(find_fma_peak(measured(), "fp32", isa, threads, "").has_value());
    }
  }
}

TEST_CASE("every unit for short operands of this CPU has a peak, of the size of multiply-adds'") {
  for (const UnitLoop& unit : unit_loops()) {
    INFO(unit.path);
    if (unit.missing()) continue;
    for (const int threads : {1, 2}) {
      const auto peak = find_fma_peak(measured(), unit.math, unit.path, threads, "");
      REQUIRE(peak.has_value());
      // Units are from half as fast (vdpbf16ps in a VM with AMX) to 16 times as fast. Two figures
      // of a busy machine may be off by some times, a wrong count of operations by more.
      const double ratio = *peak / *find_fma_peak(measured(), "fp32", "", threads, "");
      CHECK(ratio > 0.02);
      CHECK(ratio < 500);
      CHECK(*find_compute_peak(measured(), unit.math, "AVX2", threads, "") >= *peak);
    }
  }
}

TEST_CASE("every target has rates of exp and of unfused operations at every number of threads") {
  CHECK(measured().rates.size() == 2 * isa_targets().size());
  for (const std::string& isa : isa_targets()) {
    for (int threads : {1, 2}) {
      const auto rates = find_rates(measured(), isa, threads, "");
      REQUIRE(rates.has_value());
      CHECK(rates->exp_g_s > 0);
      CHECK(rates->unfused_gflops > 0);
    }
  }
}

TEST_CASE("every ceiling is cross-checked, and the outcome said once") {
  const Ceilings& c = measured();
  for (const std::string& isa : isa_targets()) {
    long lines = 0;
    for (const auto& list : {c.notes, c.warnings}) {
      lines += std::count_if(list.begin(), list.end(), [&](const std::string& line) {
        return line.find("peak, " + isa + ", 2 threads") != std::string::npos;
      });
    }
#if defined(__x86_64__)
    CHECK(lines == 1);
#else
    CHECK(lines == 0);
#endif
  }
}

TEST_CASE("each thread count has one curve of positive rates over rising footprints") {
  REQUIRE(measured().bandwidth.size() == 2);
  for (const BandwidthCurve& curve : measured().bandwidth) {
    CAPTURE(curve.threads);
    CHECK(curve.device == "");
    CHECK(curve.points.size() > bandwidth_points / 2);
    CHECK(curve.points.size() <= bandwidth_points);
    CHECK(curve.points.front().footprint_bytes == 16384.0 * curve.threads);
    double previous = 0;
    for (const BandwidthPoint& p : curve.points) {
      CHECK(p.footprint_bytes > previous);
      previous = p.footprint_bytes;
      for (double rate : {p.read_gb_s, p.write_gb_s, p.copy_gb_s}) CHECK(rate > 0);
      for (const std::string& method : {p.read_method, p.write_method, p.copy_method}) {
        CHECK(method.find("stream") != std::string::npos);
      }
      CHECK(p.read_method.find("nt") == std::string::npos);
    }
  }
}

TEST_CASE("a curve ends where it is asked to") {
  CeilingsRequest request;
  request.isas = {isa_targets().front()};
  request.seconds = 0.01;
  request.largest_footprint = std::size_t{3} << 20;
  const Ceilings ceilings = measure_ceilings(request);
  REQUIRE(ceilings.bandwidth.size() == 1);
  CHECK(ceilings.bandwidth[0].points.back().footprint_bytes == 3 << 20);
}

TEST_CASE("what no cache holds is walked there and back, what L1 holds only in circles") {
  for (const BandwidthCurve& curve : measured().bandwidth) {
    // Windows, from 32 MiB an array: every method alternates there.
    const double windowed = 2 * 32.0 * 1024 * 1024 * curve.threads;
    for (const BandwidthPoint& p : curve.points) {
      CAPTURE(p.footprint_bytes);
      for (const std::string& method : {p.read_method, p.write_method, p.copy_method}) {
        const bool alternates = method.find("there and back") != std::string::npos;
        if (p.footprint_bytes <= 32768.0 * curve.threads) CHECK_FALSE(alternates);
        if (p.footprint_bytes >= windowed) CHECK(alternates);
      }
    }
  }
}

TEST_CASE("plateaus rise, have the labels of levels in order, and end with memory") {
  const std::vector<std::string> order = {"L1", "L2", "L3", "memory"};
  for (const BandwidthCurve& curve : measured().bandwidth) {
    REQUIRE(!curve.plateaus.empty());
    double previous = 0;
    std::size_t level = 0;
    for (const Plateau& plateau : curve.plateaus) {
      CHECK(plateau.largest_footprint_bytes > previous);
      previous = plateau.largest_footprint_bytes;
      while (level < order.size() && order[level] != plateau.label) ++level;
      CHECK(level < order.size());
    }
    CHECK(curve.plateaus.back().label == "memory");
    CHECK(previous == curve.points.back().footprint_bytes);
  }
}

TEST_CASE("JSON gives back what was measured") {
  Ceilings before = measured();
  before.transfer.push_back({"Some GPU", 11.5, 12.25});
  before.fma.push_back({"fp32", "", 0, "Some GPU", 1e4});
  before.rates.push_back({"", 0, "Some GPU", 800.5, 5e3});
  before.warnings.push_back("one");
  const nlohmann::json j = before;
  const nlohmann::json again = nlohmann::json::parse(j.dump()).get<Ceilings>();
  CHECK(again == j);
  CHECK(again.at("bandwidth").at(0).at("points").at(0).at("read_gb_s") ==
        before.bandwidth[0].points[0].read_gb_s);
  CHECK(again.at("transfer").at(0).at("d2h_gb_s") == 12.25);
  CHECK(again.at("rates").back().at("exp_g_s") == 800.5);
  CHECK(again.at("warnings").back() == "one");
  CHECK(again.at("notes").size() == before.notes.size());
}

TEST_CASE("JSON that lacks a field is refused by the field's name") {
  nlohmann::json j = measured();
  j.at("fma").at(0).erase("gflops");
  try {
    static_cast<void>(j.get<Ceilings>());
    FAIL("no error");
  } catch (const nlohmann::json::exception& error) {
    CHECK(std::string(error.what()).find("gflops") != std::string::npos);
  }
}

TEST_CASE("progress rises from 0 to 1 and says what is measured") {
  measured();
  REQUIRE(progress.done.size() > 2);
  CHECK(progress.done.front() == 0);
  CHECK(progress.done.back() == 1);
  CHECK(std::is_sorted(progress.done.begin(), progress.done.end()));
  for (const std::string& isa : isa_targets()) {
    CHECK(progress.texts.find(isa + ", 2 threads") != std::string::npos);
  }
  CHECK(progress.texts.find("bandwidth, 1 thread\n") != std::string::npos);
}

TEST_CASE("a request for no thread, an unknown target or a device that is not there is refused") {
  CeilingsRequest request;
  request.threads = {0};
  CHECK_THROWS_AS(measure_ceilings(request), Error);
  request = {};
  request.isas = {"AVX17"};
  CHECK_THROWS_AS(measure_ceilings(request), Error);
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    CAPTURE(backend->name);
    request = {};
    request.threads = {};
    request.devices = {{backend->devices, 1000}};
    CHECK_THROWS_AS(measure_ceilings(request), Error);
  }
}

TEST_CASE("a device gets plateaus, as the CPU does") {
  bool any = false;
  std::string why = "built without OpenCL";
  for (const Backend* backend : all_backends()) {
    if (backend->devices == nullptr) continue;
    if (const auto absent = backend->absent_reason("")) {
      why = *absent;
      continue;
    }
    any = true;
    const DeviceFacts facts = backend->devices->facts(0);
    CeilingsRequest request;
    request.threads = {facts.is_cpu ? facts.compute_units : 1};
    request.isas = {isa_targets().front()};
    request.devices = {{backend->devices, 0}};
    request.seconds = 0;
    const Ceilings ceilings = measure_ceilings(request);
    REQUIRE(ceilings.bandwidth.size() == 2);
    CHECK(ceilings.bandwidth[1].device == facts.name);
    REQUIRE_FALSE(ceilings.bandwidth[1].plateaus.empty());
    CHECK(ceilings.bandwidth[1].plateaus.back().label == "memory");
  }
  if (!any) test::skip_part(why, test::packages_of("opencl", why));
}

TEST_CASE("every target's FMA loop computes a·x + y on all its vectors") {
  for (const std::string& isa : isa_targets()) {
    CAPTURE(isa);
    const FmaLoop loop = fma_loop(resolve_isa(isa));
    CHECK(loop.flops_per_step >= 2.0 * loop.vectors);
    // Vector i starts at x + i; two steps with x = 2, y = 3: 2·(2·(2+i)+3)+3 = 17 + 4i; the result
    // is their sum and y.
    const int n = loop.vectors;
    CHECK(loop.run(2, 2, 3) == static_cast<float>(17 * n + 4 * n * (n - 1) / 2 + 3));
    CHECK(loop.run(0, 2, 3) == static_cast<float>(2 * n + n * (n - 1) / 2 + 3));
  }
}

TEST_CASE("every target's exp loop computes exp, its unfused loop max((a + z)x, y) - y") {
  for (const std::string& isa : isa_targets()) {
    CAPTURE(isa);
    const ExpLoop exp = exp_loop(resolve_isa(isa));
    CHECK(exp.run(3, -1) == doctest::Approx(std::exp(-1.0)).epsilon(1e-6));
    CHECK(exp.run(0, -1) == -1);
    const UnfusedLoop loop = unfused_loop(resolve_isa(isa));
    CHECK(loop.flops_per_step >= 4.0 * loop.vectors);
    // Vector i starts at 2 + i; x = 2, y = 3, z = 1: max(2·(3 + i), 3) - 3 = 3 + 2i; again with
    // that: 2·(4 + 2i) - 3 = 5 + 4i.
    const int n = loop.vectors;
    CHECK(loop.run(2, 2, 3, 1) == static_cast<float>(5 * n + 4 * n * (n - 1) / 2));
    // The maximum decides: every vector becomes 0.
    CHECK(loop.run(1, 2, 1000, 1) == 0);
  }
}

namespace {

constexpr PassOrder pass_orders[] = {PassOrder::forward, PassOrder::backward,
                                     PassOrder::there_and_back, PassOrder::back_and_there};

}  // namespace

TEST_CASE("each copy loop copies what it says, and nothing beside it") {
  alignas(64) static std::byte from[40960], to[40960];
  for (std::size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (bool non_temporal : {false, true}) {
    for (int streams : {1, 4, 8}) {
      for (std::size_t bytes : {64u, 4096u, 16384u, 32768u, 40000u}) {
        CAPTURE(streams);
        CAPTURE(bytes);
        for (PassOrder order : pass_orders) {
          for (std::size_t passes : {1u, 2u, 3u}) {
            std::fill(std::begin(to), std::end(to), std::byte{0xAA});
            const std::size_t touched =
                stream_loops().copy(from, to, bytes, {streams, non_temporal}, passes, order);
            CHECK(touched <= bytes);
            CHECK(touched + 1024 * static_cast<std::size_t>(streams) >= bytes);
            CHECK(std::equal(to, to + touched, from));
            CHECK(std::all_of(to + touched, std::end(to),
                              [](std::byte b) { return b == std::byte{0xAA}; }));
          }
        }
      }
    }
  }
}

TEST_CASE("write and read loops touch as much as they say") {
  alignas(64) static std::byte memory[40960];
  for (bool non_temporal : {false, true}) {
    for (int streams : {1, 4, 8}) {
      for (PassOrder order : pass_orders) {
        std::fill(std::begin(memory), std::end(memory), std::byte{0xAA});
        const StreamMethod method{streams, non_temporal};
        const std::size_t touched = stream_loops().write(memory, 30000, method, 2, order);
        CHECK(touched > 20000);
        CHECK(std::all_of(memory + touched, std::end(memory),
                          [](std::byte b) { return b == std::byte{0xAA}; }));
        CHECK(std::none_of(memory, memory + touched,
                           [](std::byte b) { return b == std::byte{0xAA}; }));
        CHECK(stream_loops().read(memory, 30000, {streams, false}, 2, order) == touched);
      }
    }
  }
}

TEST_CASE("probes give a positive time at any footprint, and allocate only the first time") {
  for (int threads : {1, 2, 3}) {
    for (double footprint : {0.0, 1.0, 1e4, 3e5, 1e7, 5e8, 1e13}) {
      CAPTURE(threads);
      CAPTURE(footprint);
      CHECK(probe_copy_ns(footprint, threads) > 0);
      CHECK(probe_fma_ns(threads) > 0);
    }
  }
  const long before = allocations;
  // One thread: a pool may allocate to start its threads.
  const double times[] = {probe_copy_ns(3e5, 1), probe_fma_ns(1), probe_copy_ns(1e7, 1)};
  CHECK(allocations == before);
  for (double ns : times) CHECK(ns > 0);
}
