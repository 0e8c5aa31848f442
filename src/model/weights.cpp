// Weights from the seed. See weights.hpp; those of a file: gguf_weights.cpp.
#include "model/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/seeds.hpp"

namespace rooflane::model {

void require_weights(const Instance& instance, const WeightSource& weights) {
  std::string first;
  std::set<std::string> refused;
  for (const Phase& phase : instance.phases) {
    for (const Tensor& tensor : phase.tensors) {
      if (tensor.kind != Tensor::Kind::weight) continue;
      const auto reason = weights.missing(tensor);
      if (!reason || !refused.insert(tensor.name).second || !first.empty()) continue;
      first = fmt::format("weight {} {}: {}", tensor.name, print_shape(tensor.shape), *reason);
    }
  }
  if (refused.empty()) return;
  throw argument_error(refused.size() == 1 ? first
                                           : fmt::format("{}; {} more weights are not there either",
                                                         first, refused.size() - 1));
}

void fill_from_seed(const Tensor& tensor, const std::string& model, std::uint64_t seed, void* to,
                    int threads) {
  const SeededStream stream(seed, model, tensor.name);
  const std::int64_t count = tensor.elements();
  constexpr std::int64_t chunk = 16384;  // long beside handing one out; whole blocks
  parallel_for(nullptr, threads, (count + chunk - 1) / chunk, [&](std::int64_t task, int) {
    const std::int64_t begin = task * chunk, end = std::min(count, begin + chunk);
    if (tensor.dtype == &int32) {
      for (std::int64_t i = begin; i < end; ++i) {
        static_cast<std::int32_t*>(to)[i] =
            stream.integer(static_cast<std::uint64_t>(i), tensor.below);
      }
      return;
    }
    std::vector<double> values;
    for (std::int64_t i = begin; i < end; ++i) {
      values.push_back(tensor.scale * stream.value(static_cast<std::uint64_t>(i)) + tensor.offset);
    }
    tensor.dtype->encode(values.data(), static_cast<std::byte*>(to) + tensor.dtype->bytes(begin),
                         end - begin);
  });
  if (!tensor.ascending) return;
  auto* const values = static_cast<std::int32_t*>(to);
  std::sort(values, values + count);
}

namespace {

class SeededWeights final : public WeightSource {
 public:
  SeededWeights(std::string model, std::uint64_t seed, int threads)
      : model_(std::move(model)), seed_(seed), threads_(threads) {}
  std::optional<std::string> missing(const Tensor&) const override { return std::nullopt; }
  void read(const Tensor& weight, void* to) const override {
    fill_from_seed(weight, model_, seed_, to, threads_);
  }

 private:
  std::string model_;
  std::uint64_t seed_;
  int threads_;
};

}  // namespace

std::unique_ptr<WeightSource> seeded_weights(const std::string& model, std::uint64_t seed,
                                             int threads) {
  return std::make_unique<SeededWeights>(model, seed, threads);
}

}  // namespace rooflane::model
