// The distributions of seeded inputs. See distribution.hpp.
#include "distribution.hpp"

#include <algorithm>
#include <cmath>

#include "error.hpp"
#include "kernel.hpp"
#include "seeds.hpp"
#include "text.hpp"

namespace rooflane {
namespace {

std::uint64_t index_of(const SeedDraw& draw, std::int64_t col) {
  return static_cast<std::uint64_t>(draw.row * draw.cols + col);
}

// The element's number in (-1,1), and that of its row.
double unit(const SeedDraw& draw) { return draw.elements.value(index_of(draw, draw.col)); }
double unit_of_row(const SeedDraw& draw) {
  return draw.rows.value(static_cast<std::uint64_t>(draw.row));
}

bool is_even_row(const SeedDraw& draw) { return draw.row % 2 == 0; }

int exponent(const SeedDraw& draw, const SeededStream& stream, std::uint64_t i) {
  return draw.range.low + stream.integer(i, draw.range.high - draw.range.low + 1);
}
int exponent_of_row(const SeedDraw& draw) {
  return exponent(draw, draw.rows, static_cast<std::uint64_t>(draw.row));
}

double uniform_value(const SeedDraw& draw) { return draw.range.scale * unit(draw); }

double wide_value(const SeedDraw& draw) {
  const int power = is_even_row(draw) ? exponent_of_row(draw)
                                      : exponent(draw, draw.exponents, index_of(draw, draw.col));
  return std::ldexp(unit(draw), power);
}

double cancelling_value(const SeedDraw& draw) {
  const SeedRange& range = draw.range;
  if (is_even_row(draw)) return range.scale * (range.far + unit(draw));
  if (draw.col % 2 == 0) return range.scale * range.far * unit(draw);
  const double before = draw.elements.value(index_of(draw, draw.col - 1));
  return range.scale * (unit(draw) - range.far * before);
}

double constant_value(const SeedDraw& draw) {
  return is_even_row(draw) ? draw.range.scale * unit_of_row(draw)
                           : std::ldexp(unit_of_row(draw), exponent_of_row(draw));
}

double outlier_value(const SeedDraw& draw) {
  const std::int64_t place = draw.rows.integer(static_cast<std::uint64_t>(draw.row), draw.cols);
  if (draw.col != place) return uniform_value(draw);
  return draw.range.scale * std::copysign(draw.range.far, unit(draw));
}

double ties_value(const SeedDraw& draw) {
  constexpr int values = 5;
  const int step = draw.exponents.integer(index_of(draw, draw.col), values) - values / 2;
  return draw.range.scale * 0.5 * step;
}

// Mixed with rows of large numbers, so that a product of two operands is not zero.
double denormals_value(const SeedDraw& draw) {
  constexpr int large = 48;
  const int power = is_even_row(draw) ? draw.range.least_normal : std::min(large, draw.range.high);
  return std::ldexp(unit(draw), power);
}

// Equal terms are rounded the same way each time: errors grow like n.
double growth_of_equal_terms(double n) { return std::max(1.0, n / (8 + std::sqrt(n))); }
// Every partial sum is as large as all magnitudes together, not as their root.
double growth_of_large_sums(double) { return 2; }

constexpr Distribution wide = {
    "wide", "rows of every magnitude, and in every other row elements of every magnitude",
    wide_value};
constexpr Distribution cancelling = {
    "cancelling", "rows of numbers that hardly differ, and rows of pairs that nearly cancel",
    cancelling_value, growth_of_large_sums};
constexpr Distribution constant = {"constant",
                                   "rows of one number, in every other row of any magnitude",
                                   constant_value, growth_of_equal_terms};
constexpr Distribution outlier = {"outlier", "uniform, but one element of each row is far larger",
                                  outlier_value, growth_of_large_sums};
constexpr Distribution ties = {"ties", "five different values, zero among them", ties_value};
constexpr Distribution denormals = {
    "denormals", "rows of numbers below the normal ones, between rows of large ones",
    denormals_value};

constexpr const Distribution* all[] = {&uniform, &wide, &cancelling, &constant,
                                       &outlier, &ties, &denormals};

}  // namespace

constexpr Distribution uniform = {"uniform", "between -1 and 1 times the operand's scale",
                                  uniform_value};

std::span<const Distribution* const> all_distributions() { return all; }

const Distribution& distribution_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Distribution* distribution : all) {
    if (distribution->name == name) return *distribution;
    names.emplace_back(distribution->name);
  }
  throw argument_error(unknown_name("distribution", name, names));
}

// With u the relative error of rounding, a format has -log2(u) bits: its smallest number is 2u of
// its least normal one, and 1 is rounded off beside the square of 2^(-log2(u)/2).
SeedRange seed_range(const TensorSpec& tensor) {
  const NumberFormat& format = *tensor.dtype;
  SeedRange range;
  range.scale = tensor.seed_scale;
  // A block's zero is such a number, too, in a format of its own.
  const DType zero = format.quantisation.zero;
  range.largest = zero != nullptr ? std::min(format.largest, zero->largest) : format.largest;
  if (format.is_integer()) return range;
  range.least_normal = std::ilogb(format.smallest / (2 * format.unit_roundoff));
  range.high = std::min(std::ilogb(range.largest) + 1, tensor.reach);
  range.low = std::max(range.least_normal, -tensor.reach);
  const int bits = -std::ilogb(format.unit_roundoff);
  range.far = std::ldexp(1.0, std::min(bits / 2, range.high));
  return range;
}

std::optional<std::string> distribution_defect(const Problem& problem, const Math& math,
                                               const Distribution& distribution) {
  if (&distribution == &uniform) return std::nullopt;
  const Kernel& kernel = problem.kernel();
  const std::vector<TensorSpec> tensors = kernel.tensors(problem);
  const auto any_input = [&](bool (*has)(const TensorSpec&)) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
      return is_read(tensor.role) && has(tensor);
    });
  };
  if (!any_input([](const TensorSpec& tensor) { return !tensor.dtype->is_integer(); })) {
    return "no operand holds real numbers";
  }
  if (!any_input(follows_distributions)) return "results would not fit the output's format";
  if (kernel.distribution_defect == nullptr) return std::nullopt;
  return kernel.distribution_defect(problem, math, distribution);
}

}  // namespace rooflane
