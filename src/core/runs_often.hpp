// What a plan of an untrusted backend (Backend::untrusted) is, too: it may have its kernel called by
// another process (Plan::call_ns), and several runs, one right behind the other, take one call.
#pragma once

#include <cstdint>

namespace rooflane {

class RunsOften {
 public:
  virtual ~RunsOften() = default;
  virtual void run_often(std::int64_t runs) = 0;
};

}  // namespace rooflane
