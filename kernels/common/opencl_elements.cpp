// The model of how elements are laid over work-items, and the launch. See opencl_elements.hpp.
#include "kernels/common/opencl_elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace rooflane::common {

// CPU devices run the items of a group one after the other: vectors as wide as the registers, one
// an item, so that a group walks through memory in order, and groups of some thousand elements,
// beside which a group's start (about 0.1 µs) is short. Others: 16 bytes an item, neighbours side
// by side; more vectors an item put more loads under way.
std::vector<Tuning> opencl_element_tunings(const Problem&, const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const auto most = static_cast<std::int64_t>(std::min<std::size_t>(info.max_work_group, 1024));
  std::vector<Tuning> list;
  const auto add = [&](std::int64_t v, std::int64_t chunk, std::int64_t items) {
    const Tuning t{{"v", v}, {"chunk", chunk}, {"items", std::min(items, most)}};
    if (std::find(list.begin(), list.end(), t) == list.end()) list.push_back(t);
  };
  if (info.kind == opencl::DeviceKind::cpu) {
    const std::int64_t v = std::clamp(info.vector_floats, 1, 16);
    for (const std::int64_t items : {256, 1024, 64}) add(v, 1, items);
    add(v, 4, 256);
    return list;
  }
  for (const std::int64_t chunk : {2, 1, 4}) add(4, chunk, 256);
  add(4, 1, 1024);
  add(4, 4, 128);
  return list;
}

std::optional<std::string> opencl_element_defect(const Problem&, const Tuning& t,
                                                 const Environment& env) {
  const opencl::DeviceInfo& info = opencl::device(env.device);
  const bool is_power = std::has_single_bit(static_cast<std::uint64_t>(t.get("v", 1)));
  if (is_power && static_cast<std::size_t>(t.get("items", 1)) <= info.max_work_group) {
    return std::nullopt;
  }
  return fmt::format("v must be a power of two and items at most {} on {}", info.max_work_group,
                     info.name);
}

std::string OpenclElementsPlan::macros() {
  const DType type = problem().dtype("type");
  std::string text = opencl::defines(tuning());
  if (type == &float16) text += " -DFLOAT16";
  if (type == &bfloat16) text += " -DBFLOAT16";
  return text;
}

opencl::Launch OpenclElementsPlan::launch_size(std::int64_t elements) {
  const std::int64_t items = tuning().get("items", 1);
  const std::int64_t of_group = items * tuning().get("chunk", 1) * tuning().get("v", 1);
  return {static_cast<std::size_t>((elements + of_group - 1) / of_group),
          static_cast<std::size_t>(items)};
}

}  // namespace rooflane::common
