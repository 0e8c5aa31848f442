// Forms of a model: fused steps compute what the steps by themselves do, within their bounds, and
// hold less; products of short numbers are right by their own references and near to float32.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/tuned.hpp"
#include "model/arena.hpp"
#include "model/check.hpp"
#include "model/fuse.hpp"
#include "model/library.hpp"
#include "model/low_precision.hpp"
#include "model/swaps.hpp"
#include "skip.hpp"

namespace rooflane::model {
namespace {

const Catalogue& catalogue() {
  static const Catalogue all = Catalogue::built_in();
  return all;
}

Instance tiny(const std::string& name) {
  return instantiate(read_model(name), "tiny", {}, catalogue().kernels());
}

Instance mine(const std::string& tensors_and_steps) {
  return instantiate(read_model_text("model m\n" + tensors_and_steps, "m"), "", {},
                     catalogue().kernels());
}

ChainSettings settings() {
  ChainSettings settings;
  settings.threads = 2;
  static const TunedSchedules none;
  settings.tuned = &none;
  return settings;
}

std::vector<std::string> step_names(const Instance& instance) {
  std::vector<std::string> names;
  for (const Step& step : instance.phases.front().steps) names.push_back(step.name);
  return names;
}

const std::vector<std::string> with_units = {"amx", "avx512", "hwy", "scalar"};

// Whether a variant multiplies float32 by weights of that type in that math on this CPU.
bool is_computed_here(DType weights, const std::string& math) {
  const Problem problem = parse_problem(
      fmt::format("gemm:m=4,n=64,k=64,trans_b=1,prepack=1,b_type={}", weights->short_name),
      catalogue().kernels());
  Environment env;
  env.math = math_for(problem, math.empty() ? "fp32" : math);
  for (const CatalogueEntry* entry : catalogue().variants(problem.kernel())) {
    const bool is_asked =
        std::find(with_units.begin(), with_units.end(), entry->name) != with_units.end();
    if (is_asked && !absent_reason(*entry) && !refusal(*entry->variant, problem, env)) return true;
  }
  return false;
}

double largest_difference(const OutputValues& x, const OutputValues& y) {
  double difference = 0, largest = 0;
  for (std::size_t p = 0; p < y.size(); ++p) {
    for (std::size_t t = 0; t < y[p].size(); ++t) {
      for (std::size_t i = 0; i < y[p][t].size(); ++i) {
        difference = std::max(difference, std::abs(x[p][t][i] - y[p][t][i]));
        largest = std::max(largest, std::abs(y[p][t][i]));
      }
    }
  }
  return difference / largest;
}

TEST_CASE("every model fused computes what its steps do, within the bounds that grow from them") {
  for (const std::string& name : model_names()) {
    CAPTURE(name);
    const Instance plain = tiny(name);
    const Instance joined = fused(plain);
    const auto weights = seeded_weights(plain.model, 1, 2);
    for (const char* variant : {"hwy", "scalar", "blas"}) {
      CAPTURE(variant);
      Chain chain(joined, *weights, settings());
      plan_chain(chain, catalogue(), {variant, "hwy", "scalar"}, {});
      for (const StepCheck& check : check_steps(chain)) {
        CAPTURE(joined.phases[check.phase].steps[check.step].name);
        CHECK_MESSAGE(check.verification.usable(), check.verification.reason);
      }
      for (const WholeCheck& whole : check_whole(chain, as_it_is(chain), plain, *weights)) {
        CAPTURE(whole.tensor);
        CHECK(whole.passed());
      }
    }
  }
}

TEST_CASE("products are joined with bias, activation and sum, two of them by a gate") {
  CHECK(step_names(fused(tiny("llama"))) ==
        std::vector<std::string>{"embed", "attn_norm", "qkv", "rope_q", "cache", "attention",
                                 "attn_out+attn_add", "ffn_norm", "ffn_up+swiglu",
                                 "ffn_down+ffn_add", "last_norm", "logits"});
  const Instance gelu = fused(tiny("transformer-gelu"));
  CHECK(step_names(gelu) == std::vector<std::string>{"norm1", "qkv", "attention", "proj+add1",
                                                     "norm2", "up+gelu", "down+add2"});
  const auto epilogue = [&](std::size_t call) { return gelu.phases[0].calls[call].problem.text(); };
  CHECK(epilogue(1).find("epilogue=bias") != std::string::npos);
  CHECK(epilogue(3).find("epilogue=bias+add") != std::string::npos);
  CHECK(epilogue(5).find("epilogue=bias+gelu_tanh") != std::string::npos);
}

TEST_CASE("a sum that a norm alone reads is formed there") {
  const Instance joined =
      fused(mine("input x [3,8]\ninput r [3,8]\nweight g [8]\nbuffer s [3,8]\noutput y [3,8]\n"
                 "step sum add x=x r=r y=s\nstep norm rmsnorm x=s gamma=g y=y\n"));
  CHECK(step_names(joined) == std::vector<std::string>{"sum+norm"});
  CHECK(joined.phases[0].calls[0].problem.flag("residual"));
}

TEST_CASE("what another step reads, an output, or part of a buffer is left where it is") {
  const std::string tensors =
      "input x [3,8]\nweight w [8,8]\nbuffer a [3,8]\nbuffer b [3,8]\noutput y [3,8]\n"
      "step one gemm a=x b=w c=a\n";
  const auto names = [&](const std::string& steps) {
    return step_names(fused(mine(tensors + steps)));
  };
  using Names = std::vector<std::string>;
  // a has a second reader.
  CHECK(names("step two activation kind=relu x=a y=b\nstep three add x=a r=b y=y\n") ==
        Names{"one", "two", "three"});
  // Both summands are a.
  CHECK(names("step two add x=a r=a y=y\n") == Names{"one", "two"});
  // Half of a.
  CHECK(names("step two activation kind=relu x=a[:,0:4] y=y[:,0:4]\n"
              "step three activation kind=relu x=a[:,4:8] y=y[:,4:8]\n") ==
        Names{"one", "two", "three"});
  // An activation that no epilogue has.
  CHECK(names("step two activation kind=tanh x=a y=y\n") == Names{"one", "two"});
  // In place, and over the product's own input.
  CHECK(names("step two activation kind=relu x=a y=a\nstep three add x=a r=x y=y\n") ==
        Names{"one+two+three"});
  CHECK(step_names(fused(mine("input x [3,8]\nweight w [8,8]\nbuffer a [3,8]\noutput y [3,8]\n"
                              "step one gemm a=x b=w c=y\nstep two activation kind=relu x=y y=a\n"
                              "step three activation kind=relu x=a y=y\n"))) ==
        Names{"one", "two", "three"});
}

TEST_CASE("a sum in place goes to a second buffer and back, through every layer") {
  const Instance plain = mine(
      "input i [3,8]\nweight w [8,8]\nbuffer x [3,8]\nbuffer a [3,8]\noutput y [3,8]\n"
      "step begin activation kind=relu x=i y=x\n"
      "repeat layer = 3\nstep one gemm a=x b=w c=a\nstep sum add x=x r=a y=x\nend\n"
      "step finish activation kind=relu x=x y=y\n");
  const Instance joined = fused(plain);
  CHECK(step_names(joined) == std::vector<std::string>{"begin", "one+sum", "finish"});
  const auto weights = seeded_weights("m", 1, 1);
  Chain chain(joined, *weights, settings());
  plan_chain(chain, catalogue(), {"hwy"}, {});
  for (const WholeCheck& whole : check_whole(chain, as_it_is(chain), plain, *weights)) {
    CHECK(whole.passed());
  }
}

TEST_CASE("fused steps hold less at once where a buffer goes") {
  for (const char* name : {"transformer-swiglu", "llama"}) {
    const Instance plain = tiny(name), joined = fused(plain);
    const auto arena = [](const Instance& instance) {
      return plan_arena(lives_of(instance.phases.front())).bytes;
    };
    CHECK(arena(joined) < arena(plain));
  }
}

TEST_CASE("what costs a step its variant is not fused") {
  const Instance plain = tiny("transformer-gelu");
  const Instance none = fused(plain, [](const Call&, const Call&) { return false; });
  CHECK(step_names(none) == step_names(plain));
}

TEST_CASE("products in bf16 and int8 are right by their references and near to float32") {
  struct Form {
    DType dtype;
    const char* math;
    double near;  // of the largest output: roundings of some layers
  };
  for (const std::string& name : {std::string("llama"), std::string("transformer-gelu")}) {
    const Instance plain = tiny(name);
    const auto source = seeded_weights(plain.model, 1, 2);
    Chain exact(plain, *source, settings());
    plan_chain(exact, catalogue(), {"hwy", "scalar"}, {});
    const OutputValues expected = output_values(exact, as_it_is(exact));
    for (const Form& form :
         {Form{&bfloat16, "bf16", 0.05}, Form{&int8_per_channel, "int8-dynamic", 0.1},
          Form{&bfloat16, "", 0.05}, Form{&int8_per_channel, "", 0.1}}) {
      CAPTURE(name + " " + form.dtype->short_name.data() + " " + form.math);
      if (!is_computed_here(form.dtype, form.math)) {
        test::skip_part(fmt::format("no unit of this CPU computes in {}", form.math), "");
        continue;
      }
      const Instance converted = with_products_in(plain, form.dtype, form.math);
      const auto weights = converted_weights(plain, converted, *source);
      Chain chain(converted, *weights, settings());
      plan_chain(chain, catalogue(), with_units, {});
      std::size_t products = 0;
      for (const StepCheck& check : check_steps(chain)) {
        const Step& step = converted.phases[check.phase].steps[check.step];
        CAPTURE(step.name);
        CHECK_MESSAGE(check.verification.usable(), check.verification.reason);
        const Problem& problem = converted.phases[check.phase].calls[step.calls[0]].problem;
        if (std::string(step.kernel->name) == "gemm")
          products += problem.dtype("b_type") == form.dtype;
      }
      CHECK(products > 0);
      const double off = largest_difference(output_values(chain, as_it_is(chain)), expected);
      CHECK(off > 0);
      CHECK(off < form.near);
    }
  }
}

TEST_CASE("int8 weights are their column's scale times at most 127, scales shared by batches") {
  const Instance plain = mine(
      "input x [3,8]\nweight w [2,4,8]\noutput y [2,3,4]\n"
      "step one gemm trans_b=1 a=x.expand(2,3,8) b=w c=y\n");
  const Instance converted = with_products_in(plain, &int8_per_channel, "int8-dynamic");
  const auto source = seeded_weights("m", 1, 1);
  const auto weights = converted_weights(plain, converted, *source);
  const auto tensor = [&](const Instance& instance, const std::string& name) {
    const auto& all = instance.phases[0].tensors;
    return *std::find_if(all.begin(), all.end(), [&](const Tensor& t) { return t.name == name; });
  };
  std::vector<float> exact(64), scales(4);
  std::vector<std::int8_t> integers(64);
  source->read(tensor(plain, "w"), exact.data());
  weights->read(tensor(converted, "w"), integers.data());
  weights->read(tensor(converted, "w.scale"), scales.data());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const float scale = scales[i / 8 % 4];
    CHECK(std::abs(exact[i] - scale * integers[i]) <= 0.5001F * scale);
  }
  for (std::size_t column = 0; column < 4; ++column) {
    int most = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (i / 8 % 4 == column) most = std::max(most, std::abs(int{integers[i]}));
    }
    CHECK(most == 127);
  }
}

TEST_CASE("a weight that others read keeps its format") {
  const Instance converted =
      with_products_in(mine("input x [3,8]\nweight w [3,8]\nbuffer a [3,3]\noutput y [3,8]\n"
                            "step one gemm trans_b=1 a=x b=w c=a\nstep two add x=x r=w y=y\n"),
                       &bfloat16, "bf16");
  CHECK(converted.phases[0].tensors[1].dtype == &float32);
}

}  // namespace
}  // namespace rooflane::model
