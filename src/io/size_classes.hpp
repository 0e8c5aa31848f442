// The answer on the first screen: for each kernel and class of sizes, which variant to use, how far
// it is ahead, its share of the roof, and what to use if it is beaten. Also the figures of every
// variant over a class, which are compared with goals.
//
// The operands of all problems of a class fit in the same plateau of the measured bandwidth (L1,
// L2, L3, memory), which decides more than any single dimension which limit applies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/summary.hpp"
#include "io/table.hpp"

namespace rooflane {

extern const char* const size_principle;  // the above in one line

// The differences of classes other than their label.
struct ClassKey {
  std::string kernel, dtype, math, cache, cpu;
  std::optional<std::int64_t> threads;
  std::string label;  // size: L1 ...; or preset
  auto operator<=>(const ClassKey&) const = default;
};

// A problem in which another variant wins.
struct Instead {
  const SummaryGroup* group = nullptr;
  const Row* row = nullptr;  // the winner's
  std::optional<Ratio>
      faster;  // how many times as fast as the class's variant, which may have no time
};

struct SizeClass {
  ClassKey key;
  std::size_t problems = 0, wins = 0, ties = 0;  // wins and ties of `use`
  std::size_t undecided = 0;  // problems without a verdict, or without a PASSED row
  // The variant that wins or ties in most problems and, over all of them, is not slower than the
  // next; empty: nothing is decided, or none passed.
  std::string use;
  // Geometric means over its problems; times as fast as the fastest other variant, as the best
  // peer.
  std::optional<Ratio> over_next, over_peer;
  std::optional<Ratio> roof;         // share, per cent
  std::optional<double> least_roof;  // per cent
  std::vector<Instead> instead;
};

// In the order of the rows' kernels, then by threads and from L1 to memory; `by_size` false: one
// class per kernel, whatever the size, with an empty label. The groups must outlive them.
std::vector<SizeClass> size_classes(std::span<const SummaryGroup> groups, bool by_size = true);

// A table with a line per class, the principle, and what to use instead where.
std::string terminal_classes(std::span<const SizeClass> classes);
std::string markdown_classes(std::span<const SizeClass> classes);
// One class as a sentence.
std::string class_sentence(const SizeClass& size_class);

// A variant's figures over the problems of one preset, in which its rows were measured.
struct PresetFigures {
  ClassKey key;  // the label is the preset
  std::string variant;
  std::size_t problems = 0;
  // Peer (empty: the best one of each problem) -> geometric mean of times as fast as it.
  std::vector<std::pair<std::string, Ratio>> against;
  std::optional<Ratio> roof;
};
// Figures of variants other than libraries; rows without a preset are left out.
std::vector<PresetFigures> preset_figures(std::span<const SummaryGroup> groups);

}  // namespace rooflane
