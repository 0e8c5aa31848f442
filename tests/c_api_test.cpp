// The C interface: that calls arrive, that what is wrong is an error with its reason, and that
// threads have errors of their own. Numbers are proven elsewhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/temporary_folder.hpp"
#include "rooflane/rooflane.h"

namespace {

using Parsed = std::unique_ptr<rooflane_parsed, decltype(&rooflane_parsed_destroy)>;
using Plan = std::unique_ptr<rooflane_plan, decltype(&rooflane_plan_destroy)>;

Parsed parse(const char* text) { return {rooflane_parse(text), rooflane_parsed_destroy}; }
Plan make(const Parsed& problem, const rooflane_options* options = nullptr,
          const std::vector<rooflane_array>& constants = {}) {
  return {rooflane_plan_create(problem.get(), options, constants.data(), constants.size()),
          rooflane_plan_destroy};
}
rooflane_options options_for(const char* variant) {
  rooflane_options options;
  rooflane_options_init(&options);
  options.variant = variant;
  return options;
}
rooflane_array array(const char* name, void* data, std::vector<std::int64_t> shape) {
  rooflane_array made = {};
  made.name = name;
  made.data = data;
  made.rank = static_cast<std::int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), made.shape);
  return made;
}
bool last_error_has(const char* part) {
  INFO(rooflane_last_error());
  return std::strstr(rooflane_last_error(), part) != nullptr;
}

}  // namespace

TEST_CASE("kernels and variants are listed, and names beyond the end are none") {
  CHECK(rooflane_abi() == ROOFLANE_ABI);
  CHECK(std::string(rooflane_version()).find('.') != std::string::npos);
  bool has_gemm = false, has_hwy = false;
  std::size_t count = 0;
  while (const char* kernel = rooflane_kernel_name(count)) {
    has_gemm = has_gemm || std::string(kernel) == "gemm";
    ++count;
  }
  CHECK(has_gemm);
  CHECK(rooflane_kernel_name(count) == nullptr);
  for (std::size_t i = 0; const char* variant = rooflane_variant_name("gemm", i); ++i) {
    has_hwy = has_hwy || std::string(variant) == "hwy";
  }
  CHECK(has_hwy);
  CHECK(rooflane_variant_status("gemm", "hwy") == ROOFLANE_OK);
  CHECK(rooflane_variant_status("gemm", "hvy") == ROOFLANE_ARGUMENT);
  CHECK(last_error_has("hwy"));
  CHECK(rooflane_variant_name("gem", 0) == nullptr);
  CHECK(last_error_has("gemm"));
}

TEST_CASE("a problem tells its tensors and its cost") {
  const Parsed problem = parse("gemm:k=32,m=4,n=5,trans_b=1,b_type=q4_0,prepack=1");
  REQUIRE(problem);
  CHECK(std::string(rooflane_parsed_text(problem.get())) ==
        "gemm:m=4,n=5,k=32,trans_b=1,prepack=1,b_type=q4_0");
  rooflane_tensor_info b;
  REQUIRE(rooflane_parsed_tensor(problem.get(), 1, &b) == ROOFLANE_OK);
  CHECK(std::string(b.name) == "b");
  CHECK(std::string(b.dtype) == "q4_0");
  CHECK(b.role == ROOFLANE_CONSTANT);
  CHECK(b.rank == 3);
  CHECK(b.shape[1] == 5);
  CHECK(b.bytes == 5 * 18);
  CHECK(rooflane_parsed_tensor(problem.get(), 9, &b) == ROOFLANE_ARGUMENT);
  double flops = 0, bytes = 0;
  REQUIRE(rooflane_parsed_cost(problem.get(), &flops, &bytes) == ROOFLANE_OK);
  CHECK(flops == 2 * 4 * 5 * 32);
  CHECK(bytes == 4 * (4 * 32 + 4 * 5) + 5 * 18);
  CHECK_FALSE(parse("gemm:m=4,n=5"));
  CHECK(last_error_has("k"));
  CHECK_FALSE(parse(nullptr));
}

TEST_CASE("strides and a constant: a product of a part of a matrix") {
  const Parsed problem = parse("gemm:m=2,n=2,k=2,prepack=1");
  std::array<float, 4> b = {1, 2, 3, 4}, c = {};
  std::array<float, 6> a = {1, 0, 9, 0, 1, 9};  // rows of three; the first two columns count
  const Plan plan = make(problem, nullptr, {array("b", b.data(), {1, 2, 2})});
  INFO(rooflane_last_error());
  REQUIRE(plan);
  CHECK(rooflane_plan_run(plan.get()) == ROOFLANE_ARGUMENT);
  CHECK(last_error_has("bind"));
  b = {};  // packed: not read again
  rooflane_array with_gaps = array("a", a.data(), {1, 2, 2});
  with_gaps.strides[0] = 6;
  with_gaps.strides[1] = 3;
  with_gaps.strides[2] = 1;
  const rooflane_array arrays[] = {with_gaps, array("c", c.data(), {1, 2, 2})};
  REQUIRE(rooflane_plan_bind(plan.get(), arrays, 2) == ROOFLANE_OK);
  REQUIRE(rooflane_plan_run(plan.get()) == ROOFLANE_OK);
  CHECK(c == std::array<float, 4>{1, 2, 3, 4});
  CHECK(std::string(rooflane_plan_fact(plan.get(), "isa")) != "");
  CHECK(std::string(rooflane_plan_fact(plan.get(), "packed_bytes")) != "0");
  CHECK(rooflane_plan_fact(plan.get(), "colour") == nullptr);
}

TEST_CASE("what is wrong is an error that names it") {
  const Parsed problem = parse("softmax:rows=2,cols=3");
  rooflane_options options = options_for("hwi");
  CHECK_FALSE(make(problem, &options));
  CHECK(last_error_has("hwy"));
  options = options_for("hwy");
  options.threads = 0;
  CHECK_FALSE(make(problem, &options));
  CHECK(last_error_has("threads"));
  options.threads = 1;
  options.tuning = "colour=1";
  CHECK_FALSE(make(problem, &options));
  options.tuning = nullptr;
  options.math = "bf16";
  CHECK_FALSE(make(problem, &options));
  options.math = nullptr;
  options.size = 0;
  CHECK_FALSE(make(problem, &options));
  // The size of a header that ended with the variant.
  options.size = offsetof(rooflane_options, tuning);
  options.tuning = "colour=1";
  const Plan plan = make(problem, &options);
  REQUIRE(plan);

  std::array<float, 6> x = {}, y = {};
  const auto bind = [&](const std::vector<rooflane_array>& arrays) {
    return rooflane_plan_bind(plan.get(), arrays.data(), arrays.size());
  };
  CHECK(bind({array("x", x.data(), {2, 3})}) == ROOFLANE_ARGUMENT);
  CHECK(last_error_has("y"));
  CHECK(bind({array("x", x.data(), {2, 3}), array("z", y.data(), {2, 3})}) == ROOFLANE_ARGUMENT);
  CHECK(bind({array("x", x.data(), {2, 3}), array("y", y.data(), {3, 2})}) == ROOFLANE_ARGUMENT);
  rooflane_array odd = array("y", y.data(), {2, 3});
  odd.dtype = "float33";
  CHECK(bind({array("x", x.data(), {2, 3}), odd}) == ROOFLANE_ARGUMENT);
  CHECK(last_error_has("float32"));
  odd.dtype = nullptr;
  odd.rank = 5;
  CHECK(bind({array("x", x.data(), {2, 3}), odd}) == ROOFLANE_ARGUMENT);
  CHECK(bind({array("x", x.data(), {2, 3}), array("y", y.data(), {2, 3})}) == ROOFLANE_OK);
  CHECK(rooflane_plan_run(plan.get()) == ROOFLANE_OK);
  CHECK(y[0] == doctest::Approx(1.0 / 3));
  CHECK(rooflane_plan_run(nullptr) == ROOFLANE_ARGUMENT);
}

TEST_CASE("the problems that a program asks for are recorded once each, where it is asked to") {
  const rooflane::TemporaryFolder folder;
  const std::string file = folder / "shapes.txt";
  std::ofstream(file) << "add:rows=1,cols=2\n";  // of another process
  const auto ask_for = [](const char* problem) { return make(parse(problem)) != nullptr; };
  REQUIRE(setenv("ROOFLANE_SHAPES", file.c_str(), 1) == 0);
  CHECK(ask_for("softmax:rows=2,cols=3"));
  CHECK(ask_for("gemm:m=2,n=3,k=4,trans_b=1"));
  CHECK(ask_for("softmax:rows=2,cols=3"));
  CHECK(ask_for("add:rows=1,cols=2"));
  REQUIRE(setenv("ROOFLANE_SHAPES", (folder / "no/shapes.txt").c_str(), 1) == 0);
  CHECK_FALSE(ask_for("softmax:rows=2,cols=3"));
  CHECK(last_error_has("no/shapes.txt cannot be written: No such file"));
  REQUIRE(unsetenv("ROOFLANE_SHAPES") == 0);
  CHECK(ask_for("softmax:rows=9,cols=9"));
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  CHECK(text == "add:rows=1,cols=2\nsoftmax:rows=2,cols=3\ngemm:m=2,n=3,k=4,trans_b=1\n");
}

TEST_CASE("each thread has its own error and may plan beside others") {
  CHECK_FALSE(parse("gemm:m=1,n=1,kk=1"));
  std::vector<std::thread> threads;
  std::array<int, 4> good = {};
  for (std::size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&good, t] {
      const bool clean = std::string(rooflane_last_error()).empty();
      const Parsed problem = parse("softmax:rows=4,cols=64");
      const Plan plan = make(problem);
      std::vector<float> x(256, 1.0f), y(256);
      const rooflane_array arrays[] = {array("x", x.data(), {4, 64}),
                                       array("y", y.data(), {4, 64})};
      rooflane_plan_bind(plan.get(), arrays, 2);
      rooflane_plan_run(plan.get());
      good[t] = clean && y[255] == doctest::Approx(1.0 / 64) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == std::array<int, 4>{1, 1, 1, 1});
  CHECK(last_error_has("kk"));
}
