// Seconds by activity. See time_use.hpp.
#include "bench/time_use.hpp"

#include <algorithm>

namespace rooflane {

void TimeUse::add(const std::string& what, double seconds) {
  auto found = std::find_if(activities_.begin(), activities_.end(),
                            [&](const Activity& activity) { return activity.what == what; });
  if (found == activities_.end()) {
    activities_.push_back({what});
    found = activities_.end() - 1;
  }
  found->seconds += seconds;
  ++found->steps;
}

}  // namespace rooflane
