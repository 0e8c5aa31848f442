// Recorded phases as Chrome trace events, the format that Perfetto (ui.perfetto.dev) and
// chrome://tracing open: "Trace Event Format" (Google, 2016), complete events (ph X) with names of
// processes and threads (ph M). A row is a process, so that rows are shown below each other.
#pragma once

#include <string>

#include "core/phase_recorder.hpp"

namespace rooflane {

class Trace {
 public:
  // A row's events under this name.
  void add(const std::string& name, const PhaseProfile& profile);
  // Replaces the file when complete; throws Error(argument) when it cannot be written.
  void write(const std::string& path) const;

 private:
  void append(const std::string& event);

  std::string events_;
  int processes_ = 0;
};

}  // namespace rooflane
