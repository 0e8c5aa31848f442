// What the tests of softmax and LayerNorm share: a small matrix with strides in guarded memory, and
// a walk over every variant, ISA target, tuning and a few thread counts.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "absent_variants.hpp"
#include "all_threads.hpp"
#include "backends/highway.hpp"
#include "core/catalogue.hpp"
#include "known_reference.hpp"
#include "measure/verify.hpp"

namespace rooflane::test {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// [rows,cols] with `padding` elements between rows, `offset` elements off alignment, guards around.
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, std::int64_t padding = 0, std::int64_t offset = 0)
      : storage_(static_cast<std::size_t>(rows * (cols + padding) + offset + 16 + 2 * kGuard),
                 not_a_number) {
    const Shape shape = {rows, cols};
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) / sizeof(float);
    const auto to_alignment = static_cast<std::int64_t>((16 - address % 16) % 16);
    view_ = contiguous_view(storage_.data() + kGuard + to_alignment + offset, shape);
    view_.strides[0] = cols + padding;
  }
  Matrix(const Matrix&) = delete;  // the view points into the storage
  const View& view() const { return view_; }
  std::int64_t rows() const { return view_.shape[0]; }
  std::int64_t cols() const { return view_.shape[1]; }
  float* row(std::int64_t r) const { return view_.f32() + r * view_.strides[0]; }
  // value(row, col) everywhere.
  void fill(const std::function<float(std::int64_t, std::int64_t)>& value) {
    for (std::int64_t r = 0; r < rows(); ++r) {
      for (std::int64_t j = 0; j < cols(); ++j) row(r)[j] = value(r, j);
    }
  }
  // True while everything outside the rows is NaN, as it was made.
  bool guards_hold() const {
    const float* next = storage_.data();
    const auto untouched = [&](const float* end) {
      return std::all_of(next, end, [](float value) { return std::isnan(value); });
    };
    for (std::int64_t r = 0; r < rows(); next = row(r) + cols(), ++r) {
      if (!untouched(row(r))) return false;
    }
    return untouched(storage_.data() + storage_.size());
  }
  std::vector<float> dense() const {
    std::vector<float> values;
    for (std::int64_t r = 0; r < rows(); ++r) values.insert(values.end(), row(r), row(r) + cols());
    return values;
  }

 private:
  static constexpr std::int64_t kGuard = 32;  // two of the longest vectors
  std::vector<float> storage_;
  View view_;
};

// body(variant, tuning, environment) for every way to run `problem`, rungs of ladders included.
inline void each_way(
    const Problem& problem,
    const std::function<void(const Variant&, const Tuning&, const Environment&)>& body) {
  const Catalogue catalogue = Catalogue::built_in();
  skip_absent(catalogue, problem.kernel());
  for (const CatalogueEntry* entry : catalogue.variants(problem.kernel())) {
    const Variant& variant = *entry->variant;
    const bool highway = variant.backend->name == std::string("highway");
    for (const std::string& isa : highway ? isa_targets() : std::vector<std::string>{""}) {
      Environment env;
      env.isa = isa;
      if (refusal(variant, problem, env)) continue;
      std::vector<Tuning> tunings = variant.tunings(problem, env);
      for (const Tuning& step : step_tunings(variant)) tunings.push_back(step);
      for (const Tuning& tuning : tunings) {
        for (const int threads : {1, 3}) {
          if (threads > 1 && threads_of(variant, tuning) != Threads::many) continue;
          // How threads share rows does not depend on the target: one of them will do.
          if (threads > 1 && highway && isa != isa_targets().front()) continue;
          env.threads = threads;
          INFO(problem.text(), " ", entry->name, " ", isa, " threads=", threads, " ",
               tuning.text());
          body(variant, tuning, env);
        }
      }
    }
  }
}

inline void run(const Variant& variant, const Problem& problem, const Tuning& tuning,
                const Environment& env, const Operands& operands) {
  const auto plan =
      make_plan(variant, problem, on_all_threads(variant, tuning, env), env, operands);
  plan->bind(operands);
  plan->upload();
  plan->run();
  plan->download();
}

inline Problem make_problem(const std::string& text) {
  const Catalogue catalogue = Catalogue::built_in();
  return parse_problem(text, catalogue.kernels());
}

// Compares with the double-precision reference within the kernel's bound, and finds what was
// written beside the output.
// Plain sums of a library behind a variant may lose what they lose.
inline void check_output(const Problem& problem, Operands operands, const Matrix& y,
                         const Variant& variant) {
  operands.set("y", y.view());
  const Reference& reference = known_reference(problem, operands, 1);
  const Verification result = verify_output(problem, operands, reference, 1);
  const bool is_peer = variant.backend->name == std::string("onednn");
  CHECK_MESSAGE((is_peer ? result.usable() : result.passed()), result.reason);
  CHECK(y.guards_hold());
}

// Columns around the vector widths of all targets, around a block of a long row, and primes.
inline const std::vector<std::int64_t> edge_cols = {1,   2,   3,   4,   5,    7,    8,    9,
                                                    15,  16,  17,  31,  33,   61,   64,   67,
                                                    127, 129, 251, 256, 1000, 8191, 8193, 16411};

}  // namespace rooflane::test
