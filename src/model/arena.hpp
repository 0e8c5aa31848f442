// Where a model's buffers lie: one arena, in which two buffers share memory when they are never
// needed at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/instance.hpp"

namespace rooflane::model {

// When a buffer holds something that is still needed: first and last call of each period.
struct Life {
  std::int64_t bytes = 0;
  std::vector<std::pair<std::size_t, std::size_t>> spans;
};

// The life of every tensor of the phase; only buffers have spans. A span ends with the last reader
// before a call that overwrites every element.
std::vector<Life> lives_of(const Phase& phase);

struct Arena {
  std::int64_t bytes = 0;
  std::vector<std::int64_t> offsets;  // of each life; -1: it has none
};

// Greedy by size: the largest first, each at the lowest place that is free during its life
// (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
Arena plan_arena(std::span<const Life> lives);

// Bytes that are needed during each call; the largest is the least that any arena must have.
std::vector<std::int64_t> live_bytes(std::span<const Life> lives, std::size_t calls);

}  // namespace rooflane::model
