// Allocation and filling. See memory.hpp.
#include "model/memory.hpp"

#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/parallel.hpp"

namespace rooflane::model {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::uintptr_t page_bytes = 4096;  // where pages are larger, fewer go back

bool is_shared(const Tensor& tensor) {
  return tensor.kind == Tensor::Kind::weight || tensor.kind == Tensor::Kind::state;
}

std::size_t bytes_of(const Tensor& tensor) { return tensor.dtype->bytes(tensor.elements()); }

std::int64_t arena_of(const Phase& phase) { return plan_arena(lives_of(phase)).bytes; }

// NaN in every float format; by the threads that will use it, so that they place the pages.
void fill_with_ones(void* data, std::size_t bytes, int threads) {
  constexpr std::int64_t chunk = 1 << 20;
  const auto count = static_cast<std::int64_t>(bytes);
  parallel_for(nullptr, threads, (count + chunk - 1) / chunk, [&](std::int64_t task, int) {
    const std::int64_t first = task * chunk;
    std::memset(static_cast<std::byte*>(data) + first, 0xFF,
                static_cast<std::size_t>(std::min(chunk, count - first)));
  });
}

}  // namespace

double memory_bytes(const Instance& instance) {
  double bytes = 0, arena = 0;
  std::map<std::string, bool> counted;
  for (const Phase& phase : instance.phases) {
    for (const Tensor& tensor : phase.tensors) {
      if (tensor.kind == Tensor::Kind::buffer) continue;
      if (is_shared(tensor) && !counted.emplace(tensor.name, true).second) continue;
      bytes += tensor.bytes();
    }
    arena = std::max(arena, static_cast<double>(arena_of(phase)));
  }
  return bytes + arena;
}

Memory::Memory(const Instance& instance, const WeightSource& weights, std::uint64_t seed,
               int threads)
    : instance_(instance), weights_(weights), seed_(seed), threads_(threads) {
  require_weights(instance, weights);
  std::int64_t bytes = 0;
  for (const Phase& phase : instance.phases) {
    const Arena arena = plan_arena(lives_of(phase));
    offsets_.push_back(arena.offsets);
    bytes = std::max(bytes, arena.bytes);
  }
  arena_ = Buffer(static_cast<std::size_t>(bytes));
  fill_with_ones(arena_.data(), arena_.bytes(), threads);
  plan_shared();
  for (std::size_t phase = 0; phase < instance.phases.size(); ++phase) fill(phase);
}

// One after another, so that small ones lie in huge pages too: read from memory, a matrix of 1.3 MB
// in pages of its own takes 1.1 times as long.
void Memory::plan_shared() {
  std::size_t end = 0;
  for (const Phase& phase : instance_.phases) {
    for (const Tensor& tensor : phase.tensors) {
      if (!is_shared(tensor)) continue;
      const auto [place, is_new] = shared_.try_emplace(tensor.name);
      if (!is_new) continue;
      place->second = {end, bytes_of(tensor), tensor.kind};
      end += (place->second.bytes + line_bytes - 1) / line_bytes * line_bytes;
    }
  }
  block_ = Buffer(end);
}

void Memory::fill(std::size_t phase) {
  data_.emplace_back();
  for (std::size_t t = 0; t < instance_.phases[phase].tensors.size(); ++t) {
    data_.back().push_back(place(instance_.phases[phase].tensors[t], offsets_[phase][t]));
  }
}

// Where a tensor lies, and its first values.
void* Memory::place(const Tensor& tensor, std::int64_t offset) {
  const std::size_t bytes = bytes_of(tensor);
  if (tensor.kind == Tensor::Kind::buffer) {
    return offset < 0 ? nullptr : static_cast<std::byte*>(arena_.data()) + offset;
  }
  if (is_shared(tensor)) return place_shared(tensor);
  void* const data = own_.emplace_back(bytes).data();
  other_bytes_ += static_cast<std::int64_t>(bytes);
  if (tensor.kind == Tensor::Kind::input) {
    fill_from_seed(tensor, instance_.model, seed_, data, threads_);
  } else {
    fill_with_ones(data, bytes, threads_);
  }
  return data;
}

void* Memory::place_shared(const Tensor& tensor) {
  Shared& place = shared_.at(tensor.name);
  void* const data = static_cast<std::byte*>(block_.data()) + place.offset;
  if (std::exchange(place.filled, true)) return data;
  if (tensor.kind == Tensor::Kind::weight) {
    weights_.read(tensor, data);
  } else {
    fill_from_seed(tensor, instance_.model, seed_, data, threads_);
    other_bytes_ += static_cast<std::int64_t>(place.bytes);
  }
  return data;
}

void Memory::reset_states() {
  for (const Phase& phase : instance_.phases) {
    for (const Tensor& tensor : phase.tensors) {
      if (tensor.kind != Tensor::Kind::state) continue;
      fill_from_seed(tensor, instance_.model, seed_,
                     static_cast<std::byte*>(block_.data()) + shared_.at(tensor.name).offset,
                     threads_);
    }
  }
}

View Memory::view(std::size_t phase, const Strided& strided) const {
  const Tensor& tensor = instance_.phases[phase].tensors[strided.tensor];
  View view;
  view.dtype = tensor.dtype;
  view.rank = static_cast<int>(strided.shape.size());
  std::copy(strided.shape.begin(), strided.shape.end(), view.shape.begin());
  std::copy(strided.strides.begin(), strided.strides.end(), view.strides.begin());
  auto* const data = static_cast<std::byte*>(data_[phase][strided.tensor]);
  view.data = data == nullptr ? nullptr : data + tensor.dtype->bytes(strided.offset);
  return view;
}

View Memory::all_of(std::size_t phase, std::size_t tensor) const {
  return view(phase, whole(tensor, instance_.phases[phase].tensors[tensor].shape));
}

void Memory::drop_weight(const std::string& name) {
  Shared& place = shared_.at(name);
  if (place.bytes == 0) return;  // where it begins another one may begin
  void* const begin = static_cast<std::byte*>(block_.data()) + place.offset;
  for (std::size_t phase = 0; phase < data_.size(); ++phase) {
    for (void*& data : data_[phase]) {
      if (data == begin) data = nullptr;
    }
  }
  // The pages that hold nothing else go back; where the system keeps them nothing changes.
  const auto round_up = [](std::uintptr_t x) { return (x + page_bytes - 1) / page_bytes; };
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = round_up(from);
  const std::uintptr_t end = (from + place.bytes) / page_bytes;
  if (first < end) {
    madvise(reinterpret_cast<void*>(first * page_bytes), (end - first) * page_bytes, MADV_DONTNEED);
  }
  place.bytes = 0;
}

std::int64_t Memory::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, place] : shared_) {
    if (place.kind == Tensor::Kind::weight) bytes += static_cast<std::int64_t>(place.bytes);
  }
  return bytes;
}

}  // namespace rooflane::model
