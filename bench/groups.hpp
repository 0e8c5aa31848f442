// The suite of a run: its groups and their cases. The cases of a group are measured side by side
// (group_runner.hpp): one problem × math × prepack × thread count × cache mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.hpp"

namespace rooflane {

struct GroupCase {
  Case measured;
  const CatalogueEntry* entry = nullptr;
  std::string name;      // for Google Benchmark: gemm/hwy/m=8,n=8,k=8/threads:2/warm
  std::int64_t row = 0;  // position of its row in the run, from 0
};

struct Group {
  Problem problem;
  std::string preset;
  int threads = 1;
  CacheMode cache = CacheMode::warm;
  std::vector<GroupCase> cases;

  std::string title() const;  // "gemm:m=8,n=8,k=8 threads=2 warm"
};

// The rung of a ladder that does apart what its variant fuses, for `fusion` and not for `ladder`:
// its step, where the variant has one.
inline constexpr std::string_view separate_rung = "separate";
std::optional<std::int64_t> separate_step(const Variant& variant);

// Everything that is measured, in order. Made once a run, from its options: who measures, writes,
// resumes or lists it reads it here.
struct Suite {
  std::vector<Group> groups;  // none without cases

  // All cases, one per row: the row's number is the position.
  std::vector<const GroupCase*> cases() const;
  std::vector<std::string> names() const;  // of the same, for Google Benchmark
};

// The groups problem by problem. A variant with one thread is in the group of 1 thread (or the
// first, when 1 is not asked for), a GPU in the first. With `ladder` and `fusion` a problem has one
// group, named after its largest thread count: rungs are compared across counts. Throws Error
// before anything is measured: unknown names, values out of range, a filter that matches nothing.
Suite make_suite(const BenchOptions& options);

}  // namespace rooflane
