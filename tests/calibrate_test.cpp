// A calibration's figures hang together; nothing is said about speed.
#include "measure/calibrate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/highway.hpp"
#include "backends/unit_loops.hpp"
#include "core/error.hpp"
#include "core/temporary_folder.hpp"
#include "measure/transpose_loop.hpp"

namespace rooflane {
namespace {

TEST_CASE("a transposed copy is one") {
  for (std::int64_t n : {16, 48, 80}) {
    std::vector<float> from(static_cast<std::size_t>(n * n)), to(from.size(), -1.0f);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    transpose_square(from.data(), n, to.data());
    bool right = true;
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        right = right && to[static_cast<std::size_t>(c * n + r)] ==
                             from[static_cast<std::size_t>(r * n + c)];
      }
    }
    CHECK(right);
  }
}

TEST_CASE("the knee lies where reading falls through the middle of both plateaus") {
  const std::vector<ReadPoint> step = {{4, 100}, {8, 100}, {16, 100}, {32, 25}, {64, 25}};
  CHECK(find_read_knee(step) == doctest::Approx(16 * std::sqrt(2.0)));
  const std::vector<ReadPoint> slope = {{4, 100}, {8, 100}, {16, 50}, {32, 25}, {64, 25}};
  CHECK(find_read_knee(slope) == doctest::Approx(16));
}

TEST_CASE("a point that was disturbed is no knee, and a curve that hardly falls has none") {
  const std::vector<ReadPoint> dip = {{4, 100}, {8, 20}, {16, 100}, {32, 25}, {64, 25}};
  CHECK(find_read_knee(dip) == doctest::Approx(16 * std::sqrt(2.0)));
  const std::vector<ReadPoint> flat = {{4, 30}, {8, 28}, {16, 27}};
  CHECK(find_read_knee(flat) == 0);
  CHECK(find_read_knee({}) == 0);
}

TEST_CASE("a calibration is stored and read back, and serves one thread and all") {
  for (int threads : {1, 2}) {
    if (threads > machine().logical_cpus) continue;
    CAPTURE(threads);
    double last = 0;
    CalibrateRequest request;
    request.threads = threads;
    request.seconds = 0.01;
    request.progress = [&](double done, const std::string& what) {
      CHECK(done >= last);
      CHECK(done <= 1);
      CHECK(!what.empty());
      last = done;
    };
    const MeasuredTraits measured = calibrate(request);
    const TemporaryFolder folder;
    write_traits(folder / "traits", measured);
    const TraitsSource source = read_traits(folder / "traits");
    CHECK(source.problem == "");
    REQUIRE(source.measured);
    CHECK(source.measured->fma.size() == isa_targets().size());
    CHECK(print_traits(*source.measured) == print_traits(measured));
    for (const UnitLoop& unit : unit_loops()) {
      CHECK(measured.at_isa.units.contains(unit.path) == !unit.missing());
    }
    for (int asked : {1, threads}) {
      const Traits t = traits_of(*source.measured, machine(), isa_targets().front(), asked);
      CHECK(t.l3_bytes <= std::max<std::int64_t>(static_cast<std::int64_t>(machine().l3_bytes),
                                                 t.l2_bytes * threads));
      CHECK(t.l3_bytes >= t.l2_bytes * asked);
      CHECK((t.region > 0) == (asked > 1));
      CHECK(t.task > 0);
      CHECK(t.transpose > 0);
      for (const auto& [name, peak] : t.units) {
        CAPTURE(name);
        CHECK(peak.many > 0);
        CHECK(peak.many <= peak.one);
      }
      for (int level = 0; level < levels; ++level) {
        CHECK(t.many.read[level] > 0);
        CHECK(t.many.read[level] <= t.one.read[level]);
        CHECK(t.many.write[level] <= t.one.write[level]);
      }
    }
  }
}

TEST_CASE("no thread is no calibration") {
  CalibrateRequest request;
  request.threads = 0;
  CHECK_THROWS_AS(calibrate(request), Error);
}

}  // namespace
}  // namespace rooflane
