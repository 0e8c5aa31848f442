// Verification with extreme inputs: a case with inputs of another distribution
// (core/distribution.hpp), and the small problem that replaces a large one.
#pragma once

#include <string>

#include "measure/reference_file.hpp"
#include "measure/worker.hpp"

namespace rooflane {

// The problem with its largest sizes halved until neither its flops nor its elements exceed `most`.
Problem shrunk(Problem problem, double most);

// Why the case cannot be verified in its distribution; empty: it can.
std::string reason_not_drawn(Worker& worker, const Case& c);

// A verification of the case: the reason of a failure begins with the distribution's name unless
// that is uniform, and a variant that calls a third-party library is INACCURATE if it fails.
Verification in_distribution(Verification found, const Case& c, const PlanFacts& facts);

struct InDistribution {
  std::string left_out;  // why it was not verified; empty: it was
  Verification verification;
};

// Opens the case, with its distribution, verifies and closes it. Throws WorkerError.
InDistribution verify_in_distribution(Worker& worker, const Case& c, ReferenceFile& references);

}  // namespace rooflane
