// What a kernel's number formats go through: a format that only this file knows is parsed, seeded,
// verified, benchmarked and written; a kernel of several outputs, one of them an input too, is
// verified and restored; ids are seeded, spoiled, read and refused by their domain; wrong formats
// are refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>

#include "bench/groups.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/float16.hpp"
#include "core/seeds.hpp"
#include "core/temporary_folder.hpp"
#include "io/npy.hpp"
#include "measure/verify.hpp"
#include "measure/worker.hpp"

using namespace rooflane;

namespace {

// The one entry of a further format. E4M3 of the OCP 8-bit floating point specification: 4 bits of
// exponent, bias 7, no infinities; encoding searches the 127 magnitudes.
double float8_value(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 127) == 127) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return bits >> 7 ? -magnitude : magnitude;
}
void decode_float8(const void* from, double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = float8_value(static_cast<const std::uint8_t*>(from)[i]);
  }
}
void encode_float8(const double* from, void* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint8_t best = std::isnan(from[i]) ? 127 : 0;
    for (std::uint8_t bits = 1; bits < 127 && best != 127; ++bits) {
      const double error = std::fabs(float8_value(bits) - std::fabs(from[i]));
      const double least = std::fabs(float8_value(best) - std::fabs(from[i]));
      if (error < least || (error == least && bits % 2 == 0)) best = bits;
    }
    static_cast<std::uint8_t*>(to)[i] = best | (std::signbit(from[i]) ? 128 : 0);
  }
}
constexpr NumberFormat float8 = {.name = "float8",
                                 .short_name = "f8",
                                 .npy = "|u1",
                                 .block = 1,
                                 .block_bytes = 1,
                                 .unit_roundoff = 0x1p-4,
                                 .smallest = 0x1p-9,
                                 .largest = 448,
                                 .least = -448,
                                 .decode = decode_float8,
                                 .encode = encode_float8};

// y = 2·x in a format of choice.
constexpr DType doubled_types[] = {&float32, &float8};
constexpr ParamSpec doubled_params[] = {
    {.name = "n", .kind = ParamKind::size, .required = true},
    {.name = "type", .kind = ParamKind::choice, .dtypes = doubled_types},
};
const Kernel doubled = {
    .name = "doubled",
    .summary = "y = 2x",
    .params = doubled_params,
    .tensors =
        [](const Problem& problem) {
          const DType type = problem.dtype("type");
          return std::vector<TensorSpec>{
              {.name = "x", .role = Role::input, .axes = {{"n"}}, .dtype = type},
              {.name = "y", .role = Role::output, .axes = {{"n"}}, .dtype = type, .like = "x"}};
        },
    .cost =
        [](const Problem& problem) {
          return Cost{.flops = problem.value("n"), .bytes = traffic_bytes(problem)};
        },
    .check = nullptr,
    .reference =
        [](const Problem&, const Math&, const Operands& inputs, std::string_view,
           const Region& region, const ReferenceOut& out) {
          for (std::size_t j = 0; j < region.cols.size(); ++j) {
            out.value[j] = 2.0 * inputs.at("x").f32()[region.cols[j]];
            out.bound[j] = out.plain_bound[j] = 0;
          }
        },
};

class DoubledPlan final : public Plan {
 public:
  DoubledPlan(const Problem& problem, double factor) : Plan(problem), factor_(factor) {}
  void run() override {
    const std::int64_t n = x_.elements();
    values_.resize(static_cast<std::size_t>(n));
    if (n > 0) read_row(x_, 0, 0, values_);
    for (double& value : values_) value *= factor_;
    y_.dtype->encode(values_.data(), y_.data, n);
  }
  PlanFacts facts() const override { return {}; }

 protected:
  void on_bind(const Operands& operands) override {
    x_ = operands.at("x");
    y_ = operands.at("y");
  }

 private:
  double factor_;
  std::vector<double> values_;
  View x_, y_;
};

constexpr auto by_two = [](const Problem& problem, const Tuning&, const Environment&,
                           const Operands&) -> std::unique_ptr<Plan> {
  return std::make_unique<DoubledPlan>(problem, 2);
};
constexpr auto by_two_and_a_half = [](const Problem& problem, const Tuning&, const Environment&,
                                      const Operands&) -> std::unique_ptr<Plan> {
  return std::make_unique<DoubledPlan>(problem, 2.5);
};

// A cache that grows: `cache` [len] takes `next` at `at`, and `sum` [1] adds up all of it.
constexpr ParamSpec append_params[] = {
    {.name = "len", .kind = ParamKind::size, .required = true, .least = 1},
    {.name = "one", .kind = ParamKind::size, .default_value = 1},
};
const Kernel append = {
    .name = "append",
    .summary = "cache[0] = next; sum = sum of cache",
    .params = append_params,
    .tensors =
        [](const Problem&) {
          return std::vector<TensorSpec>{
              {.name = "next", .role = Role::input, .axes = {{"one"}}},
              {.name = "cache", .role = Role::updated, .axes = {{"len"}}, .dtype = &bfloat16},
              {.name = "sum", .role = Role::output, .axes = {{"one"}}}};
        },
    .cost =
        [](const Problem& problem) {
          return Cost{.flops = problem.value("len"), .bytes = traffic_bytes(problem)};
        },
    .check = nullptr,
    .reference =
        [](const Problem& problem, const Math& math, const Operands& inputs,
           std::string_view tensor, const Region& region, const ReferenceOut& out) {
          const float* cache = inputs.at("cache").f32();
          const float next = inputs.at("next").f32()[0];
          const std::int64_t len = problem.size("len");
          double sum = next, magnitude = std::fabs(next);
          for (std::int64_t i = 1; i < len; ++i) {
            sum += cache[i];
            magnitude += std::fabs(cache[i]);
          }
          for (std::size_t j = 0; j < region.cols.size(); ++j) {
            const std::int64_t col = region.cols[j];
            const bool is_sum = tensor == "sum";
            out.value[j] = is_sum ? sum : col == 0 ? next : cache[col];
            out.bound[j] = is_sum ? 8 * math.sums->unit_roundoff * magnitude +
                                        bfloat16.unit_roundoff * std::fabs(next)
                                  : 0;
            out.plain_bound[j] = 1000 * out.bound[j];
          }
        },
};

// Adds what it finds in the cache, so that a second run on what the first one left is seen.
class AppendPlan final : public Plan {
 public:
  AppendPlan(const Problem& problem, int slip) : Plan(problem), slip_(slip) {}
  void run() override {
    auto* cache = operands_.at("cache").as<BFloat16>();
    cache[0] = BFloat16(operands_.at("next").f32()[0]);
    if (slip_ == 1) cache[1] = BFloat16(cache[1] + 1);
    double sum = 0;
    for (std::int64_t i = 0; i < problem().size("len"); ++i) sum += cache[i];
    operands_.at("sum").f32()[0] = static_cast<float>(sum * (slip_ == 2 ? 1.1 : 1));
  }
  PlanFacts facts() const override { return {}; }

 protected:
  void on_bind(const Operands& operands) override { operands_ = operands; }

 private:
  int slip_;
  Operands operands_;
};

template <int slip>
std::unique_ptr<Plan> append_plan(const Problem& problem, const Tuning&, const Environment&,
                                  const Operands&) {
  return std::make_unique<AppendPlan>(problem, slip);
}

// Rows by id: y[i] = x[ids[i]].
constexpr ParamSpec picked_params[] = {
    {.name = "n", .kind = ParamKind::size, .required = true},
    {.name = "rows", .kind = ParamKind::size, .required = true},
    {.name = "sorted", .kind = ParamKind::flag},
};
const Kernel picked = {
    .name = "picked",
    .summary = "y[i] = x[ids[i]]",
    .params = picked_params,
    .tensors =
        [](const Problem& problem) {
          const IntegerDomain domain = {IntegerDomain::Kind::ids, "rows", problem.flag("sorted")};
          return std::vector<TensorSpec>{{.name = "x", .role = Role::input, .axes = {{"rows"}}},
                                         {.name = "ids",
                                          .role = Role::input,
                                          .axes = {{"n"}},
                                          .dtype = &int32,
                                          .domain = domain},
                                         {.name = "y", .role = Role::output, .axes = {{"n"}}}};
        },
    .cost = [](const Problem& problem) { return Cost{.bytes = traffic_bytes(problem)}; },
    .check = nullptr,
    .reference =
        [](const Problem&, const Math&, const Operands& inputs, std::string_view,
           const Region& region, const ReferenceOut& out) {
          const auto* const ids = inputs.at("ids").as<std::int32_t>();
          for (std::size_t j = 0; j < region.cols.size(); ++j) {
            out.value[j] = inputs.at("x").f32()[ids[region.cols[j]]];
            out.bound[j] = out.plain_bound[j] = 0;
          }
        },
};

// Trusts its ids; `slip` is added to those that it can be added to.
class PickedPlan final : public Plan {
 public:
  PickedPlan(const Problem& problem, int slip) : Plan(problem), slip_(slip) {}
  void run() override {
    const auto* const ids = operands_.at("ids").as<std::int32_t>();
    const std::int64_t n = problem().size("n"), rows = problem().size("rows");
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t id = ids[i] + slip_ < rows ? ids[i] + slip_ : ids[i];
      operands_.at("y").f32()[i] = operands_.at("x").f32()[id];
    }
  }
  PlanFacts facts() const override { return {}; }

 protected:
  void on_bind(const Operands& operands) override { operands_ = operands; }

 private:
  int slip_;
  Operands operands_;
};

template <int slip>
std::unique_ptr<Plan> picked_plan(const Problem& problem, const Tuning&, const Environment&,
                                  const Operands&) {
  return std::make_unique<PickedPlan>(problem, slip);
}

const Backend test_backend = {.name = "test"};

Variant variant_of(const char* name, const Kernel& kernel, std::span<const DType> dtypes,
                   decltype(Variant::plan) plan) {
  return {.name = name,
          .kernel = &kernel,
          .backend = &test_backend,
          .threads = Threads::one,
          .tunables = {},
          .unsupported = nullptr,
          .tunings = no_tunings,
          .plan = plan,
          .dtypes = dtypes};
}

constexpr DType append_types[] = {&float32, &bfloat16};
constexpr DType picked_types[] = {&float32, &int32};
const Variant variants[] = {variant_of("right", doubled, doubled_types, by_two),
                            variant_of("wrong", doubled, doubled_types, by_two_and_a_half),
                            variant_of("only32", doubled, only_float32, by_two),
                            variant_of("right", append, append_types, append_plan<0>),
                            variant_of("overwrites", append, append_types, append_plan<1>),
                            variant_of("inexact", append, append_types, append_plan<2>),
                            variant_of("right", picked, picked_types, picked_plan<0>),
                            variant_of("wrong", picked, picked_types, picked_plan<1>)};

const Catalogue& catalogue() {
  static const Catalogue all = [] {
    Catalogue catalogue;
    catalogue.add(doubled);
    catalogue.add(append);
    catalogue.add(picked);
    for (const Variant& variant : variants) catalogue.add(CatalogueEntry{variant.name, &variant});
    return catalogue;
  }();
  return all;
}

Case case_of(const char* shape, const char* variant) {
  Case c;
  c.problem = parse_problem(shape, catalogue().kernels());
  c.variant = variant;
  return c;
}

Verification verified(const char* shape, const char* variant) {
  const auto worker = local_worker(catalogue());
  worker->open(case_of(shape, variant));
  worker->verify("");
  return worker->verify("");  // the second one tries NaN for inputs first
}

std::string message_of(auto&& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a choice parses, prints unless it is the default, ranges and is refused by name") {
  const auto texts = [](std::string_view text) {
    std::vector<std::string> out;
    for (const Problem& problem : parse_shapes(text, catalogue().kernels())) {
      out.push_back(problem.text());
    }
    return out;
  };
  CHECK(texts("doubled:n=7,type=f8") == std::vector<std::string>{"doubled:n=7,type=f8"});
  CHECK(texts("doubled:n=7,type=f32") == std::vector<std::string>{"doubled:n=7"});
  CHECK(texts("doubled:n=1|5,type=f32|f8").size() == 4);
  CHECK(message_of([&] { texts("doubled:n=7,type=f16"); }) == "type=f16: allowed is f32, f8");
  CHECK(parse_problem("doubled:n=7,type=f8", catalogue().kernels()).dtype("type") == &float8);
}

TEST_CASE("costs, bytes and the row's dtype follow the format") {
  const Problem problem = parse_problem("doubled:n=10,type=f8", catalogue().kernels());
  CHECK(operand_bytes(problem) == 20);
  CHECK(dtype_text(problem) == "float8");
  const Problem cache = parse_problem("append:len=10", catalogue().kernels());
  CHECK(operand_bytes(cache) == 28);
  CHECK(traffic_bytes(cache) == 48);
  CHECK(dtype_text(cache) == "float32+bfloat16");
}

TEST_CASE("a format of one entry is seeded with rounded values of the contract") {
  const Problem problem = parse_problem("doubled:n=100,type=f8", catalogue().kernels());
  const OwnedOperands operands(problem, 5, 2);
  std::vector<double> values(100);
  read_row(operands.all().at("x"), 0, 0, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = seeded_value(5, "doubled", "x", i);
    CHECK(std::fabs(values[i] - exact) <= float8.unit_roundoff * std::fabs(exact) + 0x1p-10);
  }
}

TEST_CASE("a format of one entry is verified: right passes, wrong fails, others are refused") {
  CHECK(verified("doubled:n=1000,type=f8", "right").passed());
  CHECK(verified("doubled:n=0,type=f8", "right").passed());
  const Verification wrong = verified("doubled:n=1000,type=f8", "wrong");
  CHECK(wrong.status == Status::failed);
  CHECK(wrong.reason.find("expected") != std::string::npos);
  CHECK(message_of([] { verified("doubled:n=10,type=f8", "only32"); }) ==
        "float8 x is not implemented by this variant; float32 is");
}

TEST_CASE("bench measures a format of one entry, and its row says so") {
  BenchOptions options;
  options.catalogue = &catalogue();
  options.problems = {{parse_problem("doubled:n=1000,type=f8", catalogue().kernels()), ""}};
  options.in_process = true;
  options.launches = 1;
  options.min_time = 0;
  Ceilings ceilings;
  ceilings.fma.push_back({"fp32", "AVX2", 1, "", 1e5});
  options.ceilings = &ceilings;
  const std::vector<Row> rows = run_bench(options, make_suite(options), {}).rows;
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].status == "PASSED");
  CHECK(rows[0].dtype == "float8");
  CHECK(rows[0].shape == "n=1000,type=f8");
  CHECK(rows[0].bytes == 2000);
  CHECK(rows[0].p50_ns.value_or(0) > 0);
  CHECK(rows[1].status == "FAILED");
  CHECK(rows[2].status == "UNSUPPORTED");
}

TEST_CASE("every format is written as .npy, and read back where NumPy's header tells it") {
  const TemporaryFolder folder;
  const std::string path = folder / "array.npy";
  std::vector<double> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) - 20;
  for (const DType dtype :
       {&float8, &float64, &float32, &float16, &bfloat16, &int8, &int32, &int64, &q8_0}) {
    INFO(std::string(dtype->name));
    std::vector<char> bytes(dtype->bytes(64)), back(bytes.size());
    dtype->encode(values.data(), bytes.data(), 64);
    write_npy(path, Shape{2, 32}, dtype, bytes.data());
    const NpyHeader header = read_npy_header(path);
    const DType wanted = dtype == &float8 ? &uint8 : dtype;  // NumPy knows it as bytes
    CHECK(tensor_shape_of(header, wanted) == Shape{2, 32});
    read_npy(path, header, wanted, back.data());
    CHECK(back == bytes);
  }
  // A float converts to any other, an integer to nothing else.
  const std::array<float, 2> floats = {1.00390625F, -2};
  std::array<std::uint16_t, 2> shorts{};
  write_npy(path, Shape{2}, &float32, floats.data());
  read_npy(path, read_npy_header(path), &bfloat16, shorts.data());
  CHECK(shorts[0] == 0x3F80);  // the tie between 1 and 1 + 2^-7 goes to the even one
  CHECK(shorts[1] == 0xC000);
  CHECK(message_of([&] { tensor_shape_of(read_npy_header(path), &int8); }) ==
        "an array of float32 cannot become int8; allowed is the same");
  const std::array<std::int32_t, 2> integers = {1, 2};
  write_npy(path, Shape{2}, &int32, integers.data());
  CHECK(message_of([&] { tensor_shape_of(read_npy_header(path), &float32); }) ==
        "an array of int32 cannot become float32; allowed is any float");
  CHECK(message_of([&] { tensor_shape_of(read_npy_header(path), &q4_0); }) ==
        "an array of int32 cannot become q4_0; allowed is uint8, the bytes of its blocks");
}

TEST_CASE("an output that is an input too is verified against what it held before") {
  CHECK(verified("append:len=50", "right").passed());
  const Verification overwrites = verified("append:len=50", "overwrites");
  CHECK(overwrites.status == Status::failed);
  CHECK(overwrites.reason.find("cache[0,1]") != std::string::npos);
}

TEST_CASE("beyond the bound and within what plain sums may lose a row is INACCURATE") {
  const Verification inexact = verified("append:len=50", "inexact");
  CHECK(inexact.status == Status::inaccurate);
  CHECK(inexact.usable());
  CHECK(inexact.value > 1);
  CHECK(inexact.reason.find("sum[0,0]") != std::string::npos);
}

TEST_CASE("bind refuses a wrong format and outputs that share memory") {
  const Problem problem = parse_problem("append:len=4", catalogue().kernels());
  const OwnedOperands operands(problem, 1, 1);
  const auto plan = append_plan<0>(problem, {}, {}, {});
  Operands wrong = operands.all();
  View cache = wrong.at("cache");
  cache.dtype = &float16;
  wrong.set("cache", cache);
  CHECK(message_of([&] { plan->bind(wrong); }) == "tensor cache is float16, expected bfloat16");
  Operands shared = operands.all();
  View sum = shared.at("sum");
  sum.data = shared.at("cache").data;
  shared.set("sum", sum);
  CHECK(message_of([&] { plan->bind(shared); }).find("output cache overlaps output sum") !=
        std::string::npos);
}

TEST_CASE("ids come from the seed within their domain, sorted where they ascend") {
  const Problem problem = parse_problem("picked:n=2000,rows=100", catalogue().kernels());
  const Problem sorted = parse_problem("picked:n=2000,rows=100,sorted=1", catalogue().kernels());
  const OwnedOperands operands(problem, 5, 2), ascending(sorted, 5, 2);
  const auto values = [](const OwnedOperands& from) {
    const auto* const ids = from.inputs().at("ids").as<std::int32_t>();
    return std::vector<std::int32_t>(ids, ids + 2000);
  };
  std::vector<std::int32_t> ids = values(operands);
  bool equal = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    equal = equal && ids[i] == seeded_integer(5, "picked", "ids", i, 100);
  }
  CHECK(equal);
  CHECK_FALSE(std::is_sorted(ids.begin(), ids.end()));
  std::sort(ids.begin(), ids.end());
  CHECK(ids.front() == 0);
  CHECK(ids.back() == 99);
  CHECK(values(ascending) == ids);
}

TEST_CASE("ids are verified, and stay legal where inputs are changed to see what a run keeps") {
  CHECK(verified("picked:n=50,rows=7", "right").passed());
  CHECK(verified("picked:n=50,rows=7,sorted=1", "right").passed());
  CHECK(verified("picked:n=0,rows=0", "right").passed());
  CHECK(verified("picked:n=50,rows=7", "wrong").status == Status::failed);
  const Problem problem = parse_problem("picked:n=5,rows=7", catalogue().kernels());
  OwnedOperands operands(problem, 1, 1);
  operands.spoil_inputs();
  const auto* const ids = operands.inputs().at("ids").as<std::int32_t>();
  CHECK(std::all_of(ids, ids + 5, [](std::int32_t id) { return id == 6; }));
}

TEST_CASE("a domain without values, or beyond int32, is refused by its size") {
  const auto message = [](const char* shape) {
    return message_of([&] { parse_problem(shape, catalogue().kernels()); });
  };
  CHECK(message("picked:n=1,rows=0") == "rows=0: the ids in ids [1] would have to be below it");
  CHECK(message("picked:n=1,rows=2147483648") ==
        "rows=2147483648: ids holds values up to it as int32, allowed is 2147483647");
}

TEST_CASE("ids outside their domain are refused by name, place and value") {
  const Problem problem = parse_problem("picked:n=3,rows=7,sorted=1", catalogue().kernels());
  const TensorSpec spec = picked.tensors(problem)[1];
  const auto message = [&](std::array<std::int32_t, 3> ids) {
    return message_of(
        [&] { require_in_domain(problem, spec, contiguous_view(ids.data(), Shape{3}, &int32)); });
  };
  CHECK(message({0, 6, 6}) == "no error");
  CHECK(message({0, 6, 7}) == "ids[2] is 7; allowed are 0 to 6 (rows=7)");
  CHECK(message({0, -1, 7}) == "ids[1] is -1; allowed are 0 to 6 (rows=7)");
  CHECK(message({0, 3, 2}) == "ids[2] is 2 behind 3; allowed are values in ascending order");
}

TEST_CASE("int64 files become int32 where all values fit") {
  const TemporaryFolder folder;
  const std::string path = folder / "ids.npy";
  const std::array<std::int64_t, 2> ids = {-5, 2147483647};
  std::array<std::int32_t, 2> back{};
  write_npy(path, Shape{2}, &int64, ids.data());
  read_npy(path, read_npy_header(path), &int32, back.data());
  CHECK(back == std::array<std::int32_t, 2>{-5, 2147483647});
  const std::array<std::int64_t, 2> large = {0, 9223372036854775807};
  write_npy(path, Shape{2}, &int64, large.data());
  CHECK(message_of([&] { read_npy(path, read_npy_header(path), &int32, back.data()); }) ==
        "'" + path + "': element 1 is 9223372036854775807; int32 holds -2147483648 to 2147483647");
  CHECK(message_of([&] { tensor_shape_of(read_npy_header(path), &float32); }) ==
        "an array of int64 cannot become float32; allowed is any float");
}
