// Verification with extreme inputs: a case with inputs of another distribution
// (core/distribution.hpp), and the small problem that replaces a large one.
#pragma once

#include <string>

#include "measure/reference_file.hpp"
#include "measure/worker.hpp"

namespace rooflane {

// The problem with its largest sizes halved until neither its flops nor its elements exceed `most`.
Problem shrunk(Problem problem, double most);

struct InDistribution {
  std::string left_out;       // why it was not verified; empty: it was
  Verification verification;  // reasons begin with the distribution's name unless it is uniform
};

// Opens the case, with its distribution, verifies and closes it. What fails and calls other
// people's library is INACCURATE: it keeps its rows, which are timed with uniform inputs. Throws
// WorkerError.
InDistribution verify_in_distribution(Worker& worker, const Case& c, ReferenceFile& references);

}  // namespace rooflane
