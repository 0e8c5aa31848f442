// The workers of a run: one per variant, library, thread count, ISA target and tuning, started with
// the environment it needs and used again for every group.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.hpp"
#include "measure/worker.hpp"

namespace rooflane {

class WorkerPool {
 public:
  explicit WorkerPool(const BenchOptions& options) : options_(options) {}

  // Starts nothing yet: a process starts when its first case is opened. Stays valid
  // until end_all().
  Worker& worker_for(const Case& c);
  // A worker for such cases that belongs to the caller.
  std::unique_ptr<Worker> start(const Case& c);
  // Ends all of them, or all except third-party programs: the next case starts a fresh process,
  // with fresh pages.
  void end_all(bool keep_foreign);
  // CPUs that the case's worker may use; empty: all.
  std::vector<int> cpus_for(const Case& c) const;
  // CPUs that the case's worker is bound to, "0 1"; empty for workers in this process.
  std::string affinity_of(const Case& c) const;
  const std::vector<WorkerContext>& contexts() const { return contexts_; }

 private:
  void note(WorkerContext context);

  const BenchOptions& options_;
  struct Kept {
    std::unique_ptr<Worker> worker;
    bool foreign = false;
  };
  std::map<std::string, Kept> workers_;
  std::vector<WorkerContext> contexts_;
};

// Environment variables with which a worker for this case is started: threads, their places, the
// best core type of a BLAS library, strict float32 for all.
Variables worker_environment(const Case& c, const CatalogueEntry& entry,
                             const std::vector<int>& cpus);

}  // namespace rooflane
