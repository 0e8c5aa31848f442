// Environment and CPUs of a model's process. See model_process.hpp.
#include "cli/model_process.hpp"

#include <sched.h>

#include <algorithm>

#include "bench/worker_pool.hpp"
#include "cli/restart.hpp"
#include "core/machine.hpp"

namespace rooflane {
namespace {

// Threads of the process inherit its CPUs. Failing that they run anywhere, which is slower at most.
void keep_on_cpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

void enter_model_process(const std::vector<const CatalogueEntry*>& entries, int threads,
                         const std::string& program) {
  if (program.empty() || is_restarted()) return;
  std::vector<int> cpus = machine().placement;
  if (static_cast<std::size_t>(threads) < cpus.size()) cpus.resize(threads);
  Variables environment;
  for (const CatalogueEntry* entry : entries) {
    Case c;
    c.variant = entry->name;
    c.library = entry->library;
    c.threads = threads;
    for (auto& [name, value] : worker_environment(c, *entry, cpus)) {
      // Places would bind the first thread, from which those of BLAS libraries and drivers inherit.
      if (name == "OMP_PLACES" || name == "OMP_PROC_BIND") continue;
      const bool known =
          std::any_of(environment.begin(), environment.end(),
                      [&wanted = name](const auto& setting) { return setting.first == wanted; });
      if (!known) environment.emplace_back(std::move(name), std::move(value));
    }
  }
  keep_on_cpus(cpus);
  restart(environment, program);
}

}  // namespace rooflane
