// GEMM's epilogue and gate: chains as text, the double reference, every path and function of hwy,
// and that a wrong epilogue fails. Edge shapes in general: conformance_test.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backends/highway.hpp"
#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/seeds.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "measure/verify.hpp"
#include "tests/gemm_ways.hpp"
#include "tests/part_of_cases.hpp"

using namespace rooflane;
using namespace rooflane::gemm_ways;
using std::int64_t;

namespace {

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    return error.what();
  }
  return "no error";
}
std::string refused(const std::string& shape) {
  return message_of([&] { gemm_problem(shape); });
}

bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  CHECK_MESSAGE(found, text);
  return found;
}

// Whether c, made for `made`, passes as the result of `judged`; both read the same tensors.
Verification judge(const std::string& made, const std::string& judged) {
  const Problem right = gemm_problem(judged), other = gemm_problem(made);
  const OwnedOperands operands(right, seed, 1), theirs(other, seed, 1);
  Operands views;
  for (const TensorSpec& tensor : gemm::kernel.tensors(other)) {
    const bool shared = operands.all().has(tensor.name);
    views.set(tensor.name, shared ? operands.all().at(tensor.name) : theirs.all().at(tensor.name));
  }
  run_plan(gemm::scalar, other, {}, views);
  const Reference reference = compute_reference(right, operands.inputs(), seed);
  return verify_output(right, operands.all(), reference, seed);
}

}  // namespace

TEST_CASE("a chain is parsed and printed in its order, and left out where it is empty") {
  for (const char* chain : {"bias", "add+bias", "bias+gelu+add+clamp",
                            "clamp+add+silu+gelu_tanh+gelu+leaky_relu+relu+bias"}) {
    const std::string shape = fmt::format("m=2,n=3,k=4,epilogue={}", chain);
    CHECK(gemm_problem(shape).text() == "gemm:" + shape);
  }
  CHECK(gemm_problem("m=2,n=3,k=4,epilogue=none").text() == "gemm:m=2,n=3,k=4");
  CHECK(gemm_problem("m=2,n=3,k=4,slope=0.5,epilogue=leaky_relu").text() ==
        "gemm:m=2,n=3,k=4,epilogue=leaky_relu,slope=0.5");
  const std::vector<Problem> several = [] {
    const Kernel* const kernels[] = {&gemm::kernel};
    return parse_shapes("gemm:m=n=k=2,epilogue=none|bias|bias+relu", kernels);
  }();
  CHECK(several.size() == 3);
}

TEST_CASE("a chain's number stands for no other chain, and senseless numbers are refused") {
  Problem problem = gemm_problem("m=2,n=3,k=4,epilogue=gelu+bias");
  const double number = problem.value("epilogue");
  Problem same = gemm_problem("m=2,n=3,k=4");
  same.set("epilogue", number);
  CHECK(same == problem);
  for (const double wrong : {-1.0, 0.5, 9.0, 1.0 + 9.0, 1e300, std::nan("")}) {
    CHECK(contains(message_of([&] { same.set("epilogue", wrong); }), "epilogue="));
  }
}

TEST_CASE("what makes no sense is refused by name, with what is allowed") {
  const std::string sizes = "m=2,n=3,k=4,";
  CHECK(contains(refused(sizes + "epilogue=bias+gleu"), "nearest is 'gelu'"));
  CHECK(contains(refused(sizes + "epilogue=bias+add+bias"), "bias occurs twice"));
  CHECK(contains(refused(sizes + "epilogue=bias+"), "epilogue=bias+"));
  CHECK(contains(refused(sizes + "epilogue=bias,slope=0.1"), "leaky_relu"));
  CHECK(contains(refused(sizes + "low=0.1"), "clamp"));
  CHECK(contains(refused(sizes + "epilogue=clamp,low=2,high=2"), "low below high"));
  CHECK(contains(refused(sizes + "epilogue=clamp,low=7"), "low=7, high=6"));
  CHECK(contains(refused(sizes + "gate=1,epilogue=bias"), "gate=1 with epilogue=bias"));
  CHECK(contains(refused(sizes + "gate=1,beta=1"), "beta=1"));
  CHECK(contains(refused(sizes + "gate=1,alpha=2"), "alpha=2"));
}

TEST_CASE("sizes come from arrays: bias and residual agree with c, gate's b has two columns each") {
  Problem known(gemm::kernel);
  known.set("epilogue", "bias+add");
  const std::vector<NamedShape> arrays = {
      {"a", {5, 3}}, {"b", {3, 4}}, {"bias", {4}}, {"residual", {5, 4}}};
  CHECK(infer_problem(known, arrays).text() == "gemm:m=5,n=4,k=3,epilogue=bias+add");
  std::vector<NamedShape> wrong = arrays;
  wrong[2].shape = {5};
  CHECK(contains(message_of([&] { infer_problem(known, wrong); }), "n is 4 by axis 1 of b"));

  Problem gate(gemm::kernel);
  gate.set("gate", 1.0);
  CHECK(infer_problem(gate, {{"a", {5, 3}}, {"b", {3, 8}}}).text() == "gemm:m=5,n=4,k=3,gate=1");
  CHECK(contains(message_of([&] {
                   infer_problem(gate, {{"a", {5, 3}}, {"b", {3, 7}}});
                 }),
                 "multiples of 2"));
}

TEST_CASE("cost: the product's flops whatever the chain, both of gate's, and each operand once") {
  const Cost plain = gemm::kernel.cost(gemm_problem("m=5,n=7,k=3,batch=2"));
  const Cost chain =
      gemm::kernel.cost(gemm_problem("m=5,n=7,k=3,batch=2,epilogue=bias+gelu+add+clamp"));
  CHECK(chain.flops == plain.flops);
  CHECK(chain.bytes == plain.bytes + 4 * 7 + 4 * 2 * 5 * 7);
  CHECK(chain.exps == 2 * 5 * 7);
  const Cost gate = gemm::kernel.cost(gemm_problem("m=5,n=7,k=3,batch=2,gate=1"));
  CHECK(gate.flops == 2 * plain.flops);
  CHECK(gate.bytes == plain.bytes + 4 * 2 * 3 * 7);
}

TEST_CASE("the reference follows the order of the chain") {
  // The product is 2·3 = 6 and -6.
  const float a[] = {2, -2}, b[] = {3}, bias[] = {1}, residual[] = {-10, 10};
  const auto values = [&](const std::string& chain) {
    const Problem problem = gemm_problem("m=2,n=1,k=1," + chain);
    Operands operands;
    operands.set("a", contiguous_view(const_cast<float*>(a), Shape{1, 2, 1}));
    operands.set("b", contiguous_view(const_cast<float*>(b), Shape{1, 1, 1}));
    operands.set("bias", contiguous_view(const_cast<float*>(bias), Shape{1}));
    operands.set("residual", contiguous_view(const_cast<float*>(residual), Shape{1, 2, 1}));
    std::vector<double> value(2), bound(2), plain(2);
    gemm::kernel.reference(problem, fp32, operands, "c", {{0, 1}, {0}},
                           {value.data(), bound.data(), plain.data()});
    for (std::size_t i = 0; i < 2; ++i) CHECK(plain[i] >= bound[i]);
    return value;
  };
  CHECK(values("epilogue=bias+relu") == std::vector<double>{7, 0});
  CHECK(values("epilogue=relu+bias") == std::vector<double>{7, 1});
  CHECK(values("epilogue=add+leaky_relu,slope=0.5") == std::vector<double>{-2, 4});
  CHECK(values("epilogue=leaky_relu+add,slope=0.5") == std::vector<double>{-4, 7});
  CHECK(values("epilogue=clamp+bias,low=-2,high=3") == std::vector<double>{4, -1});
  CHECK(values("epilogue=silu")[0] == doctest::Approx(6 / (1 + std::exp(-6.0))).epsilon(1e-12));
  CHECK(values("epilogue=gelu")[1] ==
        doctest::Approx(-6 * 0.5 * std::erfc(6 / std::sqrt(2.0))).epsilon(1e-9));
}

TEST_CASE("a bound grows by a function's steepest slope, not more") {
  const Problem plain = gemm_problem("m=9,n=11,k=40"),
                gelu = gemm_problem("m=9,n=11,k=40,epilogue=gelu");
  const OwnedOperands operands(plain, seed, 1), same(gelu, seed, 1);
  const Reference before = compute_reference(plain, operands.inputs(), seed);
  const Reference after = compute_reference(gelu, same.inputs(), seed);
  for (std::size_t i = 0; i < 99; ++i) {
    const double x = before.parts[0].value[i], e = before.parts[0].bound[i];
    CHECK(after.parts[0].bound[i] >= 1.12 * e);
    CHECK(after.parts[0].bound[i] <= 1.14 * e + 9 * 0x1p-24 * (std::abs(x) + e));
  }
}

TEST_CASE("a wrong epilogue fails") {
  const std::string sizes = "m=40,n=50,k=60,";
  const auto fails = [&](const char* made, const char* judged) {
    INFO(made, " judged as ", judged);
    CHECK(judge(sizes + judged, sizes + judged).passed());
    CHECK(judge(sizes + made, sizes + judged).status == Status::failed);
  };
  fails("epilogue=gelu", "epilogue=bias+gelu");            // bias left out
  fails("epilogue=gelu+bias", "epilogue=bias+gelu");       // the wrong order
  fails("epilogue=bias+gelu_tanh", "epilogue=bias+gelu");  // the other gelu
  fails("epilogue=bias+silu", "epilogue=bias+gelu");       // another function
  fails("epilogue=bias", "epilogue=bias+relu");            // none
  fails("epilogue=bias+leaky_relu", "epilogue=bias+leaky_relu,slope=0.0101");
  fails("epilogue=bias", "epilogue=bias+add");  // residual left out
  fails("epilogue=clamp,low=-1,high=1", "epilogue=clamp,low=-1,high=1.0001");
  fails("epilogue=none", "epilogue=bias");
}

TEST_CASE("gate and up in each other's place, and a gate without silu, fail") {
  const Problem problem = gemm_problem("m=20,n=30,k=40,gate=1");
  const OwnedOperands operands(problem, seed, 1);
  const Reference reference = compute_reference(problem, operands.inputs(), seed);
  run_plan(gemm::scalar, problem, {}, operands.all());
  CHECK(verify_output(problem, operands.all(), reference, seed).passed());
  const gemm::Gemm g(problem);
  std::vector<float> halves[2];
  for (const int half : {0, 1}) {
    const Problem product = gemm_problem("m=20,n=30,k=40");
    Operands views;
    views.set("a", operands.all().at("a"));
    views.set("b", gemm::half_of_b(operands.all().at("b"), false, half));
    views.set("c", operands.output());
    run_plan(gemm::scalar, product, {}, views);
    halves[half].assign(operands.output().f32(), operands.output().f32() + 600);
  }
  const auto passes = [&](const std::function<float(float gate, float up)>& f) {
    for (std::size_t i = 0; i < 600; ++i)
      operands.output().f32()[i] = f(halves[0][i], halves[1][i]);
    return verify_output(problem, operands.all(), reference, seed).status != Status::failed;
  };
  const auto silu = [](float x) { return x / (1 + std::exp(-x)); };
  CHECK(passes([&](float gate, float up) { return silu(gate) * up; }));
  CHECK_FALSE(passes([&](float gate, float up) { return gate * silu(up); }));
  CHECK_FALSE(passes([&](float gate, float up) { return gate * up; }));
  CHECK_FALSE(passes([&](float gate, float) { return silu(gate); }));
}

TEST_CASE("the check of the whole output judges linear chains and leaves the others to more rows") {
  const auto applies = [](const char* shape) {
    return gemm::kernel.whole_check_applies(gemm_problem(shape));
  };
  CHECK(applies("m=2,n=2,k=2"));
  CHECK(applies("m=2,n=2,k=2,epilogue=bias+add"));
  CHECK_FALSE(applies("m=2,n=2,k=2,epilogue=bias+relu"));
  CHECK_FALSE(applies("m=2,n=2,k=2,gate=1"));

  const Problem linear = gemm_problem("m=150,n=130,k=200,epilogue=bias+add,beta=0.5");
  OwnedOperands operands(linear, seed, 1);
  run_plan(gemm::scalar, linear, {}, operands.all());
  const auto over = [&] {
    return gemm::kernel.whole_check(linear, fp32, operands.all(), seed).over_plain_bound;
  };
  CHECK(over() <= 1);
  float& element = operands.output().f32()[77 * 130 + 31];
  element -= operands.all().at("bias").f32()[31];
  CHECK(over() > 1);

  // Beyond full comparison: 258 rows and columns where that check cannot judge, else 66.
  for (const auto& [chain, lines] : {std::pair("bias", 66), std::pair("bias+relu", 258)}) {
    const Problem large = gemm_problem(fmt::format("m=600,n=600,k=300,epilogue={}", chain));
    const OwnedOperands inputs(large, seed, 2);
    const Reference reference = compute_reference(large, inputs.inputs(), seed);
    REQUIRE(reference.parts.size() == 2);
    CHECK(reference.parts[0].region.rows.size() == static_cast<std::size_t>(lines));
    CHECK(reference.parts[1].region.cols.size() == static_cast<std::size_t>(lines));
  }
}

TEST_CASE("hwy: every kind of schedule applies every function, on every ISA target") {
  for (const char* shape :
       {"m=61,n=113,k=140,epilogue=bias+gelu",
        "m=24,n=64,k=144,batch=3,epilogue=add+leaky_relu+bias",
        "m=3,n=260,k=150,trans_b=1,epilogue=bias+silu+add", "m=5,n=300,k=70,epilogue=gelu_tanh+add",
        "m=300,n=4,k=130,epilogue=bias+relu+add", "m=16,n=16,k=3000,epilogue=bias+add+clamp",
        "m=70,n=1,k=90,epilogue=bias+add+relu", "m=90,n=80,k=70,trans_b=1,gate=1",
        "m=2,n=200,k=90,trans_b=1,gate=1", "m=50,n=1,k=20,gate=1",
        "m=33,n=49,k=50,prepack=1,gate=1", "m=40,n=30,k=20,alpha=0,beta=2,epilogue=bias+silu"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    for (const std::string& isa : isa_targets()) {
      for (const int threads : {1, 3}) {
        Environment env;
        env.isa = isa;
        env.threads = threads;
        for (const Tuning& tuning : gemm::hwy.tunings(problem, env)) {
          if (!test::takes_next_case()) continue;
          INFO(problem.text(), " isa=", isa, " ", tuning.text());
          operands.poison_output();
          run_plan(Way(gemm::hwy, tuning), problem, env, operands.all());
          check_right(problem, operands.all(), operands.output());
        }
      }
    }
  }
}

TEST_CASE("opencl: every path applies every function") {
  const Catalogue catalogue = Catalogue::built_in();
  for (const char* shape : {"m=33,n=50,k=40,batch=2,beta=0.5,epilogue=bias+gelu+add",
                            "m=20,n=260,k=130,trans_b=1,epilogue=add+leaky_relu+bias+clamp,low=-1",
                            "m=130,n=12,k=200,epilogue=bias+silu", "m=40,n=64,k=300,epilogue=relu",
                            "m=37,n=41,k=29,prepack=1,epilogue=gelu_tanh+bias"}) {
    const Problem problem = gemm_problem(shape);
    OwnedOperands operands(problem, seed, 1);
    for (const CatalogueEntry* entry : catalogue.variants(gemm::kernel)) {
      const Variant& variant = *entry->variant;
      Environment env;
      if (entry->name != "opencl" || absent_reason(*entry) || refusal(variant, problem, env)) {
        continue;
      }
      std::vector<int64_t> paths;
      for (const Tuning& tuning : variant.tunings(problem, env)) {
        const int64_t path = tuning.get("path", 0);
        if (std::find(paths.begin(), paths.end(), path) != paths.end()) continue;
        paths.push_back(path);
        INFO(problem.text(), " ", tuning.text());
        operands.poison_output();
        run_plan(Way(variant, tuning), problem, env, operands.all());
        check_right(problem, operands.all(), operands.output());
      }
      CHECK(paths.size() >= 2);
    }
  }
}

TEST_CASE("a NaN stays one through every function, in every variant") {
  const Catalogue catalogue = Catalogue::built_in();
  for (const char* chain :
       {"relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "clamp", "bias+add"}) {
    const Problem problem = gemm_problem(fmt::format("m=10,n=40,k=12,epilogue={}", chain));
    OwnedOperands operands(problem, seed, 1);
    operands.all().at("a").f32()[3 * 12 + 5] = std::numeric_limits<float>::quiet_NaN();
    for (const CatalogueEntry* entry : catalogue.variants(gemm::kernel)) {
      Environment env;
      if (absent_reason(*entry) || refusal(*entry->variant, problem, env)) continue;
      INFO(problem.text(), " ", entry->name);
      operands.poison_output();
      run_plan(*entry->variant, problem, env, operands.all());
      int wrong = 0;
      for (int64_t i = 0; i < 400; ++i)
        wrong += std::isnan(operands.output().f32()[i]) != (i / 40 == 3);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("honest random chains raise no alarm") {
  const auto below = [](std::uint64_t index, std::uint64_t end) {
    return splitmix64(seed * 1000 + index) % end;
  };
  std::uint64_t at = 0;
  for (int i = 0; i < 300; ++i) {
    std::string chain;
    for (std::uint64_t rest = (1U << std::size(gemm::Epilogue::names)) - 1,
                       count = 1 + below(at++, 5);
         count > 0; --count) {
      std::uint64_t place = below(at++, std::size(gemm::Epilogue::names));
      while ((rest >> place & 1) == 0) place = (place + 1) % std::size(gemm::Epilogue::names);
      rest &= ~(std::uint64_t{1} << place);
      chain += (chain.empty() ? "" : "+") + std::string(gemm::Epilogue::names[place]);
    }
    const Problem problem =
        gemm_problem(fmt::format("m={},n={},k={},epilogue={}", 1 + below(at, 40),
                                 1 + below(at + 1, 60), below(at + 2, 200), chain));
    at += 3;
    const OwnedOperands operands(problem, seed + static_cast<std::uint64_t>(i), 1);
    const Reference reference = compute_reference(problem, operands.inputs(), seed);
    for (const Variant* variant : {&gemm::scalar, &gemm::hwy}) {
      INFO(problem.text(), " ", variant->name);
      run_plan(*variant, problem, {}, operands.all());
      const Verification result = verify_output(problem, operands.all(), reference, seed);
      CHECK_MESSAGE(result.passed(), result.reason);
    }
  }
}

TEST_CASE("the ladder's rungs say that they have no epilogue") {
  const Problem problem = gemm_problem("m=4,n=5,k=6,epilogue=bias");
  const OwnedOperands operands(problem, seed, 1);
  try {
    make_plan(gemm::hwy, problem, {{"step", 2}}, {}, operands.all());
    FAIL("planned");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unavailable);
    CHECK(contains(error.what(), "epilogue=bias"));
  }
}
