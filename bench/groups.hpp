// Groups: what is measured side by side. One problem × math × prepack × thread count × cache mode;
// the cases of a group take turns (group_runner.hpp).
#pragma once

#include <cstdint>
#include <string>
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

// The groups of a run, problem by problem. A variant with one thread stands in the group of 1
// thread (or the first, when 1 is not asked for), a GPU in the first. With `ladder` a problem has
// one group, named after its largest thread count: rungs are compared across counts. Throws Error
// for what run_bench refuses: unknown names, values out of range, a filter that matches nothing.
std::vector<Group> make_groups(const BenchOptions& options);

}  // namespace rooflane
