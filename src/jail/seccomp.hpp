// The filter of system calls under which a stranger's code is compiled, loaded and run.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace rooflane::jail {

// A program for seccomp(2); empty on an architecture without a list of calls. `compiles`: for a
// compiler, which starts programs in groups of their own.
std::vector<sock_filter> system_call_filter(bool compiles);

}  // namespace rooflane::jail
