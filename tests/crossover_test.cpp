// From which size on a device beats the CPU: families of shapes and winners over made-up rows.
#include "io/crossover.hpp"

#include <doctest/doctest.h>

#include <map>

namespace rooflane {
namespace {

MeasuredRow cpu_row(const std::string& shape, double flops, double p50, int threads = 2) {
  MeasuredRow m;
  m.row.kernel = "gemm";
  m.row.shape = shape;
  m.row.variant = "hwy";
  m.row.status = "PASSED";
  m.row.cpu = "Some CPU";
  m.row.threads = threads;
  m.row.flops = flops;
  m.row.p50_ns = p50;
  return m;
}

MeasuredRow device_row(const std::string& shape, double flops, double kernel, double e2e) {
  MeasuredRow m = cpu_row(shape, flops, kernel + 10);
  m.row.variant = "opencl";
  m.row.threads.reset();
  m.row.device = "Some GPU";
  m.row.kernel_ns = kernel;
  m.row.e2e_ns = e2e;
  return m;
}

std::string square(int n) {
  const std::string text = std::to_string(n);
  return "m=" + text + ",n=" + text + ",k=" + text;
}

// Sizes 16, 32, ... with the times of CPU, device kernel and device end to end.
std::vector<MeasuredRow> squares(const std::vector<std::vector<double>>& times) {
  std::vector<MeasuredRow> rows;
  int n = 16;
  for (const std::vector<double>& t : times) {
    rows.push_back(cpu_row(square(n), n, t[0]));
    rows.push_back(device_row(square(n), n, t[1], t[2]));
    n *= 2;
  }
  return rows;
}

TEST_CASE("the first size from which on the device wins at every larger one") {
  // It wins by luck at the smallest, loses at 32, wins end to end from 128 on.
  const auto rows = squares({{10, 5, 9}, {20, 30, 40}, {90, 50, 100}, {900, 80, 200}});
  const std::vector<Crossover> found = crossovers(rows);
  REQUIRE(found.size() == 1);
  CHECK(found[0].family == "m=*,n=*,k=*");
  CHECK(found[0].setting.device == "Some GPU");
  REQUIRE(found[0].points.size() == 4);
  CHECK(found[0].kernel_from == 2);
  CHECK(found[0].end_to_end_from == 3);
  CHECK(crossover_sentence(found[0]) ==
        "gemm:m=*,n=*,k=* (4 sizes, m=16,n=16,k=16 to m=128,n=128,k=128), Some GPU faster than the "
        "CPU: end to end from m=128,n=128,k=128 on, kernel alone from m=64,n=64,k=64 on");
}

TEST_CASE("never and always; a win that does not last to the largest size is none") {
  const auto rows = squares({{10, 5, 9}, {20, 5, 9}, {30, 5, 90}});
  CHECK(crossovers(rows)[0].kernel_from == 0);
  CHECK(!crossovers(rows)[0].end_to_end_from);
  const std::string text = crossover_sentence(crossovers(rows)[0]);
  CHECK(text.find("end to end never in this range, kernel alone at every size") !=
        std::string::npos);
}

TEST_CASE("the fastest PASSED row of any thread count stands for the CPU") {
  auto rows = squares({{100, 50, 60}, {200, 50, 60}});
  rows.push_back(cpu_row(square(32), 32, 40, 16));
  CHECK(!crossovers(rows)[0].kernel_from);
  rows.back().row.status = "FAILED";
  CHECK(crossovers(rows)[0].kernel_from == 0);
  rows.back().row.status = "PASSED";
  rows.back().row.variant = "hwy@old";
  CHECK(crossovers(rows)[0].kernel_from == 0);
}

TEST_CASE("shapes fall into the longest families; flags and single shapes make none") {
  std::vector<MeasuredRow> rows;
  const auto add = [&](const std::string& shape, double flops) {
    rows.push_back(cpu_row(shape, flops, 100));
    rows.push_back(device_row(shape, flops, 50, 60));
  };
  for (const char* m : {"1", "8"}) {
    for (const char* n : {"256", "512", "1024"}) {
      add(std::string("m=") + m + ",n=" + n + ",k=" + n, std::stod(n));
    }
  }
  std::vector<Crossover> found = crossovers(rows);
  REQUIRE(found.size() == 2);
  CHECK(found[0].family == "m=1,n=*,k=*");
  CHECK(found[1].family == "m=8,n=*,k=*");
  rows.clear();
  add("q_len=8,causal=0", 1);
  add("q_len=8,causal=1", 1);
  add("q_len=16,kv_len=8", 1);
  CHECK(crossovers(rows).empty());
}

TEST_CASE("lines join only shapes of one family; its name tells the proportion of its sizes") {
  std::map<std::string, std::vector<std::string>> found;
  for (const ShapeFamily& family :
       shape_families({"m=16,n=16,k=16", "m=32,n=32,k=32", "m=64,n=64,k=64", "m=1,n=64,k=64",
                       "m=1,n=128,k=128", "m=8,n=4,k=2", "m=16,n=8,k=4", "m=3,n=5,k=7",
                       "m=2,n=2,k=2,beta=0.5", "m=2,n=2,k=2,beta=1.5"})) {
    found[family.name] = family.shapes;
  }
  CHECK(found.size() == 3);
  CHECK(found["m=*,n=*,k=*"].size() == 3);
  CHECK(found["m=1,n=*,k=*"].size() == 2);
  CHECK(found["m=4*,n=2*,k=*"].size() == 2);
}

TEST_CASE("problems on both sides are compared by growing size, of a family or not") {
  std::vector<MeasuredRow> rows = squares({{10, 5, 9}, {20, 30, 40}});
  rows.push_back(cpu_row("m=3,n=5,k=7", 1, 100));
  rows.push_back(device_row("m=3,n=5,k=7", 1, 50, 60));
  rows.push_back(cpu_row("m=9,n=9,k=9", 5, 100));  // not on the device
  const std::vector<DeviceComparison> found = device_comparisons(rows);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].points.size() == 3);
  CHECK(found[0].points[0].shape == "m=3,n=5,k=7");
  CHECK(found[0].points[2].device_kernel_ns == 30.0);
}

TEST_CASE("a device with threads is a CPU, and nothing is said of it") {
  auto rows = squares({{100, 50, 60}, {200, 50, 60}});
  for (MeasuredRow& m : rows) m.row.threads = 2;
  CHECK(crossovers(rows).empty());
  CHECK(crossover_text(rows, false).empty());
}

}  // namespace
}  // namespace rooflane
