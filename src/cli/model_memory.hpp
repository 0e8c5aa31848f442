// Measures a model's memory at each level: a separate process for each level plans and runs the
// model with only that level's variants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/model_arguments.hpp"
#include "cli/model_forms.hpp"
#include "core/catalogue.hpp"
#include "model/chain.hpp"

namespace rooflane {

// When something was done: since the process began, resident bytes then and at the peak so far.
struct MemoryStage {
  std::string name;
  double ns = 0;
  std::int64_t resident = 0, peak = 0;
};

struct LevelMemory {
  std::string level;
  std::vector<MemoryStage> stages;
};

// Processes are copies of this one (fork): before the pool of threads has begun, which a copy would
// wait for in vain, and before much is held.
// Throws Error(unavailable) where a process ends without its figures.
std::vector<LevelMemory> measure_level_memory(const model::Instance& instance,
                                              const model::WeightSource& weights,
                                              const model::ChainSettings& settings,
                                              const Catalogue& catalogue,
                                              const ModelArguments& read,
                                              const std::vector<ModelForm>& forms);

void print_level_memory(const std::vector<LevelMemory>& levels);
// level,stage,ns,resident_bytes,peak_bytes
std::string level_memory_csv(const std::vector<LevelMemory>& levels);

}  // namespace rooflane
