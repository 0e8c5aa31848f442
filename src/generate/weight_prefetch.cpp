// See weight_prefetch.hpp.
#include "generate/weight_prefetch.hpp"

#include <algorithm>

namespace rooflane::generate {

namespace {

constexpr std::size_t line = 64;
// A step takes less than starting a region may wait: a thread's requests beyond those that its core
// holds at once wait for memory.
constexpr std::size_t step_bytes = 8 * line;

}  // namespace

std::size_t WeightPrefetch::add(std::span<const std::byte> matrix) {
  const std::size_t before = parts_.empty() ? 0 : parts_.back().before + parts_.back().bytes;
  parts_.push_back({matrix.data(), matrix.size() / static_cast<std::size_t>(threads_), before});
  return parts_.size() - 1;
}

bool WeightPrefetch::step(int thread) {
  const auto number = static_cast<std::size_t>(thread);
  const std::size_t next = next_.load(std::memory_order_acquire);
  if (next == none || number >= cursors_.size()) return false;
  Cursor& cursor = cursors_[number];
  const std::size_t read = parts_[next].before;
  if (next != cursor.next) {
    if (next < cursor.next || cursor.at < read) cursor.at = read, cursor.part = next;
    cursor.next = next;
  }
  const Part& last = parts_.back();
  if (cursor.at >= std::min(read + ahead_, last.before + last.bytes)) return false;
  while (cursor.at >= parts_[cursor.part].before + parts_[cursor.part].bytes) ++cursor.part;
  const Part& part = parts_[cursor.part];
  const std::size_t offset = cursor.at - part.before;
  const std::size_t bytes = std::min(step_bytes, part.bytes - offset);
  const std::byte* const from = part.begin + number * part.bytes + offset;
  for (std::size_t at = 0; at < bytes; at += line) __builtin_prefetch(from + at, 0, 2);
  cursor.at += bytes;
  return true;
}

}  // namespace rooflane::generate
