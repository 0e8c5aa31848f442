// A worker of foreign code changes an input before some runs and reports their results ("changes"
// of worker.hpp); this compares them with the reference. The reports are trusted: the worker is
// ours, and the function in it is not malicious but may be wrong.
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
  // they are right. Throws nlohmann::json::exception for anything but such a list.
  std::string defect(const nlohmann::json& changes);

 private:
  Case case_;
  OwnedOperands operands_;
};

}  // namespace rooflane
