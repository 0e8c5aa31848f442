// See language_model.hpp.
#include "generate/language_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "core/thread_pool.hpp"
#include "generate/row_pieces.hpp"
#include "model/low_precision.hpp"
#include "model/swaps.hpp"

namespace rooflane::generate {
namespace {

constexpr std::size_t prefill_phase = 0, decode_phase = 1, verify_phases = 2;  // llama_instance's

std::size_t tensor_named(const model::Phase& phase, std::string_view name) {
  const auto found = std::find_if(phase.tensors.begin(), phase.tensors.end(),
                                  [&](const model::Tensor& tensor) { return tensor.name == name; });
  assert(found != phase.tensors.end());
  return static_cast<std::size_t>(found - phase.tensors.begin());
}

double operations_of(const model::Phase& phase) {
  double operations = 0;
  for (const model::Call& call : phase.calls) {
    operations += call.problem.kernel().cost(call.problem).flops;
  }
  return operations;
}

Room checked(const Gguf& gguf, const LlamaSizes& sizes, const Room& room) {
  if (room.tokens > sizes.context) {
    throw gguf.bad(fmt::format("{} tokens with the prompt's; allowed are {}, the model's context",
                               room.tokens, sizes.context));
  }
  return room;
}

model::WeightFormat format_of(const LlamaWeights& weights, const RunnerSettings& settings) {
  if (settings.weight_type != nullptr) return nullptr;
  return [&weights](const model::Tensor& weight) { return weights.format_of(weight); };
}

bool counts_rows(std::string_view param) { return param == "m" || param == "rows"; }

bool has_one_row(const model::Call& call) {
  const std::span<const ParamSpec> params = call.problem.kernel().params;
  return std::any_of(params.begin(), params.end(), [&](const ParamSpec& param) {
    return counts_rows(param.name) && call.problem.size(param.name) == 1;
  });
}

// A call but for its rows.
std::string without_rows(const model::Call& call) {
  std::string text = fmt::format("{} {}", call.problem.kernel().name, call.math);
  for (const ParamSpec& param : call.problem.kernel().params) {
    const std::string_view name = param.name;
    if (counts_rows(name) || !call.problem.has(name)) continue;
    text += fmt::format(" {}={}", name, call.problem.value(name));
  }
  return text;
}

// Steps of `verify` are fused as those of `decode` are, and not by what suits more rows: a function
// computed where a product leaves the registers may round otherwise than in a pass of its own.
model::Instance fused_alike(model::Instance instance, const model::Accepts& accepts) {
  model::Instance verify = instance;
  verify.phases.erase(verify.phases.begin(), verify.phases.begin() + verify_phases);
  instance.phases.resize(verify_phases);
  std::set<std::string> accepted;
  instance = model::fused(instance, [&](const model::Call& fused, const model::Call& first) {
    if (!accepts(fused, first)) return false;
    if (has_one_row(fused)) accepted.insert(without_rows(fused));
    return true;
  });
  verify = model::fused(verify, [&](const model::Call& fused, const model::Call&) {
    return accepted.contains(without_rows(fused));
  });
  std::move(verify.phases.begin(), verify.phases.end(), std::back_inserter(instance.phases));
  return instance;
}

// The model with the settings' weights, arithmetic, caches and fused steps.
StoredCaches formed(const model::Instance& plain, const Catalogue& catalogue,
                    const RunnerSettings& settings) {
  const bool converts = settings.weight_type != nullptr && settings.weight_type != &float32;
  model::Instance instance =
      converts ? model::with_products_in(plain, settings.weight_type, "") : plain;
  if (settings.math != "fp32") instance = model::with_math(instance, settings.math);
  if (settings.fuse) {
    model::ChainSettings of_chain;
    of_chain.threads = settings.threads;
    of_chain.isa = settings.isa;
    instance = fused_alike(std::move(instance),
                           model::keeping_variants(catalogue, runner_variants(), of_chain));
  }
  return with_stored_caches(instance, settings.kv_type);
}

LlamaLengths lengths_of(const Room& room, std::int64_t past) {
  const std::int64_t most = room.rows.empty() ? 1 : room.rows.back();
  return {past, room.prompt, room.tokens + most, room.rows};
}

// While they are packed, weights are held twice.
void require_memory(const model::Instance& instance) {
  double bytes = model::memory_bytes(instance);
  for (const model::Tensor& tensor : instance.phases[prefill_phase].tensors) {
    if (tensor.kind == model::Tensor::Kind::weight) bytes += tensor.bytes();
  }
  const std::size_t available = available_memory_bytes();
  if (bytes <= static_cast<double>(available)) return;
  throw unavailable_error(fmt::format("the model needs {} of memory, this machine has {} available",
                                      print_bytes(static_cast<std::size_t>(bytes)),
                                      print_bytes(available)));
}

const model::Instance& fitting(const model::Instance& instance) {
  require_memory(instance);
  return instance;
}

}  // namespace

LanguageModel::LanguageModel(const Gguf& gguf, const Room& room, const Catalogue& catalogue,
                             const RunnerSettings& settings)
    : sizes_(read_llama_sizes(gguf)),
      end_tokens_(generate::end_tokens(gguf, sizes_.vocabulary)),
      weights_(gguf, sizes_),
      room_(checked(gguf, sizes_, room)),
      kv_type_(settings.kv_type),
      plain_(llama_instance(sizes_, lengths_of(room, 0), catalogue.kernels(),
                            format_of(weights_, settings))),
      first_(formed(plain_, catalogue, settings)),
      next_(formed(llama_instance(sizes_, lengths_of(room, 1), catalogue.kernels(),
                                  format_of(weights_, settings)),
                   catalogue, settings)),
      converted_(model::converted_weights(plain_, first_.instance, weights_)),
      memory_(fitting(first_.instance), *converted_, 1, settings.threads),
      prefetch_(settings.threads, machine().l2_bytes / 2),
      pool_(pool_with_idle_work([this](int thread) { return prefetch_.step(thread); })),
      prefill_(memory_, prefill_phase, first_, next_, catalogue, settings, nullptr, pool_.get(),
               nullptr),
      decode_(memory_, decode_phase, first_, next_, catalogue, settings, &prefill_, pool_.get(),
              &prefetch_) {
  for (std::size_t i = 0; i < room.rows.size(); ++i) {
    part_rows(first_, next_, verify_phases + i, memory_, catalogue, settings, prefill_);
    verify_.emplace_back(memory_, verify_phases + i, first_, next_, catalogue, settings, &prefill_,
                         pool_.get(), nullptr);
  }
  drop_packed_weights();
}

void LanguageModel::drop_packed_weights() {
  std::set<std::string> packed, touched;
  const auto add = [&](std::size_t number, const PhaseRunner& runner) {
    const std::vector<model::Tensor>& tensors = first_.instance.phases[number].tensors;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].kind != model::Tensor::Kind::weight) continue;
      (runner.touched().contains(t) ? touched : packed).insert(tensors[t].name);
    }
  };
  add(prefill_phase, prefill_);
  add(decode_phase, decode_);
  for (std::size_t i = 0; i < verify_.size(); ++i) add(verify_phases + i, verify_[i]);
  for (const std::string& name : packed) {
    if (!touched.contains(name)) memory_.drop_weight(name);
  }
}

std::span<const float> LanguageModel::run(std::size_t phase, PhaseRunner& runner,
                                          std::span<const std::int32_t> ids, std::int64_t more) {
  const model::Phase& of = first_.instance.phases[phase];
  const View input = memory_.all_of(phase, tensor_named(of, "ids"));
  std::copy(ids.begin(), ids.end(), input.as<std::int32_t>());
  runner.run(more);
  const View logits = memory_.all_of(phase, tensor_named(of, "logits"));
  return {logits.f32(), static_cast<std::size_t>(logits.elements())};
}

std::span<const float> LanguageModel::prefill(std::span<const std::int32_t> ids,
                                              std::int64_t past) {
  assert(std::ssize(ids) == room_.prompt && past + room_.prompt <= room_.tokens);
  return run(prefill_phase, prefill_, ids, past);
}

std::span<const float> LanguageModel::decode(std::int32_t id, std::int64_t past) {
  assert(past < lengths_of(room_, 0).capacity);
  // In the first instance the prompt lies before the token.
  return run(decode_phase, decode_, {&id, 1}, past - room_.prompt);
}

std::span<const float> LanguageModel::verify(std::span<const std::int32_t> ids, std::int64_t past) {
  const auto rows = std::find(room_.rows.begin(), room_.rows.end(), std::ssize(ids));
  assert(rows != room_.rows.end() && past + *rows <= lengths_of(room_, 0).capacity);
  const auto i = static_cast<std::size_t>(rows - room_.rows.begin());
  return run(verify_phases + i, verify_[i], ids, past - room_.prompt);
}

double LanguageModel::operations(std::size_t phase, std::int64_t more) const {
  const double first = operations_of(first_.instance.phases[phase]);
  const double next = operations_of(next_.instance.phases[phase]);
  return first + (next - first) * static_cast<double>(more);
}

double LanguageModel::prefill_operations(std::int64_t past) const {
  return operations(prefill_phase, past);
}

double LanguageModel::decode_operations(std::int64_t past) const {
  return operations(decode_phase, past - room_.prompt);
}

double LanguageModel::decode_bytes(std::int64_t past) const {
  double bytes = 0;
  for (const model::Tensor& tensor : first_.instance.phases[decode_phase].tensors) {
    // One row of the embedding is read.
    if (tensor.kind == model::Tensor::Kind::weight && tensor.name != "token_embd") {
      bytes += tensor.bytes();
    }
  }
  const std::int64_t row = 2 * sizes_.layers * sizes_.kv_heads * sizes_.head_dim;
  return bytes + static_cast<double>(kv_type_->bytes((past + 1) * row));
}

}  // namespace rooflane::generate
