// Starting workers with the right environment. See worker_pool.hpp.
#include "bench/worker_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "core/error.hpp"
#include "core/machine.hpp"

namespace rooflane {

Variables worker_environment(const Case& c, const CatalogueEntry& entry,
                             const std::vector<int>& cpus) {
  const std::string threads = std::to_string(std::max(1, c.threads));
  Variables environment = {
      {"OMP_NUM_THREADS", threads},      {"OMP_DYNAMIC", "false"},
      {"OPENBLAS_NUM_THREADS", threads}, {"BLIS_NUM_THREADS", threads},
      {"MKL_NUM_THREADS", threads},      {"NUMBA_NUM_THREADS", threads},
      {"NVIDIA_TF32_OVERRIDE", "0"},     {"ONEDNN_DEFAULT_FPMATH_MODE", "STRICT"},
  };
  // How long idle threads spin before they sleep: through a slot, but not far into the next one.
  // OpenBLAS: 2^24 clock ticks, some 7 ms (as shipped the threads of 0.3.31 and 0.3.34 never slept
  // between slots on a Zen 5, and every other worker shared its CPUs with them). OpenMP of Intel
  // and LLVM: 10 ms, as shipped 200.
  for (const auto& [name, value] :
       {std::pair{"OPENBLAS_THREAD_TIMEOUT", "24"}, std::pair{"KMP_BLOCKTIME", "10"}}) {
    if (std::getenv(name) == nullptr) environment.emplace_back(name, value);
  }
  const Backend& backend = *entry.variant->backend;
  // OpenMP binds the first thread when the program is loaded, and threads that others start later
  // (an OpenCL driver, a BLAS library with a pool of its own, a plugin, a Python package) would
  // inherit that one CPU. They get the same CPUs through the process's affinity alone.
  const bool ours = !entry.foreign() || entry.name.find('@') != std::string::npos;
  if (ours && !backend.foreign_threads && entry.variant->threads != Threads::device) {
    std::string places;
    for (const int cpu : cpus) places += fmt::format("{}{{{}}}", places.empty() ? "" : ",", cpu);
    if (!places.empty())
      environment.insert(environment.end(), {{"OMP_PLACES", places}, {"OMP_PROC_BIND", "close"}});
  }
  if (backend.libraries != nullptr) {
    try {
      for (auto& setting : backend.libraries->best_environment(c.library)) {
        environment.push_back(std::move(setting));
      }
    } catch (const Error&) {
      // No such library: the worker says so when it opens the case.
    }
  }
  return environment;
}

std::vector<int> WorkerPool::cpus_for(const Case& c) const {
  std::vector<int> cpus =
      c.placement.empty() ? machine().placement : placed(machine().cpus, c.placement);
  // A whole device other than a CPU leaves the host free.
  if (c.threads > 0 && static_cast<std::size_t>(c.threads) < cpus.size()) cpus.resize(c.threads);
  return cpus;
}

std::string WorkerPool::affinity_of(const Case& c) const {
  return options_.in_process ? "" : fmt::format("{}", fmt::join(cpus_for(c), " "));
}

// A worker of a later repetition is started as the first one was.
void WorkerPool::note(WorkerContext context) {
  if (std::find(contexts_.begin(), contexts_.end(), context) == contexts_.end()) {
    contexts_.push_back(std::move(context));
  }
}

Worker& WorkerPool::worker_for(const Case& c) {
  const CatalogueEntry& entry = entry_of(c, *options_.catalogue);
  // Rooms may give one name to variants of different backends, which need other environments. The
  // cases of a group are open at once, each in a worker of its own.
  const std::string key =
      fmt::format("{} {} {} {} {} {} {}", c.variant, entry.variant->backend->name, c.threads,
                  c.placement, c.library, c.isa, c.tuning.text());
  Kept& kept = workers_[key];
  if (kept.worker == nullptr)
    kept = {start(c), entry.foreign() && c.variant.find('@') == std::string::npos};
  return *kept.worker;
}

void WorkerPool::end_all(bool keep_foreign) {
  std::erase_if(workers_, [&](const auto& item) { return !(keep_foreign && item.second.foreign); });
}

std::unique_ptr<Worker> WorkerPool::start(const Case& c) {
  const CatalogueEntry& entry = entry_of(c, *options_.catalogue);
  if (options_.in_process && !entry.foreign()) {
    note({c.variant, c.threads, {}, {}});
    return local_worker(*options_.catalogue);
  }
  ProcessSettings settings;
  settings.argv = entry.foreign() ? entry.worker : options_.worker_command;
  settings.variant = entry.worker_variant;
  settings.cpus = cpus_for(c);
  settings.environment = worker_environment(c, entry, settings.cpus);
  settings.timeout = std::chrono::duration<double>(options_.timeout);
  settings.memory_bytes = options_.worker_memory_bytes;
  note({c.variant, c.threads, settings.argv, settings.environment});
  return process_worker(std::move(settings));
}

}  // namespace rooflane
