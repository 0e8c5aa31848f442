// The model and the cross-checks of ceilings, on ceilings made up for the purpose: no measurement.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "core/catalogue.hpp"
#include "measure/ceilings_check.hpp"
#include "measure/model.hpp"
#include "measure/roofline.hpp"

using namespace rooflane;

namespace {

BandwidthPoint point(double footprint, double gb_s) {
  BandwidthPoint p;
  p.footprint_bytes = footprint;
  p.read_gb_s = p.write_gb_s = p.copy_gb_s = gb_s;
  return p;
}

// 100 GFLOP/s, 50 unfused, 2 G exps/s, 1000 GB/s; a GPU with ten times of all.
Ceilings made_up() {
  Ceilings c;
  c.fma = {{"fp32", "AVX3", 1, "", 100},
           {"fp32", "AVX2", 1, "", 40},
           {"fp32", "", 0, "Some GPU", 1000},
           {"fp32", "", 2, "Some CPU device", 90}};
  c.rates = {{"AVX3", 1, "", 2, 50},
             {"AVX2", 1, "", 1, 60},
             {"", 0, "Some GPU", 20, 500},
             {"", 2, "Some CPU device", 1, 30}};
  for (const auto& [threads, device, gb_s] :
       {std::tuple(1, "", 1000.0), {0, "Some GPU", 10000.0}, {2, "Some CPU device", 1000.0}}) {
    BandwidthCurve curve;
    curve.threads = threads;
    curve.device = device;
    curve.points = {point(1e3, gb_s), point(1e9, gb_s)};
    curve.plateaus = {{"memory", 1e9}};
    c.bandwidth.push_back(curve);
  }
  return c;
}

Problem problem(const std::string& text) {
  static const Catalogue catalogue = Catalogue::built_in();
  return parse_problem(text, catalogue.kernels());
}

double model_of(const std::string& text, const char* isa = "AVX3", int threads = 1,
                const char* device = "", const Ceilings& ceilings = made_up()) {
  return model_ns(problem(text), ceilings, "fp32", isa, threads, device).value();
}

double roof_ns(const std::string& text) {
  return roof_of(problem(text), made_up(), "fp32", "AVX3", 1, "").value().least_ns;
}

bool has(const std::vector<std::string>& lines, const std::string& text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("gemm is all multiply-adds: the model is the strict roof") {
  CHECK(model_of("gemm:m=64,n=64,k=64") == doctest::Approx(2.0 * 64 * 64 * 64 / 100));
  CHECK(model_of("gemm:m=64,n=64,k=64") == roof_ns("gemm:m=64,n=64,k=64"));
}

TEST_CASE("on a CPU softmax pays exps and unfused operations one after the other") {
  const double elements = 100 * 1000;
  CHECK(model_of("softmax:rows=100,cols=1000") ==
        doctest::Approx(4 * elements / 50 + elements / 2));
  CHECK(model_of("softmax:rows=100,cols=1000") > roof_ns("softmax:rows=100,cols=1000"));
}

TEST_CASE("layernorm: four of seven flops in multiply-adds") {
  const double elements = 100 * 1000;
  CHECK(model_of("layernorm:rows=100,cols=1000") ==
        doctest::Approx(4 * elements / 100 + 3 * elements / 50));
}

TEST_CASE("attention pays for softmax beside its flops, per visible pair only") {
  const double dense = 2.0 * 8 * 16, causal = 2.0 * (1 + 8) * 8 / 2;
  const auto expected = [](double pairs) {
    return 4 * 32 * pairs / 100 + 4 * pairs / 50 + pairs / 2;
  };
  CHECK(model_of("attention:batch=1,heads=2,q_len=8,kv_len=16,head_dim=32") ==
        doctest::Approx(expected(dense)));
  CHECK(model_of("attention:batch=1,heads=2,q_len=8,kv_len=8,head_dim=32,causal=1") ==
        doctest::Approx(expected(causal)));
}

TEST_CASE("where memory takes longer the model is memory's time") {
  Ceilings slow = made_up();
  for (BandwidthPoint& p : slow.bandwidth[0].points) {
    p.read_gb_s = p.write_gb_s = p.copy_gb_s = 0.5;
  }
  CHECK(model_of("softmax:rows=100,cols=1000", "AVX3", 1, "", slow) ==
        doctest::Approx(8 * 1e5 / 0.5));
}

TEST_CASE("a GPU has units of their own for exps: the longest term alone counts") {
  const double elements = 100 * 1000;
  CHECK(model_of("softmax:rows=100,cols=1000", "", 0, "Some GPU") ==
        doctest::Approx(std::max(4 * elements / 500, elements / 20)));
}

TEST_CASE("an OpenCL CPU device shares its ports as any CPU") {
  const double elements = 100 * 1000;
  CHECK(model_of("softmax:rows=100,cols=1000", "", 2, "Some CPU device") ==
        doctest::Approx(4 * elements / 30 + elements));
}

TEST_CASE("rates are those of the row's target; without one, or for scalar, the best") {
  const double elements = 100 * 1000;
  CHECK(model_of("softmax:rows=100,cols=1000", "AVX2") ==
        doctest::Approx(4 * elements / 60 + elements));
  for (const char* any : {"", "baseline"}) {
    CHECK(model_of("softmax:rows=100,cols=1000", any) ==
          doctest::Approx(4 * elements / 60 + elements / 2));
  }
}

TEST_CASE("the model is never below the strict roof") {
  Ceilings odd = made_up();
  odd.rates[0].exp_g_s = odd.rates[0].unfused_gflops = 1e9;
  CHECK(model_of("softmax:rows=100,cols=1000", "AVX3", 1, "", odd) ==
        roof_ns("softmax:rows=100,cols=1000"));
}

TEST_CASE("without rates, a roof or work there is no model") {
  Ceilings none = made_up();
  none.rates.clear();
  const auto model = [](const std::string& text, const Ceilings& c, int threads) {
    return model_ns(problem(text), c, "fp32", "AVX3", threads, "");
  };
  CHECK(!model("softmax:rows=1,cols=8", none, 1));
  CHECK(!model("softmax:rows=1,cols=8", made_up(), 3));
  CHECK(!model("softmax:rows=0,cols=8", made_up(), 1));
}

TEST_CASE("rates measured again raise the known ones and never lower them") {
  Ceilings known = made_up();
  Ceilings again = made_up();
  again.rates[0].exp_g_s = 3;
  again.rates[0].unfused_gflops = 10;
  keep_better(known, again);
  CHECK(known.rates[0].exp_g_s == 3);
  CHECK(known.rates[0].unfused_gflops == 50);
  CHECK(known.rates[1].exp_g_s == 1);
}

TEST_CASE("a curve that falls has no warning, one that rises beyond noise names the points") {
  BandwidthCurve curve;
  curve.threads = 2;
  curve.points = {point(32768, 500), point(65536, 480), point(131072, 490), point(1e9, 40)};
  CHECK(curve_warnings(curve).empty());
  curve.points[1].write_gb_s = 400;
  const std::vector<std::string> warnings = curve_warnings(curve);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("2 threads") != std::string::npos);
  CHECK(warnings[0].find("write") != std::string::npos);
  CHECK(warnings[0].find("18 %") != std::string::npos);
  CHECK(warnings[0].find("64 KiB") != std::string::npos);
  CHECK(warnings[0].find("32 KiB") == std::string::npos);
}

TEST_CASE("a peak above its limit is a warning, one below a note with its share") {
  Ceilings c = made_up();
  const std::vector<KnownLimit> limits = {{"AVX3", 1, "", 110, "2 GHz x 55"},
                                          {"AVX2", 1, "", 20, "1 GHz x 20"},
                                          {"", 0, "Some GPU", 900, "9 units"}};
  check_ceilings(c, limits);
  CHECK(has(c.notes, "AVX3, 1 thread: 100.0 GFLOP/s is 91 % of 110.0 = 2 GHz x 55"));
  CHECK(has(c.warnings, "AVX2, 1 thread: 40.0 GFLOP/s is 200 % of 20.0"));
  CHECK(has(c.warnings, "Some GPU: 1000.0 GFLOP/s is 111 % of 900.0"));
  CHECK_FALSE(has(c.notes, "AVX2"));
}

TEST_CASE("a GPU below half of its limit is a warning, a CPU is not") {
  Ceilings c = made_up();
  const std::vector<KnownLimit> limits = {{"AVX3", 1, "", 300, "-"},
                                          {"", 0, "Some GPU", 3000, "-"}};
  check_ceilings(c, limits);
  CHECK(has(c.notes, "AVX3"));
  CHECK(has(c.warnings, "throttled"));
}

TEST_CASE("an OpenCL CPU device is held against the CPU itself") {
  Ceilings c = made_up();
  c.fma.push_back({"fp32", "AVX3", 2, "", 100});
  check_ceilings(c, {});
  CHECK(has(c.notes, "Some CPU device, 2 threads: 90.0 GFLOP/s is 90 % of the CPU's own 100.0"));
  c.fma.back().gflops = 60;
  check_ceilings(c, {});
  CHECK(has(c.warnings, "measured too low"));
  CHECK_FALSE(has(c.notes, "Some CPU device, 2 threads: 90.0 GFLOP/s"));
}

#if defined(__x86_64__)
TEST_CASE("the measured clock is one that CPUs have") {
  CHECK(measure_clock_ghz() > 0.1);
  CHECK(measure_clock_ghz() < 10);
}
#endif

TEST_CASE("the limits of this machine name the targets and threads asked for") {
  CeilingsRequest request;
  request.threads = {1, 2};
  const std::vector<KnownLimit> limits = known_limits(request, 2.5);
#if defined(__x86_64__)
  REQUIRE(!limits.empty());
  CHECK(limits.size() % 2 == 0);
#endif
  for (const KnownLimit& limit : limits) {
    CHECK(limit.gflops > 0);
    CHECK(limit.how.find("GHz") != std::string::npos);
  }
}
