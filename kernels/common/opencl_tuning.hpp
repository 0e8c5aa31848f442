// What the rooms with several OpenCL kernels (gemm, attention) share while they choose a tuning:
// tunings as structs, a device with its limits, and needs that a tuning meets or not.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backends/opencl.hpp"
#include "backends/opencl_features.hpp"
#include "core/variant.hpp"

namespace rooflane::common {

// T is a struct of numbers. T::names are the tunables that its members stand for, in their order;
// T::path is the tunable `path`.
template <class T>
using Values = std::array<std::int64_t, std::size(T::names)>;

// What a tuning lacks has the least value that its tunable allows.
template <class T>
T read_tuning(std::span<const Tunable> tunables, const Tuning& tuning) {
  Values<T> values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto tunable = std::ranges::find(tunables, std::string_view(T::names[i]), &Tunable::name);
    values[i] = tuning.get(T::names[i], tunable->least);
  }
  return std::bit_cast<T>(values);
}

// The members from `first` on as a tuning, without `end` and later ones.
template <class T>
Tuning tuning_of(const T& t, std::size_t first = 0, std::size_t end = std::size(T::names)) {
  const auto values = std::bit_cast<Values<T>>(t);
  Tuning tuning = {{"path", T::path}};
  for (std::size_t i = first; i < end; ++i) tuning.set(T::names[i], values[i]);
  return tuning;
}

// A tuning and the time that a model of the device expects, nanoseconds.
struct Guess {
  Tuning tuning;
  double ns;
};
// The expected time of a tuning that only serves checks on this device.
inline constexpr double never_first = 1e30;

// A device, and what its probes found.
struct Device {
  const opencl::DeviceInfo& info;
  const opencl::Features& features;
  explicit Device(int index) : Device(opencl::device(index), opencl::features(index)) {}
  Device(const opencl::DeviceInfo& of, const opencl::Features& found) : info(of), features(found) {}
  // Code path 1 where the device has it.
  std::int64_t best_code_path() const { return features.nvidia_code_path() ? 1 : 0; }
  // Most bytes of local memory that a group on this code path may have: NVIDIA's takes what the
  // probe found, the portable one what the device says.
  std::int64_t local_limit(std::int64_t code_path) const {
    return static_cast<std::int64_t>(code_path == 1 ? features.static_local_bytes
                                                    : info.local_bytes);
  }
  bool is_cpu() const { return info.kind == opencl::DeviceKind::cpu; }
};

// A condition on a tuning, and the words for it.
struct Need {
  bool holds;
  std::string_view what;
};
// What a group takes of the device.
struct GroupUse {
  std::int64_t code_path, items, local_bytes;
};
// "path=P needs …": the first need that does not hold, then whatever the device has too little of.
std::optional<std::string> unmet_need(std::int64_t path, std::initializer_list<Need> needs,
                                      const GroupUse& use, const Device& device);

inline bool is_power_of_two(std::int64_t x) {
  return x > 0 && std::has_single_bit(static_cast<std::uint64_t>(x));
}

}  // namespace rooflane::common
