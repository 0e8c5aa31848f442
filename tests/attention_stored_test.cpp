// Attention on operands in float16 and bfloat16, and keys and values in q8_0: held against the
// reference on what the stored numbers stand for, with every option, on every path.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "attention_trial.hpp"
#include "core/float16.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

constexpr const char* types[] = {"f16", "bf16", "q8_0"};

// Prefill with edges of Q micro-panels and tiles, decoding with grouped heads, keys split among
// threads, cache lengths that are no multiple of a block.
constexpr const char* stored_shapes[] = {
    "batch=1,heads=2,q_len=70,kv_len=70,head_dim=32",
    "batch=2,heads=4,kv_heads=2,q_len=50,kv_len=301,head_dim=64",
    "batch=1,heads=4,kv_heads=1,q_len=1,kv_len=1500,head_dim=96",
    "batch=1,heads=9,kv_heads=3,q_len=1,kv_len=33,head_dim=64",
    "batch=1,heads=2,kv_heads=1,q_len=3,kv_len=700,head_dim=128",
};

}  // namespace

TEST_CASE("attention: keys and values of every format keep the bound on every path") {
  for (const char* shape : stored_shapes) {
    for (const char* type : types) {
      for (const char* causal : {"0", "1"}) {
        Trial(std::string(shape) + ",causal=" + causal + ",kv_type=" + type).run_all();
      }
    }
  }
  // Widths that are no whole vectors, no keys, no queries.
  for (const char* type : {"f16", "bf16"}) {
    for (const char* shape : {"batch=1,heads=2,q_len=7,kv_len=45,head_dim=20",
                              "batch=1,heads=2,q_len=1,kv_len=45,head_dim=35",
                              "batch=1,heads=1,q_len=3,kv_len=0,head_dim=8",
                              "batch=1,heads=1,q_len=0,kv_len=9,head_dim=8",
                              "batch=1,heads=2,q_len=40,kv_len=70,head_dim=3"}) {
      Trial(std::string(shape) + ",kv_type=" + type).run_all();
    }
  }
}

TEST_CASE("attention: stored keys and values under every option") {
  for (const char* type : types) {
    for (const char* options : {"window=20", "softcap=5", "mask=1", "lengths=1", "v_dim=96",
                                "window=50,softcap=3,mask=1,lengths=1"}) {
      const std::string tail = std::string(",") + options + ",causal=1,kv_type=" + type;
      Trial("batch=2,heads=4,kv_heads=2,q_len=40,kv_len=333,head_dim=64" + tail).run_all();
      Trial("batch=2,heads=4,kv_heads=2,q_len=1,kv_len=333,head_dim=64" + tail).run_all();
    }
  }
}

TEST_CASE("attention: a stored key that no query sees has no influence, whatever it holds") {
  for (const char* type : types) {
    // Query i sees keys up to i; the last keys are seen by none of the first.
    Trial trial("batch=1,heads=2,q_len=40,kv_len=40,head_dim=32,causal=1,kv_type=" +
                std::string(type));
    trial.run({&scalar_variant(trial.problem), ""}, 1);
    const View o = trial.all.at("o");
    const std::int64_t before =
        39 * 32;  // elements of the first head's rows that do not see key 39
    const std::vector<float> expected(o.f32(), o.f32() + before);
    // The last key of the first head: a scale or an element that is NaN.
    constexpr std::uint16_t half_nan = 0x7E00, brain_nan = 0x7FC0;
    const std::uint16_t bits = std::string(type) == "bf16" ? brain_nan : half_nan;
    for (const char* tensor : {"k", "v"}) {
      std::memcpy(trial.all.at(tensor).row(39), &bits, sizeof bits);
    }
    for (const Way& way : ways(trial.problem)) {
      INFO(way.variant->name, " ", way.isa, " ", type);
      trial.run(way, 1);
      bool near = true;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        near = near && std::abs(o.f32()[i] - expected[i]) <= 1e-5F;
      }
      CHECK(near);
      CHECK(std::isnan(o.f32()[before]));  // the query that sees it
    }
  }
}

TEST_CASE("attention: queries and results of every format keep the bound on every path") {
  for (const char* type : {"f16", "bf16"}) {
    const std::string tail = std::string(",type=") + type;
    for (const char* shape : stored_shapes) Trial(shape + (",causal=1" + tail)).run_all();
    for (const char* shape : path_shapes) Trial(shape + tail).run_all();
    // Widths that are no whole vectors, no keys, no queries, other keys, keys split among threads.
    const char* const with_all =
        "batch=2,heads=4,kv_heads=2,q_len=40,kv_len=333,head_dim=20,window=50,softcap=3,mask=1,"
        "lengths=1,v_dim=35";
    for (const char* shape :
         {"batch=1,heads=2,q_len=7,kv_len=45,head_dim=35,v_dim=20",
          "batch=1,heads=1,q_len=3,kv_len=0,head_dim=8",
          "batch=1,heads=2,q_len=5,kv_len=3,head_dim=35,causal=1",
          "batch=1,heads=1,q_len=0,kv_len=9,head_dim=8",
          "batch=1,heads=2,q_len=40,kv_len=70,head_dim=3,v_dim=37",
          "batch=2,heads=2,q_len=40,kv_len=70,head_dim=32,kv_type=q8_0",
          "batch=1,heads=2,q_len=1,kv_len=3000,head_dim=64,kv_type=f32", with_all}) {
      Trial(shape + tail).run_all();
    }
  }
}

TEST_CASE("attention: keys and values have the format of q unless said otherwise") {
  const std::string shape = "batch=1,heads=1,q_len=1,kv_len=1,head_dim=64,causal=0";
  const auto formats = [&](const std::string& types) {
    return dtype_text(problem_of(shape + types));
  };
  CHECK(formats(",type=f16") == "float16");
  CHECK(formats(",type=bf16,kv_type=f32") == "bfloat16+float32");
  CHECK(formats(",kv_type=q8_0") == "float32+q8_0");
  CHECK(problem_of(shape + ",type=f16,kv_type=f16").shape() == shape + ",type=f16");
  CHECK(problem_of(shape + ",type=f32,kv_type=f32").shape() == shape);
  CHECK_THROWS_AS(problem_of(shape + ",type=q8_0"), Error);
}

TEST_CASE("attention: q8_0 has whole blocks of head_dim and v_dim, or is refused by name") {
  CHECK_THROWS_WITH_AS(problem_of("batch=1,heads=1,q_len=1,kv_len=1,head_dim=48,kv_type=q8_0"),
                       doctest::Contains("head_dim=48: kv_type=q8_0 needs a multiple of 32"),
                       Error);
  CHECK_THROWS_WITH_AS(
      problem_of("batch=1,heads=1,q_len=1,kv_len=1,head_dim=64,v_dim=20,kv_type=q8_0"),
      doctest::Contains("v_dim=20: kv_type=q8_0 needs a multiple of 32"), Error);
  CHECK_THROWS_AS(problem_of("batch=1,heads=1,q_len=1,kv_len=1,head_dim=64,kv_type=q4_0"), Error);
}

TEST_CASE("attention: bytes of stored keys and values are counted as stored") {
  const auto bytes = [](const char* type) {
    const Problem problem =
        problem_of(std::string("batch=1,heads=1,q_len=1,kv_len=100,head_dim=64,kv_type=") + type);
    return problem.kernel().cost(problem).bytes;
  };
  const double q_and_o = 2 * 64 * 4;
  CHECK(bytes("f32") == q_and_o + 2 * 100 * 64 * 4);
  CHECK(bytes("bf16") == q_and_o + 2 * 100 * 64 * 2);
  CHECK(bytes("q8_0") == q_and_o + 2 * 100 * 2 * 34);
}
