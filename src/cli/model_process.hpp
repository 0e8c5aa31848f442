// The process that a model runs in: its CPUs, threads and libraries, set before anything is loaded.
#pragma once

#include <string>
#include <vector>

#include "core/catalogue.hpp"

namespace rooflane {

// Starts the program over with the environment of a worker that runs all these variants, on as many
// CPUs as threads. Returns in the program started over, and where `program` is empty.
void enter_model_process(const std::vector<const CatalogueEntry*>& entries, int threads,
                         const std::string& program);

}  // namespace rooflane
