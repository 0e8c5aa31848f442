// Kernels with ids, or of them (embed, segment_sum, segment_softmax, topk), and im2patch: every
// tuning, segments that threads share, special values, ties, cost. What every kernel must do on
// every shape is in conformance_test.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

constexpr std::uint64_t seed = 7;

using Change = std::function<void(const Operands&)>;

// Runs a problem in every way on inputs from the seed that `change` altered.
void check_every_way(const std::string& text, const Change& change = {}) {
  const Problem problem = make_problem(text);
  OwnedOperands operands(problem, seed, 1);
  if (change) change(operands.all());
  each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    operands.poison_output();
    run(variant, problem, tuning, env, operands.all());
    const Reference& reference = known_reference(problem, operands.all(), seed);
    const Verification result = verify_output(problem, operands.all(), reference, seed);
    CHECK_MESSAGE(result.passed(), result.reason);
    CHECK(operands.guards_intact());
  });
}

Change set(std::vector<std::pair<std::int64_t, float>> values) {
  return [values = std::move(values)](const Operands& operands) {
    for (const auto& [at, value] : values) operands.at("x").f32()[at] = value;
  };
}

std::vector<float> row_of(const Operands& operands, const char* tensor, std::int64_t row) {
  const View& view = operands.at(tensor);
  std::vector<double> values(static_cast<std::size_t>(view.cols()));
  read_row(view, row, 0, values);
  return {values.begin(), values.end()};
}

std::string message_of(const std::string& text) {
  try {
    make_problem(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Cost cost_of(const std::string& text) {
  const Problem problem = make_problem(text);
  return problem.kernel().cost(problem);
}

}  // namespace

TEST_CASE("embed: rows beyond the caches and from every format, streamed or not") {
  check_every_way("embed:n=3000,vocab=50,cols=67");
  check_every_way("embed:n=300,vocab=5000,cols=576,table_type=q8_0");
  check_every_way("embed:n=300,vocab=5000,cols=100,table_type=f16");
}

TEST_CASE("embed: special values are copied") {
  check_every_way("embed:n=40,vocab=3,cols=5", [](const Operands& operands) {
    for (const std::int64_t at : {0, 4, 7}) operands.at("table").f32()[at] = not_a_number;
    operands.at("table").f32()[8] = -infinity;
  });
}

TEST_CASE("segments: sums and softmaxes that several threads share are right in every way") {
  for (const char* const kernel : {"segment_sum", "segment_softmax"}) {
    for (const char* const sorted : {"", ",sorted=1"}) {
      for (const char* const shape :
           {":edges=4000,cols=40,segments=1", ":edges=4000,cols=40,segments=3",
            ":edges=30000,cols=4,segments=5000", ":edges=9000,cols=17,segments=9000",
            ":edges=60,cols=1500,segments=7"}) {
        check_every_way(std::string(kernel) + shape + sorted);
      }
    }
  }
}

TEST_CASE("segments: ids at the ends only, and all the same") {
  for (const char* const kernel : {"segment_sum", "segment_softmax"}) {
    for (const std::int32_t low : {0, 8}) {
      check_every_way(std::string(kernel) + ":edges=3000,cols=19,segments=9",
                      [&](const Operands& operands) {
                        auto* const segment = operands.at("segment").as<std::int32_t>();
                        for (int e = 0; e < 3000; ++e) segment[e] = e % 7 < 3 ? low : 8;
                      });
    }
  }
}

TEST_CASE("segment_sum: NaN and infinities spread in their segment and column only") {
  check_every_way("segment_sum:edges=50,cols=9,segments=6,sorted=1",
                  set({{13, not_a_number}, {200, infinity}, {301, infinity}, {310, -infinity}}));
  check_every_way("segment_sum:edges=50,cols=9,segments=6",
                  set({{13, not_a_number}, {200, infinity}, {301, infinity}, {310, -infinity}}));
}

TEST_CASE("segment_softmax: NaN and +inf make a segment's column NaN, -inf weighs zero") {
  for (const char* const sorted : {"", ",sorted=1"}) {
    const std::string text = std::string("segment_softmax:edges=900,cols=19,segments=5") + sorted;
    check_every_way(text,
                    set({{0, not_a_number}, {19 * 450 + 3, infinity}, {19 * 899, -infinity}}));
    // A column of nothing but -inf, one that is so in a piece, and one of NaN behind numbers.
    check_every_way(text, [](const Operands& operands) {
      for (std::int64_t e = 0; e < 900; ++e) {
        float* const x = operands.at("x").f32() + e * 19;
        x[1] = -infinity;
        x[2] = e < 600 ? -infinity : x[2];
        x[18] = e > 890 ? not_a_number : x[18];
      }
    });
  }
}

TEST_CASE("segment_softmax: large scores do not overflow, sums of many edges keep their accuracy") {
  check_every_way("segment_softmax:edges=20000,cols=3,segments=2", [](const Operands& operands) {
    for (std::int64_t i = 0; i < 60000; ++i) operands.at("x").f32()[i] *= 1e4F;
  });
  check_every_way(
      "segment_softmax:edges=200000,cols=1,segments=1,sorted=1",
      [](const Operands& operands) { std::fill_n(operands.at("x").f32(), 200000, 0.3F); });
}

TEST_CASE("topk: of equal values the lower id comes first, and -0 equals +0") {
  for (const char* const k : {"", ",k=5", ",k=64", ",k=300"}) {
    const std::string text = std::string("topk:rows=2,cols=5000") + k;
    check_every_way(text, [](const Operands& operands) {
      for (std::int64_t i = 0; i < 10000; ++i) {
        operands.at("x").f32()[i] = i % 3 == 0 ? -0.0F : i % 3 == 1 ? 0.0F : -1.0F;
      }
    });
    // All equal; ascending, so that each element is a candidate; few distinct values.
    check_every_way(
        text, [](const Operands& operands) { std::fill_n(operands.at("x").f32(), 10000, -2.5F); });
    check_every_way(text, [](const Operands& operands) {
      for (std::int64_t i = 0; i < 10000; ++i) operands.at("x").f32()[i] = static_cast<float>(i);
    });
    check_every_way(text, [](const Operands& operands) {
      for (std::int64_t i = 0; i < 10000; ++i) {
        operands.at("x").f32()[i] = static_cast<float>(i * i % 17);
      }
    });
  }
}

TEST_CASE("topk: NaN comes before every number, infinities where they belong") {
  for (const char* const k : {"", ",k=3", ",k=40", ",k=200"}) {
    const std::string text = std::string("topk:rows=1,cols=20000") + k;
    check_every_way(text, set({{12345, not_a_number}}));
    check_every_way(text, set({{3, infinity}, {19999, not_a_number}, {777, -not_a_number}}));
    check_every_way(text, set({{0, infinity}, {5, -infinity}, {19998, infinity}}));
    check_every_way(text, [](const Operands& operands) {
      std::fill_n(operands.at("x").f32(), 20000, not_a_number);
    });
    check_every_way(text, [](const Operands& operands) {
      std::fill_n(operands.at("x").f32(), 20000, -infinity);
      operands.at("x").f32()[11] = -3;
    });
    check_every_way(text, [](const Operands& operands) {
      std::fill_n(operands.at("x").f32(), 20000, -infinity);
    });
  }
}

TEST_CASE("topk: equals in another order are INACCURATE, other elements wrong") {
  const Problem problem = make_problem("topk:rows=1,cols=6,k=3");
  OwnedOperands operands(problem, seed, 1);
  const std::array<float, 6> x = {1, 3, 2, 3, 0, 1};
  std::copy(x.begin(), x.end(), operands.all().at("x").f32());
  const Reference reference = compute_reference(problem, operands.all(), seed);
  const auto status = [&](std::array<std::int32_t, 3> ids) {
    for (std::size_t i = 0; i < 3; ++i) {
      operands.all().at("ids").as<std::int32_t>()[i] = ids[i];
      operands.all().at("values").f32()[i] = x[static_cast<std::size_t>(ids[i])];
    }
    return verify_output(problem, operands.all(), reference, seed).status;
  };
  CHECK(status({1, 3, 2}) == Status::passed);
  CHECK(status({3, 1, 2}) == Status::inaccurate);
  CHECK(status({1, 2, 3}) == Status::failed);
  CHECK(status({1, 3, 0}) == Status::failed);
}

TEST_CASE("im2patch: a patch is in the order of a convolution's weight, copied bit for bit") {
  const Problem problem = make_problem("im2patch:channels=2,height=4,width=6,patch=2");
  OwnedOperands operands(problem, seed, 1);
  for (int i = 0; i < 48; ++i) operands.all().at("image").f32()[i] = static_cast<float>(i);
  each_way(problem, [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
    operands.poison_output();
    run(variant, problem, tuning, env, operands.all());
    CHECK(row_of(operands.all(), "patches", 0) == std::vector<float>{0, 1, 6, 7, 24, 25, 30, 31});
    CHECK(row_of(operands.all(), "patches", 4) ==
          std::vector<float>{14, 15, 20, 21, 38, 39, 44, 45});
  });
  check_every_way("im2patch:batch=2,height=64,width=96,patch=16",
                  [](const Operands& operands) { operands.at("image").f32()[5] = not_a_number; });
}

TEST_CASE("what does not fit is refused by name") {
  CHECK(message_of("topk:rows=1,cols=5,k=6") == "k=6: allowed are 1 to cols=5");
  CHECK(message_of("im2patch:height=224,width=225,patch=16") ==
        "width=225: allowed are multiples of patch=16");
  CHECK(message_of("segment_sum:edges=3,cols=2,segments=0") ==
        "segments=0: the ids in segment [3] would have to be below it");
  CHECK(message_of("segment_softmax:edges=3000000000,cols=2,segments=7") ==
        "edges=3000000000: allowed are up to 2147483647");
  CHECK(message_of("embed:n=3,vocab=7,cols=40,table_type=q8_0") ==
        "cols=40: of q8_0 table stores along that axis, allowed are multiples of 32");
}

TEST_CASE("costs count what a run must touch") {
  // 100 ids of 10 rows: all but 10·0.9^100 of them are asked for.
  const Cost embed = cost_of("embed:n=100,vocab=10,cols=8");
  CHECK(embed.flops == 0);
  CHECK(embed.bytes == doctest::Approx(4 * 100 + 4 * 10 * 8 * (1 - std::pow(0.9, 100)) + 3200));
  CHECK(cost_of("embed:n=1,vocab=10,cols=32,table_type=q8_0").bytes ==
        doctest::Approx(4 + 34 + 128));
  const Cost sum = cost_of("segment_sum:edges=6,cols=5,segments=4");
  CHECK(sum.flops == 30);
  CHECK(sum.bytes == 4 * (30 + 6 + 20));
  CHECK(cost_of("segment_softmax:edges=6,cols=5,segments=4").exps == 30);
  CHECK(cost_of("topk:rows=2,cols=9,k=3").bytes == 4 * 18 + 8 * 6);
  CHECK(cost_of("im2patch:height=8,width=8,patch=4").bytes == 2 * 4 * 3 * 64);
}
