// What a plan of an untrusted backend (Backend::untrusted) is, too: its kernel may be called by
// another process (Plan::call_ns), for which several runs behind one another are one call.
#pragma once

#include <cstdint>

namespace rooflane {

class RunsOften {
 public:
  virtual ~RunsOften() = default;
  virtual void run_often(std::int64_t runs) = 0;
};

}  // namespace rooflane
