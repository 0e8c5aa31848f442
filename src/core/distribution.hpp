// Distributions of the inputs that a seed gives, one record each: which values of a tensor's range
// are drawn. A kernel says per operand how far they may go (TensorSpec::reach) and which of them
// its contract cannot serve (Kernel::distribution_defect). Integers are always uniform.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dtype.hpp"

namespace rooflane {

class Problem;
class SeededStream;
struct Math;
struct TensorSpec;

// What limits the values of one tensor. A number of (-1,1) times 2^e, e from `low` to `high`, is
// one of its format; times 2^least_normal it is below the normal numbers.
struct SeedRange {
  double scale = 1;  // the tensor's seed_scale
  int low = 0, high = 0;
  int least_normal = 0;
  double far = 1;  // the root of the format's precision: its square swallows what is near 1
  double largest = 0;
};
SeedRange seed_range(const TensorSpec& tensor);

// One element of a tensor, seen as rows of `cols`. The streams are those of the tensor's name, of
// "NAME/row", by row, and of "NAME/exponent", by element.
struct SeedDraw {
  const SeededStream& elements;
  const SeededStream& rows;
  const SeededStream& exponents;
  const SeedRange& range;
  std::int64_t row, col, cols;
};

struct Distribution {
  std::string_view name;
  std::string_view meaning;
  double (*value)(const SeedDraw&);
  // Kernels' bounds let the rounding errors of n terms grow as those of random signs do, like √n.
  // How many times larger they are here. Null: no larger.
  double (*error_growth)(double n) = nullptr;
};

extern const Distribution uniform;                         // the one that is timed
std::span<const Distribution* const> all_distributions();  // uniform first
// Throws Error naming the nearest.
const Distribution& distribution_named(std::string_view name);

// Why the distribution is not drawn for a problem: the kernel's own reason, or that no operand
// follows it. Nothing for uniform.
std::optional<std::string> distribution_defect(const Problem& problem, const Math& math,
                                               const Distribution& distribution);

// What all inputs of a problem follow from. A number alone means uniform ones.
struct InputSeed {
  InputSeed(std::uint64_t of, const Distribution& from = uniform)  // NOLINT(*-explicit-*)
      : number(of), distribution(&from) {}
  std::uint64_t number;
  const Distribution* distribution;
};

}  // namespace rooflane
