// See stored_cache.hpp.
#include "generate/stored_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "core/error.hpp"
#include "core/float16.hpp"
#include "core/parallel.hpp"
#include "model/rewrite.hpp"

namespace rooflane::generate {
namespace {

using model::Call;
using model::Operand;
using model::Phase;
using model::Strided;
using model::Tensor;

bool is_attention(const Call& call) {
  return std::string_view(call.problem.kernel().name) == "attention";
}

std::set<std::string> caches_of(const model::Instance& instance) {
  std::set<std::string> names;
  for (const Phase& phase : instance.phases) {
    for (const Call& call : phase.calls) {
      if (!is_attention(call)) continue;
      for (const char* const name : {"k", "v"}) {
        const Tensor& tensor = phase.tensors[model::find_operand(call, name)->view.tensor];
        if (tensor.kind == Tensor::Kind::state) names.insert(tensor.name);
      }
    }
  }
  return names;
}

// A view within `region` of a cache as one of a tensor that holds that region alone.
Strided within(const Strided& view, const Strided& region, std::size_t tensor) {
  const Strided whole = model::whole(tensor, region.shape);
  const auto moved = [&](std::int64_t distance) {
    std::int64_t result = 0;
    for (std::size_t axis = 0; axis < region.shape.size(); ++axis) {
      if (region.shape[axis] == 1 && axis + 1 < region.shape.size()) continue;
      result += distance / region.strides[axis] * whole.strides[axis];
      distance %= region.strides[axis];
    }
    return result;
  };
  Strided result = view;
  result.tensor = tensor;
  result.offset = moved(view.offset - region.offset);
  for (std::int64_t& stride : result.strides) stride = moved(stride);
  return result;
}

// One phase. Its caches already have another format.
class Rewriter {
 public:
  Rewriter(Phase& phase, const std::set<std::string>& caches) : phase_(phase), caches_(caches) {}

  std::vector<CacheStore> run() {
    for (std::size_t c = 0; c < phase_.calls.size(); ++c) {
      Call& call = phase_.calls[c];
      if (is_attention(call)) {
        flush();
        call = with_formats(call);
      } else {
        redirect(c, call);
      }
    }
    flush();
    return std::move(stores_);
  }

 private:
  bool is_cache(std::size_t tensor) const { return caches_.contains(phase_.tensors[tensor].name); }

  // The call with the parameters that its tensors' formats ask for.
  Call with_formats(const Call& call) const {
    Call made = model::call_of(call.problem, model::views_of(call), phase_.tensors);
    made.step = call.step;
    made.math = call.math;
    return made;
  }

  void redirect(std::size_t c, Call& call) {
    for (Operand& operand : call.operands) {
      if (!is_cache(operand.view.tensor)) continue;
      if (!pending_) {
        if (!is_written(operand.role)) throw argument_error("a cache is read before attention");
        // The first call that writes says what is new.
        pending_ = CacheStore{c, {}, operand.view};
        pending_->from = model::whole(buffer_like(operand.view), operand.view.shape);
      }
      operand.view = within(operand.view, pending_->to, pending_->from.tensor);
      operand.all = operand.view.elements() == pending_->from.elements();
      pending_->call = c;
    }
  }

  // One for all layers that write as much.
  std::size_t buffer_like(const Strided& view) {
    const std::string name = "cache.new";
    for (std::size_t t = 0; t < phase_.tensors.size(); ++t) {
      if (phase_.tensors[t].name == name && phase_.tensors[t].shape == view.shape) return t;
    }
    Tensor buffer;
    buffer.name = name;
    buffer.shape = view.shape;
    phase_.tensors.push_back(std::move(buffer));
    return phase_.tensors.size() - 1;
  }

  void flush() {
    if (pending_) stores_.push_back(*pending_);
    pending_.reset();
  }

  Phase& phase_;
  const std::set<std::string>& caches_;
  std::optional<CacheStore> pending_;
  std::vector<CacheStore> stores_;
};

}  // namespace

StoredCaches with_stored_caches(const model::Instance& instance, DType dtype) {
  StoredCaches result{instance, {}};
  result.stores.resize(instance.phases.size());
  if (dtype == &float32) return result;
  const std::set<std::string> caches = caches_of(instance);
  for (std::size_t p = 0; p < instance.phases.size(); ++p) {
    Phase& phase = result.instance.phases[p];
    for (Tensor& tensor : phase.tensors) {
      if (!caches.contains(tensor.name)) continue;
      if (tensor.shape.back() % dtype->block != 0) {
        throw argument_error(fmt::format("heads of {} elements: {} needs a multiple of {}",
                                         tensor.shape.back(), dtype->short_name, dtype->block));
      }
      tensor.dtype = dtype;
    }
    result.stores[p] = Rewriter(phase, caches).run();
  }
  return result;
}

namespace {

void store_q8(const float* from, std::byte* to, std::int64_t count) {
  constexpr std::int64_t block = 32;
  for (std::int64_t at = 0; at < count; at += block, from += block) {
    float largest = 0;
    for (std::int64_t i = 0; i < block; ++i) largest = std::max(largest, std::abs(from[i]));
    const Float16 scale(largest / 127);
    const float value = static_cast<float>(scale);
    const float inverse = value > 0 ? 1 / value : 0;
    std::memcpy(to, &scale.bits, sizeof scale.bits);
    to += sizeof scale.bits;
    // 1.5·2^23 leaves no bits behind the point: adding it rounds to nearest, ties to even.
    constexpr float shift = 0x1.8p23f;
    for (std::int64_t i = 0; i < block; ++i) {
      const float number = std::clamp(from[i] * inverse, -127.0F, 127.0F);
      const auto bits = std::bit_cast<std::uint32_t>(number + shift);
      to[i] = static_cast<std::byte>(bits);
    }
    to += block;
  }
}

void store_row(const float* from, std::byte* to, std::int64_t count, DType dtype) {
  if (dtype == &q8_0) {
    store_q8(from, to, count);
  } else if (dtype == &bfloat16) {
    std::transform(from, from + count, reinterpret_cast<BFloat16*>(to),
                   [](float value) { return BFloat16(value); });
  } else {
    std::transform(from, from + count, reinterpret_cast<Float16*>(to),
                   [](float value) { return Float16(value); });
  }
}

}  // namespace

void store_rows(const View& from, const View& to, Pool* pool, int threads) {
  constexpr std::int64_t least_elements = 16384;  // some microseconds
  const std::int64_t rows = from.rows(), cols = from.cols();
  const std::int64_t share =
      std::max<std::int64_t>(least_elements / std::max<std::int64_t>(cols, 1), 1);
  parallel_for(pool, threads, (rows + share - 1) / share, [&](std::int64_t task, int) {
    for (std::int64_t row = task * share; row < std::min(rows, (task + 1) * share); ++row) {
      store_row(reinterpret_cast<const float*>(from.row(row)), to.row(row), cols, to.dtype);
    }
  });
}

}  // namespace rooflane::generate
