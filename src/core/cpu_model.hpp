// The name of a CPU, from Linux's /proc/cpuinfo.
#pragma once

#include <istream>
#include <string>

namespace rooflane {

// x86's "model name", or ARM's "CPU implementer" and "CPU part" by the names of the cores that
// servers and desktops have, the last one where there are several (big ones come after little
// ones); numbers where the part is not known, and else a board's "Model".
std::string cpu_model(std::istream& cpuinfo);

}  // namespace rooflane
