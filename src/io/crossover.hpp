// The size from which a device beats the CPU, per kernel and family of shapes. Knows rows only;
// bench/shapes/crossover.txt lists the shapes to measure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/summary.hpp"

namespace rooflane {

// One measured size: the fastest PASSED row of each side, at any thread count.
struct CrossoverPoint {
  std::string shape;
  double flops = 0;
  const Row* cpu = nullptr;
  std::optional<double> device_kernel_ns;      // kernel_ns, else p50
  std::optional<double> device_end_to_end_ns;  // upload + run + download
};

struct DeviceSetting {
  std::string kernel, dtype, math, cache, cpu, device;
  auto operator<=>(const DeviceSetting&) const = default;
};

// Every problem that was measured both on a device and on the CPU, by growing size.
struct DeviceComparison {
  DeviceSetting setting;
  std::vector<CrossoverPoint> points;
};

// Shapes of one kernel that differ only in sizes, all of them multiplied by one factor.
struct ShapeFamily {
  std::string name;  // the shape, with * for the sizes that grow: "m=1,n=*,k=*", "m=4*,n=2*,k=*"
  std::vector<std::string> shapes;
};

struct Crossover {
  DeviceSetting setting;
  std::string family;                  // its name
  std::vector<CrossoverPoint> points;  // by growing size
  // The first of `points` from which on the device wins at every larger one. Empty: never.
  std::optional<std::size_t> kernel_from, end_to_end_from;
  bool has_end_to_end = false;  // every point has such a time
};

// Families of at least two shapes. One that lies on several lines counts for that with the most.
std::vector<ShapeFamily> shape_families(const std::vector<std::string>& shapes);

std::vector<DeviceComparison> device_comparisons(std::span<const MeasuredRow> rows);

// The families among the problems of device_comparisons. Rows without threads are a device's; an
// OpenCL device that is a CPU has threads and counts as one. Variants of other builds (V@NAME) are
// left out.
std::vector<Crossover> crossovers(std::span<const MeasuredRow> rows);

// One sentence: how many sizes there are, from which one on the device is faster than the CPU
// end to end, and from which one by its kernel alone.
std::string crossover_sentence(const Crossover& crossover);
// All of them as the end of a summary; in Markdown as bullets. Empty when there is none.
std::string crossover_text(std::span<const MeasuredRow> rows, bool markdown);

}  // namespace rooflane
