// Caches of keys and values in short formats: rows are stored as the formats say, and a model with
// such caches writes every new row there, layer by layer, at its place.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/catalogue.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"
#include "generate/stored_cache.hpp"
#include "model/library.hpp"
#include "model/rewrite.hpp"

namespace rooflane::generate {
namespace {

const Catalogue& catalogue() {
  static const Catalogue all = Catalogue::built_in();
  return all;
}

model::Instance tiny_llama(std::int64_t width) {
  return model::instantiate(model::read_model("llama"), "tiny", {{"width", width}},
                            catalogue().kernels());
}

TEST_CASE("rows are stored as the formats' own conversion stores them") {
  constexpr std::int64_t rows = 5, cols = 96;
  std::vector<float> values(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i) * 0.37F) * std::exp2(static_cast<float>(i % 7));
  }
  std::fill_n(values.begin() + 32, 32, 0.0F);  // a block of zeros
  const View from = contiguous_view(values.data(), Shape{rows, cols});
  for (const DType dtype : {&float16, &bfloat16, &q8_0}) {
    CAPTURE(dtype->short_name);
    std::vector<std::byte> stored(dtype->bytes(rows * cols)), expected(stored.size());
    store_rows(from, contiguous_view(stored.data(), Shape{rows, cols}, dtype), nullptr, 2);
    const std::vector<double> wide(values.begin(), values.end());
    dtype->encode(wide.data(), expected.data(), rows * cols);
    std::vector<double> got(values.size()), want(values.size());
    dtype->decode(stored.data(), got.data(), rows * cols);
    dtype->decode(expected.data(), want.data(), rows * cols);
    for (std::size_t i = 0; i < values.size(); ++i) {
      // A quotient at a tie may go either way: then both are as far from the value.
      const double step = std::abs(got[i] - want[i]);
      const double off = std::abs(got[i] - values[i]);
      CHECK(off <= std::abs(want[i] - values[i]) * (1 + 1e-5) + 1e-30);
      if (dtype != &q8_0) CHECK(step == 0);
    }
  }
}

TEST_CASE("every layer's new keys and values are written to a buffer and stored at their place") {
  const model::Instance plain = tiny_llama(48);
  const StoredCaches stored = with_stored_caches(plain, &bfloat16);
  for (std::size_t p = 0; p < plain.phases.size(); ++p) {
    const model::Phase& phase = stored.instance.phases[p];
    REQUIRE(stored.stores[p].size() == 2);  // layers
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const CacheStore& store = stored.stores[p][layer];
      CHECK(phase.steps[phase.calls[store.call].step].name == "cache");
      CHECK(phase.tensors[store.to.tensor].name == "cache." + std::to_string(layer));
      CHECK(phase.tensors[store.to.tensor].dtype == &bfloat16);
      CHECK(phase.tensors[store.from.tensor].dtype == &float32);
      CHECK(store.from.shape == store.to.shape);
    }
    for (std::size_t c = 0; c < phase.calls.size(); ++c) {
      const model::Call& call = phase.calls[c];
      const std::string kernel = call.problem.kernel().name;
      if (kernel == "attention") CHECK(call.problem.choice("kv_type") == "bf16");
      for (const model::Operand& operand : call.operands) {
        const bool cache = phase.tensors[operand.view.tensor].kind == model::Tensor::Kind::state;
        CHECK(cache == (kernel == "attention" && (operand.name == "k" || operand.name == "v")));
      }
    }
  }
}

TEST_CASE("heads that are no whole blocks are refused, float32 changes nothing") {
  CHECK_THROWS_WITH_AS(with_stored_caches(tiny_llama(48), &q8_0),
                       doctest::Contains("heads of 8 elements: q8_0 needs a multiple of 32"),
                       Error);
  CHECK_NOTHROW(with_stored_caches(tiny_llama(192), &q8_0));
  const StoredCaches same = with_stored_caches(tiny_llama(48), &float32);
  CHECK(same.stores[0].empty());
}

}  // namespace
}  // namespace rooflane::generate
