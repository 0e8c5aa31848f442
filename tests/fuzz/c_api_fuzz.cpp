// The C interface: a problem, options and arrays in any shape. What it accepts to bind it computes,
// and touches nothing outside the arrays.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "rooflane/rooflane.h"
#include "tests/fuzz/input_values.hpp"
#include "tests/fuzz/targets.hpp"

namespace rooflane::fuzz {
namespace {

// So that an input takes milliseconds.
constexpr double most_flops = 1e5;
constexpr std::int64_t most_elements = 1 << 16;

// Elements from the first to the last one that shape and strides reach.
double reach(const rooflane_array& array) {
  double last = 0;
  for (int i = 0; i < array.rank; ++i) {
    if (array.shape[i] < 1) return 0;
    last += static_cast<double>(array.shape[i] - 1) * static_cast<double>(array.strides[i]);
  }
  return last + 1;
}

// An array for every tensor, as the problem requires except where the input changes it.
class Arrays {
 public:
  Arrays(const rooflane_parsed* parsed, InputValues& values) {
    rooflane_tensor_info info;
    for (std::size_t i = 0; rooflane_parsed_tensor(parsed, i, &info) == ROOFLANE_OK; ++i) {
      if (info.bytes > 8 * most_elements) return;
      rooflane_array array{.name = info.name,
                           .data = nullptr,
                           .dtype = nullptr,
                           .rank = info.rank,
                           .shape = {},
                           .strides = {}};
      std::copy_n(info.shape, info.rank, array.shape);
      add(array, info, values);
    }
    complete_ = true;
  }
  bool complete() const { return complete_; }
  const rooflane_array* data() const { return arrays_.data(); }
  std::size_t size() const { return arrays_.size(); }

 private:
  void add(rooflane_array array, const rooflane_tensor_info& info, InputValues& values) {
    const std::uint8_t change = values.byte();
    std::size_t bytes = static_cast<std::size_t>(info.bytes);
    if (change > 0 && change < 5) {  // strides, in elements of float32 at most
      for (int i = 0; i < info.rank; ++i) array.strides[i] = values.integer();
      const bool gapless = std::all_of(array.strides, array.strides + info.rank,
                                       [](std::int64_t stride) { return stride == 0; });
      const double elements = reach(array);
      if (!gapless && elements >= 0 && elements < most_elements) {
        const std::int64_t dense = std::max<std::int64_t>(1, product(info));
        bytes = static_cast<std::size_t>(
            (static_cast<std::int64_t>(elements) * info.bytes + dense - 1) / dense);
      } else if (!gapless && elements < 0x1p60) {
        // Legal, but that much memory is not made; farther ones must be refused.
        std::fill_n(array.strides, info.rank, -1);
      }
    } else if (change == 5) {
      array.rank = static_cast<std::int32_t>(values.integer());
    } else if (change == 6) {
      array.shape[0] = values.integer();
    } else if (change == 7) {
      array.dtype = texts_.emplace_back(std::make_unique<std::string>(values.word()))->c_str();
    } else if (change == 8) {
      array.name = texts_.emplace_back(std::make_unique<std::string>(values.word()))->c_str();
    }
    if (change == 9) array.name = nullptr;
    // Exactly so many bytes: the sanitizer catches accesses beyond.
    array.data = memory_.emplace_back(new char[bytes]()).get();
    arrays_.push_back(array);
  }
  static std::int64_t product(const rooflane_tensor_info& info) {
    std::int64_t elements = 1;
    for (int i = 0; i < info.rank; ++i) elements *= info.shape[i];
    return elements;
  }

  bool complete_ = false;
  std::vector<rooflane_array> arrays_;
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

// A function's result and what it says of a failure.
void require_reason(bool failed) {
  if (failed) require(std::strlen(rooflane_last_error()) > 0);
}

void plan_and_run(const rooflane_parsed* parsed, InputValues& values) {
  rooflane_options options;
  rooflane_options_init(&options);
  const std::string variant = values.word(), tuning = values.word(), math = values.word();
  options.variant = variant.empty() ? "scalar" : variant.c_str();
  if (!tuning.empty()) options.tuning = tuning.c_str();
  if (!math.empty()) options.math = math.c_str();
  options.threads = 1 + values.byte() % 2;
  const Arrays arrays(parsed, values);
  if (!arrays.complete()) return;
  rooflane_plan* const plan = rooflane_plan_create(parsed, &options, arrays.data(), arrays.size());
  require_reason(plan == nullptr);
  if (plan == nullptr) return;
  const bool bound = rooflane_plan_bind(plan, arrays.data(), arrays.size()) == ROOFLANE_OK;
  require_reason(!bound);
  const int status = rooflane_plan_run(plan);
  require(bound || status == ROOFLANE_ARGUMENT);
  require(rooflane_plan_fact(plan, "tuning") != nullptr);
  rooflane_plan_destroy(plan);
}

}  // namespace

void c_api_target(std::string_view input) {
  InputValues values(input);
  rooflane_parsed* const parsed = rooflane_parse(values.word().c_str());
  require_reason(parsed == nullptr);
  if (parsed == nullptr) return;
  double flops = 0, bytes = 0;
  require(rooflane_parsed_cost(parsed, &flops, &bytes) == ROOFLANE_OK);
  if (flops <= most_flops) plan_and_run(parsed, values);
  rooflane_parsed_destroy(parsed);
}

}  // namespace rooflane::fuzz
