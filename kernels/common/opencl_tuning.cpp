// See opencl_tuning.hpp.
#include "kernels/common/opencl_tuning.hpp"

#include <fmt/format.h>

namespace rooflane::common {

std::optional<std::string> unmet_need(std::int64_t path, std::initializer_list<Need> needs,
                                      const GroupUse& use, const Device& device) {
  for (const Need& need : needs) {
    if (!need.holds) return fmt::format("path={} needs {}", path, need.what);
  }
  if (use.items > static_cast<std::int64_t>(device.info.max_work_group)) {
    return fmt::format("path={} needs at most {} items in a group on {}, not {}", path,
                       device.info.max_work_group, device.info.name, use.items);
  }
  if (const std::int64_t limit = device.local_limit(use.code_path); use.local_bytes > limit) {
    return fmt::format("path={} needs at most {} bytes of local memory on {}, not {}", path, limit,
                       device.info.name, use.local_bytes);
  }
  return std::nullopt;
}

}  // namespace rooflane::common
