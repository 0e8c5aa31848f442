// A problem: a kernel with its sizes and flags, and its one text form
// `gemm:m=512,n=512,k=512[,batch=1,...]`. Ranges in a shape expand to several problems.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtype.hpp"

namespace rooflane {

struct Kernel;
class Problem;

// chain: words joined by +, each at most once, in an order that matters; `none` is the empty one.
enum class ParamKind { size, flag, real, choice, chain };

// One parameter of a kernel, in the order in which problems are printed.
struct ParamSpec {
  const char* name;
  ParamKind kind;
  bool required = false;
  double default_value = 0;
  std::int64_t least = 0;  // smallest allowed value of a size
  // A default that depends on other parameters (kv_heads = heads); overrides default_value.
  double (*default_from)(const Problem&) = nullptr;
  bool always_printed = false;
  // The options of a choice, the default first: number formats by their short names, or words. A
  // chain's words, at most 13.
  std::span<const DType> dtypes = {};
  std::span<const std::string_view> words = {};
};

std::vector<std::string> choices_of(const ParamSpec& param);
// A value as it is written in a shape: "512", "0.5", "bf16", "bias+gelu".
std::string print_value(const ParamSpec& param, double value);

class Problem {
 public:
  Problem() = default;
  // Every parameter unset. For building one up from arrays; use parse_problem otherwise.
  explicit Problem(const Kernel& kernel);

  const Kernel& kernel() const { return *kernel_; }
  bool has(std::string_view name) const;  // set explicitly
  // The value or its default: for a choice its place in the list, for a chain a number that encodes
  // it, 0 for the empty one. Sizes are exact up to 2^53. Throws Error for an unknown name or an
  // unset required parameter.
  double value(std::string_view name) const;
  std::int64_t size(std::string_view name) const;
  bool flag(std::string_view name) const;
  // A choice's text, and the number format of a choice between formats.
  std::string choice(std::string_view name) const;
  DType dtype(std::string_view name) const;
  // The places of a chain's words in the list, in its order.
  std::vector<std::size_t> chain(std::string_view name) const;
  // Checks kind and range of this one parameter; throws Error naming it and the nearest name.
  void set(std::string_view name, std::string_view text);
  void set(std::string_view name, double value);
  // All required parameters set, kernel-wide constraints hold, byte counts do not overflow.
  void check() const;

  std::string shape() const;  // "m=512,n=512,k=512", defaults left out, in the kernel's order
  std::string text() const;   // "gemm:m=512,n=512,k=512"
  friend bool operator==(const Problem& x, const Problem& y) { return x.text() == y.text(); }

 private:
  const Kernel* kernel_ = nullptr;
  std::vector<std::optional<double>> values_;  // parallel to kernel().params
};

// "gemm:m=1,n=2,k=3" -> a checked problem; `kernels` may come before the colon.
Problem parse_problem(std::string_view text, std::span<const Kernel* const> kernels);
// The same with ranges: `m=256..4096*2`, `m=1..16+1`, `m=7|31|64`, `type=f32|bf16`; several
// multiply, `m=n=k=256..4096*2` ties.
std::vector<Problem> parse_shapes(std::string_view text, std::span<const Kernel* const> kernels);
// "eps=1e-5,causal=1" -> pairs; checks syntax only.
std::vector<std::pair<std::string, std::string>> parse_key_values(std::string_view text);

}  // namespace rooflane
