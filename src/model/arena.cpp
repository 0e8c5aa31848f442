// Life times and places of buffers. See arena.hpp.
#include "model/arena.hpp"

#include <algorithm>
#include <numeric>

namespace rooflane::model {
namespace {

// Lines of 64 bytes, as all operands begin on one.
constexpr std::int64_t alignment = 64;

bool live_together(const Life& x, const Life& y) {
  // Both lists rise: walk them side by side.
  for (std::size_t i = 0, j = 0; i < x.spans.size() && j < y.spans.size();) {
    if (x.spans[i].second < y.spans[j].first) {
      ++i;
    } else if (y.spans[j].second < x.spans[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

struct Access {
  std::size_t call;
  bool reads, writes_all;
};

// An operand that is read and written by one call counts as read: its life goes on.
std::vector<std::vector<Access>> accesses_of(const Phase& phase) {
  std::vector<std::vector<Access>> accesses(phase.tensors.size());
  for (std::size_t c = 0; c < phase.calls.size(); ++c) {
    for (const Operand& operand : phase.calls[c].operands) {
      std::vector<Access>& list = accesses[operand.view.tensor];
      const bool reads = is_read(operand.role);
      const bool writes_all = is_written(operand.role) && operand.all;
      if (!list.empty() && list.back().call == c) {
        list.back().reads |= reads;
        list.back().writes_all |= writes_all;
      } else {
        list.push_back({c, reads, writes_all});
      }
    }
  }
  return accesses;
}

}  // namespace

std::vector<Life> lives_of(const Phase& phase) {
  const auto accesses = accesses_of(phase);
  std::vector<Life> lives(phase.tensors.size());
  for (std::size_t t = 0; t < lives.size(); ++t) {
    const Tensor& tensor = phase.tensors[t];
    if (tensor.kind != Tensor::Kind::buffer) continue;
    Life& life = lives[t];
    life.bytes = static_cast<std::int64_t>(tensor.dtype->bytes(tensor.elements()));
    for (const Access& access : accesses[t]) {
      const bool anew = access.writes_all && !access.reads;
      if (life.spans.empty() || anew) life.spans.emplace_back(access.call, access.call);
      life.spans.back().second = access.call;
    }
  }
  return lives;
}

Arena plan_arena(std::span<const Life> lives) {
  Arena arena;
  arena.offsets.assign(lives.size(), -1);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (!lives[i].spans.empty()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return lives[x].bytes > lives[y].bytes; });
  std::vector<std::size_t> placed;  // by rising offset
  for (const std::size_t index : order) {
    std::int64_t offset = 0;
    for (const std::size_t other : placed) {
      if (!live_together(lives[index], lives[other])) continue;
      if (offset + lives[index].bytes <= arena.offsets[other]) break;
      const std::int64_t end = arena.offsets[other] + lives[other].bytes;
      offset = std::max(offset, (end + alignment - 1) / alignment * alignment);
    }
    arena.offsets[index] = offset;
    arena.bytes = std::max(arena.bytes, offset + lives[index].bytes);
    const auto behind = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [&](std::int64_t at, std::size_t other) { return at < arena.offsets[other]; });
    placed.insert(behind, index);
  }
  return arena;
}

std::vector<std::int64_t> live_bytes(std::span<const Life> lives, std::size_t calls) {
  std::vector<std::int64_t> change(calls + 1, 0);
  for (const Life& life : lives) {
    for (const auto& [first, last] : life.spans) {
      change[first] += life.bytes;
      change[last + 1] -= life.bytes;
    }
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

}  // namespace rooflane::model
