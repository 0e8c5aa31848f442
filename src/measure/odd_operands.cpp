// See odd_operands.hpp.
#include "measure/odd_operands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/variant.hpp"

namespace rooflane {

namespace {

// A copy of operands, one element further than a buffer's beginning, `gap` elements behind each
// row. What lies between and around is all ones.
class Displaced {
 public:
  Displaced(const Problem& problem, const OwnedOperands& from, std::int64_t gap) : gap_(gap) {
    for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
      const View& view = from.all().at(tensor.name);
      const bool fixed = tensor.role == Role::constant || tensor.dtype->block > 1 || view.empty();
      operands_.set(tensor.name, fixed ? view : copy(view));
      if (!fixed && is_written(tensor.role)) outputs_.push_back({tensor.name, buffers_.size() - 1});
    }
  }

  const Operands& operands() const { return operands_; }

  // Copies the outputs to where they came from. False where something else was written.
  bool give_back(const Operands& to) const {
    bool intact = true;
    for (const auto& [name, number] : outputs_) {
      const View& view = operands_.at(name);
      const std::size_t row_bytes = view.dtype->bytes(view.cols());
      const auto* const begin = static_cast<const std::byte*>(buffers_[number].data());
      const std::byte* expected = begin;  // where the next byte lies that nobody may write
      const auto check_until = [&](const std::byte* end) {
        intact = intact && std::all_of(expected, end, [](std::byte b) { return b == ones; });
      };
      for (std::int64_t row = 0; row < view.rows(); ++row) {
        check_until(view.row(row));
        std::memcpy(to.at(name).row(row), view.row(row), row_bytes);
        expected = view.row(row) + row_bytes;
      }
      check_until(begin + buffers_[number].bytes());
    }
    return intact;
  }

 private:
  static constexpr std::byte ones{0xff};
  static constexpr std::int64_t behind = 16;  // elements behind the last row

  View copy(const View& from) {
    View view = from;
    const std::int64_t pitch = from.cols() + (from.rank > 1 ? gap_ : 0);
    Buffer& buffer = buffers_.emplace_back(from.dtype->bytes(1 + from.rows() * pitch + behind));
    std::memset(buffer.data(), 0xff, buffer.bytes());
    view.data = static_cast<std::byte*>(buffer.data()) + from.dtype->bytes(1);
    for (int axis = from.rank - 2; axis >= 0; --axis) {
      const auto at = static_cast<std::size_t>(axis);
      view.strides[at] = axis == from.rank - 2 ? pitch : view.strides[at + 1] * view.shape[at + 1];
    }
    for (std::int64_t row = 0; row < from.rows(); ++row) {
      std::memcpy(view.row(row), from.row(row), from.dtype->bytes(from.cols()));
    }
    return view;
  }

  struct Output {
    std::string name;
    std::size_t buffer;
  };
  std::int64_t gap_;
  std::vector<Buffer> buffers_;
  std::vector<Output> outputs_;
  Operands operands_;
};

std::string defect_of_displaced(Plan& plan, OwnedOperands& operands, const Reference& reference,
                                const Case& c, std::int64_t gap) {
  operands.poison_output();
  const Displaced displaced(c.problem, operands, gap);
  try {
    plan.bind(displaced.operands());
  } catch (const Error&) {
    if (gap == 0) throw;
    plan.bind(operands.all());
    return {};
  }
  plan.run();
  const bool intact = displaced.give_back(operands.all());
  plan.bind(operands.all());
  if (!intact) return "the run wrote outside the output";
  const Verification found =
      verify_output(c.problem, operands.all(), reference, c.inputs(), c.math_record());
  return found.usable() ? "" : found.reason;
}

// One element of an input becomes `value`: the outputs must be what the reference then has.
std::string defect_of_value(Plan& plan, OwnedOperands& operands, const Case& c,
                            const TensorSpec& input, double value) {
  const View& view = operands.inputs().at(input.name);
  const std::int64_t row = view.rows() / 2, col = view.cols() / 3;
  std::byte* const place = view.row(row) + view.dtype->bytes(col);
  std::array<std::byte, sizeof(double)> before;
  const std::size_t bytes = view.dtype->bytes(1);
  std::memcpy(before.data(), place, bytes);
  operands.poison_output();
  plan.run();
  const std::uint64_t hash_before = operands.output_hash();
  view.dtype->encode(&value, place, 1);
  operands.poison_output();
  plan.run();
  std::string wrong;
  for (const TensorSpec& tensor : c.problem.kernel().tensors(c.problem)) {
    if (!is_written(tensor.role) || !wrong.empty()) continue;
    const View& output = operands.all().at(tensor.name);
    Region all;
    all.rows.resize(static_cast<std::size_t>(output.rows()));
    all.cols.resize(static_cast<std::size_t>(output.cols()));
    std::iota(all.rows.begin(), all.rows.end(), 0);
    std::iota(all.cols.begin(), all.cols.end(), 0);
    const std::span<const std::byte> stored = {static_cast<const std::byte*>(output.data),
                                               output.dtype->bytes(output.elements())};
    if (!right_elements(c.problem, operands.inputs(), c.inputs(), c.math_record(), tensor,
                        std::move(all), stored)) {
      wrong = fmt::format("{} is wrong where {}[{},{}] is {:g}", tensor.name, input.name, row, col,
                          value);
    }
  }
  std::memcpy(place, before.data(), bytes);
  if (wrong.empty()) return wrong;
  const bool kept = operands.output_hash() == hash_before;
  return (kept ? "replay: the outputs did not follow, " : "easy-inputs: ") + wrong;
}

}  // namespace

std::string defect_on_odd_operands(Plan& plan, OwnedOperands& operands, const Reference& reference,
                                   const Case& c) {
  if (operands.output().empty()) return {};
  std::string defect = defect_of_displaced(plan, operands, reference, c, 0);
  if (!defect.empty()) return "operands that no vector's boundary aligns: " + defect;
  constexpr std::int64_t gap = 3;
  defect = defect_of_displaced(plan, operands, reference, c, gap);
  if (!defect.empty()) return "rows with gaps between them: " + defect;
  constexpr double most_flops = 2e6;  // the reference computes it three times an input
  if (c.problem.kernel().cost(c.problem).flops > most_flops) return {};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const TensorSpec& input : c.problem.kernel().tensors(c.problem)) {
    const bool real = input.role == Role::input && !input.dtype->is_integer() &&
                      input.dtype->block <= 1 && !operands.inputs().at(input.name).empty();
    if (!real) continue;
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
      defect = defect_of_value(plan, operands, c, input, value);
      if (!defect.empty()) return defect;
    }
  }
  return {};
}

}  // namespace rooflane
