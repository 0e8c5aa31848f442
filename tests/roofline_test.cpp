// Roofline arithmetic on synthetic ceilings and on a kernel with a known cost: no measurement.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "measure/plateaus.hpp"
#include "measure/roofline.hpp"

using namespace rooflane;

namespace {

// y = f(x) on n elements at `work` flops an element: 4·n bytes read, 4·n written.
const std::array<ParamSpec, 2> params = {{
    {.name = "n", .kind = ParamKind::size, .required = true},
    {.name = "work", .kind = ParamKind::size, .required = true},
}};

Kernel make_toy() {
  Kernel toy;
  toy.name = "toy";
  toy.summary = "y = f(x)";
  toy.params = params;
  toy.tensors = [](const Problem&) {
    return std::vector<TensorSpec>{
        {.name = "x", .role = Role::input, .axes = {{"n"}}},
        {.name = "y", .role = Role::output, .axes = {{"n"}}, .like = "x"}};
  };
  toy.cost = [](const Problem& p) {
    return Cost{p.value("n") * p.value("work"), 0, 8 * p.value("n")};
  };
  return toy;
}
const Kernel toy = make_toy();

Problem problem(double n, double work) {
  Problem p(toy);
  p.set("n", n);
  p.set("work", work);
  return p;
}

BandwidthPoint point(double footprint, double read, double write, double copy) {
  BandwidthPoint p;
  p.footprint_bytes = footprint;
  p.read_gb_s = read;
  p.write_gb_s = write;
  p.copy_gb_s = copy;
  return p;
}

Ceilings synthetic() {
  Ceilings c;
  c.fma = {{"fp32", "AVX3", 1, "", 100},
           {"fp32", "AVX2", 1, "", 50},
           {"fp32", "AVX3", 2, "", 190},
           {"fp32", "", 0, "Some GPU", 9000}};
  BandwidthCurve cpu;
  cpu.threads = 1;
  cpu.points = {point(1e4, 100, 50, 120), point(1e6, 50, 25, 60), point(1e8, 10, 5, 12)};
  cpu.plateaus = {{"L1", 1e4}, {"L2", 1e6}, {"memory", 1e8}};
  BandwidthCurve gpu;
  gpu.threads = 0;
  gpu.device = "Some GPU";
  gpu.points = {point(1e6, 1000, 1000, 1000)};
  gpu.plateaus = {{"memory", 1e6}};
  c.bandwidth = {cpu, gpu};
  return c;
}

double peak_at(double footprint, double w) {
  return find_memory_peak(synthetic(), footprint, w, 1, "").value().gb_s;
}

// A curve with `levels` = {footprint where it ends, GB/s}, 2 points an octave from 16 KiB to 256
// MiB, and a disturbance of a few per cent that differs from point to point.
std::vector<BandwidthPoint> staircase(const std::vector<std::array<double, 2>>& levels) {
  std::vector<BandwidthPoint> points;
  for (int i = 0; i <= 28; ++i) {
    const double footprint = 16384 * std::exp2(i / 2.0);
    double gb_s = levels.back()[1];
    for (std::size_t k = levels.size(); k-- > 0;) {
      if (footprint <= levels[k][0]) gb_s = levels[k][1];
    }
    const double wobble = 1 + 0.04 * std::sin(2.3 * i);
    points.push_back(point(footprint, gb_s * wobble, 0.6 * gb_s / wobble, 1.1 * gb_s));
  }
  return points;
}

constexpr double KiB = 1024, MiB = 1024 * 1024;

}  // namespace

TEST_CASE("products of short operands are held against the best unit for them") {
  Ceilings c = synthetic();
  // Without a unit for it, bfloat16 is widened and multiplied as float32; integers are not.
  CHECK(find_compute_peak(c, "bf16", "AVX2", 1, "") == 50);
  CHECK(find_compute_peak(c, "int8", "AVX2", 1, "") == std::nullopt);
  c.fma.push_back({"bf16", "vdpbf16ps", 1, "", 400});
  c.fma.push_back({"int8", "vpdpbusd", 1, "", 800});
  CHECK(find_compute_peak(c, "bf16", "AVX2", 1, "") == 400);
  CHECK(find_compute_peak(c, "int8-dynamic", "", 1, "") == 800);
  CHECK(find_compute_peak(c, "fp32", "AVX2", 1, "") == 50);
}

TEST_CASE("on a device with several units only what names its own is held against it") {
  Ceilings c;
  c.fma.push_back({"fp32", "", 0, "GPU", 60});
  CHECK(find_compute_peak(c, "f16", "", 0, "GPU", "") == 60);
  c.fma.push_back({"int8", "mma", 0, "GPU", 900});
  c.fma.push_back({"int8", "dp4a", 0, "GPU", 100});
  c.fma.push_back({"f16", "mma", 0, "GPU", 600});
  CHECK(find_compute_peak(c, "int8", "", 0, "GPU", "dp4a") == 100);
  CHECK(find_compute_peak(c, "f16", "", 0, "GPU", "mma") == 600);
  CHECK(find_compute_peak(c, "f16", "", 0, "GPU", "fma") == 60);
  // A library may use a faster one than any that was measured.
  CHECK(find_compute_peak(c, "f16", "", 0, "GPU", "") == std::nullopt);
  CHECK(find_compute_peak(c, "int8", "", 0, "GPU", "another") == std::nullopt);
}

TEST_CASE("what names its unit is held against that unit, others against the best") {
  Ceilings c = synthetic();
  c.fma.push_back({"bf16", "amx-bf16", 1, "", 1600});
  c.fma.push_back({"bf16", "vdpbf16ps", 1, "", 400});
  c.fma.push_back({"int8", "amx-int8", 1, "", 3200});
  c.fma.push_back({"int8", "vpdpbusd", 1, "", 800});
  const auto peak = [&](std::string_view math, std::string_view isa, std::string_view path) {
    const Problem p = problem(125000, 1e6);
    return roof_of(p, c, math, isa, 1, "", CacheMode::warm, path)->peak_gflops;
  };
  CHECK(peak("bf16", "", "vdpbf16ps") == 400);
  CHECK(peak("bf16", "", "amx-bf16") == 1600);
  CHECK(peak("int8-dynamic", "", "vpdpbusd") == 800);
  CHECK(peak("bf16", "AVX3", "avx512-fma") == 1600);
  CHECK(peak("fp32", "AVX2", "avx2-fma") == 50);
}

TEST_CASE("the FMA peak is the one of its target and threads, the best without a target") {
  const Ceilings c = synthetic();
  CHECK(find_fma_peak(c, "fp32", "AVX2", 1, "") == 50);
  CHECK(find_fma_peak(c, "fp32", "", 1, "") == 100);
  CHECK(find_fma_peak(c, "fp32", "AVX3", 2, "") == 190);
  CHECK(find_fma_peak(c, "fp32", "AVX2", 2, "") == std::nullopt);
  CHECK(find_fma_peak(c, "fp32", "AVX3", 3, "") == std::nullopt);
  CHECK(find_fma_peak(c, "bf16", "AVX3", 1, "") == std::nullopt);
}

TEST_CASE("a math is held against its own peak, and has no roof where that was not measured") {
  Ceilings c = synthetic();
  const Problem p = problem(1e5, 1000);
  const auto roof = [&] { return roof_of(p, c, "3xtf32", "", 0, "Some GPU", CacheMode::warm); };
  CHECK(!roof());
  c.fma.push_back({"3xtf32", "", 0, "Some GPU", 15000});
  REQUIRE(roof());
  CHECK(roof()->peak_gflops == 15000);
  CHECK(roof_of(p, c, "fp32", "", 0, "Some GPU", CacheMode::warm)->peak_gflops == 9000);
}

TEST_CASE("a device has ceilings of its own, whatever the threads of the row") {
  const Ceilings c = synthetic();
  for (int threads : {0, 1, 7}) {
    CHECK(find_fma_peak(c, "fp32", "", threads, "Some GPU") == 9000);
    CHECK(find_memory_peak(c, 1e6, 0.5, threads, "Some GPU").value().gb_s == 1000);
  }
  CHECK(find_fma_peak(c, "fp32", "", 1, "Another GPU") == std::nullopt);
  CHECK(!find_memory_peak(c, 1e6, 0.5, 1, "Another GPU"));
}

TEST_CASE("memory peaks at a measured footprint: all read, half written, all written") {
  CHECK(peak_at(1e6, 0) == doctest::Approx(50));
  CHECK(peak_at(1e6, 0.5) == doctest::Approx(60));
  // 25 measured for writes alone, but a copy of 60 writes 30.
  CHECK(peak_at(1e6, 1) == doctest::Approx(30));
}

TEST_CASE("between all read and all written the least of three limits holds") {
  CHECK(peak_at(1e6, 1.0 / 3) == doctest::Approx(60));    // the copy
  CHECK(peak_at(1e6, 0.1) == doctest::Approx(50 / 0.9));  // reads: 50 of every 55.6
  CHECK(peak_at(1e6, 0.8) == doctest::Approx(30 / 0.8));  // writes
  for (double w = 0; w <= 1; w += 0.01) {
    CHECK(peak_at(1e6, w) <= 60 + 1e-9);
    CHECK(peak_at(1e6, w) >= 30 - 1e-9);
  }
}

TEST_CASE("the curve is straight over the logarithm of the footprint and flat beyond its ends") {
  CHECK(peak_at(1e5, 0) == doctest::Approx(75));
  CHECK(peak_at(1e5, 0.5) == doctest::Approx(90));
  CHECK(peak_at(1e7, 0) == doctest::Approx(30));
  CHECK(peak_at(1, 0) == doctest::Approx(100));
  CHECK(peak_at(1e12, 0) == doctest::Approx(10));
}

TEST_CASE("a disturbed point does not lower the peak below what larger footprints reached") {
  Ceilings c = synthetic();
  std::vector<BandwidthPoint>& points = c.bandwidth.front().points;
  points.insert(points.begin() + 1, point(1e5, 20, 10, 24));
  CHECK(find_memory_peak(c, 1e5, 0, 1, "").value().gb_s == doctest::Approx(50));
  CHECK(find_memory_peak(c, 1e5, 0.5, 1, "").value().gb_s == doctest::Approx(60));
  CHECK(find_memory_peak(c, 1e4, 0, 1, "").value().gb_s == doctest::Approx(100));
}

TEST_CASE("ceilings measured again raise the known ones, also where their points differ") {
  Ceilings known = synthetic();
  Ceilings again = known;
  again.fma[0].gflops *= 2;
  again.fma[1].gflops /= 2;
  again.bandwidth[0].points = {point(1e4, 90, 60, 110), point(1e5, 200, 20, 70),
                               point(1e7, 20, 10, 20)};
  const Ceilings before = known;
  keep_better(known, again);
  CHECK(known.fma[0].gflops == 2 * before.fma[0].gflops);
  CHECK(known.fma[1].gflops == before.fma[1].gflops);
  const auto at = [](const Ceilings& c, double bytes) {
    return find_memory_peak(c, bytes, 0, 1, "").value().gb_s;
  };
  for (double bytes : {1e4, 3e4, 1e5, 5e5, 1e6, 1e7}) {
    CHECK(at(known, bytes) >= at(before, bytes));
    CHECK(at(known, bytes) >= at(again, bytes));
  }
  CHECK(at(known, 1e5) == 200);
  CHECK(at(known, 1e8) == at(before, 1e8));  // beyond what was measured again
  CHECK(known.bandwidth[1].points.size() == before.bandwidth[1].points.size());
}

TEST_CASE("a footprint has the label of the first plateau that reaches it") {
  const Ceilings c = synthetic();
  const auto level_at = [&](double bytes) { return find_memory_peak(c, bytes, 0, 1, "")->level; };
  CHECK(level_at(1) == "L1");
  CHECK(level_at(1e4) == "L1");
  CHECK(level_at(1e4 + 1) == "L2");
  CHECK(level_at(1e8) == "memory");
  CHECK(level_at(1e12) == "memory");
}

TEST_CASE("the knee is the end of the last plateau before memory") {
  CHECK(find_knee(synthetic(), 1) == 1e6);
  CHECK(find_knee(synthetic(), 2) == std::nullopt);
  Ceilings flat = synthetic();
  flat.bandwidth[0].plateaus = {{"memory", 1e8}};
  CHECK(find_knee(flat, 1) == std::nullopt);
}

TEST_CASE("a problem with many flops per byte is bound by compute") {
  // n = 125000: 1e6 bytes, half written: 60 GB/s. 160 flops an element: 20 flops a byte.
  const Roof roof = roof_of(problem(125000, 160), synthetic(), "fp32", "AVX3", 1, "").value();
  CHECK(roof.ai == doctest::Approx(20));
  CHECK(roof.peak_gflops == 100);
  CHECK(roof.peak_gb_s == doctest::Approx(60));
  CHECK(roof.level == "L2");
  CHECK(roof.roof_gflops == doctest::Approx(100));
  CHECK(roof.bound == "compute");
  CHECK(roof.least_ns == doctest::Approx(125000.0 * 160 / 100));
}

TEST_CASE("a problem with few flops per byte is bound by memory") {
  const Roof roof = roof_of(problem(125000, 4), synthetic(), "fp32", "AVX3", 1, "").value();
  CHECK(roof.ai == doctest::Approx(0.5));
  CHECK(roof.roof_gflops == doctest::Approx(30));
  CHECK(roof.bound == "memory");
  CHECK(roof.least_ns == doctest::Approx(1e6 / 60));
}

TEST_CASE("a cold problem is held against memory, whatever its footprint") {
  Ceilings c = synthetic();
  const auto roof_at = [&](double n, CacheMode cache) {
    return roof_of(problem(n, 4), c, "fp32", "AVX3", 1, "", cache).value();
  };
  for (double n : {10.0, 125000.0, 1e10}) {
    const Roof cold = roof_at(n, CacheMode::cold);
    CHECK(cold.level == "memory");
    CHECK(cold.peak_gb_s == 12);
    CHECK(cold.least_ns == doctest::Approx(8 * n / 12));
  }
  CHECK(roof_at(125000, CacheMode::warm).peak_gb_s == doctest::Approx(60));
  // Output that need not reach memory within the run: where copying is slower than reading, reading
  // is the limit.
  c.bandwidth[0].points.back() = point(1e8, 10, 5, 8);
  CHECK(roof_at(125000, CacheMode::cold).peak_gb_s == 10);
  CHECK(!roof_of(problem(1000, 5), c, "fp32", "", 2, "", CacheMode::cold));
}

TEST_CASE("a problem is held against the peak of its own target, scalar against the best") {
  const auto peak = [](std::string_view isa) {
    return roof_of(problem(125000, 160), synthetic(), "fp32", isa, 1, "")->peak_gflops;
  };
  CHECK(peak("AVX2") == 50);
  CHECK(peak("AVX3") == 100);
  CHECK(peak("baseline") == 100);
  CHECK(peak("") == 100);
}

TEST_CASE("what only moves bytes has the roof of its bytes, at those that it touches") {
  static Kernel mover = make_toy();
  mover.cost = [](const Problem& p) { return Cost{.bytes = 6 * p.value("n"), .moves = true}; };
  Problem p(mover);
  p.set("n", 125000);
  p.set("work", 0);
  // 0.75e6 of 1e6 bytes of operands are touched, two thirds of them written.
  const MemoryPeak peak = find_memory_peak(synthetic(), 0.75e6, 2.0 / 3, 1, "").value();
  const Roof roof = roof_of(p, synthetic(), "fp32", "AVX3", 1, "").value();
  CHECK(roof.ai == 0);
  CHECK(roof.bound == "memory");
  CHECK(roof.peak_gb_s == doctest::Approx(peak.gb_s));
  CHECK(roof.least_ns == doctest::Approx(0.75e6 / peak.gb_s));
}

TEST_CASE("no flops, nothing to touch, or a missing ceiling: no roof") {
  const Ceilings c = synthetic();
  CHECK(!roof_of(problem(1000, 0), c, "fp32", "", 1, ""));
  CHECK(!roof_of(problem(0, 5), c, "fp32", "", 1, ""));
  CHECK(!roof_of(problem(1000, 5), c, "fp32", "", 3, ""));
  CHECK(!roof_of(problem(1000, 5), c, "fp32", "", 2, ""));  // peak without a curve
  CHECK(!roof_of(problem(1000, 5), c, "int8", "", 1, ""));
  CHECK(!roof_of(problem(1000, 5), Ceilings{}, "fp32", "", 1, ""));
}

TEST_CASE("the written share counts outputs against all operands") {
  CHECK(write_fraction(problem(1000, 5)) == doctest::Approx(0.5));
  CHECK(write_fraction(problem(0, 5)) == 0);
}

TEST_CASE("plateaus are found where a noisy staircase steps down") {
  const auto points =
      staircase({{{48 * KiB, 500}}, {{1 * MiB, 250}}, {{32 * MiB, 120}}, {{1e99, 45}}});
  const std::vector<Plateau> found = find_plateaus(points, {48 * KiB, 1 * MiB, 32 * MiB});
  REQUIRE(found.size() == 4);
  CHECK(found[0].label == "L1");
  CHECK(found[1].label == "L2");
  CHECK(found[2].label == "L3");
  CHECK(found[3].label == "memory");
  CHECK(found[0].largest_footprint_bytes == doctest::Approx(16 * KiB * std::exp2(1.5)));
  CHECK(found[1].largest_footprint_bytes == 1 * MiB);
  CHECK(found[2].largest_footprint_bytes == 32 * MiB);
  CHECK(found[3].largest_footprint_bytes == points.back().footprint_bytes);
}

TEST_CASE("a reported L3 size that is far too large neither moves nor renames a plateau") {
  const auto points =
      staircase({{{48 * KiB, 200}}, {{2 * MiB, 100}}, {{64 * MiB, 30}}, {{1e99, 14}}});
  const std::vector<Plateau> found = find_plateaus(points, {48 * KiB, 2 * MiB, 480 * MiB});
  REQUIRE(found.size() == 4);
  CHECK(found[2].label == "L3");
  CHECK(found[2].largest_footprint_bytes == 64 * MiB);
}

TEST_CASE("fewer steps than caches take the labels whose reported sizes fit") {
  const auto points = staircase({{{1 * MiB, 250}}, {{1e99, 45}}});
  const std::vector<Plateau> found = find_plateaus(points, {48 * KiB, 1 * MiB, 0});
  REQUIRE(found.size() == 2);
  CHECK(found[0].label == "L2");
  CHECK(found[0].largest_footprint_bytes == 1 * MiB);
  CHECK(found[1].label == "memory");
}

TEST_CASE("levels that a device's curve does not see are neither found nor named") {
  const auto points =
      staircase({{{256 * KiB, 500}}, {{1 * MiB, 250}}, {{32 * MiB, 120}}, {{1e99, 45}}});
  const std::vector<Plateau> found = find_plateaus(points, {no_such_level, 0, no_such_level});
  REQUIRE(found.size() == 2);
  CHECK(found[0].label == "L2");
  CHECK(found[1].label == "memory");
  const auto three = find_plateaus(points, {no_such_level, 0, 0});
  REQUIRE(three.size() == 3);
  CHECK(three[0].label == "L2");
  CHECK(three[1].label == "L3");
}

TEST_CASE("a flat curve is memory alone, and no points are no plateaus") {
  const auto points = staircase({{{1e99, 45}}});
  const std::vector<Plateau> found = find_plateaus(points, {48 * KiB, 1 * MiB, 32 * MiB});
  REQUIRE(found.size() == 1);
  CHECK(found[0].label == "memory");
  CHECK(find_plateaus({}, {0, 0, 0}).empty());
}

TEST_CASE("a single slow point is an outlier and no level") {
  auto points = staircase({{{1 * MiB, 250}}, {{1e99, 45}}});
  for (double* rate : {&points[4].read_gb_s, &points[4].write_gb_s, &points[4].copy_gb_s}) {
    *rate /= 2;
  }
  const std::vector<Plateau> found = find_plateaus(points, {48 * KiB, 1 * MiB, 32 * MiB});
  REQUIRE(found.size() == 2);
  CHECK(found[0].largest_footprint_bytes == 1 * MiB);
}
