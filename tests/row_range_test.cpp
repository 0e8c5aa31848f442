// The whole range of a type: LayerNorm, RMSNorm and softmax are right wherever the result is a
// number in double precision, in every element type, with a residual, a scale, a mask, by every
// variant, ISA target and tuning. Rungs of ladders and libraries behind a variant make no such
// promise.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "core/seeds.hpp"
#include "tests/row_kernels.hpp"

using namespace rooflane;
using namespace rooflane::test;

namespace {

// Owned memory for all tensors of a problem, in the problem's own formats.
class Tensors {
 public:
  explicit Tensors(const std::string& text) : problem_(make_problem(text)) {
    for (const TensorSpec& spec : problem_.kernel().tensors(problem_)) {
      const Shape shape = tensor_shape(problem_, spec);
      std::int64_t elements = 1;
      for (const std::int64_t length : shape) elements *= length;
      memory_.emplace_back(spec.dtype->bytes(elements));
      operands_.set(spec.name, contiguous_view(memory_.back().data(), shape, spec.dtype));
    }
  }
  const Problem& problem() const { return problem_; }
  const Operands& operands() const { return operands_; }

  template <class Value>
  void fill(const std::string& name, const Value& value) {
    const View& view = operands_.at(name);
    std::vector<double> row(static_cast<std::size_t>(view.cols()));
    for (std::int64_t r = 0; r < view.rows(); ++r) {
      for (std::int64_t j = 0; j < view.cols(); ++j)
        row[j] = static_cast<double>(value(r, j, view.dtype->largest));
      view.dtype->encode(row.data(), view.row(r), view.cols());
    }
  }

 private:
  Problem problem_;
  std::vector<std::vector<std::byte>> memory_;
  Operands operands_;
};

double random(std::int64_t r, std::int64_t j) {
  return static_cast<double>(splitmix64(static_cast<std::uint64_t>(r * 100003 + j)) >> 40) *
             0x1p-23 -
         1;
}

// Kinds of rows. `largest`: the format's.
double element(std::int64_t kind, std::int64_t j, double largest) {
  const bool odd = j % 2 != 0;
  switch (kind) {
    case 0:
      return random(kind, j);  // an ordinary row between the others
    case 1:
      return std::min(1e19, largest);
    case 2:
      return odd ? 1e25 : 1e25 / 2;
    case 3:
      return odd ? 1e35 : -1e35;
    case 4:
      return odd ? 3e38 : 1.5e38;
    case 5:
      return 3e38;
    case 6:
      return j % 7 == 3 ? -largest : largest;
    case 7:
      return 1e-25 * (1 + random(kind, j));
    case 8:
      return 1e-20 * random(kind, j);
    case 9:
      return random(kind, j) * 1e-42;
    case 10:
      return 1e7 + std::round(4 * random(kind, j));
    case 11:
      return random(kind, j) * std::pow(2.0, 120 * random(kind + 50, j));
    case 12:
      return j == 1 ? 3e38 : random(kind, j);
    case 13:
      return random(kind, j) * 1e18;
    case 14:
      return random(kind, j) * largest;
    case 17:
      return 1e25 * (1 + 2e-7 * static_cast<double>(j % 3));  // apart by a unit or two
    default:
      return kind == 15 && j == 2 ? -std::numeric_limits<double>::infinity() : random(kind, j);
  }
}
constexpr std::int64_t kinds = 18;

// The kind of each of 2 · kinds rows: each kind twice, beside different ones.
std::int64_t kind_of(std::int64_t row) { return row < kinds ? row : 5 * row % kinds; }

// What the format can hold of it.
double in_range(double value, double largest) {
  return std::isinf(value) ? value : std::clamp(value, -largest, largest);
}

bool promises(const Variant& variant, const Tuning& tuning) {
  const std::string backend = variant.backend->name;
  return backend != "onednn" && backend != "opencl" && tuning.get("step", -1) < 0;
}

void check_every_way(const Tensors& tensors) {
  const Reference reference = compute_reference(tensors.problem(), tensors.operands(), 1);
  each_way(tensors.problem(), [&](const Variant& variant, const Tuning& tuning,
                                  const Environment& env) {
    if (!promises(variant, tuning)) return;
    run(variant, tensors.problem(), tuning, env, tensors.operands());
    const Verification result = verify_output(tensors.problem(), tensors.operands(), reference, 1);
    CHECK_MESSAGE(result.passed(), result.reason);
  });
}

std::string options(const char* type, bool residual) {
  return std::string(",type=") + type + (residual ? ",residual=1" : "");
}

void check_norm(const std::string& kernel, std::int64_t cols, const std::string& more) {
  Tensors tensors(kernel + ":rows=" + std::to_string(2 * kinds) + ",cols=" + std::to_string(cols) +
                  more);
  tensors.fill("x", [&](std::int64_t r, std::int64_t j, double largest) {
    return in_range(element(kind_of(r), j, largest), largest);
  });
  tensors.fill("gamma",
               [](auto, std::int64_t j, auto) { return std::cos(static_cast<double>(j)); });
  if (kernel == "layernorm") {
    tensors.fill("beta",
                 [](auto, std::int64_t j, auto) { return 0.01 * static_cast<double>(j % 9); });
  }
  if (tensors.operands().has("residual")) {
    tensors.fill("residual", [&](std::int64_t r, std::int64_t j, double largest) {
      const double part = r % 3 == 0 ? 0 : r % 3 == 1 ? 1 : 0.5;
      return in_range(element(kind_of(r), j, largest) * part, largest);
    });
  }
  check_every_way(tensors);
}

}  // namespace

TEST_CASE("LayerNorm and RMSNorm are right over the whole range of their type") {
  for (const char* kernel : {"layernorm", "rmsnorm"}) {
    for (const char* type : {"f32", "bf16", "f16"}) {
      for (const bool residual : {false, true}) {
        for (const char* eps : {"", ",eps=0"}) {
          // Around vectors, batches of short rows and blocks of long ones.
          for (const std::int64_t cols : {1, 2, 3, 4, 7, 8, 16, 19, 64, 100, 130, 1000, 4096}) {
            check_norm(kernel, cols, options(type, residual) + eps);
          }
        }
      }
    }
    check_norm(kernel, 8200, "");
    check_norm(kernel, 70001, "");
  }
}

TEST_CASE("RMSNorm of equal elements is gamma, whatever they are") {
  for (const float value : {1e19f, 1e25f, 1e35f, 1e-25f, 1e-20f, 1e-40f}) {
    Tensors tensors("rmsnorm:rows=3,cols=64,eps=0");
    tensors.fill("x", [&](auto, auto, auto) { return static_cast<double>(value); });
    tensors.fill("gamma", [](auto, std::int64_t j, auto) { return 1 + static_cast<double>(j); });
    each_way(tensors.problem(),
             [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
               if (!promises(variant, tuning)) return;
               run(variant, tensors.problem(), tuning, env, tensors.operands());
               const float* y = tensors.operands().at("y").f32();
               for (std::int64_t j = 0; j < 3 * 64; ++j) {
                 const auto gamma = static_cast<double>(1 + j % 64);
                 CHECK(y[j] == doctest::Approx(gamma).epsilon(4e-7));
               }
             });
  }
}

TEST_CASE("LayerNorm of rows that alternate m and m/2 is 1 and -1, of equal elements beta") {
  for (const float value : {1e10f, 1e20f, 1e30f, 3e38f}) {
    Tensors tensors("layernorm:rows=4,cols=64");
    tensors.fill("x", [&](std::int64_t r, std::int64_t j, auto) {
      return r % 2 == 0 ? static_cast<double>(value) : static_cast<double>(value) / (1 + j % 2);
    });
    tensors.fill("gamma", [](auto, auto, auto) { return 1; });
    tensors.fill("beta", [](auto, auto, auto) { return 0.5; });
    each_way(tensors.problem(),
             [&](const Variant& variant, const Tuning& tuning, const Environment& env) {
               if (!promises(variant, tuning)) return;
               run(variant, tensors.problem(), tuning, env, tensors.operands());
               const float* y = tensors.operands().at("y").f32();
               for (std::int64_t i = 0; i < 4 * 64; ++i) {
                 const double right = i / 64 % 2 == 0 ? 0.5 : i % 2 == 0 ? 1.5 : -0.5;
                 CHECK(y[i] == doctest::Approx(right).epsilon(4e-7));
               }
             });
  }
}

TEST_CASE("softmax is right over the whole range of its type, and where scale leaves it") {
  for (const char* type : {"f32", "bf16", "f16"}) {
    for (const char* options : {"", ",scale=0.3", ",scale=8", ",scale=1e30", ",mask=1,scale=8"}) {
      for (const std::int64_t cols : {1, 2, 5, 16, 40, 100, 1000, 9000}) {
        std::string text = "softmax:rows=" + std::to_string(2 * kinds) +
                           ",cols=" + std::to_string(cols) + options + ",type=" + type;
        const bool masked = text.find("mask") != std::string::npos;
        if (masked) text += ",mask_rows=2";
        Tensors tensors(text);
        tensors.fill("x", [&](std::int64_t r, std::int64_t j, double largest) {
          return in_range(element(kind_of(r), j, largest), largest);
        });
        if (masked) {
          tensors.fill("mask", [](std::int64_t r, std::int64_t j, auto) {
            return j % 5 == 4 ? -infinity : random(r, j);
          });
        }
        check_every_way(tensors);
      }
    }
  }
}
