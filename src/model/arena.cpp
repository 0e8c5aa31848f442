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

namespace {

// A life with its place. The members that most comparisons need are adjacent: a model may have
// thousands of lives.
struct Placed {
  std::size_t first, last;  // calls, all spans together
  std::int64_t begin, end;  // bytes
  const Life* life;
};

bool live_together(const Placed& x, const Placed& y) {
  if (x.last < y.first || y.last < x.first) return false;
  const bool no_gaps = x.life->spans.size() == 1 && y.life->spans.size() == 1;
  return no_gaps || live_together(*x.life, *y.life);
}

}  // namespace

Arena plan_arena(std::span<const Life> lives) {
  Arena arena;
  arena.offsets.assign(lives.size(), -1);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (!lives[i].spans.empty()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t x, std::size_t y) { return lives[x].bytes > lives[y].bytes; });
  std::vector<Placed> placed;  // by rising offset
  for (const std::size_t index : order) {
    const Life& life = lives[index];
    Placed mine = {life.spans.front().first, life.spans.back().second, 0, life.bytes, &life};
    for (const Placed& other : placed) {
      if (!live_together(mine, other)) continue;
      if (mine.begin + life.bytes <= other.begin) break;
      const std::int64_t next = (other.end + alignment - 1) / alignment * alignment;
      mine.begin = std::max(mine.begin, next);
    }
    mine.end = mine.begin + life.bytes;
    arena.offsets[index] = mine.begin;
    arena.bytes = std::max(arena.bytes, mine.end);
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), mine.begin,
                         [](std::int64_t at, const Placed& other) { return at < other.begin; });
    placed.insert(behind, mine);
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
