// A second interface of the plans of an untrusted backend (Backend::untrusted). Their kernel may
// run in another process (Plan::call_ns), and one call to that process may ask for several runs.
#pragma once

#include <cstdint>

namespace rooflane {

class RunsOften {
 public:
  virtual ~RunsOften() = default;
  virtual void run_often(std::int64_t runs) = 0;
  // How far such calls lay from Plan::call_ns, in the middle, when it was measured last.
  virtual double call_spread_ns() const { return 0; }
};

}  // namespace rooflane
