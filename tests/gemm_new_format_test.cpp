// A number format that GEMM does not know, added from outside: a struct that decodes it and a line
// that registers it. Packing, few rows, prepack, epilogues, schedules and every ISA target follow.
// The format is q5_0, which GGUF files hold and no kernel takes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/gemm_new_format_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/gemm/hwy_decode-inl.h"
#undef ROOFLANE_LOWER_PART

HWY_BEFORE_NAMESPACE();
namespace rooflane::gemm {
namespace HWY_NAMESPACE {

// A float16 scale, the fifth bits of 32 elements, then nibbles as in q4_0: scale · (integer - 16).
struct Q5Blocks : Blocks<22, 1> {
  struct Start {
    V scale;
  };
  static HWY_INLINE Start Begin(const float* heads_of_this) {
    return {hn::Set(D(), heads_of_this[0])};
  }
  static HWY_INLINE V At(const Start& start, const std::uint8_t* block, std::int64_t place) {
    const D d;
    const hn::Rebind<std::int32_t, D> words;
    const hn::Rebind<std::uint32_t, D> bits;
    std::uint32_t fifth = 0;
    std::memcpy(&fifth, block + 2, sizeof fifth);
    const auto both = Widened<std::uint8_t>(block + 6 + place % 16);
    const auto high = hn::ShiftLeft<4>(
        hn::And(hn::Shr(hn::Set(bits, fifth), hn::Iota(bits, static_cast<std::uint32_t>(place))),
                hn::Set(bits, 1u)));
    using Words = hn::Vec<decltype(words)>;
    const Words low =
        place < 16 ? Words(hn::And(both, hn::Set(words, 15))) : Words(hn::ShiftRight<4>(both));
    const V integer = hn::ConvertTo(d, hn::Or(low, hn::BitCast(words, high)));
    return hn::Mul(hn::Sub(integer, hn::Set(d, 16.0f)), start.scale);
  }
};
FormatFunctions OfQ5() { return FunctionsOf<Q5Blocks>(); }

}  // namespace HWY_NAMESPACE
}  // namespace rooflane::gemm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "backends/highway.hpp"
#include "core/file_formats.hpp"
#include "generated_catalogue.hpp"
#include "kernels/gemm/gemm.hpp"
#include "measure/verify.hpp"

namespace rooflane::gemm {
HWY_EXPORT(OfQ5);
}

using namespace rooflane;

namespace {

constexpr std::uint64_t seed = 5;

// The kernel and its variant with one more format allowed.
const Kernel& kernel_with_q5() {
  static constexpr DType b_types[] = {&float32, &q5_0};
  static std::vector<ParamSpec> params(gemm::kernel.params.begin(), gemm::kernel.params.end());
  static const Kernel kernel = [] {
    for (ParamSpec& param : params) {
      if (std::string(param.name) == "b_type") param.dtypes = b_types;
    }
    Kernel copy = gemm::kernel;
    copy.params = params;
    return copy;
  }();
  return kernel;
}
const Variant& hwy_with_q5() {
  static constexpr DType types[] = {&float32, &bfloat16, &q5_0};
  static const Variant variant = [] {
    gemm::add_format(
        &q5_0, [](std::int64_t target) { return ROOFLANE_HWY_FUNCTION(gemm::OfQ5, target)(); });
    Variant copy = gemm::hwy;
    copy.kernel = &kernel_with_q5();
    copy.dtypes = types;
    return copy;
  }();
  return variant;
}

struct Product {
  explicit Product(const std::string& sizes)
      : problem(parse_problem("gemm:" + sizes + ",trans_b=1,b_type=q5_0", kernels())),
        operands(problem, seed, 1),
        reference(compute_reference(problem, operands.inputs(), seed, fp32)) {}
  static std::span<const Kernel* const> kernels() {
    static const Kernel* const list[] = {&kernel_with_q5()};
    return list;
  }
  // Facts of the plan that ran.
  PlanFacts run(const Tuning& tuning, const Environment& env) {
    REQUIRE_FALSE(refusal(hwy_with_q5(), problem, env));
    operands.poison_output();
    const auto plan = make_plan(hwy_with_q5(), problem, tuning, env, operands.all());
    plan->bind(operands.all());
    plan->run();
    return plan->facts();
  }
  bool right() {
    return verify_output(problem, operands.all(), reference, seed, fp32).status == Status::passed;
  }
  Problem problem;
  OwnedOperands operands;
  Reference reference;
};

constexpr int few_rows = 5, packed = 4;  // values of `path`

void check_everywhere(const std::string& sizes, int path) {
  Product product(sizes);
  for (const std::string& isa : isa_targets()) {
    for (const int threads : {1, 3}) {
      Environment env;
      env.isa = isa;
      env.threads = threads;
      INFO(product.problem.text(), " ", isa, " threads=", threads, " path=", path);
      const PlanFacts facts = product.run({{"path", path}, {"threads", threads}}, env);
      CHECK(facts.tuning.find("path") == path);
      CHECK(product.right());
    }
  }
}

}  // namespace

TEST_CASE("a new number format: right by packed micro-panels, at edges of tiles and of k") {
  for (const int m : {1, 2, 7, 8, 9, 17}) {
    for (const int n : {1, 15, 16, 17, 47, 48, 49, 100}) {
      for (const int k : {32, 96, 544}) {
        if (m == 1 && n < 16) continue;
        const std::string sizes =
            "m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" + std::to_string(k);
        check_everywhere(sizes, packed);
      }
    }
  }
}

TEST_CASE("a new number format: right by few rows, of every count") {
  for (int m = 1; m <= 8; ++m) {
    for (const int n : {1, 2, 5, 16, 67}) {
      for (const int k : {32, 512, 1056}) {
        const std::string sizes =
            "m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" + std::to_string(k);
        check_everywhere(sizes, few_rows);
      }
    }
  }
}

TEST_CASE("a new number format: prepack, batches, an epilogue, gate and beta come with it") {
  for (const char* const rest :
       {",prepack=1", ",batch=3", ",epilogue=bias+gelu", ",beta=2,alpha=-1", ",gate=1",
        ",gate=1,prepack=1", ",trans_a=1", ",c_type=bf16"}) {
    check_everywhere(std::string("m=13,n=37,k=160") + rest, packed);
    check_everywhere(std::string("m=3,n=37,k=160") + rest, few_rows);
  }
}

TEST_CASE("a new number format: schedules are listed and predicted, and a wrong bit is found") {
  Product product("m=21,n=50,k=352");
  Environment env;
  env.threads = 2;
  const std::vector<Tuning> all = hwy_with_q5().tunings(product.problem, env);
  CHECK(all.size() > 3);
  CHECK(hwy_with_q5().predicted_seconds(product.problem, all.front(), env) > 0);
  product.run(all.back(), env);
  CHECK(product.right());
  // A fifth bit of an element: 16 steps of its block.
  const View b = product.operands.all().at("b");
  static_cast<std::uint8_t*>(b.data)[3] ^= 4;
  product.run(all.back(), env);
  CHECK_FALSE(product.right());
}
#endif  // HWY_ONCE
