// What a worker of anybody's code tells of the runs before which it changed an input ("changes" of
// worker.hpp), compared with the reference. The worker is trusted to tell the truth: it is ours,
// and the function in it is not malicious but may be wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "measure/case.hpp"
#include "measure/verify.hpp"

namespace rooflane {

class ChangedRuns {
 public:
  explicit ChangedRuns(const Case& c);

  // Why the runs of one sample are wrong, beginning with "replay: " where a result was kept; empty:
  // they are right. Throws nlohmann::json::exception for what is no such list.
  std::string defect(const nlohmann::json& changes);

 private:
  Case case_;
  OwnedOperands operands_;
};

}  // namespace rooflane
